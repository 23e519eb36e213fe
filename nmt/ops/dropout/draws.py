"""The random numbers of dropout: in training they depend on the place in the batch, else on torch's generator."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor

SENTENCE: Final = 2**32
"""Distance of two consecutive sentences in the places of words."""
PASS: Final = 2**24
"""Added to a sentence's number for each further pass, if rows are several passes over a batch."""


class Draw(NamedTuple):
    """The random numbers of one call: the number for channel c of row n depends on (key, layer, place of row n, c)."""

    key: int
    """0 <= key < 2**63"""
    layer: int = 0
    """Number of the calling layer in the model, 0 <= layer < 2**32."""
    places: Tensor | None = None
    """[N] int64, see `Masks`; None: the place of row n is n."""


class Masks(NamedTuple):
    """The masks of one training batch; a process may have only some of its sentences.

    The word at `position` of sentence number `s` of the whole batch has the place 2**32 * s + position. So its mask
    does not depend on the process that has it, on the other sentences there, or on the padded length.
    """

    key: int
    """Differs from batch to batch, see `batch_key`."""
    first: int = 0
    """The number, in the whole batch, of the first sentence here."""
    words: Tensor | None = None
    """If rows are not whole sentences: [N] int64, words of the batch, counted row by row of [B, length]."""
    length: int = 1
    """Positions of a sentence, counted with `words`."""
    together: int | None = None
    """If rows are several passes over the same sentences, one after another and with different masks: the number of
    sentences. The second pass over sentence s has the masks of a sentence s + 2**24, and so on."""

    def of_pass(self, number: int) -> Masks:
        """The masks of a further pass over the same batch; `number` counts from 1."""
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
    """The places of the words of `sentences` sentences, row by row; cached, because all layers need the same places.

    `together`: see `Masks`.
    """
    with torch.inference_mode(False):
        places = torch.arange(first, first + sentences, device=device) * SENTENCE
        if together:
            passes = torch.arange(sentences // together, device=device).repeat_interleave(together)
            places = places + passes * ((PASS - together) * SENTENCE)
        return (places.unsqueeze(1) + torch.arange(length, device=device)).flatten()


def batch_key(seed: int, epoch: int, batch: int) -> int:
    """The key of the masks of batch number `batch` of an epoch in a run with this seed."""
    digest = hashlib.blake2b(repr(("dropout", seed, epoch, batch)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


_masks: Masks | None = None
"""The masks of the whole process: threads of autograd, which rerun checkpointed layers, see them too."""


def current() -> Masks | None:
    """The current masks of dropout; None outside `masked_by`."""
    return _masks


@contextlib.contextmanager
def masked_by(masks: Masks) -> Iterator[None]:
    """Use these masks for dropout in the block, instead of new masks from torch's generator.

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
    """In the block, rows are the `words` [N] of the batch [B, length], counted row by row, instead of its sentences."""
    if _masks is None:
        yield
        return
    with masked_by(_masks._replace(words=words, length=length)):
        yield


@contextlib.contextmanager
def of_parameters() -> Iterator[None]:
    """In the block, rows are rows of a parameter, which has the same mask in all processes."""
    if _masks is None:
        yield
        return
    with masked_by(Masks(_masks.key)):
        yield
