"""Which random numbers dropout takes: in training those of a place in the batch, else those of torch's generator."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor

SENTENCE: Final = 2**32
"""From one sentence to the next in the places of words."""
PASS: Final = 2**24
"""From a sentence in one pass to the same one in the next, where rows are several passes over a batch."""


class Draw(NamedTuple):
    """Which random numbers one call takes: channel c of row n has that of (key, layer, place of row n, c)."""

    key: int
    """0 <= key < 2**63"""
    layer: int = 0
    """0 <= layer < 2**32: which of the model's layers calls."""
    places: Tensor | None = None
    """[N] int64, see `Masks`; None: the place of row n is n."""


class Masks(NamedTuple):
    """The masks of one batch of a training, of which a process may have only some sentences.

    The word at `position` of the sentence that is number `s` in the whole batch has the place 2**32 * s + position.
    So it has the same mask whichever process has it, beside whichever sentences, padded to whatever length.
    """

    key: int
    """What tells this batch from others, see `batch_key`."""
    first: int = 0
    """Which sentence of the whole batch is the first here."""
    words: Tensor | None = None
    """Where rows are not whole sentences: [N] int64, words of the batch, counted row by row of [B, length]."""
    length: int = 1
    """Positions of a sentence, counted with `words`."""
    together: int | None = None
    """Where rows are several passes over these sentences, one after another, each with masks of its own: how many
    sentences there are. The second pass over sentence s has the masks of a sentence s + 2**24, and so on."""

    def of_pass(self, number: int) -> Masks:
        """Those of a further pass over the same batch, from 1."""
        digest = hashlib.blake2b(repr(("pass", self.key, number)).encode(), digest_size=8).digest()
        return self._replace(key=int.from_bytes(digest, "little") >> 1)

    def draw(self, x: Tensor, *, layer: int, position: int = 0) -> Draw:
        """For x [B, T, ...], T words of B sentences from `position` on, or [B, W], one word of each; see `among`."""
        if self.words is not None:
            rows = torch.div(self.words, self.length, rounding_mode="floor")
            numbers = rows + self.first
            if self.together is not None:
                numbers = numbers + torch.div(rows, self.together, rounding_mode="floor") * (PASS - self.together)
            return Draw(self.key, layer, self.words - rows * self.length + numbers * SENTENCE)
        length = x.size(1) if x.dim() > 2 else 1
        places = _places(self.first, len(x), length, x.device, together=self.together)
        return Draw(self.key, layer, places + position if position else places)


@functools.lru_cache(maxsize=8)
def _places(first: int, sentences: int, length: int, device: torch.device, *, together: int | None = None) -> Tensor:
    """Of the words of so many sentences, row by row; kept, as all layers of a model ask for the same.

    `together`: see `Masks`.
    """
    with torch.inference_mode(False):
        places = torch.arange(first, first + sentences, device=device) * SENTENCE
        if together:
            passes = torch.arange(sentences // together, device=device).repeat_interleave(together)
            places = places + passes * ((PASS - together) * SENTENCE)
        return (places.unsqueeze(1) + torch.arange(length, device=device)).flatten()


def batch_key(seed: int, epoch: int, batch: int) -> int:
    """Key of the masks of batch number `batch` of an epoch in a run with this seed."""
    digest = hashlib.blake2b(repr(("dropout", seed, epoch, batch)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


_masks: Masks | None = None
"""Of the whole process: threads of autograd, which run checkpointed layers again, see it too."""


def current() -> Masks | None:
    """The masks that dropout has at the moment; None outside of `masked_by`."""
    return _masks


@contextlib.contextmanager
def masked_by(masks: Masks) -> Iterator[None]:
    """Have dropout take these masks in the block, instead of new ones by torch's generator.

    The block is one pass over one batch: a layer that is called twice in it drops the same places twice.
    """
    global _masks
    before = _masks
    _masks = masks
    try:
        yield
    finally:
        _masks = before


@contextlib.contextmanager
def among(words: Tensor, *, length: int) -> Iterator[None]:
    """Let rows in the block be `words` [N] of the batch [B, length], counted row by row, instead of its sentences."""
    if _masks is None:
        yield
        return
    with masked_by(_masks._replace(words=words, length=length)):
        yield


@contextlib.contextmanager
def of_parameters() -> Iterator[None]:
    """Let rows in the block be those of a parameter, which has the same mask in all processes."""
    if _masks is None:
        yield
        return
    with masked_by(Masks(_masks.key)):
        yield
