"""Offsets beyond 32 bits: kernels on tensors that have a shape and no memory, at the corners of their grids."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

from nmt.ops.atr import ATR
from nmt.ops.dispatch import load
from nmt.ops.dropout import Draw
from nmt.ops.linear_cross_entropy import Loss
from nmt.ops.loop import Given, Loop, plan_of
from nmt.ops.unit import UNITS

atr = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")
attention = pytest.importorskip("nmt.ops.attention.triton", reason="Triton is not installed")
dropout = pytest.importorskip("nmt.ops.dropout.triton", reason="Triton is not installed")
loss = pytest.importorskip("nmt.ops.linear_cross_entropy.triton", reason="Triton is not installed")
scan = pytest.importorskip("nmt.ops.scan.triton", reason="Triton is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # loads give zeros, or what masked lanes get

BATCH, LENGTH = 2**16, 6
"""Few steps, because each takes time, of many sentences."""


@pytest.fixture(autouse=True)
def _only_interpreted(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type != "cpu":
        pytest.skip("needs no GPU")
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # knows no tensors without memory
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)


def room(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def sequences(width: int, *, time_first: bool) -> Tensor:
    """[2, B, T, width]"""
    if time_first:
        return room(LENGTH, BATCH, 2, width).permute(2, 1, 0, 3)
    return room(BATCH, LENGTH, 2, width).permute(2, 0, 1, 3)


def states(hidden: int) -> Tensor:
    return room(2, BATCH, hidden, dtype=torch.float32)


MASK = room(BATCH, LENGTH, dtype=torch.bool)


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("name", ["lrn", "sru"])
def test_scan(name: str, time_first: bool, hidden: int = 2**10) -> None:
    unit = UNITS[name](weights=(room(hidden).float(), room(hidden).float())[: 2 * (name == "sru")])
    x, vectors = sequences(unit.inputs * hidden, time_first=time_first), None
    if unit.weights:
        vectors = room(2, len(unit.weights), hidden).float()
    first = torch.stack([states(hidden)] * unit.states, 1)
    given = scan.Given(unit, False, MASK, x, vectors, first)
    outputs, last, kept = scan.TritonScan.run_forward(given)
    dx, *_ = scan.TritonScan.run_backward(given, outputs, kept, sequences(hidden, time_first=time_first), last)
    assert dx.shape == x.shape


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("time_first", [False, True])
def test_atr(time_first: bool, normalized: bool, hidden: int = 2**12) -> None:
    x, first = sequences(hidden, time_first=time_first).requires_grad_(), [(state,) for state in states(hidden)]
    weights = room(hidden, hidden), *[room(hidden).float()] * (3 if normalized else 1)
    unit = ATR(weights=weights, normalized=normalized)
    tiles = atr.Tiles(16, 16, hidden, 4, persistent=False)
    outputs, last = atr.ATRKernel.whole([unit, unit], x, first, MASK, reverse=False, tiles=tiles)
    (dx,) = torch.autograd.grad([outputs, last], x, [sequences(hidden, time_first=time_first), last])
    assert dx.shape == x.shape


@pytest.mark.parametrize("time_first", [False, True])
def test_attention(time_first: bool, heads: int = 2, width: int = 2**9) -> None:
    def by_head(length: int) -> Tensor:
        if time_first:
            return room(length, BATCH, heads, width).permute(1, 2, 0, 3)
        return room(BATCH, length, heads, width).permute(0, 2, 1, 3)

    query, keys, weight = by_head(36).requires_grad_(), by_head(40).requires_grad_(), room(width)
    penalty = room(BATCH, 1, 1, 40).float()
    results = attention.attention_triton(query, keys, values=keys, penalty=penalty, weight=weight, bias=room(1))
    d_query, d_keys = torch.autograd.grad(results, [query, keys], [torch.empty_like(x) for x in results])
    assert (d_query.shape, d_keys.shape) == (query.shape, keys.shape)


def test_gradients_of_the_memory_of_a_loop(heads: int = 2, width: int = 2**10, source: int = 2**10) -> None:
    keys, penalty = room(BATCH, heads, source, width), room(BATCH, source).float()
    attended = attention.AttentionKernel(keys, keys, penalty=penalty, weight=room(width))
    queries, weights = room(20, BATCH, heads * width), room(20, BATCH, heads, source).float()
    d_keys, *_ = attended.memory_gradients(queries, weights=weights, d_scores=weights, d_contexts=queries)
    assert d_keys.shape == keys.shape


@pytest.mark.parametrize(("unit", "rows"), [("atr", [1]), ("gru", [2, 1]), ("lstm", [4])])
def test_steps(unit: str, rows: list[int], hidden: int = 2**11) -> None:
    weights = []
    for count in rows:
        weights += [room(count * hidden, hidden), *[room(count * hidden).float()] * 3]
    cell = UNITS[unit](weights=tuple(weights), normalized=True)
    width = cell.inputs * hidden
    x = room(BATCH, 2**32 // (BATCH * width), width)
    given = Given(x, room(*x.shape[:2], dtype=torch.uint8), room(cell.states, BATCH, hidden).float(), [cell])
    plan = plan_of(given, [load(str(cell.triton))], attention=None, dtype=x.dtype, reverse=False)
    outputs, last, *kept = Loop(plan, given).forward()
    dx, *_ = Loop(plan, given, kept=kept).backward(outputs, None, last, None)
    assert dx is not None and dx.shape == x.shape


def test_losses(words: int = 50_000) -> None:
    losses, targets = room(BATCH).float(), room(BATCH, dtype=torch.int64)
    terms = Loss(confidence=0.9, rest=0.1 / words, constant=0.0)
    loss.linear_cross_entropy_triton(room(BATCH, words), targets, weights=losses, loss=terms, losses=losses)


def test_dropout(width: int = 2**16 + 3) -> None:
    x, places = room(BATCH, width), room(BATCH, dtype=torch.int64)
    assert dropout.dropout_triton(x, 0.5, Draw(2**62, 1, places)).shape == x.shape
