"""The translator that `nmt.load` returns, which can be used from any thread, and what computes for it."""

from __future__ import annotations

import dataclasses
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast, overload

from nmt.errors import ConfigError, DataError, NmtError, printable, shown
from nmt.library.values import WISHES, PairScore, Request, Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt.config import Config
    from nmt.library.values import Inspection, Options
    from nmt.light.binding import Stop

WINDOW = 2000
"""Sentences sorted by length and translated together; this bounds the memory for input of any length."""
CHARACTERS = 1 << 22
"""Characters after which a window gets no further sentence."""

_log = logging.getLogger(__name__)

Sentence = tuple[str, "str | Request"]
"""A text as it was given, and the one line that is translated."""


@dataclass(frozen=True)
class Facts:
    """Facts about loaded models; for an ensemble those of the first model, unless stated otherwise."""

    paths: tuple[str, ...]
    """Directories of the weights of all models, or files for the engine."""
    config: Config | None
    """None for a file for the engine, which has no configuration."""
    device: str
    precision: str
    """Number format of the search, and why."""
    longest_source: int
    """Tokens of the longest source sentence that every model has seen in training."""
    languages: tuple[str, str]
    """Codes of source and target language; "?" if unknown."""
    kernels: str = ""
    """The code that computes, for people."""
    without_kernels: str = ""
    """Why slower PyTorch code instead of compiled kernels computes on a CPU; empty if compiled kernels compute."""


class Computing(ABC):
    """Models that translate and score: by PyTorch, or by the engine."""

    facts: Facts
    place: ClassVar[str]
    """Who computes, for people."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._is_closed = False
        self._said: set[str] = set()

    @abstractmethod
    def check(self, options: dict[str, Any]) -> None:
        """Raise ConfigError or DataError for options that are not possible."""

    @abstractmethod
    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        """The results of some sentences, one line each, translated together; StoppedError after `stop.set()`."""

    @abstractmethod
    def hypotheses(self, options: dict[str, Any]) -> int:
        """Hypotheses of a sentence that a search with such options computes at once."""

    @abstractmethod
    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """The source tokens of each part in which each sentence, one line, would be translated."""

    @abstractmethod
    def score(self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None) -> list[PairScore]:
        """The scores of (source, target) pairs, computed together."""

    @abstractmethod
    def inspect(self, source: str, target: str | None) -> Inspection:
        """The inner values of the models for a source (one line) and a target (default: the translation)."""

    @abstractmethod
    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words."""

    @abstractmethod
    def close(self) -> None:
        """Release the memory, after the running calls of other threads; nothing can be computed afterwards."""

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise NmtError("this translator was loaded before its process forked; call nmt.load after forking")
        if self._is_closed:
            raise NmtError("this translator is closed")

    def _say(self, message: str) -> None:
        """Log each change that the caller did not ask for, once."""
        if message not in self._said:
            self._said.add(message)
            _log.warning("%s", message)


def key_of(options: Mapping[str, Any]) -> str:
    """Equal for equal options, by which what is made of them is found again; `True` and 1 are not equal here."""
    return repr(sorted(options.items()))


