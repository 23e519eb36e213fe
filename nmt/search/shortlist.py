"""Lexical shortlists: the few target tokens that a translation of a sentence may use, and a model restricted to them.

Written by nmt-shortlist from co-occurrences in training text. For each sentence: generally frequent tokens, and tokens
associated with its source tokens.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from nmt.data import EOS, PAD, UNK, Tokenizer
from nmt.errors import DataError, shown
from nmt.files import open_regular, read_bounded
from nmt.interop.weights_file import weights_bytes
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.search.ruled import SearchState
from nmt.search.values import Hypothesis

_FORMATS = ("nmt-shortlist-1", "nmt-shortlist-2")
"""The second one has a `multiple`, which earlier versions would not keep to."""
_LARGEST = 1 << 30
"""Bytes of a file: a hundred tokens for each of two million."""
_TYPES = {"frequent": torch.int32, "partners": torch.int32, "starts": torch.int64}


@dataclass(frozen=True)
class BatchWords:
    """The tokens allowed for the sentences of a batch: U tokens, with a subset for each sentence."""

    ids: Tensor
    """The union of the lists, ascending [U]. Begins with PAD, UNK and EOS, so these keep their ids as places."""
    forbidden: Tensor
    """True where a token is not in the sentence's own list [B, U]."""


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """Target tokens for each source token, and tokens for every sentence."""

    frequent: Tensor  # target ids of every sentence, any number
    partners: Tensor  # target ids of all source tokens, one after the other
    starts: Tensor  # the beginning of each source token's ids in `partners` [V_source + 1]
    target_size: int  # V, entries of the target vocabulary
    multiple: int = 1
    """A sentence gets as many more of the first ids as make the number of its tokens, without padding, a multiple."""

    @cached_property
    def _always(self) -> Tensor:
        return torch.unique(torch.cat([torch.tensor([PAD, UNK, EOS]), self.frequent.long()]))

    def words(self, source: Tensor, *, also: Sequence[Sequence[int]] = ()) -> BatchWords:
        """The lists of a batch of sentences, ids [B, S], on the device of `source`; `also`: more for each."""
        tokens = source.cpu().long()
        counts = self.starts[tokens + 1] - self.starts[tokens]  # [B, S]
        sentences = torch.arange(len(tokens)).repeat_interleave(counts.sum(1))
        first = self.starts[tokens].flatten().repeat_interleave(counts.flatten())
        ends = counts.flatten().cumsum(0)
        inside = torch.arange(len(first)) - (ends - counts.flatten()).repeat_interleave(counts.flatten())
        allowed = torch.zeros(len(tokens), self.target_size, dtype=torch.bool)
        allowed[:, self._always] = True
        allowed[sentences, self.partners[first + inside].long()] = True
        if self.multiple > 1:
            lacking = (1 - allowed.sum(1, keepdim=True)) % self.multiple
            allowed |= (~allowed).cumsum(1) <= lacking
        for own, tokens_of_sentence in zip(allowed, also, strict=False):
            own[list(tokens_of_sentence)] = True
        ids = allowed.any(0).nonzero().squeeze(1)
        return BatchWords(ids.to(source.device), ~allowed[:, ids].to(source.device))

    def save_bytes(self, tokenizer: Tokenizer) -> bytes:
        """The content of a shortlist file (safetensors), which only fits models with this tokenizer."""
        tensors = {name: getattr(self, name).to(dtype) for name, dtype in _TYPES.items()}
        metadata = {"tokenizer": tokenizer.fingerprint(), "target_size": str(self.target_size)}
        own = {"format": _FORMATS[1], "multiple": str(self.multiple)} if self.multiple > 1 else {"format": _FORMATS[0]}
        return weights_bytes(tensors, metadata={**own, **metadata})


