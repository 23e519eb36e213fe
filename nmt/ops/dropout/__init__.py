"""Dropout whose mask is a function of a key and of places, so that no mask is kept for the gradient.

A layer gets the masks of the current training batch from `current`. The C kernel, the Triton kernel and the PyTorch
operations compute the same mask, in all types and with any number of threads.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import choose
from nmt.ops.native import kernel

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
    places: Tensor | None = None  # [N] int64, see `Masks`; None: the place of row n is n


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
        return self._replace(key=_key("pass", self.key, number))

    def draw(self, x: Tensor, *, layer: int, position: int = 0) -> Draw:
        """For x [B, T, ...], T words of B sentences from `position` on, or [B, W], one word of each; see `among`."""
        if self.words is not None:
            return Draw(self.key, layer, _places(self.words, self.length, self.first, self.together))
        length = x.size(1) if x.dim() > 2 else 1
        places = _all_places(len(x) * length, length, self.first, self.together, x.device)
        return Draw(self.key, layer, places + position if position else places)


def _places(words: Tensor, length: int, first: int, together: int | None) -> Tensor:
    """The places of words of a batch [B, length], counted row by row; for the others see `Masks`."""
    rows = torch.div(words, length, rounding_mode="floor")
    numbers = rows + first
    if together is not None:
        numbers = numbers + torch.div(rows, together, rounding_mode="floor") * (PASS - together)
    return words - rows * length + numbers * SENTENCE


@functools.lru_cache(maxsize=8)
def _all_places(count: int, length: int, first: int, together: int | None, device: torch.device) -> Tensor:
    """The places of all words of a batch; cached, because all layers need the same places."""
    with torch.inference_mode(False):
        return _places(torch.arange(count, device=device), length, first, together)


def batch_key(seed: int, epoch: int, batch: int) -> int:
    """The key of the masks of batch number `batch` of an epoch in a run with this seed."""
    return _key("dropout", seed, epoch, batch)


def _key(*parts: str | int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1


_masks: Masks | None = None
"""The masks of the whole process: threads of autograd, which rerun checkpointed layers, see them too."""


def current() -> Masks | None:
    """The current masks of dropout; None outside `masked_by`."""
    return _masks


@contextlib.contextmanager
def masked_by(masks: Masks | None) -> Iterator[None]:
    """Use these masks for dropout in the block; None: new masks from torch's generator.

    The block is one pass over one batch: a layer that is called twice in it drops the same places twice.
    """
    global _masks
    before = _masks
    _masks = masks
    try:
        yield
    finally:
        _masks = before


def among(words: Tensor, *, length: int) -> AbstractContextManager[None]:
    """In the block, rows are the `words` [N] of the batch [B, length], counted row by row, instead of its sentences."""
    return masked_by(_masks and _masks._replace(words=words, length=length))


def of_parameters() -> AbstractContextManager[None]:
    """In the block, rows are rows of a parameter, which has the same mask in all processes."""
    return masked_by(_masks and Masks(_masks.key))


def dropout(x: Tensor, p: float, *, draw: Draw | None = None) -> Tensor:
    """Zero each value of `x` with probability `p` and multiply the others by 1 / (1 - p); the type stays.

    0 <= p <= 1, exact to 2**-32. `draw` selects the random numbers: x [..., W] is treated as rows of W values, one for
    each place. Without `draw` the mask comes from torch's generator: on a CPU from a single number of it.
    """
    if not 0 < p < 1 or x.numel() == 0:
        return F.dropout(x, p)
    if draw is None:
        if x.device.type != "cpu":
            return F.dropout(x, p)
        draw = Draw(int(torch.empty((), dtype=torch.int64).random_()))
    rows = x.numel() // x.size(-1) if draw.places is None else len(draw.places)
    run = choose(
        "dropout", reference_dropout, like=x,
        native="nmt.ops.dropout:dropout_native", triton="nmt.ops.dropout.triton:dropout_triton",
    )  # fmt: skip
    flat = x.reshape(rows, -1)
    return (run(flat, p, draw) if run is reference_dropout else by_kernel(run, flat, p, draw)).reshape(x.shape)


def by_kernel(run: Callable[[Tensor, float, Draw], Tensor], x: Tensor, p: float, draw: Draw) -> Tensor:
    """Dropout with a gradient by `run`, a kernel for x [N, W]."""
    result: Tensor = _Dropout.apply(run, x, p, draw)
    return result


class _Dropout(torch.autograd.Function):
    """Dropout by a kernel, which computes the mask again for the gradient."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor, float, Draw], Tensor], x: Tensor, p: float, draw: Draw) -> Tensor:
        ctx.run, ctx.p, ctx.draw = run, p, draw
        return run(x, p, draw)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, ctx.run(gradients[0], ctx.p, ctx.draw), None, None


