"""Dropout in plain PyTorch operations, with the same masks as in all implementations."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from nmt.ops.dropout.draws import Draw

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
