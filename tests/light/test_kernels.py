"""The kernels of the engine, of every instruction set that this processor has, beside numpy in float64."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.light.sources import LIBRARIES
from tests.light import kernel_library as lib
from tests.light.kernel_library import Matrix, Scored, address, aligned

LRN, OLRN, SRU, SSRU, MIN_GRU, MIN_LSTM, ATR, RNN, GRU_RESET, GRU, LSTM = range(11)
Array = np.ndarray
CPUINFO = Path("/proc/cpuinfo")
SIZES = [(1, 1), (31, 5), (33, 64), (70, 7), (160, 98), (257, 130)]
rng = np.random.default_rng(16)


@pytest.fixture(scope="module")
def library(engine: Path) -> ctypes.CDLL:
    return lib.opened(engine)


@pytest.fixture(params=lib.table_names(platform.machine()))
def table(request: pytest.FixtureRequest, library: ctypes.CDLL) -> Iterator[Any]:
    found = lib.tables(library)
    if request.param not in found:
        pytest.skip(f"this processor has no {request.param}")
    yield found[request.param]


def floats(*shape: int, shift: int = 4, scale: float = 1.0) -> Array:
    """Random values at an odd address."""
    x = aligned(4 * int(np.prod(shape)), shift=shift).view(np.float32).reshape(shape)
    x[...] = scale * rng.standard_normal(shape)
    return x


def empty(*shape: int, shift: int = 4) -> Array:
    """Poisoned: NaN."""
    return aligned(4 * int(np.prod(shape)), shift=shift).view(np.float32).reshape(shape)


def sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def product(
    library: Any, table: Any, w: Matrix, x: Array, bias: Array | None = None, f: int = 0, gap: int = 0
) -> Array:
    """x w' + bias of rows that stand `gap` floats more than their width apart; what is beyond is not written."""
    rows, K = x.shape
    M = w.tensor.rows
    wide, y = empty(rows, K + gap), empty(rows, M + 3)
    wide[:, :K] = x
    scratch = aligned(library.door_linear_scratch(w.tensor, rows) + 64)
    table.linear(w.tensor, address(wide), K + gap, address(bias), f, address(y), M + 3, rows, address(scratch))
    assert (y[:, M:].view(np.uint32) == 0xFFFFFFFF).all() and (scratch[-64:] == 0xFF).all()
    return y[:, :M]


def int8_rows(x: Array) -> tuple[Array, Array]:
    scales = np.maximum(np.abs(x).max(1) / np.float32(127), np.float32(1e-30))
    return np.rint(x / scales[:, None]).astype(np.int64), scales


