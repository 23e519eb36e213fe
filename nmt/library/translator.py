"""The translator that `nmt.load` returns, which can be used from any thread."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast, overload

from nmt.data.text import windows
from nmt.errors import ConfigError, DataError, NmtError, counted, printable, shown
from nmt.library.values import WISHES, PairScore, Request, Result
from nmt.light.errors import EngineError
from nmt.search.values import WINDOW

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt.config import Config
    from nmt.inspection.values import Inspection
    from nmt.library.values import Options
    from nmt.light.binding import Stop

Sentence = tuple[str, "str | Request"]
"""A text as it was given, and the one line that is translated."""


def key_of(options: Mapping[str, Any]) -> str:
    """Equal for equal options, by which what is made of them is found again; `True` and 1 are not equal here."""
    return repr(sorted(options.items()))


def is_there(module: str) -> bool:
    """Whether a module can be imported, as some cannot in nmt-light."""
    from importlib.util import find_spec  # late, as few calls ask

    return find_spec(module) is not None


class Translator(ABC):
    """A model, or an ensemble, ready to translate; made by `nmt.load`, and safe to use from several threads at once.

    Calls take turns on a device from batch to batch, in the order of arrival. The translation of a sentence depends
    only on the sentence and the options, except for rounding, which depends on the other sentences of the call.
    """

    place: ClassVar[str]
    """Who computes, for people."""
    models: list[Path]
    """The directories of the weights, or files for the engine; several for an ensemble."""
    device: str
    """Where it computes, such as `cpu` or `cuda`."""
    precision: str
    """Number format of the search: `fp32`, `bf16` or `int8`."""
    kernels: str
    """The code that computes, for people, such as the C kernels, or the engine's kernels for this processor."""
    without_kernels: str = ""
    """Why slower PyTorch code instead of compiled kernels computes on a CPU; empty if compiled kernels compute."""
    source_language: str
    """Code of the (first) model's source language, as in the configuration; "?" if unknown."""
    target_language: str
    """Code of the target language."""
    languages: tuple[str, ...]
    """Codes of the languages among which the option `target_language` chooses; none for a model that has one."""
    _config: Config | None = None

    def __init__(self) -> None:
        """Use `nmt.load`."""
        self._process = os.getpid()
        self._is_closed = False
        self._said: set[str] = set()

    @property
    def config(self) -> Config:
        """The configuration of the (first) model; ConfigError for a file for the engine, which has none."""
        if self._config is None:
            raise ConfigError(
                f"config: {self.models[0]} is one file for the engine, which has no configuration; use its run"
            )
        return self._config

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
        are those of `nmt.library.values.Options`; the wishes of a `Request` replace the wishes among them. For a list,
        `prefix` may be a list, too, with one for each sentence. Another thread, such as a timer, ends the call before
        the next step of the search by `stop.set()`.

        Raises:
            StoppedError: it was stopped.
            TypeError: `text` is neither a string or `Request` nor a list or tuple of them; wishes are not text.
            ConfigError: unknown options, values that are not allowed, options that do not go together.
            DataError: text holds half of a surrogate pair; no translation can fulfil the wishes; a shortlist cannot be
                used; there are not as many prefixes as sentences.
            NmtError: the translator is closed.
        """
        wishes, given = _given(options) if options else ({}, {})
        if isinstance(text, str | Request):
            as_given, line = _sentence(text, "text", wishes)
            (result,) = self._results([line], given, stop)
            return result if result.source == as_given else dataclasses.replace(result, source=as_given)
        sentences = _sentences(text, wishes)
        if not sentences:
            self._hypotheses(given)  # options that are not possible are a mistake even without sentences
        return list(self._in_windows(sentences, given, size=WINDOW, stop=stop))

    def hypotheses(self, **options: Unpack[Options]) -> int:
        """How many hypotheses of a sentence a search with such options computes at once, such as the size of a beam.

        Times the tokens of a text (`parts`) this is what its translation costs. Errors are those of `translate`.
        """
        return self._hypotheses(_given(options)[1])

    def parts(self, text: Sequence[str | Request], **options: Unpack[Options]) -> list[list[int]]:
        """How many source tokens each part of each line has: its sentences, or parts of what is too long for one.

        These are what `translate` would translate with the same `options`, and its errors are raised. An empty line has
        no part.
        """
        wishes, given = _given(options)
        return self._parts([line for _, line in _sentences(text, wishes)], given)

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
        self._hypotheses(given)
        items = (_sentence(item, f"sentences[{place}]", wishes) for place, item in enumerate(sentences))
        return self._in_windows(items, given, size=window)

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
            return self._scores([pair], batch_tokens)[0]
        sides = [
            [_line(item, f"{name}[{place}]") for place, item in enumerate(_listed(items, name))]
            for name, items in (("sources", sources), ("targets", targets))
        ]
        if len(sides[0]) != len(sides[1]):
            raise DataError(f"{len(sides[0])} sources but {len(sides[1])} targets; their numbers must be equal")
        pairs = windows(zip(*sides, strict=True), size=WINDOW, length=lambda pair: len(pair[0]) + len(pair[1]))
        return [score for some in pairs for score in self._scores(some, batch_tokens)]

    def inspect(self, source: str, target: str | None = None) -> Inspection:
        """The inner values of the model for a sentence and its translation: attention, states, gates, memory.

        `target`: by default the best translation, found with the configured search, but as a whole sentence and without
        placeholders and glossary. A given target may be any text, also an empty one. docs/looking_inside.md has
        examples.

        Raises TypeError for anything except strings; DataError for a source without tokens, for sentences of more than
        1,000 tokens and if no translation has a finite probability; ConfigError for a file for the engine, which does
        not expose its inner values.
        """
        return self._inspection(_line(source, "source"), None if target is None else _line(target, "target"))

    def live(self, policy: str = "wait_k", **options: Any) -> Any:
        """A session of live translation: `feed(text)` returns what no longer changes of it, `end()` the rest.

        `options`: those of the policy (`wait` of `wait_k`, `agree` of `local_agreement`, `unread` of `alignatt`), those
        of `translate`, and `revise=True` for text that may change (docs/live.md). Raises ConfigError for unknown ones.
        """
        from nmt.registry import SESSIONS  # late, as few calls need it

        return SESSIONS.get("text")(self, policy, options, self._network())

    def _network(self) -> tuple[Any, ...] | None:
        """A model in this process: itself, its tokenizer, what it computes in, and its settings of a search."""
        return None

    @abstractmethod
    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words if the tokenizer has them."""

    @abstractmethod
    def close(self) -> None:
        """Release the memory, after the running calls of other threads; also done at the end of a `with` block."""

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Translator cannot be pickled or copied; call nmt.load in the other process")

    def __repr__(self) -> str:
        name = str(self.models[0]) if len(self.models) == 1 else f"ensemble of {len(self.models)} models"
        languages = f"{self.source_language}-{self.target_language}"
        return f"<nmt.Translator {name}, {languages}, {self.device}, {self.precision}, {self.place}>"

    def _in_windows(
        self, sentences: Iterable[Sentence], options: dict[str, Any], *, size: int, stop: Stop | None = None
    ) -> Iterator[Result]:
        for window in windows(sentences, size=size, length=lambda pair: len(pair[0])):
            results = self._results([line for _, line in window], options, stop)
            for (as_given, _), result in zip(window, results, strict=True):
                yield result if result.source == as_given else dataclasses.replace(result, source=as_given)

    @abstractmethod
    def _results(self, lines: Sequence[str | Request], options: dict[str, Any], stop: Stop | None) -> list[Result]:
        """The results of some lines, translated together; StoppedError after `stop.set()`."""

    @abstractmethod
    def _hypotheses(self, options: dict[str, Any]) -> int:
        """As `hypotheses`; raises ConfigError or DataError for options that are not possible."""

    @abstractmethod
    def _parts(self, lines: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """As `parts`."""

    @abstractmethod
    def _scores(self, pairs: Sequence[tuple[str, str]], batch_tokens: int | None) -> list[PairScore]:
        """The scores of (source, target) pairs, computed together."""

    @abstractmethod
    def _inspection(self, source: str, target: str | None) -> Inspection:
        """As `inspect`, of lines."""

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise NmtError("this translator was loaded before its process forked; call nmt.load after forking")
        if self._is_closed:
            raise NmtError("this translator is closed")

    def _say(self, message: str) -> None:
        """Log each change that the caller did not ask for, once."""
        if message not in self._said:
            self._said.add(message)
            import logging  # late, as it takes longer than a sentence

            logging.getLogger(__name__).warning("%s", message)


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


def _sentences(text: object, wishes: dict[str, Any]) -> list[Sentence]:
    """The texts of a list with the wishes of the call, whose prefix may be that of each."""
    items, prefix = _listed(text, "text"), wishes.get("prefix")
    prefixes = prefix if isinstance(prefix, list | tuple) else [prefix] * len(items)
    if len(prefixes) != len(items):
        raise DataError(f"prefix: {len(prefixes)} for {counted(len(items), 'text')}; give one for each")
    return [
        _sentence(item, f"text[{place}]", wishes if prefix is own else {**wishes, "prefix": own})
        for place, (item, own) in enumerate(zip(items, prefixes, strict=True))
    ]


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


def with_glossary(options: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The options with a name for a glossary that is given as terms with translations, and its text, that of a file.

    Raises TypeError, DataError or ConfigError for what can be no term and no translation.
    """
    terms = options.get("glossary")
    if not isinstance(terms, Mapping):
        return dict(options), None
    from nmt.light.translator import glossary_text  # late, as few have one

    for term, target in terms.items():
        _line(term, "glossary: a term")
        _line(target, f"glossary: the translation of {shown(term)}")
    try:
        return {**options, "glossary": "glossary"}, glossary_text(terms)
    except EngineError as error:
        raise ConfigError(str(error)) from None


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
    texts = {name: wish for name, wish in wishes.items() if name != "prefix" or not isinstance(wish, list | tuple)}
    Request("", **texts)  # a wish that is not text is a mistake of the call, even without sentences
    return wishes, found
