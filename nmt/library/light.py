"""Models in files for the engine, which translates without torch: one, or several as an ensemble.

Options of a search that files do not have are refused by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nmt.errors import ConfigError, SettingError, near_miss, refused, shown
from nmt.interop.engine.opened import longest_of, open_engine, text_of
from nmt.library.translator import Translator, is_there, key_of, with_glossary
from nmt.library.values import PairScore, Result, chosen_details, with_arrays
from nmt.light.binding import Stop
from nmt.light.errors import EngineError, place_of
from nmt.light.lines import Pace
from nmt.light.options import LIVE, NONE, OPTIONS, options_of
from nmt.light.translator import NOT_LIVE
from nmt.registry import RATERS
from nmt.search.values import LONGER, Request, as_request
from nmt.system import usable_cores

if TYPE_CHECKING:
    from nmt.inspection.values import Inspection

DOOR: Final = "file"
INSTEAD: Final = "use the run, or a folder that nmt-export makes of it, for"
MOST_CHECKED = 64
"""Combinations of options that are kept."""

Named = Callable[[str], str]
"""The user's name of an option."""


def lacking(file: str) -> str:
    """The message about what files do not have."""
    return f"{file} is one file for the engine, which does not have this; {INSTEAD} it"


def of_line(error: EngineError, lines: Sequence[str | Request]) -> Exception:
    """The error of the line that the engine names by its place, if it names one; else as it is."""
    place, problem = place_of(error)
    return error if place is None else as_request(lines[place]).error(problem)