@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize("M, K", SIZES)
@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_products(library: Any, table: Any, kind: str, M: int, K: int, f: int) -> None:
    w, x, bias = Matrix(rng.standard_normal((M, K)), kind), floats(11, K), floats(M)
    if kind == "int8":
        q, scales = int8_rows(x)
        want = q @ w.integers.astype(np.int64).T * w.scales.astype(np.float64) * scales[:, None] + bias
    elif kind == "bf16" and table.name == b"avx512_bf16":
        want = (lib.bf16(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64) @ w.values.T + bias
    else:
        want = x.astype(np.float64) @ w.values.T + bias
    want = [want, np.maximum(want, 0), np.tanh(want)][f]
    close = 2e-6 * (1 + np.abs(x).max() * np.abs(w.values).max() * K)
    whole = product(library, table, w, x, bias, f, 2)
    np.testing.assert_allclose(whole, want, rtol=2e-6, atol=close if kind != "int8" else 1e-5)
    without = product(library, table, w, x)
    if f == 0:
        np.testing.assert_allclose(without + bias, want, rtol=2e-6, atol=close)


@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_a_row_does_not_depend_on_the_others(library: Any, table: Any, kind: str) -> None:
    w, x, bias = Matrix(rng.standard_normal((300, 67)), kind), floats(37, 67), floats(300)
    alone = np.concatenate([product(library, table, w, x[n : n + 1], bias, 2) for n in range(37)])
    for rows in (2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 37):
        together = product(library, table, w, x[37 - rows :], bias, 2, rows % 3)
        assert together.tobytes() == alone[37 - rows :].tobytes()


def test_int8_sums_are_the_same_everywhere(library: Any, table: Any) -> None:
    """Sums of products as integers, of extreme values, too; with scales of 1 a float holds them."""
    integers = rng.integers(-127, 128, (96, 300)).astype(np.int8)
    integers[0], integers[1], integers[2, ::2] = 127, -127, -127
    w = _int8_of(integers)
    x = floats(6, 300)
    x[0] = 127
    x[1] = np.where(np.arange(300) % 2, -127, 127)
    x[2:4], x[4], x[2:5, 0] = 64, 65, 127  # an int16 holds four products of 127 and 64, as AVX2 adds them up, not of 65
    x[3] *= np.where(np.arange(300) % 2, -1, 1)
    for inputs in (x, np.abs(x)):  # those that are all positive take fewer instructions
        q, scales = int8_rows(inputs)
        exact = q @ integers.astype(np.int64).T
        want = exact.astype(np.float32) * scales[:, None].astype(np.float32)
        assert np.array_equal(product(library, table, w, inputs), want)


def _int8_of(integers: Array) -> Matrix:
    """A matrix of these values, with scales of 1."""
    w = Matrix(integers.astype(np.float64), "int8")
    M, K = integers.shape
    strips, groups = -(-M // 32), -(-K // 4)
    padded = np.zeros((strips * 32, groups * 4), np.int8)
    padded[:M, :K] = integers
    w.memory[:] = (
        np.ascontiguousarray(padded.reshape(strips, 32, groups, 4).transpose(0, 2, 1, 3)).reshape(-1).view("u1")
    )
    w.scales[:] = 1
    w.sums[:] = integers.sum(1, dtype=np.int32)
    return w


@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_not_a_number_stays_in_its_row(library: Any, table: Any, kind: str) -> None:
    w, x = Matrix(rng.standard_normal((40, 33)), kind), floats(7, 33)
    x[1, 3], x[4, 32], x[5] = np.nan, np.inf, 0
    y = product(library, table, w, x)
    assert np.isnan(y[1]).all() and not np.isfinite(y[4]).any()
    assert np.isfinite(y[[0, 2, 3, 5, 6]]).all() and (y[5] == 0).all()


@pytest.mark.parametrize("kind", ["f32", "bf16", "int8"])
def test_lookup(table: Any, kind: str) -> None:
    w, bias = Matrix(rng.standard_normal((70, 45)), kind), floats(45)
    for row, added, factor in ((0, bias, 1.0), (37, None, 16.0), (69, bias, 0.5)):
        y = empty(46)
        table.embed(w.tensor, row, address(added), factor, address(y))
        want = factor * (w.values[row] + (0 if added is None else added))
        np.testing.assert_allclose(y[:45], want, rtol=1e-5, atol=1e-6)
        assert np.isnan(y[45])


@pytest.mark.parametrize("n", [1, 15, 16, 64, 100, 257])
def test_norms(table: Any, n: int) -> None:
    x, scale, offset, y = floats(n, scale=3) + np.float32(5), floats(n), floats(n), empty(n + 1)
    exact = x.astype(np.float64)
    table.norm(address(x), address(scale), address(offset), 1e-3, address(y), n)
    want = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-3) * scale + offset
    np.testing.assert_allclose(y[:n], want, rtol=1e-5, atol=2e-5)
    assert np.isnan(y[n])
    table.norm(address(x), address(scale), None, 1e-3, address(x), n)
    np.testing.assert_allclose(x, exact / np.sqrt((exact**2).mean() + 1e-3) * scale, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 7, 16, 33, 250])
def test_elementwise(table: Any, n: int) -> None:
    a, b, y = floats(n, scale=3), floats(n), empty(n + 1)
    wide = a.astype(np.float64)
    for call, want in (
        (lambda y: table.add(address(a), address(b), y, n), a + b),
        (lambda y: table.tanh(address(a), y, n), np.tanh(wide)),
        (lambda y: table.swiglu(address(a), address(b), y, n), wide * sigmoid(wide) * b),
        (lambda y: table.powers(address(a), y, n), np.exp(-2 * wide)),
    ):
        call(address(y))
        np.testing.assert_allclose(y[:n], want, rtol=3e-6, atol=1e-7)
        assert np.isnan(y[n])
    table.tanh(address(a), address(a), n)
    np.testing.assert_allclose(a, np.tanh(wide), rtol=3e-6, atol=1e-7)


