"""When live translation writes: after how many words, or as soon as a translation no longer changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.live.encoding import Listener
from nmt.live.waiting import word_begins
from nmt.models.base import Seq2Seq
from nmt.ops.recurrence import at_least_fp32
from nmt.registry import POLICIES, NoOptions
from nmt.search.base import limits_of
from nmt.search.values import Request


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
        self.translator, self.options, self.search, self.network = translator, options, search, network
        self.written = ""
        """What of the sentence has been written, which stays."""
        self.tail = ""
        """What may follow, but may change."""

    def begin(self) -> None:
        """A new sentence."""
        self.written = self.tail = ""

    def read(self, source: str, words: int) -> None:
        """The sentence so far, of so many words, more than before: extends `written` where it is sure enough."""
        raise NotImplementedError

    def finish(self, source: str) -> None:
        """The whole sentence: `written` becomes its translation."""
        self._write(self._translated(source).text)
        self.tail = ""

    def _translated(self, source: str, **options: Any) -> Any:
        """The translation of the sentence so far, which begins with what has been written."""
        return self.translator.translate(Request(source, prefix=self.written), split="none", **self.search, **options)

    def _write(self, text: str, words: int | None = None) -> None:
        """Write a text that begins with what has been written, or its first words."""
        self.tail = text[len(self.written) :]
        if words is not None:
            text = _first_words(text, words)
        if text.startswith(self.written) and len(text) > len(self.written):
            self.tail = self.tail[len(text) - len(self.written) :]
            self.written = text


def _first_words(text: str, count: int) -> str:
    """A text up to the end of so many words."""
    found = text.split()[:count]
    end = 0
    for word in found:
        end = text.index(word, end) + len(word)
    return text[:end]


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
    """Reads k words, then writes one for each that it reads (Ma et al., ACL 2019).

    Of a model that reads forward no word is encoded twice, and each step takes the most probable word. With any other
    the sentence is translated anew for each word, from what has been written on.
    """

    Options = WaitOptions

    def __init__(
        self, translator: Any, options: WaitOptions, *, search: dict[str, Any], network: Network | None
    ) -> None:
        super().__init__(translator, options, search=search, network=network)
        self._sentence: _Sentence | None = None
        is_plain = network is not None and not search and not network.tokenizer.languages()
        self._listens = is_plain and network is not None and _reads_forward(network.model)

    def begin(self) -> None:
        super().begin()
        self._sentence = None

    def read(self, source: str, words: int) -> None:
        allowed = words - self.options.wait + 1
        if self._listens:
            self.written = self._opened().read(source, words=max(allowed, 0))
        elif allowed > 0:
            self._write(self._translated(source).text, allowed)

    def finish(self, source: str) -> None:
        if self._listens:
            self.written = self._opened().read(source, words=None)
        else:
            super().finish(source)

    def _opened(self) -> _Sentence:
        if self._sentence is None:
            assert self.network is not None
            self._sentence = _Sentence(self.network)
        return self._sentence


def _reads_forward(model: Seq2Seq) -> bool:
    try:
        Listener(model)
    except ConfigError:
        return False
    return True


class _Sentence:
    """A sentence that is read and written word by word."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._listener = Listener(network.model)
        self._begins = word_begins(network.tokenizer)[1]
        self._source: list[int] = []
        self._ids: list[int] = []  # written, and of the word at hand
        self._words = 0  # begun
        self._states: Any = None  # of the decoder before the last of these is read
        self._sure = 0  # tokens of complete words
        self._has_ended = False

    @torch.inference_mode()
    def read(self, source: str, *, words: int | None) -> str:
        """The text of what is sure after so many words have been allowed; None: the source is complete."""
        with self._network.computing():
            (ids,) = self._network.tokenizer.encode_source([source])
            if ids[: len(self._source)] != self._source:  # another word has changed how this one is split
                self._listener, self._source = Listener(self._network.model), []
            self._listener.read(ids[len(self._source) :])
            self._source = ids
            if words is None and ids:
                self._listener.read([EOS])
            if ids:
                self._write(words)
        return str(self._network.tokenizer.decode_target(self._ids[: self._sure]))

    def _write(self, words: int | None) -> None:
        states = self._listener.initial if self._states is None else self._states
        most = int(limits_of(torch.tensor([[*self._source, EOS]]), self._network.decoding))
        device = self._network.model.embeddings.bias.device
        while not self._has_ended and (words is None or self._words <= words):
            if len(self._ids) >= most:
                if words is None:
                    self._has_ended, self._sure = True, len(self._ids)
                return
            last = torch.tensor(self._ids[-1:], device=device) if self._ids else None
            logits, after = self._network.model.step(last, self._listener.state(states))
            token = self._chosen(logits, is_complete=words is None)
            is_new = token == EOS or not self._ids or bool(self._begins[token])
            if is_new:
                self._sure = len(self._ids)
                if words is not None and self._words >= words:
                    break  # it is predicted again when more has been read
                self._words += 1
            if token == EOS:
                self._has_ended = True
                break
            self._ids.append(token)
            states = after.states
            self._states = states

    def _chosen(self, logits: Tensor, *, is_complete: bool) -> int:
        scores = at_least_fp32(logits)[0]
        scores[PAD] = float("-inf")
        if not (is_complete and self._ids):
            scores[EOS] = float("-inf")
        return int(scores.argmax())


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
        self._last = [*self._last, text.split()][-self.options.agree :]
        same = 0
        if len(self._last) == self.options.agree:
            while all(len(own) > same and own[same] == self._last[0][same] for own in self._last):
                same += 1
        self._write(text, same)


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
        found = self._translated(source, details=["alignment"])
        count = len(source.split())
        unsure = [target for origin, target in found.alignment or () if origin >= count - self.options.unread]
        self._write(found.text, min(unsure, default=len(found.text.split())) if count > self.options.unread else 0)
