"""Models in files for the engine, which translates without torch: one, or several as an ensemble.

Options of a search that files do not have are refused by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nmt.errors import ConfigError, SettingError, near_miss, refused, shown
from nmt.interop.engine.opened import longest_of, open_engine, text_of
from nmt.library.translator import Computing, Facts, key_of
from nmt.library.values import WISHES, Inspection, PairScore, Request, Result, chosen_details
from nmt.light import collected as _collected  # noqa: F401  (a fork during its import would block it in the child)
from nmt.light.binding import Stop
from nmt.light.cards import cards_of
from nmt.light.errors import EngineError
from nmt.light.options import NONE, OPTIONS, Option, options_of
from nmt.light.pace import Pace
from nmt.search.values import LONGER
from nmt.system import usable_cores

DOOR: Final = "file"
INSTEAD: Final = "use the run, or a folder that nmt-export makes of it, for"

Named = Callable[[str], str]
"""The user's name of an option."""


def light_options(
    given: Mapping[str, Any],
    *,
    beam_size: int,
    file: str,
    named: Named = str,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Convert `nmt.library.values.Options` to options of `nmt.light.Translator`, which checks most values.

    Args:
        beam_size: beam size of the file.
        file: its name in errors.
        named: gives the user's name of an option.
        say: called with one line if more translations than the beam size widen the beam.

    Raises ConfigError, naming the option, if it is unknown or files do not have it.
    """
    taken: dict[str, Any] = {}
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None or "run" not in option.doors:
            known = [one.name for one in options_of("run") if one.name != "precision" or named is not str]
            raise SettingError((named(name), f"is not an option.{near_miss(name, known)}"))
        if DOOR not in option.doors:
            if not _asks_nothing(option, value):
                raise SettingError((named(name), _lacking(name, file)))
        elif name == "details":
            taken[name] = chosen_details(given)
            for detail in taken[name]:
                if detail not in option.only[DOOR]:
                    raise ConfigError(_refused(f"{named(name)}: {detail}", file))
        elif name == "batch_tokens":
            _check_batch_tokens(value, named=named)
        elif DOOR in option.only and value not in option.only[DOOR]:
            raise SettingError((named(name), _limited(option, value, file)))
        else:
            taken[name] = value
    is_greedy = taken.get("search") == "greedy"
    n_best, beam = taken.get("n_best", 1), taken.get("beam_size", 1 if is_greedy else beam_size)
    if type(n_best) is int and type(beam) is int and n_best > beam > 0:
        if is_greedy:
            raise ConfigError(f"{named('n_best')} {n_best}: search 'greedy' finds at most 1 per sentence")
        taken["beam_size"] = n_best
        say(f"{named('n_best')} {n_best} widens the beam from {beam} to {n_best}")
    return taken


def refused_wish(name: str, file: str) -> str:
    """Word the error for a wish for one sentence."""
    return _refused(name, file)


def _asks_nothing(option: Option, value: Any) -> bool:
    """Whether a value requests nothing; `True`, which is equal to 1, never does for a number."""
    return value in option.asks_nothing and type(value) in map(type, (*option.asks_nothing, 0))


def _refused(name: str, file: str) -> str:
    return f"{name}: {_lacking(name, file)}"


def _lacking(name: str, file: str) -> str:
    if name == "precision":
        return f"{file} has one number format, which nmt-export has chosen"
    return f"{file} is one file for the engine, which does not have this; {INSTEAD} it"


def _limited(option: Option, value: Any, file: str) -> str:
    if option.only[DOOR] == (NONE,):
        return (
            f"{file} is one file for the engine, whose {option.name} is fixed by nmt-export. Allowed: {NONE}, which "
            f"switches it off."
        )
    allowed = f"Allowed: {', '.join(option.only[DOOR])}; {INSTEAD} others."
    return f"{shown(value)} is not a {option.name} of {file}, one file for the engine. {allowed}"


def _check_batch_tokens(value: Any, *, named: Named) -> None:
    """The engine needs no batch size: how much it computes together depends on the processor."""
    if value != "auto" and (type(value) is not int or value < 1):
        raise SettingError((named("batch_tokens"), refused("", value, "auto, or a number from 1")))


MOST_CHECKED = 64
"""Combinations of options that are kept."""

Line = tuple[Result, list[int]]
"""A result, and the tokens of the parts in which its line was translated."""

_log = logging.getLogger(__name__)


class EngineFiles(Computing):
    """Models that any number of threads use at once; none waits for another."""

    place = "by the engine in this process"

    def __init__(
        self, paths: Sequence[str], *, device: str, precision: str, checkpoint: str | int, plugins: Sequence[str]
    ) -> None:
        """Open; the arguments are those of `nmt.load`, and so are the errors."""
        super().__init__()
        self.file = paths[0]
        if device not in ("auto", "cpu"):
            raise SettingError(
                ("device", f"{shown(device)}: {self.file} is one file for the engine. Allowed: auto, cpu.")
            )
        if checkpoint != "best":
            raise ConfigError(f"{self.file}: is a single model; a checkpoint ('{checkpoint}') is chosen from a run")
        if plugins:
            raise SettingError(("plugins", f"{self.file} is one file for the engine, which needs and takes no plugins"))
        self._translator = open_engine(paths)
        cards = cards_of(self._translator)
        stored = {path: text_of(card, "precision") for path, card in zip(paths, cards, strict=True)}
        for path, own in stored.items():
            if precision not in ("auto", own):
                advice = f"Allowed: auto, {own}. For another one, export the run again"
                raise SettingError(("precision", f"{precision} was asked for, but {path} is in {own}. {advice}"))
        self.longest = longest_of(cards)
        """Tokens of the longest source sentence in training, if known."""
        self.facts = Facts(
            tuple(paths),
            None,
            "cpu",
            f"{'+'.join(dict.fromkeys(stored.values()))} ({self._translator.kernels})",
            2**31 if self.longest is None else self.longest.tokens,
            (text_of(cards[0], "source_language"), text_of(cards[0], "target_language")),
            f"the engine's for {self._translator.kernels}",
        )
        self._threads = usable_cores()
        self._checked: dict[str, dict[str, Any]] = {}
        """The engine's own options by the options of calls, which it has checked."""

    def chosen(self, options: Mapping[str, Any], *, say: Callable[[str], object], named: Named = str) -> dict[str, Any]:
        """The engine's own options for `options`; raises ConfigError for options that it does not have."""
        defaults = self._translator.defaults
        self._check_usable()
        said: list[str] = []
        taken = light_options(options, beam_size=defaults.beam_size, file=self.file, named=named, say=said.append)
        try:
            self._translator.translated_parts([], **taken)
        except EngineError as error:
            self._check_usable()  # another thread may have closed the translator
            key, _, rest = str(error).partition(": ")
            raise (SettingError((named(key), rest)) if key in taken else ConfigError(str(error))) from None
        for message in said:
            say(message)
        return taken

    def beam_size(self, chosen: Mapping[str, Any]) -> int:
        """Number of hypotheses that a search with these options keeps."""
        return int(chosen.get("beam_size", self._translator.defaults.beam_size))

    def lines(
        self,
        texts: Sequence[str],
        chosen: Mapping[str, Any],
        *,
        before_call: Callable[[], object] | None = None,
        on_call: Callable[[int], object] | None = None,
        stop: Stop | None = None,
    ) -> list[Line]:
        """Translate lines with the options in `chosen`, by calls that are short enough to be interrupted.

        `before_call` may raise an exception, which ends the work; `on_call` is called with the number of lines of each
        call. `stop` ends a call at its next step.
        """
        threads = self._threads if len(texts) > 1 else 1
        found: list[Line] = []
        pace = Pace()
        while len(found) < len(texts):
            self._check_usable()
            if before_call is not None:
                before_call()
            some = texts[len(found) : len(found) + pace.lines]
            if on_call is not None:
                on_call(len(some))
            start = time.monotonic()
            try:
                found += self._translator.translated_parts(some, stop=stop, **chosen, threads=threads)
            except EngineError:
                self._check_usable()
                raise
            pace.add(len(some), time.monotonic() - start)
        return found

    def check(self, options: dict[str, Any]) -> None:
        self._own(options)

    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        found = self.lines([self._text(sentence) for sentence in sentences], self._own(options), stop=stop)
        return [_with_array(self._noted(result, lengths)) for result, lengths in found]

    def hypotheses(self, options: dict[str, Any]) -> int:
        return self._translator.beam_size(**self._own(options)) or 1

    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        return self._translator.parts([self._text(sentence) for sentence in sentences], **self._own(options))

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        raise ConfigError(refused_wish("score", self.file))

    def inspect(self, source: str, target: str | None) -> Inspection:
        raise ConfigError(refused_wish("inspect", self.file))

    def joined(self, lines: Sequence[str]) -> list[str]:
        return list(lines)  # a SentencePiece model needs no change

    def close(self) -> None:
        self._is_closed = True
        self._translator.close()

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        """As `chosen`, checked once for each combination of options."""
        key = key_of(options)
        own = self._checked.get(key)
        if own is None:
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            own = self._checked[key] = self.chosen(options, say=self._say)
        self._check_usable()
        return own

    def _noted(self, result: Result, lengths: Sequence[int]) -> Result:
        is_longer = max(lengths, default=0) > self.facts.longest_source
        return replace(result, notes=(*result.notes, LONGER)) if is_longer else result

    def _text(self, sentence: str | Request) -> str:
        if isinstance(sentence, str):
            return sentence
        for name in WISHES:
            if getattr(sentence, name):
                raise ConfigError(refused_wish(name, self.file))
        return sentence.text


def _with_array(result: Result) -> Result:
    """The same with attention as NumPy arrays [T, S], as `nmt.load` promises."""
    if result.n_best[0].attention_of_parts is None:
        return result
    import numpy as np

    def array(rows: list[list[float]]) -> Any:
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(rows[0]) if rows else 0)

    return replace(
        result,
        n_best=[
            replace(found, attention_of_parts=tuple(map(array, found.attention_of_parts or ([],))))
            for found in result.n_best
        ],
    )