def test_exponentials_over_the_whole_range(table: Any) -> None:
    """To 1e-6 of their size, 0 and infinity beyond; -ffast-math would break them without an error."""
    x = np.linspace(-43.5, 43.5, 200_003).astype(np.float32)
    y = empty(len(x))
    table.powers(address(x), address(y), len(x))
    assert np.abs(y / np.exp(-2 * x.astype(np.float64)) - 1).max() < 1e-6
    odd = np.array([np.nan, np.inf, -np.inf, 100, -100, 0], np.float32)
    table.powers(address(odd), address(y), len(odd))
    np.testing.assert_array_equal(y[:6], [np.nan, 0, np.inf, 0, np.inf, 1])
    table.tanh(address(x), address(y), len(x))
    assert np.abs(y - np.tanh(x.astype(np.float64))).max() < 3e-7


def positive(x: Array) -> Array:
    return np.where(x >= 0, x + 0.5, sigmoid(x))


def lrn(x: Array, h: Array, _u: Array, _v: Array, p: int) -> Array:
    y = sigmoid(x[0] + h[0]) * x[2] + sigmoid(x[1] - h[0]) * h[0]
    return np.tanh(y) if p else y


def olrn(x: Array, h: Array, u: Array, v: Array, p: int) -> Array:
    c = lrn(x, h, u, v, p)
    return sigmoid(x[3] - c) * c


def sru(x: Array, h: Array, _u: Array, v: Array, _p: int) -> Array:
    f, r = sigmoid(x[1] + v[0][0] * h[1]), sigmoid(x[0] + v[1][0] * h[1])
    c = f * h[1] + (1 - f) * x[2]
    return np.stack([r * c + (1 - r) * x[3], c])


def ssru(x: Array, h: Array, _u: Array, v: Array, _p: int) -> Array:
    f = sigmoid(x[0] + v[0][0])
    c = f * h[1] + (1 - f) * x[1]
    return np.stack([np.maximum(c, 0), c])


def min_gru(x: Array, h: Array, _u: Array, v: Array, p: int) -> Array:
    z, g = sigmoid(x[0] + v[0][0]), x[1] + v[1][0]
    return h[0] + z * ((positive(g) if p else g) - h[0])


def min_lstm(x: Array, h: Array, _u: Array, v: Array, p: int) -> Array:
    f, i, g = sigmoid(x[0] + v[0][0]), sigmoid(x[1] + v[1][0]), x[2] + v[2][0]
    return f / (f + i) * h[0] + i / (f + i) * (positive(g) if p else g)


def atr(x: Array, h: Array, u: Array, v: Array, p: int) -> Array:
    q = u[0] + v[0][0]
    i, f = sigmoid(x[0] + q), sigmoid(x[0] - q)
    i, f = (i, f) if p // 3 == 0 else (1 - f, f) if p // 3 == 1 else (i, 1 - i)
    y = i * (np.tanh(x[0]) if p % 3 == 2 else x[0]) + f * h[0]
    return np.tanh(y) if p % 3 == 1 else y


def rnn(x: Array, _h: Array, u: Array, v: Array, p: int) -> Array:
    y = x[0] + u[0] + v[0][0]
    return np.maximum(y, 0) if p else np.tanh(y)


def gru_reset(x: Array, h: Array, u: Array, v: Array, _p: int) -> Array:
    return sigmoid(x[1] + u[1] + v[0][1]) * h[0]


def gru(x: Array, h: Array, u: Array, v: Array, p: int) -> Array:
    z, r = sigmoid(x[0] + u[0] + v[0][0]), sigmoid(x[1] + u[1] + v[0][1])
    g = np.tanh(x[2] + (r * (u[2] + v[1][0]) if p else u[2] + v[1][0]))
    return z * h[0] + (1 - z) * g


def lstm(x: Array, h: Array, u: Array, v: Array, p: int) -> Array:
    i, f, o, g = x + u + v[0]
    peepholes = [w[0] for w in v[1:]] if len(v) > 1 else [0, 0, 0]
    c = sigmoid(i + peepholes[0] * h[1]) * np.tanh(g) + sigmoid(f + peepholes[1] * h[1]) * h[1]
    return np.stack([sigmoid(o + peepholes[2] * c) * (np.tanh(c), c, sigmoid(c))[p], c])


