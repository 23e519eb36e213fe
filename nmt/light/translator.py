"""The translator: text in, results out, from any thread."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final, Literal, overload

from .binding import Library, Model, Options, Results
from .errors import EngineError
from .results import Hypothesis, Result
from .shared_library import shared_library

UNK: Final = 1
EOS: Final = 2
_WORD: Final = "▁"
DETAILS: Final = ("tokens", "scores", "attention", "alignment")
Detail = Literal["tokens", "scores", "attention", "alignment"]
Path_ = str | os.PathLike[str]

_ranges: Final[dict[str, tuple[float, float]]] = {
    "beam_size": (1, 1000),
    "n_best": (1, 1000),
    "length_penalty": (0, 10),
    "max_length_offset": (0, 1_000_000),
    "threads": (1, 1024),
}


class Translator:
    """A model file, or several as an ensemble; any number of threads can use it at once, and none waits for another.

    What a sentence becomes depends on itself and on the options alone.
    """

    def __init__(
        self,
        path: Path_ | Sequence[Path_],
        *,
        threads: int = 1,
        kernels: str | None = None,
        library: Path | None = None,
    ) -> None:
        """Open `path`, what `nmt-export --format engine` wrote; of a list the probabilities are averaged.

        Args:
            threads: what a call computes with, unless it says otherwise.
            kernels: name of the instruction set to compute with, such as `avx2`; by default the best one.
            library: the compiled engine, if not that of this package.

        Raises EngineError for a file that is missing or damaged, or for kernels that are not known here.
        """
        files = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._model: Model = Library(library or shared_library()).open(files, kernels=kernels)
        self._paths = [Path(file) for file in files]
        self._defaults = dataclasses.replace(self._model.defaults(), threads=_number("threads", threads, whole=True))

    @property
    def card(self) -> dict[str, Any]:
        """What the file says of itself: languages, architecture, data, scores."""
        found = json.loads(self._model.card() or b"{}")
        return found if isinstance(found, dict) else {}

    @property
    def kernels(self) -> str:
        """The instruction set that it computes with."""
        return self._model.kernels

    @overload
    def translate(self, text: str, **options: Any) -> Result: ...

    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[Result]: ...

    def translate(self, text: str | Sequence[str], **options: Any) -> Result | list[Result]:
        """Translate a sentence, or a list of sentences, which is faster than one after the other.

        A string is one sentence: line ends in it count as spaces. An empty one has an empty translation.

        Options, which are as the file says if they are not given: `search` (`beam`, `greedy`, or `auto`: greedy for a
        beam of 1), `beam_size`, `n_best`, `length_penalty`, `max_length_offset`, `split_long` (a number, or `none`),
        `shortlist` (False: all words), `scores` (False makes greedy search faster), `threads`, and `details`, a list of
        `tokens`, `scores`, `attention`, `alignment`.

        Raises TypeError for what is no text, EngineError for options that are not allowed and for half of a surrogate
        pair, which is no text.
        """
        chosen, details = self._options(options)
        if isinstance(text, str):
            return self._translated([text], chosen, details)[0]
        if isinstance(text, bytes) or not isinstance(text, Sequence):
            raise TypeError(f"text must be a string, or a list of strings, not {type(text).__name__}")
        return self._translated(list(text), chosen, details)

    def stream(self, lines: Iterable[str], *, window: int = 2000, **options: Any) -> Iterator[Result]:
        """Translate whatever an iterable yields, in order, `window` sentences at a time."""
        chosen, details = self._options(options)
        items = iter(lines)
        while taken := list(islice(items, window)):
            yield from self._translated(taken, chosen, details)

    def texts(self, lines: Sequence[str], **options: Any) -> list[str]:
        """The best translations alone, without what a `Result` has."""
        chosen, _ = self._options(options)
        found = self._model.translate([_encoded(line, place) for place, line in enumerate(lines)], chosen)
        return found.texts().decode("utf-8", "replace").split("\n")[:-1]

    def close(self) -> None:
        """Give the memory back; also at the end of a `with` block."""
        self._model.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = str(self._paths[0]) if len(self._paths) == 1 else f"ensemble of {len(self._paths)} models"
        return f"<Translator {name}, {self.kernels}>"

    def _options(self, given: dict[str, Any]) -> tuple[Options, tuple[str, ...]]:
        """Options of the search, and what else is wanted of each translation."""
        own = {name: value for name, value in given.items() if value is not None}
        details = own.pop("details", ())
        details = (details,) if isinstance(details, str) else tuple(details)
        for name in details:
            if name not in DETAILS:
                raise EngineError(f"details: {name!r} is not known. Allowed: {', '.join(DETAILS)}.")
        search, long = own.pop("search", "auto"), own.pop("split_long", None)
        if search not in ("auto", "beam", "greedy"):
            raise EngineError(f"search: {search!r} is not known. Allowed: auto, beam, greedy.")
        changed: dict[str, Any] = {}
        for name, value in own.items():
            if name in ("shortlist", "scores"):
                changed[name] = bool(value)
            elif name in _ranges:
                changed[name] = _number(name, value, whole=name != "length_penalty")
            else:
                allowed = ", ".join(("search", "split_long", "details", "shortlist", "scores", *_ranges))
                raise EngineError(f"{name}: there is no such option. Allowed: {allowed}.")
        if long is not None:
            changed["longest"] = 0 if long == "none" else _number("split_long", long, whole=True)
        options = dataclasses.replace(self._defaults, **changed)
        if options.n_best > options.beam_size:
            options = dataclasses.replace(options, beam_size=options.n_best)
        if search == "greedy" and options.beam_size != 1:
            raise EngineError(f"search: 'greedy' follows one hypothesis: beam_size must be 1, not {options.beam_size}")
        attention = not {"attention", "alignment"}.isdisjoint(details)
        return dataclasses.replace(options, beam_of_one=search == "beam", attention=attention), details

    def _translated(self, lines: list[str], options: Options, details: tuple[str, ...]) -> list[Result]:
        found = self._model.translate([_encoded(line, place) for place, line in enumerate(lines)], options)
        try:
            return [self._result(found, place, line, details) for place, line in enumerate(lines)]
        finally:
            found.close()

    def _result(self, found: Results, place: int, line: str, details: tuple[str, ...]) -> Result:
        parts = found.parts(place)
        sources = [found.source_ids(place, part) for part in range(parts)]
        notes = ["split"] if parts > 1 else []
        notes += [] if found.is_finite(place) else ["no_finite_translation"]
        notes += ["length_limit"] if found.was_cut(place) else []
        wants_pieces = not {"tokens", "attention"}.isdisjoint(details)
        return Result(
            line,
            [self._hypothesis(found, place, i, sources, details) for i in range(found.translations(place))],
            source_tokens=sum(len(source) - 1 for source in sources),
            unknown=sum(source.count(UNK) for source in sources),
            source_pieces=tuple(self._pieces(sources, target=False)) if wants_pieces else None,
            notes=tuple(notes),
        )

    def _hypothesis(
        self, found: Results, place: int, i: int, sources: list[list[int]], details: tuple[str, ...]
    ) -> Hypothesis:
        score = found.score(place, i)
        parts = range(len(sources)) if score > -math.inf or math.isnan(score) else range(0)
        tokens = [found.ids(place, i, part) for part in parts] if details else []
        scores = [value for part in parts for value in found.log_probs(place, i, part)] if "scores" in details else []
        wanted = not {"attention", "alignment"}.isdisjoint(details)
        attention = _block_diagonal([found.attention(place, i, part) for part in parts]) if wanted else []
        return Hypothesis(
            found.text(place, i),
            score,
            tuple(self._pieces(tokens, target=True)) if "tokens" in details else None,
            tuple(scores) if "scores" in details else None,
            attention if "attention" in details else None,
            self._alignment(sources, tokens, attention) if "alignment" in details else None,
        )

    def _pieces(self, parts: Iterable[list[int]], *, target: bool) -> Iterator[str]:
        return (self._model.piece(token, target=target) for part in parts for token in part)

    def _words(self, parts: Iterable[list[int]], *, target: bool) -> list[int]:
        """The number of the word that each token belongs to; -1 of end symbols, which belong to none."""
        found, word = list[int](), -1
        for part in parts:
            for place, token in enumerate(part):
                word += token != EOS and (place == 0 or self._model.piece(token, target=target).startswith(_WORD))
                found.append(-1 if token == EOS else word)
        return found

    def _alignment(
        self, sources: list[list[int]], tokens: list[list[int]], attention: list[list[float]]
    ) -> tuple[tuple[int, int], ...]:
        """For each word of the translation the source word with the largest weight, of its pieces together."""
        from_words, to_words = self._words(sources, target=False), self._words(tokens, target=True)
        sums: dict[int, dict[int, float]] = {}
        for row, word in zip(attention, to_words, strict=True):
            own = sums.setdefault(word, {}) if word >= 0 else {}
            for weight, source in zip(row, from_words, strict=True):
                if source >= 0:
                    own[source] = own.get(source, 0.0) + weight
        return tuple((max(own, key=own.__getitem__), word) for word, own in sorted(sums.items()) if own)


def _block_diagonal(parts: list[list[list[float]]]) -> list[list[float]]:
    """The attention of parts within all source tokens, 0 elsewhere."""
    if len(parts) == 1:
        return parts[0]
    widths = [len(part[0]) if part else 0 for part in parts]
    starts = [0, *accumulate(widths)]
    return [
        [0.0] * start + row + [0.0] * (starts[-1] - start - width)
        for part, start, width in zip(parts, starts, widths, strict=False)
        for row in part
    ]


def _number(name: str, value: object, *, whole: bool) -> Any:
    least, most = _ranges.get(name, (1, 2**31 - 1))
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise EngineError(f"{name}: {value!r} is not allowed. Allowed: {least:g} to {most:g}.")
    return value


def _encoded(line: object, place: int) -> bytes:
    """A text as one line of UTF-8."""
    if not isinstance(line, str):
        raise TypeError(f"text[{place}] must be a string, not {type(line).__name__}")
    try:
        return line.replace("\n", " ").replace("\r", " ").encode("utf-8")
    except UnicodeEncodeError:
        raise EngineError(f"text[{place}] holds half of a surrogate pair, which is no text") from None
