"""When live translation writes: after how many words, or as soon as a translation no longer changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch

from nmt.config.schema import DecodingConfig
from nmt.data.matching import UNSPACED
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.light.options import OPTIONS
from nmt.live.encoding import Listener
from nmt.live.words import BEHIND_AN_END, ENDING, IS_OVER, WORD, numbers_of, splitting_of, word_ends, words_of
from nmt.models.base import Seq2Seq
from nmt.ops.recurrence import at_least_fp32
from nmt.registry import POLICIES, NoOptions
from nmt.search.base import limits_of
from nmt.search.values import Request

_ANOTHER: Final = re.compile(rf"(?:(?![{UNSPACED}_])\w){{2}}|{BEHIND_AN_END}")
"""What has been written would be another word, or would not have ended its sentence."""
_OF_SEARCHES: Final = (
    "placeholders", "glossary", "replace_unknown", "capitals", "target_language", "domain", "language_model",
    "min_length", "no_repeat_ngram", "repeat_penalty",
)  # fmt: skip
"""Settings of a model that only a search fulfils."""


class Network(NamedTuple):
    """A model in this process."""

    model: Seq2Seq
    tokenizer: Tokenizer
    computing: Callable[[], Any]
    """Enters what its search computes in: the device's turn and its number format."""
    decoding: DecodingConfig
    """Its limits of lengths."""


