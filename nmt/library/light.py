"""Models in files for the engine, which translates without torch: one, or several as an ensemble."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from nmt.errors import ConfigError, NmtError, SettingError, shown
from nmt.interop.engine.opened import longest_of, open_engine, text_of
from nmt.library.computing import Facts
from nmt.library.inspection import Inspection
from nmt.library.light_options import Named, light_options, refused_wish
from nmt.library.request import WISHES, Request
from nmt.library.results import PairScore, Result
from nmt.light import collected as _collected  # noqa: F401  (a fork during its import would block it in the child)
from nmt.light.binding import Stop
from nmt.light.cards import cards_of
from nmt.light.errors import EngineError
from nmt.light.pace import Pace
from nmt.search.notes import LONGER
from nmt.system import usable_cores

Line = tuple[Result, list[int]]
"""A result, and the tokens of the parts in which its line was translated."""

_log = logging.getLogger(__name__)


class EngineFiles:
    """Models that any number of threads use at once; none waits for another."""

    place = "by the engine in this process"

    def __init__(
        self, paths: Sequence[str], *, device: str, precision: str, checkpoint: str | int, plugins: Sequence[str]
    ) -> None:
        """Open; the arguments are those of `nmt.load`, and so are the errors."""
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
        self._process = os.getpid()
        self._is_closed = False
        self._said: set[str] = set()

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
        """Raise ConfigError for options that are not possible."""
        self.chosen(options, say=self._say)

    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        """The results of some sentences, one line each, translated together; StoppedError after `stop.set()`."""
        chosen = self.chosen(options, say=self._say)
        found = self.lines([self._text(sentence) for sentence in sentences], chosen, stop=stop)
        return [_with_array(self._noted(result, lengths)) for result, lengths in found]

    def hypotheses(self, options: dict[str, Any]) -> int:
        """Hypotheses of a sentence that a search with such options computes at once."""
        return self._translator.beam_size(**self.chosen(options, say=self._say)) or 1

    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """The source tokens of each part in which each sentence, one line, would be translated."""
        chosen = self.chosen(options, say=self._say)
        return self._translator.parts([self._text(sentence) for sentence in sentences], **chosen)

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        """The engine does not score: ConfigError."""
        self._refuse("score")

    def inspect(self, source: str, target: str | None) -> Inspection:
        """The engine does not expose its inner values: ConfigError."""
        self._refuse("inspect")

    def joined(self, lines: Sequence[str]) -> list[str]:
        """The lines themselves: a SentencePiece model needs no change."""
        return list(lines)

    def close(self) -> None:
        """Release the memory, after the running calls of other threads."""
        self._is_closed = True
        self._translator.close()

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise NmtError("this translator was loaded before its process forked; call nmt.load after forking")
        if self._is_closed:
            raise NmtError("this translator is closed")

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

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(refused_wish(what, self.file))

    def _say(self, message: str) -> None:
        """Log each change that the caller did not ask for, once."""
        if message not in self._said:
            self._said.add(message)
            _log.warning("%s", message)


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