def layer_dropout(x: Tensor, p: float, *, layer: int, position: int = 0) -> Tensor:
    """`dropout` in layer number `layer` of a model, of x [B, T, ...] or, at one `position`, [B, W].

    It uses the masks of `masked_by` if there are any, else new masks.
    """
    return dropout(x, p, draw=_masks and _masks.draw(x, layer=layer, position=position))


WORD: Final = 0xFFFFFFFF

ROUNDS: Final = 10

TOGETHER: Final = 16384
"""Number of counters computed together on a CPU, so that intermediate results fit in its cache."""


def reference_dropout(x: Tensor, p: float, draw: Draw) -> Tensor:
    """See `nmt.ops.dropout.dropout`; x [N, W], 0 < p < 1."""
    kept = random_numbers(draw, x) >= threshold(p)
    wide = torch.promote_types(x.dtype, torch.float32)
    factors = kept.to(wide) * torch.tensor(1 / (1 - p), dtype=wide)
    return (x.to(wide) * factors).to(x.dtype)


def threshold(p: float) -> int:
    """Values with random numbers below this are dropped: the share p of 2**32, but never all."""
    return min(round(p * 2**32), WORD)


def random_numbers(draw: Draw, like: Tensor) -> Tensor:
    """The random numbers of `draw` for values such as `like` [N, W]: int64 [N, W], each 0 <= number < 2**32.

    As in `native.c`: channel 64 b + 16 w + k has word w of the counter (16 b + k, place, layer).
    """
    rows, width = like.shape
    counters = torch.arange(-(-width // 64) * 16, device=like.device)
    places = torch.arange(rows, device=like.device) if draw.places is None else draw.places
    numbers = torch.empty(rows, 4 * len(counters), dtype=torch.int64, device=like.device)
    by_word = numbers.unflatten(1, (-1, 4, 16)).unbind(2)  # 4 x [N, blocks, 16]
    step = max(1, TOGETHER // len(counters)) if like.device.type == "cpu" else rows
    for start in range(0, rows, step):
        some = slice(start, start + step)
        here = places[some].unsqueeze(1)
        words = philox(counters, here & WORD, here >> 32, draw.layer, key=draw.key)
        for word, found in zip(by_word, words, strict=True):
            word[some] = found.unflatten(1, (-1, 16))
    return numbers[:, :width]


def philox(a: Tensor, b: Tensor, c: Tensor, d: int, *, key: int) -> tuple[Tensor, ...]:
    """The four random words of Philox4x32-10 for counters (a, b, c, d) (Salmon et al., SC 2011), all of them int64.

    The lower words of the 64-bit products are extracted only at the end: no earlier operation depends on the rest.
    """
    first, second = key & WORD, key >> 32
    upper, odd, lower, even = (torch.empty(len(b), len(a), dtype=torch.int64, device=a.device) for _ in range(4))
    upper.copy_(a), odd.copy_(b), lower.copy_(c), even.fill_(d)
    p, q = torch.empty_like(upper), torch.empty_like(lower)
    for _ in range(ROUNDS):
        torch.mul(upper, 0xD2511F53, out=p)  # the highest bit becomes the sign, which does no harm
        torch.mul(lower, 0xCD9E8D57, out=q)
        torch.bitwise_right_shift(q, 32, out=upper)
        torch.bitwise_right_shift(p, 32, out=lower)
        upper.bitwise_xor_(odd).bitwise_xor_(first).bitwise_and_(WORD)
        lower.bitwise_xor_(even).bitwise_xor_(second).bitwise_and_(WORD)
        odd, even, p, q = q, p, even, odd
        first, second = first + 0x9E3779B9 & WORD, second + 0xBB67AE85 & WORD
    return upper, odd.bitwise_and_(WORD), lower, even.bitwise_and_(WORD)


def dropout_native(x: Tensor, p: float, draw: Draw) -> Tensor:
    """See `nmt.ops.dropout.reference_dropout`; x [N, W] in fp32 or bf16 on a CPU, no gradient."""
    x = x.contiguous()
    out = torch.empty_like(x)
    places = None if draw.places is None else draw.places.contiguous()
    kernel("dropout", x.dtype)(x, out, places, *x.shape, draw.key, draw.layer, threshold(p), 1 / (1 - p))
    return out