class Policy:
    """Translates one sentence at a time, as it grows. A plugin's policy derives from it and is registered with
    `@POLICIES.register("name")`."""

    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of its options."""

    def __init__(self, translator: Any, options: Any, *, search: dict[str, Any], network: Network | None) -> None:
        """
        Args:
            translator: any translator of `nmt.load`.
            options: an instance of `Options`.
            search: options of `translator.translate`.
            network: its model, where that is in this process and is one.
        """
        self.translator, self.options, self.network = translator, options, network
        self.forbidden = search.get("forbidden") or ()
        self.search = {name: value for name, value in search.items() if name != "forbidden"}
        self.written = ""
        """What of the sentence has been written, which stays."""
        self.tail = ""
        """What may follow, but may change."""
        self.revises = False
        """Whether the source of the sentence may change, and a tail is wanted; set by the session."""

    def begin(self) -> None:
        """A new sentence."""
        self.written = self.tail = ""

    def read(self, source: str, words: int) -> None:
        """The sentence so far, of so many words: extends `written` where it is sure enough. It has more words than
        before, or, where the session `revises`, other ones."""
        raise NotImplementedError

    def finish(self, source: str) -> None:
        """The whole sentence: `written` becomes its translation."""
        self._write(self._translated(source).text)
        self.tail = ""

    def _translated(self, source: str, **options: Any) -> Any:
        """The translation of the sentence so far, which begins with what has been written."""
        search = {"split": "none", **self.search, **options}
        request = Request(source, prefix=self.written, forbidden=self.forbidden)
        found = self.translator.translate(request, **search)
        if self.written and _ANOTHER.match(self.written[-1:] + found.text[len(self.written) :]):
            found = self.translator.translate(replace(request, prefix=f"{self.written} "), **search)
        return found

    def _write(self, text: str, words: int | None = None, *, source: str = "") -> None:
        """Write a text that begins with what has been written, or its first words: then what ends it only where the
        sentence of the source so far is over."""
        self.tail = text[len(self.written) :]
        if words is not None:
            first = _first_words(text, words)
            text = first if len(first) < len(text.rstrip()) or IS_OVER.search(source) else ENDING.sub("", first)
        if text.startswith(self.written) and len(text) > len(self.written):
            self.tail = self.tail[len(text) - len(self.written) :]
            self.written = text


def _first_words(text: str, count: int) -> str:
    """A text up to the end of so many words."""
    return text[: [0, *word_ends(text)][: count + 1][-1]]


@dataclass(frozen=True, kw_only=True)
class WaitOptions:
    """Options of `wait_k`."""

    wait: int = 3
    """Source words that are read before the first word is written; then one word is written for each that is read."""

    def __post_init__(self) -> None:
        if self.wait < 1:
            raise ValueError(f"wait: must be at least 1, not {self.wait}")


@POLICIES.register("wait_k")
class WaitK(Policy):
    """Reads k words, then writes one for each that it reads (Ma et al., ACL 2019), but none where it would end before
    the sentence does: then it waits for the next word.

    Of a model that reads forward no word is encoded twice, and each step takes the most probable word. With any other
    the sentence is translated anew for each word, from what has been written on.
    """

    Options = WaitOptions

    def __init__(
        self, translator: Any, options: WaitOptions, *, search: dict[str, Any], network: Network | None
    ) -> None:
        super().__init__(translator, options, search=search, network=network)
        self._sentence: _Sentence | None = None
        self._listens = network is not None and not search and _can_listen(network)

    def begin(self) -> None:
        super().begin()
        self._sentence = None

    def read(self, source: str, words: int) -> None:
        allowed = max(0, words - self.options.wait + 1)
        if self._listens:
            self._listen(source, words=allowed, drafted=words if self.revises else 0)
        elif allowed or self.revises:
            self._write(self._translated(source).text, allowed, source=source)

    def finish(self, source: str) -> None:
        if self._listens:
            self._listen(source, words=None)
        else:
            super().finish(source)

    def _listen(self, source: str, *, words: int | None, drafted: int = 0) -> None:
        assert self.network is not None
        if self._sentence is None:
            self._sentence = _Sentence(self.network)
        self._sentence.read(source, words=words, drafted=drafted)
        self.written, self.tail = self._sentence.text, self._sentence.tail


def _can_listen(network: Network) -> bool:
    """Whether a model reads forward, and its settings ask for nothing that only a search does."""
    try:
        Listener(network.model)
    except ConfigError:
        return False
    settings = ((getattr(network.decoding, name), OPTIONS[name].default) for name in _OF_SEARCHES)
    return not network.tokenizer.languages() and all(value == usual for value, usual in settings)


class _Settled(NamedTuple):
    """Where a word of the source ends whose tokens do not depend on what follows, if a space does."""

    characters: int
    tokens: int


@dataclass
class _Written:
    """Complete words, and how the decoder continues behind them."""

    ids: list[int]
    words: int = 0
    states: Any = None
    has_ended: bool = False


class _Sentence:
    """A sentence that is read and written word by word."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._words = words_of(network.tokenizer)[1]
        device = network.model.embeddings.bias.device
        self._letters, self._commas = (
            part.nonzero()[:, 0].to(device) for part in (self._words.letters, self._words.commas)
        )
        self._splitting = splitting_of(network.tokenizer)
        self._listener = Listener(network.model)
        self._source: list[int] = []
        self._read = ""  # what these are the tokens of
        self._settled = [_Settled(0, 0)]
        self._written = _Written([])
        self._told = (0, 0)  # in its tokens: before the last words that have become text, and behind them
        self.text = ""
        self.tail = ""

    @torch.inference_mode()
    def read(self, source: str, *, words: int | None, drafted: int = 0) -> None:
        """Read the source so far, and write so many words; None: it is complete. `drafted`: words with the tail."""
        self.tail = ""
        with self._network.computing():
            self._listen(source)
            if not self._source:
                return
            if words is None:
                self._listener.read([EOS])
            self._write(self._written, words, is_over=IS_OVER.search(source) is not None)
            self._tell()
            if words is not None and drafted > words:
                draft = replace(self._written, ids=self._written.ids.copy())
                self._write(draft, drafted, is_over=True)
                self.tail = str(self._network.tokenizer.decode_target(draft.ids))[len(self.text) :]

    def _listen(self, source: str) -> None:
        """Read what is new of the source; words that have become other tokens are taken back."""
        ends = self._settled
        while ends[-1].characters and not _continues(source, self._read[: ends[-1].characters]):
            ends.pop()
        begin, same = ends[-1]
        ids = self._source[:same]
        for own, end, is_complete in self._splitting.encoded(source, begin):
            ids += own
            if is_complete:
                ends.append(_Settled(end, len(ids)))
        while same < min(len(ids), len(self._source)) and ids[same] == self._source[same]:
            same += 1
        if not self._listener.take_back(self._listener.tokens - same):
            self._listener, same = Listener(self._network.model), 0
        self._listener.read(ids[same:])
        self._source, self._read = ids, source

    def _write(self, written: _Written, words: int | None, *, is_over: bool) -> None:
        """Write until there are so many words, all of them complete; None: until the end. Nothing ends the translation
        of a sentence that is not over."""
        limit = int(limits_of(torch.ones(1, len(self._source) + 1), self._network.decoding))
        device = self._network.model.embeddings.bias.device
        ids, count, written_before = written.ids, written.words, len(written.ids)
        states = self._listener.initial if written.states is None else written.states
        sure = marked = len(ids), states, count  # where the next word begins, and the case marks before it
        unended = None  # where marks begin that end the sentence
        has_mark = False
        while not written.has_ended and (words is None or (count <= words and words > 0)):
            if len(ids) >= limit:
                if words is None:
                    written.has_ended, sure = True, (len(ids), states, count)
                break
            last = torch.tensor(ids[-1:], device=device) if ids else None
            logits, after = self._network.model.step(last, self._listener.state(states))
            scores = at_least_fp32(logits)[0]
            scores[PAD] = float("-inf")
            if not ids:
                scores[EOS] = float("-inf")
            if 0 < len(ids) == written_before:
                scores[self._letters] = float("-inf")  # what has been written becomes no other word
                if self._words.endings[ids[-1]]:
                    scores[self._commas] = float("-inf")
            token = int(scores.argmax())
            if not has_mark:
                marked = len(ids), states, count
            has_mark = bool(self._words.marks[token])
            begun = 0 if has_mark else self._words.begun(token, ids[-1] if count else None)
            if begun or token == EOS:
                sure = marked
                if token == EOS or (words is not None and count + begun > words):
                    written.has_ended = token == EOS and words is None
                    if token == EOS and words is not None and not is_over:
                        sure = unended or sure
                    break  # another word is predicted again when more has been read
            unended = (unended or marked) if self._words.endings[token] else None
            count += begun
            ids.append(token)
            states = after.states
        length, written.states, written.words = sure
        del ids[length:]
        if not ids:
            written.states = None  # which depend on what has been read when the first word is written

    def _tell(self) -> None:
        """The text of new words, from what they and the last words before them spell: with case marks those since a
        word in small letters, behind which no mark is about what follows."""
        decode, (before, behind), ids = self._network.tokenizer.decode_target, self._told, self._written.ids
        if behind == len(ids):
            return
        text, known = str(decode(ids[before:])), str(decode(ids[before:behind]))
        new = text[len(known) :]
        self.text = self.text + new if text.startswith(known) else str(decode(ids))
        is_settled = self._splitting.lead == "" or any(word.islower() for word in new.split()[-1:])
        self._told = behind if is_settled else before, len(ids)