class Translator:
    """A model, or an ensemble, ready to translate; made by `nmt.load`, and safe to use from several threads at once.

    Calls take turns on a device from batch to batch, in the order of arrival. The translation of a sentence depends
    only on the sentence and the options, except for rounding, which depends on the other sentences of the call.
    """

    def __init__(self, computing: Computing) -> None:
        """Use `nmt.load`."""
        self._computing = computing

    @property
    def config(self) -> Config:
        """The configuration of the (first) model; ConfigError for a file for the engine, which has none."""
        facts = self._computing.facts
        if facts.config is None:
            raise ConfigError(
                f"config: {facts.paths[0]} is one file for the engine, which has no configuration; use its run"
            )
        return facts.config

    @property
    def models(self) -> list[Path]:
        """The directories of the weights, or files for the engine; several for an ensemble."""
        return [Path(path) for path in self._computing.facts.paths]

    @property
    def device(self) -> str:
        """Where it computes, such as `cpu` or `cuda`."""
        return self._computing.facts.device

    @property
    def precision(self) -> str:
        """Number format of the search: `fp32`, `bf16` or `int8`."""
        return self._computing.facts.precision.split(" ")[0]

    @property
    def kernels(self) -> str:
        """The code that computes, for people, such as the C kernels, or the engine's kernels for this processor."""
        return self._computing.facts.kernels

    @property
    def without_kernels(self) -> str:
        """Why slower PyTorch code instead of compiled kernels computes on a CPU; empty if compiled kernels compute."""
        return self._computing.facts.without_kernels

    @property
    def source_language(self) -> str:
        """Code of the source language, as in the configuration."""
        return self._computing.facts.languages[0]

    @property
    def target_language(self) -> str:
        """Code of the target language."""
        return self._computing.facts.languages[1]

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str | Request, *, stop: Stop | None = None, **options: Unpack[Options]
    ) -> Result: ...

    @overload
    def translate(
        self, text: Sequence[str | Request], *, stop: Stop | None = None, **options: Unpack[Options]
    ) -> list[Result]: ...

    def translate(
        self, text: str | Request | Sequence[str | Request], *, stop: Stop | None = None, **options: Unpack[Options]
    ) -> Result | list[Result]:
        """Translate a sentence, or a list of sentences, which is faster than one by one.

        A string is one sentence: line ends in it count as spaces. An empty string has an empty translation. `options`
        are those of `nmt.library.values.Options`; the wishes of a `Request` replace the wishes among them. Another
        thread, such as a timer, ends the call before the next step of the search by `stop.set()`.

        Raises:
            StoppedError: it was stopped.
            TypeError: `text` is neither a string or `Request` nor a list or tuple of them; wishes are not text.
            ConfigError: unknown options, values that are not allowed, options that do not go together.
            DataError: text holds half of a surrogate pair; no translation can fulfil the wishes; a shortlist cannot be
                used.
            NmtError: the translator is closed.
        """
        wishes, given = _given(options) if options else ({}, {})
        if isinstance(text, str | Request):
            (result,) = self._translated([_sentence(text, "text", wishes)], given, stop)
            return result
        sentences = [_sentence(item, f"text[{place}]", wishes) for place, item in enumerate(_listed(text, "text"))]
        if not sentences:
            self._computing.check(given)
        return list(self._windows(iter(sentences), given, size=WINDOW, stop=stop))

    def hypotheses(self, **options: Unpack[Options]) -> int:
        """How many hypotheses of a sentence a search with such options computes at once, such as the size of a beam.

        Times the tokens of a text (`parts`) this is what its translation costs. Errors are those of `translate`.
        """
        return self._computing.hypotheses(_given(options)[1])

    def parts(self, text: Sequence[str | Request], **options: Unpack[Options]) -> list[list[int]]:
        """How many source tokens each part of each line has: its sentences, or parts of what is too long for one.

        These are what `translate` would translate with the same `options`, and its errors are raised. An empty line has
        no part.
        """
        wishes, given = _given(options)
        lines = [_sentence(item, f"text[{place}]", wishes)[1] for place, item in enumerate(_listed(text, "text"))]
        return self._computing.parts(lines, given)

    def stream(
        self, sentences: Iterable[str | Request], *, window: int = WINDOW, **options: Unpack[Options]
    ) -> Iterator[Result]:
        """Translate the items of an iterable, lazily and in order, with memory for `window` sentences.

        `window` sentences are read before the first result, and translated together; a small window answers early, a
        large one is fast. An exception of the iterable, or for an item that is not text, is raised after the results of
        the items before it. Options and errors are those of `translate`; wrong options raise at once.
        """
        if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
            _refuse(sentences, "sentences", "an iterable of strings")
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise TypeError(f"window must be a whole number of 1 or more, not {shown(window)}")
        wishes, given = _given(options)
        self._computing.check(given)
        failures: list[Exception] = []
        items = _until_failure(sentences, wishes, failures)
        return self._windows(items, given, size=window, failures=failures)

    @overload
    def score(  # type: ignore[overload-overlap]
        self, sources: str, targets: str, *, batch_tokens: int | None = None
    ) -> PairScore: ...

    @overload
    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_tokens: int | None = None
    ) -> list[PairScore]: ...

    def score(
        self, sources: str | Sequence[str], targets: str | Sequence[str], *, batch_tokens: int | None = None
    ) -> PairScore | list[PairScore]:
        """Score given translations like nmt-score: one sentence pair, or lists of sentences.

        An empty side is scored as the end symbol alone. `batch_tokens`: source or target tokens in a batch.
        Raises TypeError for anything except two strings or two lists of strings, and for `batch_tokens` that is not a
        number of 1 or more; DataError for lists of unequal length.
        """
        if batch_tokens is not None and (type(batch_tokens) is not int or batch_tokens < 1):
            raise TypeError(f"batch_tokens must be a whole number of 1 or more, not {shown(batch_tokens)}")
        if isinstance(sources, str) and isinstance(targets, str):
            pair = _line(sources, "sources"), _line(targets, "targets")
            return self._computing.score([pair], batch_tokens=batch_tokens)[0]
        sides = [
            [_line(item, f"{name}[{place}]") for place, item in enumerate(_listed(items, name))]
            for name, items in (("sources", sources), ("targets", targets))
        ]
        if len(sides[0]) != len(sides[1]):
            raise DataError(f"{len(sides[0])} sources but {len(sides[1])} targets; their numbers must be equal")
        pairs = iter(zip(*sides, strict=True))
        found: list[PairScore] = []
        while part := _taken(pairs, size=WINDOW, length=lambda pair: len(pair[0]) + len(pair[1])):
            found += self._computing.score(part, batch_tokens=batch_tokens)
        return found

    def inspect(self, source: str, target: str | None = None) -> Inspection:
        """The inner values of the model for a sentence and its translation: attention, states, gates, memory.

        `target`: by default the best translation, found with the configured search, but as a whole sentence and without
        placeholders and glossary. A given target may be any text, also an empty one. docs/looking_inside.md has
        examples.

        Raises TypeError for anything except strings; DataError for a source without tokens, for sentences of more than
        1,000 tokens and if no translation has a finite probability; ConfigError for a file for the engine, which does
        not expose its inner values.
        """
        return self._computing.inspect(_line(source, "source"), None if target is None else _line(target, "target"))

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words if the tokenizer has them."""
        return self._computing.joined(list(lines))

    def close(self) -> None:
        """Release the memory; also done at the end of a `with` block."""
        self._computing.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Translator cannot be pickled or copied; call nmt.load in the other process")

    def __repr__(self) -> str:
        facts = self._computing.facts
        name = facts.paths[0] if len(facts.paths) == 1 else f"ensemble of {len(facts.paths)} models"
        languages = f"{self.source_language}-{self.target_language}"
        return f"<nmt.Translator {name}, {languages}, {facts.device}, {self.precision}, {self._computing.place}>"

    def _translated(
        self, window: Sequence[Sentence], options: dict[str, Any], stop: Stop | None = None
    ) -> list[Result]:
        """Of sentences as they were given and as lines."""
        results = self._computing.translate([line for _, line in window], options, stop=stop)
        pairs = zip(window, results, strict=True)
        return [
            result if given == result.source else dataclasses.replace(result, source=given)
            for (given, _), result in pairs
        ]

    def _windows(
        self,
        sentences: Iterator[Sentence],
        options: dict[str, Any],
        *,
        size: int,
        failures: Sequence[Exception] = (),
        stop: Stop | None = None,
    ) -> Iterator[Result]:
        while window := _taken(sentences, size=size, length=lambda pair: len(pair[0])):
            yield from self._translated(window, options, stop)
        if failures:
            raise failures[0]


def _until_failure(
    sentences: Iterable[object], wishes: dict[str, Any], failures: list[Exception]
) -> Iterator[Sentence]:
    """The sentences of an iterable up to its end or its exception, which is put into `failures`."""
    try:
        for place, item in enumerate(sentences):
            yield _sentence(item, f"sentences[{place}]", wishes)
    except Exception as error:
        failures.append(error)


def _taken(items: Iterator[Any], *, size: int, length: Callable[[Any], int]) -> list[Any]:
    """The next items, at most `size`; empty at the end."""
    taken: list[Any] = []
    characters = 0
    while len(taken) < size and characters < CHARACTERS:
        item = next(items, None)
        if item is None:
            break
        taken.append(item)
        characters += length(item)
    return taken


def _sentence(item: object, name: str, wishes: dict[str, Any]) -> Sentence:
    """A text with its own wishes, or else the wishes of the call."""
    if isinstance(item, Request):
        phrases = (item.prefix, *item.required, *item.forbidden)
        for phrase in phrases:
            _line(phrase, f"a wish of {name}")
        line = _line(item.text, name)
        return item.text, item if line == item.text else dataclasses.replace(item, text=line)
    if not isinstance(item, str):
        _refuse(item, name, "a string")
    line = _line(item, name)
    return item, Request(line, **wishes) if wishes else line


def _line(text: object, name: str) -> str:
    """A text as one line. TypeError or DataError if it is not text."""
    if not isinstance(text, str):
        _refuse(text, name, "a string")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!r} at character {error.start}"
        raise DataError(f"{name} holds half of a surrogate pair ({half}), which is not text") from None
    return text.replace("\n", " ").replace("\r", " ")


def _listed(items: object, name: str) -> Sequence[Any]:
    if isinstance(items, list | tuple):
        return cast("Sequence[Any]", items)
    if isinstance(items, str | bytes | dict | set | frozenset) or not isinstance(items, Iterable):
        _refuse(items, name, "a string, or a list or tuple of strings")
    if isinstance(items, Sequence):
        return items
    _refuse(items, name, "a string, or a list or tuple of strings (`stream` takes any iterable)")


def _refuse(value: object, name: str, wanted: str) -> NoReturn:
    decode = "; decode it first" if isinstance(value, bytes | bytearray) else ""
    found = "None" if value is None else f"{type(value).__name__} {printable(shown(value))}"
    raise TypeError(f"{name} must be {wanted}, not {found}{decode}")


def _given(options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wishes for the sentences, and the other options; None means the model's value."""
    found = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in options.items()
        if value is not None
    }
    wishes = {name: found.pop(name) for name in WISHES if name in found}
    Request("", **wishes)  # a wish that is not text is a mistake of the call, even without sentences
    return wishes, found
