"""A call of a C kernel is right or refused with one line: count, kinds, memory of arguments; a C file of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

from nmt.compiling import BuildError
from nmt.ops import native
from nmt.ops.native import build, in_one_team, kernel
from tests.ops.units import needs_native

pytestmark = needs_native

ROWS, WIDTH = 3, 4


def right(dtype: torch.dtype) -> list[Any]:
    """Arguments of add_rows."""
    return [torch.ones(ROWS, WIDTH, dtype=dtype), WIDTH, torch.zeros(ROWS, WIDTH), ROWS, WIDTH]


def fake() -> Tensor:
    with FakeTensorMode():
        return torch.zeros(ROWS, WIDTH)


class Own(Tensor):
    """A subclass, which may have no memory."""


WRONG: list[tuple[int, Any, str]] = [
    (0, 4711, r"argument 1 \(const T \*x\) must be a tensor float32 .* not 4711$"),
    (0, None, r"argument 1 \(const T \*x\) must be a tensor float32 .* not None$"),
    (1, 4.0, r"argument 2 \(i64 xr\) must be an integer of 64 bits, not 4.0$"),
    (1, None, r"argument 2 \(i64 xr\) must be an integer of 64 bits, not None$"),
    (3, torch.zeros(2, 2), r"argument 4 \(i64 rows\) must be an integer of 64 bits, not a tensor float32 on cpu$"),
    (3, 1 << 64, r"a number is too large"),
    (2, [1.0], r"argument 3 \(float \*sum\) must be"),
    (
        2,
        torch.zeros(ROWS, WIDTH, dtype=torch.float64),
        r"a tensor float32 in the memory of the CPU, not a tensor float64 on cpu$",
    ),
    (2, torch.zeros(ROWS, WIDTH, device="meta"), r"not a tensor float32 on meta$"),
    (2, fake(), r"not a tensor float32 on cpu, a FakeTensor$"),
    (2, torch.zeros(ROWS, WIDTH).as_subclass(Own), r"not a tensor float32 on cpu, a Own$"),
    (2, torch.zeros(ROWS, WIDTH).to_sparse(), r"a tensor has no memory$"),
]


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("place", "value", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_argument_is_refused(place: int, value: Any, message: str, deferred: bool) -> None:
    dtype = torch.bfloat16 if deferred else torch.float32
    arguments = right(dtype)
    kernel("add_rows", dtype)(*arguments)
    arguments[place] = value
    message = message.replace("tensor float32 .* not", f"tensor {str(dtype)[6:]} .* not")
    with in_one_team(possible=deferred), pytest.raises(TypeError, match=f"^add_rows: .*{message}") as refused:
        kernel("add_rows", dtype)(*arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4, 6, 30])
def test_another_number_of_arguments_is_refused(count: int, deferred: bool) -> None:
    dtype = torch.bfloat16 if deferred else torch.float32
    arguments = (right(dtype) * 6)[:count]
    with in_one_team(possible=deferred), pytest.raises(TypeError, match=f"^add_rows takes 5 arguments, not {count}$"):
        kernel("add_rows", dtype)(*arguments)


def test_a_tensor_inside_vmap_is_refused() -> None:
    def sums(x: Tensor) -> Tensor:
        kernel("add_rows", x.dtype)(x, WIDTH, torch.zeros(ROWS, WIDTH), ROWS, WIDTH)
        return x

    with pytest.raises(TypeError, match="^add_rows: .*a tensor has no memory$"):
        vmap(sums)(torch.ones(2, ROWS, WIDTH))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(BuildError, match="^there is no kernel sum_rows for float32 in this library$"):
        kernel("sum_rows", torch.float32)


def test_every_kernel_of_every_source_has_a_signature() -> None:
    for source in build.sources():
        text = source.read_text(encoding="utf-8")
        declared = text.count("API void NAME(") + 2 * text.count('#include "../native/scan.h"')
        assert len(build.read_signatures(source)) == declared, source


OWN = """
#include "simd.h"
#include "own.h"

/* sum[r, j] += factor_%(digit)s x[r, j] for all of them; API void NAME(in_a_comment)(double x) {} */
API void NAME(scaled)(const T *x, float *sum, i64 n, %(many)s, float factor, i64 threads) {
    PARALLEL_FOR(n)
    for (i64 i = 0; i < n; i++) sum[i] += OWN_FACTOR * factor * LOAD(x[i]) * (float)(%(total)s);
}
"""
MANY = [f"i64 a{i}" for i in range(30)]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A kernel of more arguments than any other has, with a float among them."""
    total = " + ".join(f"a{i}" for i in range(30))
    source = tmp_path / "own.c"
    source.write_text(OWN % {"digit": 1, "many": ", ".join(MANY), "total": total}, encoding="utf-8")
    (tmp_path / "own.h").write_text("#define OWN_FACTOR 1.0f\n", encoding="utf-8")
    yield source
    for cached in (native.kernel, native.problem, native._library):
        cached.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_file_of_ones_own_is_compiled_and_called_like_any_other(own: Path, dtype: torch.dtype) -> None:
    x, total, numbers = torch.ones(8, dtype=dtype), torch.zeros(8), [0] * 29 + [2]
    scaled = kernel("scaled", dtype, source=own)
    scaled(x, total, 8, *numbers, 0.25)
    assert torch.equal(total, torch.full((8,), 0.5))
    with in_one_team(possible=True):
        kernel("add_rows", dtype)(x, 8, total, 1, 8)
        scaled(x, total, 8, *numbers, 0.75)
        assert (dtype == torch.bfloat16) == torch.equal(total, torch.full((8,), 0.5))
    assert torch.equal(total, torch.full((8,), 3.0))
    with pytest.raises(TypeError, match="^scaled takes 34 arguments, not 33$"):
        scaled(x, total, 8, *numbers)
    with pytest.raises(BuildError, match=f"^there is no kernel add_rows for .* in {own}$"):
        kernel("add_rows", dtype, source=own)
    (own.parent / "own.h").write_text("#define OWN_FACTOR 2.0f\n", encoding="utf-8")
    for cached in (native.kernel, native._library):
        cached.cache_clear()
    kernel("scaled", dtype, source=own)(x, total, 8, *numbers, 1.0)
    assert torch.equal(total, torch.full((8,), 7.0))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("API void NAME(f)(const T *x, double y, i64 threads) {}", "own.c: f: 'double y' is no pointer to T, char, "),
        ("API void NAME(f)(const T *x, i64 n) {}", "own.c: f: the last parameter must be 'i64 threads'$"),
        ('#include "simd.h"\nAPI void NAME(f)(i64 threads) { threads + }', r"own\.c:2:\d+: error: "),
        (None, "own.c: No such file"),
    ],
    ids=["unknown type", "no threads", "no C", "no file"],
)
def test_what_is_wrong_with_a_file_of_ones_own_is_said_in_one_line(own: Path, text: str | None, reason: str) -> None:
    own.unlink()
    if text is not None:
        own.write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=reason) as caught:
        kernel("f", torch.float32, source=own)
    assert "\n" not in str(caught.value)