def _continues(source: str, read: str) -> bool:
    """Whether a source begins with complete words that have been read."""
    return source.startswith(read) and source[len(read) : len(read) + 1] in ("", " ")


@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """Options of `local_agreement`."""

    agree: int = 2
    """Translations one after the other that must begin with the same words."""

    def __post_init__(self) -> None:
        if self.agree < 2:
            raise ValueError(f"agree: must be at least 2, not {self.agree}")


@POLICIES.register("local_agreement")
class LocalAgreement(Policy):
    """Writes the words with which the last translations of the growing sentence all begin (Liu et al., Interspeech
    2020); for any model."""

    Options = AgreementOptions

    def begin(self) -> None:
        super().begin()
        self._last: list[list[str]] = []

    def read(self, source: str, words: int) -> None:
        text = self._translated(source).text
        self._last = [*self._last, WORD.findall(text)][-self.options.agree :]
        same = 0
        if len(self._last) == self.options.agree:
            while all(len(own) > same and own[same] == self._last[0][same] for own in self._last):
                same += 1
        self._write(text, same, source=source)


@dataclass(frozen=True, kw_only=True)
class AlignAttOptions:
    """Options of `alignatt`."""

    unread: int = 2
    """How many of the last words read a word that is written must not come from."""

    def __post_init__(self) -> None:
        if self.unread < 1:
            raise ValueError(f"unread: must be at least 1, not {self.unread}")


@POLICIES.register("alignatt")
class AlignAtt(Policy):
    """Writes words up to the first one that attends most to one of the last words read (Papi et al., Interspeech
    2023); for models that tell their attention."""

    Options = AlignAttOptions

    def read(self, source: str, words: int) -> None:
        found = self._translated(source, details=["tokens", "attention"])
        sure = 0
        if words > self.options.unread and found.tokens and found.source_pieces and len(found.attention):
            origins, places = numbers_of(found.source_pieces[:-1]), numbers_of(found.tokens[:-1])
            attended = found.attention[: len(places), : len(origins)]  # [T, S]
            weights = np.zeros((places[-1] + 1 if places else 0, origins[-1] + 1), np.float32)  # of words
            np.add.at(weights, (np.array(places)[:, None], np.array(origins)[None]), attended)
            unsure = np.flatnonzero(weights.argmax(1) >= weights.shape[1] - self.options.unread)
            sure = int(unsure[0]) if len(unsure) else len(weights)
        self._write(found.text, sure, source=source)
