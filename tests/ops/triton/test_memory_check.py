"""What the interpreter forgives and a GPU does not is found: each kind of fault, in a kernel made for it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton", reason="Triton is not installed")
tl = pytest.importorskip("triton.language", reason="Triton is not installed")


@pytest.fixture(autouse=True)
def _only_interpreted(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("on a GPU nobody looks")


def fails(kernel: Any, program: int, programs: int, what: str) -> Any:
    message = f"{kernel.fn.__name__}, program ({program}, 0, 0) of ({programs}, 1, 1): {what}"
    return pytest.raises(AssertionError, match=f"^{re.escape(message)}$")


@triton.jit
def double_kernel(p_x, p_out, sx, so, N, MASK: tl.constexpr):
    """A row of N for each program."""
    i = tl.program_id(0)
    o = tl.arange(0, 8)
    within = o < N
    if MASK == "one more":
        within = o <= N
    if MASK == "none":
        within = o >= 0
    x = tl.load(p_x + i * sx + o, mask=within, other=0.0)
    tl.store(p_out + i * so + o, 2.0 * x, mask=o < N)


def double(x: Tensor, out: Tensor, *, mask: str = "right") -> Tensor:
    double_kernel[(len(x),)](x, out, x.stride(0), out.stride(0), x.size(1), MASK=mask)
    return out


def rows(count: int = 2, width: int = 5) -> Tensor:
    return torch.arange(count * width, dtype=torch.float32).view(count, width)


@pytest.mark.parametrize("x", [rows(), rows(6)[::3], rows(2, 9)[:, 2:7], rows(1).expand(3, 5)])
def test_a_right_kernel_passes_for_any_layout(x: Tensor) -> None:
    wanted = 2 * x
    assert torch.equal(double(x, torch.empty(x.shape)), wanted)
    assert torch.equal(double(x, torch.empty(3, 8)[: len(x), 1:6]), wanted)
    if x.stride(0):
        assert torch.equal(double(x, x), wanted)


@pytest.mark.parametrize(("mask", "program"), [("one more", 1), ("none", 1)])
def test_a_wrong_mask_is_found_at_the_end_of_a_tensor(mask: str, program: int) -> None:
    with fails(double_kernel, program, 2, "p_x: element 10 is outside of shape (2, 5) with strides (5, 1)"):
        double(rows(), torch.empty(2, 5), mask=mask)


@pytest.mark.parametrize("mask", ["one more", "none"])
def test_a_wrong_mask_is_found_at_the_end_of_the_row_of_a_view(mask: str) -> None:
    with fails(double_kernel, 0, 2, "p_x: element 5 is outside of shape (2, 5) with strides (9, 1)"):
        double(rows(2, 9)[:, 2:7], torch.empty(2, 5), mask=mask)


def test_an_address_before_the_tensor_is_found_in_the_right_argument() -> None:
    both = torch.zeros(4, 5)
    with fails(double_kernel, 1, 2, "p_out: element -5 is outside of shape (2, 5) with strides (5, 1)"):
        double_kernel[(2,)](both[:2], both[2:], 5, -5, 5, MASK="right")


def test_two_programs_that_store_the_same_element_are_found() -> None:
    with fails(double_kernel, 1, 3, "stores p_out where program (0, 0, 0) has stored, with no barrier between"):
        double(rows(3), torch.empty(1, 5).expand(3, 5))


@triton.jit
def neighbour_kernel(p_out, p_seen, N, STEP: tl.constexpr):
    i = tl.program_id(0)
    seen = tl.load(p_out + (i + STEP), mask=(i + STEP >= 0) & (i + STEP < N), other=0.0)
    tl.store(p_out + i, 1.0)
    tl.store(p_seen + i, seen)


@pytest.mark.parametrize(
    ("step", "program", "what"),
    [
        (-1, 1, "loads p_out where program (0, 0, 0) has stored, with no barrier between"),
        (1, 0, "loads p_out where program (1, 0, 0) stores later"),
    ],
)
def test_a_program_that_reads_what_another_stores_is_found(step: int, program: int, what: str) -> None:
    out, seen = torch.zeros(3), torch.zeros(3)
    neighbour_kernel[(3,)](out, seen, 3, STEP=0)
    with fails(neighbour_kernel, program, 3, what):
        neighbour_kernel[(3,)](out, seen, 3, STEP=step)


def test_the_same_storage_under_two_names_is_one_memory() -> None:
    both = torch.zeros(4)
    with fails(neighbour_kernel, 1, 3, "loads p_out where program (0, 0, 0) has stored, with no barrier between"):
        neighbour_kernel[(3,)](both[:3], both[1:], 3, STEP=0)


@triton.jit
def lanes_kernel(p_out, SAME: tl.constexpr):
    o = tl.arange(0, 8)
    tl.store(p_out + o // 2, o // 2 if SAME else o)


def test_lanes_that_store_different_values_are_found() -> None:
    lanes_kernel[(1,)](torch.zeros(4, dtype=torch.int32), SAME=True)
    with fails(lanes_kernel, 0, 1, "lanes of one store give an element of p_out different values"):
        lanes_kernel[(1,)](torch.zeros(4, dtype=torch.int32), SAME=False)


@triton.jit
def reread_kernel(p_out, BARRIER: tl.constexpr):
    o = tl.arange(0, 8)
    tl.store(p_out + o, o)
    if BARRIER:
        tl.debug_barrier()
    tl.store(p_out + 8 + o, tl.load(p_out + 7 - o))


def test_a_program_that_reads_its_own_stores_needs_a_barrier() -> None:
    out = torch.zeros(16, dtype=torch.int32)
    reread_kernel[(1,)](out, BARRIER=True)
    assert out[8:].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    with fails(reread_kernel, 0, 1, "loads p_out where it has itself stored, with no barrier between"):
        reread_kernel[(1,)](out, BARRIER=False)


@triton.jit
def misaligned_kernel(p_x, p_out):
    p = (p_x.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.float32))
    tl.store(p_out, tl.load(p))


def test_an_address_between_elements_is_found() -> None:
    with fails(misaligned_kernel, 0, 1, "p_x: 2 bytes from its start is outside of shape (4,) with strides (1,)"):
        misaligned_kernel[(1,)](torch.zeros(4), torch.zeros(1))


@triton.jit
def count_kernel(p_count, PLAINLY: tl.constexpr):
    tl.atomic_add(p_count, 1)
    if PLAINLY:
        tl.store(p_count, 0)


def test_atomic_operations_may_meet_but_nothing_else_may_meet_them() -> None:
    count = torch.zeros(1, dtype=torch.int32)
    count_kernel[(3,)](count, PLAINLY=False)
    assert count.item() == 3
    with fails(count_kernel, 0, 3, "stores p_count, which is updated atomically"):
        count_kernel[(3,)](count, PLAINLY=True)


@triton.jit
def exchange_kernel(p_out, p_seen, p_count, target, SEM: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr,
                    PERSISTENT: tl.constexpr):  # fmt: skip
    """Each program stores, waits for all, and reads what the next one has stored."""
    i = tl.program_id(0)
    n = tl.num_programs(0)
    tl.store(p_out + i, i)
    if BEFORE:
        tl.debug_barrier()
    tl.atomic_add(p_count, 1, sem=SEM)
    while tl.atomic_add(p_count, 0, sem="acquire") < target:
        pass
    if AFTER:
        tl.debug_barrier()
    tl.store(p_seen + i, tl.load(p_out + (i + 1) % n))


def exchange(*, target: int = 3, sem: str = "release", before: bool = True, after: bool = True) -> list[int]:
    out, seen, count = (torch.zeros(n, dtype=torch.int32) for n in (3, 3, 1))
    exchange_kernel[(3,)](out, seen, count, target, SEM=sem, BEFORE=before, AFTER=after, PERSISTENT=True)
    result: list[int] = seen.tolist()
    return result


@pytest.mark.parametrize("missing", [{"before": False}, {"after": False}, {"sem": "relaxed"}])
def test_programs_that_exchange_values_need_the_whole_barrier(missing: Any) -> None:
    assert exchange() == [1, 2, 0]
    with pytest.raises(AssertionError, match=r"loads p_out where program .* has stored, with no barrier between$"):
        exchange(**missing)


def test_a_barrier_that_lets_programs_through_too_early_is_found() -> None:
    with pytest.raises(AssertionError, match="loads p_out where program .* stores later|with no barrier between$"):
        exchange(target=2)


def test_programs_that_wait_for_ever_are_found() -> None:
    with pytest.raises(AssertionError, match="programs wait for each other for ever$"):
        exchange(target=4)


@triton.jit
def far_kernel(p_x, p_out, N, WIDE: tl.constexpr):
    i = tl.program_id(0)
    if WIDE:
        i = i.to(tl.int64)
    tl.store(p_out + i * N, tl.load(p_x + i * N))


def test_offsets_that_do_not_fit_into_32_bits_are_found_without_so_much_memory() -> None:
    x = torch.empty(40_000, 60_000, device="meta")
    far_kernel[(40_000,)](x, x, 60_000, WIDE=True)
    what = "p_x: element -1895027296 is outside of shape (40000, 60000) with strides (60000, 1)"
    with fails(far_kernel, 39_999, 40_000, what):
        far_kernel[(40_000,)](x, x, 60_000, WIDE=False)