class EngineFiles(Translator):
    """Models that any number of threads use at once; none waits for another."""

    place = "by the engine in this process"

    def __init__(
        self, paths: Sequence[str], *, device: str, precision: str, checkpoint: str | int, plugins: Sequence[str]
    ) -> None:
        """Open; the arguments are those of `nmt.load`, and so are the errors."""
        super().__init__()
        self.file = paths[0]
        if device not in ("auto", "cpu"):
            problem = f"{shown(device)}: {self.file} is one file for the engine. Allowed: auto, cpu."
            raise SettingError(("device", problem))
        if checkpoint != "best":
            raise ConfigError(f"{self.file}: is a single model; a checkpoint ('{checkpoint}') is chosen from a run")
        if plugins:
            raise SettingError(("plugins", f"{self.file} is one file for the engine, which needs and takes no plugins"))
        self._translator = open_engine(paths)
        cards = self._translator.cards()
        stored = [text_of(card, "precision") for card in cards]
        for path, own in zip(paths, stored, strict=True):
            if precision not in ("auto", own):
                advice = f"Allowed: auto, {own}. For another one, export the run again"
                raise SettingError(("precision", f"{precision} was asked for, but {path} is in {own}. {advice}"))
        self.models, self.device, self.precision = [*map(Path, paths)], "cpu", "+".join(dict.fromkeys(stored))
        self.source_language, self.target_language = (
            text_of(cards[0], name) for name in ("source_language", "target_language")
        )
        self.languages = tuple(self._translator.languages)
        self.instructions = self._translator.kernels
        """The processor's, that it computes with."""
        self.kernels = f"the engine's for {self.instructions}"
        self.beam_size = self._translator.defaults.beam_size
        self.longest = longest_of(cards)
        """Tokens of the longest source sentence in training, if known."""
        self._threads = usable_cores()
        self.rater = RATERS.get("fitted")(self.models)
        self._checked: dict[str, dict[str, Any]] = {}
        """The engine's own options by the options of calls, which it has checked."""

    def chosen(self, options: Mapping[str, Any], *, say: Callable[[str], object], named: Named = str) -> dict[str, Any]:
        """The engine's own options for `options`, those of `nmt.library.values.Options`.

        `say`: called with one line if more translations than the beam size widen the beam; `named` gives the user's
        name of an option. Raises ConfigError, naming the option, if it is unknown or files do not have it.
        """
        self._check_usable()
        taken = {name: value for name, value in options.items() if self._has(name, value, named)}
        if "details" in taken:
            for detail in chosen_details(options):
                if detail not in OPTIONS["details"].only[DOOR]:
                    raise ConfigError(f"{named('details')}: {detail}: {lacking(self.file)}")
            taken["details"] = self.rater.needs(chosen_details(options))
        is_greedy = taken.get("search") == "greedy"
        n_best, beam = taken.get("n_best", 1), taken.get("beam_size", 1 if is_greedy else self.beam_size)
        is_widened = type(n_best) is int and type(beam) is int and n_best > beam > 0 and taken.get("search") != "sample"
        if is_widened and is_greedy:
            raise ConfigError(f"{named('n_best')} {n_best}: search 'greedy' finds at most 1 per sentence")
        if is_widened:
            taken["beam_size"] = n_best
        try:
            with_glossary(taken)  # whose problems are those of a run
            if taken.get("glossary") not in (None, NONE):
                taken["glossary"] = self._translator.glossary(taken["glossary"])
            self._translator.translated_parts([], **taken)
        except EngineError as error:
            self._check_usable()  # another thread may have closed the translator
            key, _, rest = str(error).partition(": ")
            raise (SettingError((named(key), rest)) if key in taken else ConfigError(str(error))) from None
        if is_widened:
            say(f"{named('n_best')} {n_best} widens the beam from {beam} to {n_best}")
        return taken

    def _has(self, name: str, value: Any, named: Named) -> bool:
        """Whether the engine is told of an option; raises ConfigError if that or its value is not for files."""
        option = OPTIONS.get(name)
        if option is None or "run" not in option.doors:
            known = [one.name for one in options_of("run") if one.name != "precision" or named is not str]
            raise SettingError((named(name), f"is not an option.{near_miss(name, known)}"))
        problem = ""
        if DOOR not in option.doors:
            # `True`, which is equal to 1, asks for something where a number does not.
            asks_nothing = value in option.asks_nothing and type(value) in map(type, (*option.asks_nothing, 0))
            if not asks_nothing and name == "precision":
                problem = f"{self.file} has one number format, which nmt-export has chosen"
            elif not asks_nothing:
                problem = lacking(self.file)
        elif name == "batch_tokens":  # how much the engine computes together depends on the processor
            if value != "auto" and (type(value) is not int or value < 1):
                problem = refused("", value, "auto, or a number from 1")
        elif name == "details" or DOOR not in option.only or value in option.only[DOOR]:
            return True
        elif option.only[DOOR] == (NONE,):
            problem = f"{self.file} is one file for the engine, whose {name} is fixed by nmt-export. "
            problem += f"Allowed: {NONE}, which switches it off."
        else:
            problem = f"{shown(value)} is not a {name} of {self.file}, one file for the engine. "
            problem += f"Allowed: {', '.join(option.only[DOOR])}; {INSTEAD} others."
        if problem:
            raise SettingError((named(name), problem))
        return False

    def lines(
        self,
        lines: Sequence[str | Request],
        chosen: Mapping[str, Any],
        *,
        before_call: Callable[[], object] | None = None,
        on_call: Callable[[int], object] | None = None,
        stop: Stop | None = None,
    ) -> list[Result]:
        """Translate lines with the options in `chosen`, by calls that are short enough to be interrupted.

        `before_call` may raise an exception, which ends the work; `on_call` is called with the number of lines of each
        call. `stop` ends a call at its next step.
        """
        for line in lines:
            if not isinstance(line, str) and line.required:
                said = f"required: {lacking(self.file)}"
                raise line.error(said) if line.where else ConfigError(said)
        threads = self._threads if len(lines) > 1 else 1
        longest = 2**31 if self.longest is None else self.longest.tokens
        found: list[Result] = []
        pace = Pace()
        while len(found) < len(lines):
            self._check_usable()
            if before_call is not None:
                before_call()
            some = lines[len(found) : len(found) + pace.lines]
            if on_call is not None:
                on_call(len(some))
            start = time.monotonic()
            try:
                for result, parts in self._translator.translated_parts(some, stop=stop, **chosen, threads=threads):
                    is_longer = max(parts, default=0) > longest
                    found.append(replace(result, notes=(*result.notes, LONGER)) if is_longer else result)
            except EngineError as error:
                self._check_usable()
                raise of_line(error, some) from None
            pace.add(len(some), time.monotonic() - start)
        return found

    def _results(self, lines: Sequence[str | Request], options: dict[str, Any], stop: Stop | None) -> list[Result]:
        found = self.rater.rated(self.lines(lines, self._own(options), stop=stop), chosen_details(options))
        is_in_lists = "details" not in options or not is_there("numpy")  # as in nmt-light
        return found if is_in_lists else [*map(with_arrays, found)]

    def _hypotheses(self, options: dict[str, Any]) -> int:
        return self._translator.beam_size(**self._own(options)) or 1

    def _parts(self, lines: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        return self._translator.parts([as_request(line).text for line in lines], **self._own(options))

    def _scores(self, pairs: Sequence[tuple[str, str]], batch_tokens: int | None) -> list[PairScore]:
        self._check_usable()
        sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
        return self._translator.score(sources, targets, threads=self._threads if len(pairs) > 1 else 1)

    def live(self, policy: str = "wait_k", **options: Any) -> Any:
        """A session of the engine, where the policy and its options are those of the engine."""
        own = {name: value for name, value in options.items() if name == LIVE.get(policy)}
        search = {name: value for name, value in options.items() if name not in own}
        if policy not in LIVE or not search.keys() <= OPTIONS.keys() - NOT_LIVE:
            return super().live(policy, **options)
        try:
            return self._translator.live(policy, **own, **self._own(search))
        except EngineError as error:
            self._check_usable()
            raise ConfigError(str(error)) from None

    def _inspection(self, source: str, target: str | None) -> Inspection:
        raise ConfigError(f"inspect: {lacking(self.file)}")

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
            own = self.chosen(options, say=self._say)
            if not isinstance(options.get("glossary"), str):  # a file that may have changed
                self._checked[key] = own
        self._check_usable()
        return own