# unit: equation, inputs, states, recurrent products, the widths of its vectors in H, options
UNITS: dict[int, tuple[Callable[..., Array], int, int, int, tuple[int, ...], range]] = {
    LRN: (lrn, 3, 1, 0, (), range(2)),
    OLRN: (olrn, 4, 1, 0, (), range(2)),
    SRU: (sru, 4, 2, 0, (1, 1), range(1)),
    SSRU: (ssru, 2, 2, 0, (1,), range(1)),
    MIN_GRU: (min_gru, 2, 1, 0, (1, 1), range(2)),
    MIN_LSTM: (min_lstm, 3, 1, 0, (1, 1, 1), range(2)),
    ATR: (atr, 1, 1, 1, (1,), range(9)),
    RNN: (rnn, 1, 1, 1, (1,), range(2)),
    GRU_RESET: (gru_reset, 3, 1, 3, (2,), range(1)),
    GRU: (gru, 3, 1, 3, (2, 1), range(2)),
    LSTM: (lstm, 4, 2, 4, (4,), range(3)),
}


@pytest.mark.parametrize("H", [1, 16, 35, 130])
@pytest.mark.parametrize("number, vectors", [*((n, unit[4]) for n, unit in UNITS.items()), (LSTM, (4, 1, 1, 1))])
def test_units(table: Any, number: int, vectors: tuple[int, ...], H: int) -> None:
    equation, inputs, states, products, _, options = UNITS[number]
    for p in options:
        x, before, u = floats(inputs, H, scale=2), floats(states, H), floats(max(products, 1), H)
        v = [floats(width, H) for width in vectors]
        pointers = (ctypes.c_void_p * 4)(*map(address, v))
        wide = [a.astype(np.float64) for a in (x, before, u)]
        want = equation(*wide, [a.astype(np.float64) for a in v], p).reshape(-1)
        after = empty(want.size + 1)
        seen = address(u) if products else None
        table.unit[number](address(x), address(before), seen, pointers, p, address(after), H)
        np.testing.assert_allclose(after[:-1], want, rtol=2e-6, atol=2e-6)
        assert np.isnan(after[-1])
        table.unit[number](address(x), address(before), seen, pointers, p, address(before), H)
        assert before.reshape(-1)[: want.size].tobytes() == after[:-1].tobytes()