def read_shortlist(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What nmt-shortlist wrote about a shortlist, and its tensors; DataError for any other file, or none."""
    try:
        with open_regular(Path(path)) as stream:
            content = read_bounded(stream, largest=_LARGEST)
        # Not mapped into memory, where it would change with the file, and end the process where the file is cut.
        tensors = safetensors.torch.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: not a readable shortlist ({reason}); nmt-shortlist makes one") from error
    metadata = header.get("__metadata__") or {}
    if metadata.get("format") not in _FORMATS or {name: part.dtype for name, part in tensors.items()} != _TYPES:
        raise DataError(f"{path}: not a shortlist; nmt-shortlist makes one")
    return metadata, tensors


def load_shortlist(path: str | Path, tokenizer: Tokenizer) -> Shortlist:
    """The shortlist in a file; DataError as `read_shortlist`, and if it was made with another tokenizer or damaged."""
    metadata, tensors = read_shortlist(path)
    if metadata.get("tokenizer") != tokenizer.fingerprint():
        raise DataError(f"{path}: made with another tokenizer than the model's; make one from this model")
    multiple = metadata.get("multiple", "1")
    if not multiple.isdecimal() or not 1 <= int(multiple[:9]) <= tokenizer.target_size:
        raise DataError(f"{path}: damaged: its words are a multiple of {shown(multiple)}")
    shortlist = Shortlist(**tensors, target_size=tokenizer.target_size, multiple=int(multiple))
    ids, starts = torch.cat([shortlist.frequent, shortlist.partners]), shortlist.starts
    has_places = len(starts) == tokenizer.source_size + 1 and int(starts[0]) == 0 and bool((starts.diff() >= 0).all())
    has_ids = bool(((ids >= 0) & (ids < tokenizer.target_size)).all())
    if not has_places or not has_ids or int(starts[-1]) != len(shortlist.partners):
        raise DataError(f"{path}: damaged: its ids do not fit the vocabularies")
    return shortlist


S = TypeVar("S", bound=SearchState)
W = TypeVar("W", bound="ListedWords")


class ListedWords(Protocol):
    """A subset of the words of an output layer, different for each of B sentences; a search uses their places as
    ids."""

    @property
    def ids(self) -> Tensor:
        """[U]"""

    def keep(self: W, sentences: Tensor, /) -> W:
        """Only the sentences [B']."""


class Restrictable(Protocol[S, W]):
    """A model whose output layer can be restricted: with `words`, among these and by their places."""

    def start(self, source: Tensor) -> S:
        """See `SearchModel`, and so below."""

    def among(self, ids: Tensor, forbidden: Tensor) -> W:
        """The words `ids` [U], ascending, of which `forbidden` [B, U] are not the sentences'; more can be added."""

    def best(self, tokens: Tensor | None, state: S, choice: Choice, words: W | None = None) -> tuple[BestWords, S]:
        """The best words."""

    def step(self, tokens: Tensor | None, state: S, words: W | None = None) -> tuple[Tensor, S]:
        """Logits [N, V], among U words [N, U]."""

    def attending_step(self, tokens: Tensor | None, state: S, words: W | None = None) -> tuple[Tensor, Tensor, S]:
        """As `step`, with the attention [N, S]; see `CoveringModel`."""


@dataclass(frozen=True)
class RestrictedState(Generic[S, W]):
    """The model's own state, and what its sentences may choose from."""

    inner: S
    words: W

    def expand(self, k: int) -> RestrictedState[S, W]:
        return RestrictedState(self.inner.expand(k), self.words)

    def reorder(self, rows: Tensor) -> RestrictedState[S, W]:
        return RestrictedState(self.inner.reorder(rows), self.words)

    def keep(self, sentences: Tensor) -> RestrictedState[S, W]:
        return RestrictedState(self.inner.keep(sentences), self.words.keep(sentences))


class RestrictedModel(Generic[S, W]):
    """Start and best words of `model` for one batch, in places of words instead of ids.

    The output layer is computed over the union of the sentences' lists; what is not in a sentence's
    own list has probability 0 there, so what a sentence gets does not depend on its companions.
    """

    def __init__(self, model: Restrictable[S, W], words: BatchWords) -> None:
        self._model = model
        self._words = model.among(words.ids, words.forbidden)

    def start(self, source: Tensor) -> RestrictedState[S, W]:
        """State before the first token of the batch's sentences [B, S]."""
        return RestrictedState(self._model.start(source), self._words)

    def best(
        self, tokens: Tensor | None, state: RestrictedState[S, W], choice: Choice
    ) -> tuple[BestWords, RestrictedState[S, W]]:
        """The best words, places as well as the `tokens` [N] fed; None is the zero vector."""
        found, inner = self._model.best(tokens, state.inner, choice, state.words)
        return found, RestrictedState(inner, state.words)

    def attending_step(
        self, tokens: Tensor | None, state: RestrictedState[S, W]
    ) -> tuple[Tensor, Tensor, RestrictedState[S, W]]:
        """Logits [N, U] of the places, the attention, and the state; `tokens` [N] are places, too."""
        logits, weights, inner = self._model.attending_step(tokens, state.inner, state.words)
        return logits, weights, RestrictedState(inner, state.words)

    def step(self, tokens: Tensor | None, state: RestrictedState[S, W]) -> tuple[Tensor, RestrictedState[S, W]]:
        """Logits of all places, after feeding the places `tokens` [N]; None is the zero vector."""
        logits, inner = self._model.step(tokens, state.inner, state.words)
        return logits, RestrictedState(inner, state.words)

    @property
    def ids(self) -> Tensor:
        """Ids of the places."""
        return self._words.ids

    def with_ids(self, results: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """What a search found in places, in ids."""
        ids = self.ids.tolist()
        return [
            [dataclasses.replace(found, ids=[ids[place] for place in found.ids]) for found in sentence]
            for sentence in results
        ]
