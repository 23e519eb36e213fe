"""Products with a weight matrix: values and all gradients by the C kernels against the same sums in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from nmt.ops import native
from nmt.ops.matrices import (
    PackedMatrix,
    PackedWideMatrix,
    PlainMatrix,
    linear,
    matrix_of,
    matrix_of_steps,
    packable,
)

BF16 = torch.bfloat16
needs_kernel = pytest.mark.skipif(
    not packable(torch.zeros(2, 2), BF16), reason="no compiled kernels, or the CPU has AMX or no avx512_bf16"
)
HAS_WIDE = native.problem() is None and native.has("fp32_product", torch.float32)
needs_wide_kernel = pytest.mark.skipif(not HAS_WIDE, reason="no compiled kernels, or the CPU has no AVX-512")
SIZES = [(1, 2, 2), (5, 6, 70), (12, 34, 46), (115, 128, 96), (97, 64, 32), (1043, 18, 50), (400, 64, 96)]
"""Rows, K and M: less than, equal to and more than tiles, strips and blocks."""


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN, so that what a kernel should have written and did not is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Values that bf16 has, so that only sums and results are rounded."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(BF16).float()


def check(found: Tensor, wanted: Tensor) -> None:
    """To the rounding of the type that was found."""
    close = 1e-5 if found.dtype == torch.float32 else 4e-3
    assert (found.double() - wanted).norm() <= close * wanted.norm()


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
@pytest.mark.parametrize("kind", [pytest.param(PackedMatrix, marks=needs_kernel), PlainMatrix])
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_products_of_matrices(
    kind: type[PackedMatrix] | type[PlainMatrix], rows: int, inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    weight, bias, added = random(outputs, inputs), random(outputs), random(rows, inputs)
    x, d_out = random(rows, inputs + 3)[:, :inputs], random(rows, outputs + 3)[:, :outputs]  # rows stand apart
    operand = BF16 if kind is PackedMatrix else dtype
    matrix = kind(weight.to(dtype))
    x, d_out = x.to(operand), d_out.to(operand)
    for wanted_bias in (None, bias):
        out = torch.empty(rows, outputs, dtype=dtype)
        matrix.forward(x, out=out, bias=None if wanted_bias is None else wanted_bias.to(dtype))
        check(out, x.double() @ weight.double().t() + (0 if wanted_bias is None else bias.double()))
    dx = torch.empty(rows, inputs, dtype=dtype)
    matrix.backward(d_out, out=dx)
    check(dx, d_out.double() @ weight.double())
    matrix.backward(d_out, out=dx, added=added.to(dtype))
    check(dx, d_out.double() @ weight.double() + added.double())
    gradient = d_out.double().t() @ x.double()
    found = matrix.weight_gradient(d_out, x)
    assert found.dtype == torch.float32
    check(found if kind is PackedMatrix else found.to(dtype), gradient)
    twice = matrix.weight_gradient(d_out, x, to=found)
    assert twice is found
    check(twice if kind is PackedMatrix else twice.to(dtype), 2 * gradient)


@needs_wide_kernel
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [*SIZES, (1, 1, 1), (13, 33, 65), (20, 65, 260)])
def test_products_in_fp32(rows: int, inputs: int, outputs: int) -> None:
    torch.manual_seed(rows + inputs + outputs)
    wide = torch.randn(outputs, inputs + 5)
    weight, bias, added = wide[:, :inputs], torch.randn(outputs), torch.randn(rows, inputs + 1)[:, 1:]
    x, d_out = torch.randn(rows, inputs + 3)[:, 1 : inputs + 1], torch.randn(rows, outputs + 3)[:, :outputs]
    matrix = PackedWideMatrix(weight)
    for wanted_bias in (None, bias):
        out = torch.empty(rows, outputs + 2)[:, 2:]  # not one value more may be written
        around = out._base
        assert around is not None
        around.fill_(3.0)
        matrix.forward(x, out=out, bias=wanted_bias)
        check(out, x.double() @ weight.double().t() + (0 if wanted_bias is None else bias.double()))
        assert (around[:, :2] == 3.0).all()
    dx = torch.empty(rows, inputs)
    matrix.backward(d_out, out=dx)
    check(dx, d_out.double() @ weight.double())
    matrix.backward(d_out, out=dx, added=added)
    check(dx, d_out.double() @ weight.double() + added.double())
    matrix.backward(d_out, out=dx, added=dx)  # in its place
    check(dx, 2 * (d_out.double() @ weight.double()) + added.double())
    found = matrix.weight_gradient(d_out, x)
    check(found, d_out.double().t() @ x.double())
    assert matrix.weight_gradient(d_out, x, to=found) is found
    check(found, 2 * (d_out.double().t() @ x.double()))
    alone = torch.empty(1, outputs)
    matrix.forward(x[-1:], out=alone)
    together = torch.empty(rows, outputs)
    matrix.forward(x, out=together)
    assert torch.equal(alone[0], together[-1])  # no row depends on the others


@needs_wide_kernel
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_no_value_hides_a_fault_in_fp32(bad: float) -> None:
    x, weight, out = torch.ones(3, 40), torch.ones(50, 40), torch.empty(3, 50)
    x[1, 39] = bad
    PackedWideMatrix(weight).forward(x, out=out)
    assert not out[1].isfinite().any() and (out[[0, 2]] == 40).all()


def test_when_a_matrix_is_packed_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(*, steps: int = 2, dtype: torch.dtype = torch.float32) -> type[PlainMatrix]:
        return type(matrix_of_steps(torch.ones(7, 3, dtype=dtype), dtype, steps=steps))

    assert kind() is type(matrix_of(torch.ones(7, 3), torch.float32)) is (PackedWideMatrix if HAS_WIDE else PlainMatrix)
    assert kind(steps=1) is kind(dtype=torch.float64) is kind(dtype=BF16) is PlainMatrix
    monkeypatch.setattr("nmt.ops.matrices.has", lambda *_: False)
    assert kind() is PlainMatrix


@pytest.mark.parametrize(
    ("type_of_x", "dtype"),
    [
        pytest.param(torch.float32, BF16, marks=needs_kernel),
        pytest.param(BF16, BF16, marks=needs_kernel),
        pytest.param(torch.float32, torch.float32, marks=needs_wide_kernel),
    ],
)
def test_value_and_gradients(type_of_x: torch.dtype, dtype: torch.dtype) -> None:
    weight, bias = nn.Parameter(random(48, 20)), nn.Parameter(random(48))
    x = random(3, 7, 20).to(type_of_x).requires_grad_()
    with torch.autocast("cpu", dtype=BF16, enabled=dtype == BF16):
        out = linear(x, weight, bias)
    assert out.dtype == dtype
    d_out = random(7, 3, 48).to(dtype).transpose(0, 1)
    out.backward(d_out)
    exact = [part.detach().double().requires_grad_() for part in (x, weight, bias)]
    wanted = nn.functional.linear(*exact)
    wanted.backward(d_out.double())
    check(out, wanted)
    for given, right in zip((x, weight, bias), exact, strict=True):
        assert given.grad is not None and right.grad is not None
        assert given.grad.dtype == given.dtype
        check(given.grad, right.grad)


@needs_wide_kernel
def test_threads_change_nothing_in_fp32() -> None:
    weight, x, d_out = torch.randn(500, 64), torch.randn(40, 64), torch.randn(40, 500)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            matrix, out, dx = PackedWideMatrix(weight), torch.empty(40, 500), torch.empty(40, 64)
            matrix.forward(x, out=out)
            matrix.backward(d_out, out=dx)
            found.append((out, dx, matrix.weight_gradient(d_out, x)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for later in found[1:] for one, other in zip(found[0], later, strict=True))


@needs_kernel
def test_threads_change_nothing() -> None:
    weight, x, d_out = random(200, 64), random(500, 64).to(BF16), random(500, 200).to(BF16)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            matrix, out, dx = PackedMatrix(weight), torch.empty(500, 200, dtype=BF16), torch.empty(500, 64)
            matrix.forward(x, out=out)
            matrix.backward(d_out, out=dx)
            found.append((out, dx, matrix.weight_gradient(d_out, x)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for later in found[1:] for one, other in zip(found[0], later, strict=True))


def test_what_no_kernel_computes_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a kernel was called")

    monkeypatch.setattr(PackedMatrix, "__init__", refuse)
    x, odd, even = random(4, 6), nn.Parameter(random(3, 6)), nn.Parameter(random(4, 6))
    assert linear(x.double(), even.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=BF16):
        assert linear(x, odd).dtype == BF16
        with torch.no_grad():
            assert linear(x, even).dtype == BF16
    assert isinstance(matrix_of(odd, BF16), PlainMatrix)


def test_without_the_instruction_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.ops.matrices.has", lambda *_: False)
    weight, x = nn.Parameter(random(4, 6)), random(5, 6)
    with torch.autocast("cpu", dtype=BF16):
        linear(x, weight).sum().backward()
    assert weight.grad is not None
    check(weight.grad.to(BF16), x.double().sum(0).expand(4, 6))
    assert isinstance(matrix_of(weight, BF16), PlainMatrix)


@pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")
def test_a_kernel_that_is_not_there_is_known() -> None:
    assert native.has("sum_columns", BF16)
    assert not native.has("no_such_kernel", BF16)