@pytest.mark.parametrize("S", [1, 5, 40])
@pytest.mark.parametrize("heads, D", [(1, 1), (1, 130), (3, 21), (4, 16), (2, 56)])
def test_attention_by_addition(table: Any, heads: int, D: int, S: int) -> None:
    n = heads * D
    q, keys, values, weight = floats(n, scale=2), floats(S, n + 3), floats(S, n + 5), floats(D)
    exact_q, exact_k = (a.astype(np.float64).reshape(-1, heads, D) for a in (q, keys[:, :n].copy()))
    scores = np.einsum("d,shd->hs", weight.astype(np.float64), np.tanh(exact_q + exact_k))
    keys[:, :n] = np.exp(-2 * keys[:, :n])
    shares = softmax(scores)
    found = np.einsum("hs,shd->hd", shares, values[:, :n].reshape(S, heads, D).astype(np.float64)).reshape(-1)
    for keep in (True, False):
        y, told, scratch = empty(n + 1), np.full(S + 1, 3, np.float32), empty(4 * (-(-S // 16) * 16) + 1)
        seen = (address(q), address(keys), n + 3, address(values), n + 5)
        last = (heads, n, S, address(y), address(told) if keep else None, 0.25, address(scratch))
        table.attend_additive(*seen, address(weight), *last)
        np.testing.assert_allclose(y[:n], found, rtol=1e-5, atol=1e-5)
        assert np.isnan(y[n]) and np.isnan(scratch[-1]) and told[-1] == 3
        np.testing.assert_allclose(told[:S], 3 + keep * shares.sum(0) / 4, rtol=1e-5, atol=1e-6)


def tiles(keys: np.ndarray, values: np.ndarray, *, halves: bool = False) -> list[np.ndarray]:
    """Keys and values [S, n] as attention by products reads them, NaN where there is no position; in `halves` without
    the lower half of each float."""
    both = []
    for start in range(0, len(keys), 16):
        tile = np.full((2, 16, keys.shape[1]), np.nan, np.float32)
        tile[0, : len(keys) - start], tile[1, : len(keys) - start] = (
            keys[start : start + 16],
            values[start : start + 16],
        )
        parts = [tile[0].T, tile[1]]
        if halves:
            upper = [(np.ascontiguousarray(part).view(np.uint32) >> 16).astype(np.uint16) for part in parts]
            pairs = [part.reshape(-1, 2, part.shape[1]).swapaxes(1, 2) for part in upper]
            parts = [np.ascontiguousarray(part).reshape(-1).view(np.float32) for part in pairs]
        both.append(np.concatenate([part.reshape(-1) for part in parts]))
    return both


def attend_dot(
    table: Any, q: np.ndarray, keys: np.ndarray, values: np.ndarray, heads: int, *, halves: bool = False
) -> Any:
    """What queries [rows, n] find, and half the sum of the weights of all heads: [rows, n], [rows, S]."""
    (rows, n), S, parts = q.shape, len(keys), tiles(keys, values, halves=halves)
    apart, found = np.full((rows, n + 3), np.nan, np.float32), np.full((rows, n + 5), np.nan, np.float32)
    apart[:, :n] = q
    told = np.zeros((rows, S), np.float32)
    scratch = empty(4 * 16 * len(parts) + 1)
    pointers = (ctypes.c_void_p * len(parts))(*map(address, parts))
    sums = (ctypes.c_void_p * rows)(*(None if r % 3 == 1 else address(told[r]) for r in range(rows)))
    seen = (pointers, halves, heads, n, S, address(found), n + 5)
    table.attend_dot(address(apart), n + 3, rows, *seen, sums, 0.5, address(scratch))
    assert np.isnan(found[:, n:]).all() and np.isnan(scratch[-1])
    return found[:, :n], told


@pytest.mark.parametrize("S", [1, 5, 16, 40])
@pytest.mark.parametrize("heads, D", [(1, 1), (1, 130), (3, 21), (4, 16), (2, 56), (4, 32)])
@pytest.mark.parametrize("halves", [False, True])
def test_attention_by_products(table: Any, heads: int, D: int, S: int, halves: bool) -> None:
    """Several queries at once find what each finds alone, bit for bit."""
    n, rows = heads * D, 7
    q, keys, values = floats(rows, n, scale=2), floats(S, n), floats(S, n)
    if halves:
        if not table.halves or D % 2:
            pytest.skip("these have no halves")
        keys, values = ((x.view(np.uint32) & 0xFFFF0000).view(np.float32) for x in (keys, values))
    exact = [a.astype(np.float64).reshape(-1, heads, D) for a in (q, keys, values)]
    shares = softmax(np.einsum("rhd,shd->rhs", *exact[:2]) / np.sqrt(D))
    found, told = attend_dot(table, q, keys, values, heads, halves=halves)
    np.testing.assert_allclose(
        found, np.einsum("rhs,shd->rhd", shares, exact[2]).reshape(rows, n), rtol=1e-5, atol=1e-5
    )
    wanted = [r for r in range(rows) if r % 3 != 1]
    np.testing.assert_allclose(told[wanted], 0.5 * shares.sum(1)[wanted], rtol=1e-5, atol=1e-6)
    assert not told[1].any()
    for r in range(rows):
        alone = attend_dot(table, q[r : r + 1], keys, values, heads, halves=halves)[0]
        assert alone.tobytes() == found[r : r + 1].tobytes()


@pytest.mark.parametrize("halves", [False, True])
def test_a_value_without_weight_may_be_nan(table: Any, halves: bool) -> None:
    q, keys, values = np.ones((5, 32), np.float32), np.zeros((20, 32), np.float32), np.ones((20, 32), np.float32)
    keys[17], values[17], values[3] = -1e4, np.nan, 2.0
    found, _ = attend_dot(table, q, keys, values, 1, halves=halves and table.halves)
    np.testing.assert_allclose(found[3], np.delete(values, 17, axis=0).mean(0), rtol=1e-5, atol=1e-6)


def test_attention_of_extreme_values(table: Any) -> None:
    """Powers of 0 and infinity, queries beyond the limit; NaN in one head stays there."""
    n, S = 32, 3
    q, values, weight, y = floats(n, scale=100), floats(S, n), floats(n // 2), empty(n)
    keys, scratch = floats(S, n), empty(64)
    keys[0], keys[1, ::2], keys[1, 1::2], keys[2] = 0, np.inf, 0, 1e-30
    q[0], q[1], q[2] = np.inf, -np.inf, 1e30
    call = (address(keys), n, address(values), n, address(weight), 2, n, S, address(y), None, 0.0, address(scratch))
    table.attend_additive(address(q), *call)
    with np.errstate(all="ignore"):
        power = np.exp(-2 * np.clip(q, -35, 35).astype(np.float64))
        scores = 2 * (weight.astype(np.float64) / (1 + power * keys).reshape(S, 2, -1)).sum(-1)
    want = np.einsum("sh,shd->hd", softmax(scores.T).T, values.reshape(S, 2, -1).astype(np.float64)).reshape(-1)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    q[20] = np.nan
    table.attend_additive(address(q), *call)
    assert np.isfinite(y[:16]).all() and np.isnan(y[16:]).all()


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_an_infinite_score_is_seen_in_all_of_its_head(table: Any, infinite: float) -> None:
    """Also one that would only have a weight of 0: it is no number that a model should have."""
    q, keys, values = floats(2, 32), floats(3, 32), floats(3, 32)
    q[0, 20], q[1, 20], keys[1, 20] = 1, 0.5, infinite
    found, _ = attend_dot(table, q, keys, values, 2)
    assert np.isfinite(found[:, :16]).all() and np.isnan(found[:, 16:]).all()


@pytest.mark.parametrize("n", [1, 17, 511, 5000, 100_000])
def test_sums_of_exponentials(table: Any, n: int) -> None:
    x, total = floats(n, scale=4), ctypes.c_double()
    assert table.log_sum_parts(address(x), n, total) == x.max()
    assert abs(total.value / np.exp(x.astype(np.float64) - x.max()).sum() - 1) < 1e-6
    x[n // 2] = -np.inf
    if n > 1:
        assert table.log_sum_parts(address(x), n, total) == x.max() and np.isfinite(total.value)
    x[n - 1] = np.nan
    assert np.isnan(table.log_sum_parts(address(x), n, total)) and np.isnan(total.value)


@pytest.mark.parametrize("n", [1, 19, 500])
def test_a_logarithm_of_a_sum(table: Any, n: int) -> None:
    x, y = floats(n, scale=20), floats(n, scale=20)
    y[0] = -np.inf
    want = np.logaddexp(x.astype(np.float64) - 2.5, y.astype(np.float64))
    table.add_log(address(x), 2.5, address(y), n)
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)
    x[n // 2] = np.nan
    table.add_log(address(x), 2.5, address(y), n)
    assert np.isnan(y[n // 2]) and np.isfinite(np.delete(y, n // 2)).all()


@pytest.mark.parametrize("n", [1, 19, 500])
def test_sums_of_probabilities(table: Any, n: int) -> None:
    x, y = floats(n, scale=4), floats(n)
    parts = np.exp(x.astype(np.float64) - x.max())
    want = y + parts / parts.sum()
    table.add_softmax(address(x), n, address(y))
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)
    for odd in (np.nan, np.inf):
        x, y = floats(n, scale=4), floats(n)
        x[n // 2] = odd
        table.add_softmax(address(x), n, address(y))
        assert np.isnan(y).all()


def test_the_first_maximum(table: Any) -> None:
    for n in (1, 5, 64, 65, 1000):
        x = floats(n)
        x[rng.integers(n, size=3)] = 9
        assert table.first_maximum(address(x), n) == int(np.argmax(x))
        x[rng.integers(n)] = np.nan
        want = 0 if np.isnan(x).all() else int(np.nanargmax(x))
        assert table.first_maximum(address(x), n) == want
    odd = np.array([np.nan, -np.inf, -np.inf], np.float32)
    assert table.first_maximum(address(odd), 3) == 1 and table.first_maximum(address(odd), 1) == 0


def test_the_best_of_several_rows(table: Any) -> None:
    for n, k in ((1, 4), (3, 10), (63, 3), (100, 1), (999, 10), (5000, 64), (5000, 200)):
        rows = np.round(4 * rng.standard_normal((3, n)), 1).astype(np.float32)  # with equal values
        rows[0, :3], rows[1, n // 2] = -np.inf, np.nan
        best, count, adds = (Scored * (k + 1))(), 0, np.float32([0.1, -0.5, 0])
        best[k].id = -7
        for r in range(3):
            count = table.add_best(address(rows[r]), n, adds[r], 10_000 * r, best, count, k)
        values = (rows + adds[:, None]).reshape(-1)
        ids = (10_000 * np.arange(3)[:, None] + np.arange(n)).reshape(-1)[values > -np.inf]
        values = values[values > -np.inf]
        order = np.argsort(-values, kind="stable")[:k]
        assert count == len(order) and best[k].id == -7
        assert [(b.value, b.id) for b in best[:count]] == list(zip(values[order].tolist(), ids[order], strict=True))


def test_rows_do_not_depend_on_their_address(table: Any) -> None:
    """Bit for bit, wherever a row lies in memory."""
    n, S = 77, 9
    x, scale, keys, weight = floats(n), floats(n), np.abs(floats(S, n)), floats(n)
    seen = set()
    for shift in (0, 4, 8, 16, 32, 60):
        moved, y, z, w = empty(n, shift=shift), empty(n, shift=shift), empty(n, shift=shift), empty(n, shift=shift)
        moved[:] = x
        room, total = empty(64), ctypes.c_double()
        table.norm(address(moved), address(scale), address(scale), 1e-5, address(y), n)
        arguments = (address(keys), n, address(keys), n)
        table.attend_additive(
            address(moved), *arguments, address(weight), 1, n, S, address(z), None, 0.0, address(room)
        )
        parts, more = tiles(keys, keys), empty(64)
        pointers = (ctypes.c_void_p * 1)(address(parts[0]))
        table.attend_dot(address(moved), n, 1, pointers, False, 1, n, S, address(w), n, None, 0.0, address(more))
        table.log_sum_parts(address(moved), n, total)
        table.powers(address(moved), address(moved), n)
        table.tanh(address(moved), address(moved), n)
        seen.add((y.tobytes(), z.tobytes(), w.tobytes(), total.value, moved.tobytes()))
    assert len(seen) == 1


def test_plain_kernels_are_the_last_resort(library: Any) -> None:
    assert [*lib.tables(library)][-1] == "plain"


@pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.exists(), reason="needs Linux on x86-64")
def test_the_processor_is_asked_what_it_has(library: Any) -> None:
    line = next(line for line in CPUINFO.read_text(encoding="utf-8").splitlines() if line.startswith("flags"))
    flags = set(line.split())
    avx2 = {"avx2", "fma"}
    vnni = avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
    needs = {"avx512_bf16": vnni | {"avx512_bf16"}, "avx512_vnni": vnni, "avx2": avx2, "plain": set()}
    assert [*lib.tables(library)] == [name for name, needed in needs.items() if needed <= flags]


@pytest.mark.slow
def test_sanitizers_find_nothing(library: Any, tmp_path: Path) -> None:
    """All calls on memory of exactly the size that they may touch; see kernel_calls.c."""
    command = [*(lib.compiler() or []), "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
    program, empty = tmp_path / "calls", tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    if subprocess.run([*command, str(empty), "-o", str(program)], capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no AddressSanitizer or UndefinedBehaviorSanitizer")
    objects = lib.compile_objects(command, tmp_path, machine=platform.machine(), extra=["-O1"])
    calls = str(Path(__file__).with_name("kernel_calls.c"))
    lib.run([*command, "-Wall", "-Wextra", "-Werror", calls, *objects, "-o", str(program), *LIBRARIES])
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr, int(done.stdout)) == (0, "", len([*lib.tables(library)]))


@pytest.mark.slow
@pytest.mark.parametrize("target, machine", [("aarch64-linux-musl", "aarch64"), ("wasm32-wasi", "wasm32")])
def test_cross_compilation(tmp_path: Path, target: str, machine: str) -> None:
    if shutil.which("zig"):
        zig = ["zig"]
    elif importlib.util.find_spec("ziglang"):
        zig = [sys.executable, "-m", "ziglang"]
    else:
        pytest.skip("needs zig on PATH, or the package ziglang")
    assert lib.compile_objects([*zig, "cc", "-target", target], tmp_path, machine=machine)


def test_fast_math_is_refused(tmp_path: Path) -> None:
    command = lib.compiler()
    if command is None:
        pytest.skip("needs a C compiler: cc, gcc, clang, or CC in the environment")
    with pytest.raises(AssertionError, match="-ffast-math breaks"):
        lib.compile_objects(command, tmp_path, machine="", extra=["-ffast-math", "-fsyntax-only"])
