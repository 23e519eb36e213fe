"""The kernels of ATR against its reference, cut into several programs and groups of programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt.kernel_check.cases import TOLERANCES
from nmt.ops.atr import ATR
from nmt.ops.sequence import reference as by_equation
from tests.ops.triton.comparison import assert_equal, make_mask, outputs_and_gradients, randn

atr = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")

LENGTH = 4
STEPWISE = (2, 16, 16, 4, False)  # sentences, channels, depth, warps, persistent
TOGETHER = (*STEPWISE[:4], True)  # the interpreter runs the programs of a persistent launch by turns
ALONE = (16, 64, 16, 4, True)  # one persistent program


def tiles_for(device: torch.device, numbers: Any) -> Any:
    """Products on a GPU have at least 16 rows."""
    return atr.Tiles(*numbers) if device.type == "cpu" else atr.Tiles(16, *numbers[1:])


def inputs(
    device: torch.device, *, batch: int, hidden: int, started: bool = True, normalized: bool = False,
    dtype: Any = torch.float32, directions: int = 1,
) -> list[Any]:  # fmt: skip
    """x [D, B, T, H], h [D, B, H], and for each direction weight, bias, scale and offset."""
    x = randn(directions, batch, LENGTH, hidden, device=device, dtype=dtype)
    h = randn(directions, batch, hidden, device=device, seed=3) if started else None
    parameters = []
    for d in range(directions):
        weight = randn(hidden, hidden, device=device, seed=10 + d).div_(hidden**0.5).to(dtype)
        rest = [randn(hidden, device=device, seed=20 * d + i) for i in (2, 4, 5)]
        parameters += [weight, *(rest if normalized else (rest[0], None, None))]
    return [x, h, *parameters]


def whole(mask: torch.Tensor | None, tiles: Any = None, *, reverse: bool = False, **options: Any) -> Any:
    """The kernels as a function of `inputs`."""

    def run(x: Any, h: Any, *parameters: Any) -> tuple[torch.Tensor, ...]:
        weights = [[part for part in parameters[i : i + 4] if part is not None] for i in range(0, len(parameters), 4)]
        units = [ATR(weights=tuple(parts), normalized=len(parts) > 2, **options) for parts in weights]
        state = None if h is None else [(one,) for one in h]
        result: tuple[torch.Tensor, torch.Tensor] = atr.ATRKernel.whole(
            units, x, state, mask, reverse=reverse, tiles=tiles
        )
        return result[0], result[1][:, 0]

    return run


def reference(mask: torch.Tensor | None, *, reverse: bool = False, **options: Any) -> Any:
    """The same in PyTorch; the tanh of an output is left to who calls the kernels."""
    options = {"gates": "twin", "activation": "none"} | options
    if options["activation"] == "output":
        options["activation"] = "none"

    def run(x: Any, h: Any, *parameters: Any) -> tuple[torch.Tensor, ...]:
        runs = []
        for d in range(len(x)):
            parts = tuple(part for part in parameters[4 * d : 4 * d + 4] if part is not None)
            unit, state = ATR(weights=parts, normalized=len(parts) > 2, **options), None if h is None else (h[d],)
            outputs, (last,) = by_equation(unit, x[d], state, mask, reverse=reverse or d == 1)
            runs.append((outputs, last))
        outputs, last = zip(*runs, strict=True)
        return torch.stack(outputs), torch.stack(last)

    return run


def check(device: torch.device, mask: str, tensors: Any, numbers: Any, **options: Any) -> None:
    live = make_mask(mask, tensors[0].size(1), LENGTH, device)
    assert_equal(whole(live, tiles_for(device, numbers), **options), reference(live, **options), tensors)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("mask", "started", "reverse", "batch", "hidden"),
    [
        ("none", False, False, 2, 16),
        ("holes", True, True, 5, 32),  # three groups, the last of them not full, of two programs
        ("padding", True, False, 3, 40),  # the last program has half its channels, the last product half its depth
    ],
)
def test_several_programs_step_by_step(
    mask: str, started: bool, reverse: bool, batch: int, hidden: int, normalized: bool, device: torch.device
) -> None:
    tensors = inputs(device, batch=batch, hidden=hidden, started=started, normalized=normalized)
    check(device, mask, tensors, STEPWISE, reverse=reverse)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_programs_that_run_together_give_the_same_bits(directions: int, normalized: bool, device: torch.device) -> None:
    """They exchange states and sums through memory: that each read of them is ordered, `memory_order` checks."""
    tensors = inputs(device, batch=3, hidden=24, normalized=normalized, directions=directions)
    mask, reverse = make_mask("holes", 3, LENGTH, device), directions == 1
    runs = [whole(mask, tiles_for(device, numbers), reverse=reverse) for numbers in (TOGETHER, STEPWISE)]
    first, second = (outputs_and_gradients(run, tensors) for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    wanted = outputs_and_gradients(reference(mask, reverse=reverse), [x if x is None else x.double() for x in tensors])
    for ours, right in zip(first, wanted, strict=True):
        assert (ours - right).norm() < TOLERANCES[torch.float32] * right.norm()


@pytest.mark.parametrize("gates", ["twin", "coupled", "coupled_input"])
@pytest.mark.parametrize("activation", ["none", "state", "candidate"])
def test_all_designs_in_one_persistent_program(activation: str, gates: str, device: torch.device) -> None:
    tensors = inputs(device, batch=3, hidden=24, normalized=gates == "twin")
    check(device, "holes", tensors, ALONE, reverse=gates == "coupled", activation=activation, gates=gates)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_products_with_fp32_state(dtype: torch.dtype, normalized: bool, device: torch.device) -> None:
    tensors = inputs(device, batch=3, hidden=24, dtype=dtype, normalized=normalized)
    kernel = whole(None, atr.Tiles(*ALONE))
    outputs, last = kernel(*tensors)
    assert (outputs.dtype, last.dtype) == (dtype, torch.float32)
    assert_equal(kernel, reference(None), tensors, storage=dtype, slack=2)  # rounded states are multiplied


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_layer_norm_of_products_far_from_zero(scale: float, device: torch.device) -> None:
    """Means of the programs apart from each other, and a mean far larger than the distances to it."""
    tensors = inputs(device, batch=3, hidden=40, normalized=True)
    tensors[1], tensors[2] = tensors[1] + 30, (tensors[2] + 0.3 + torch.arange(40, device=device)[:, None] / 40) * scale
    tensors[0] = tensors[0] / 100
    assert_equal(whole(None, tiles_for(device, STEPWISE)), reference(None), tensors, slack=3)


@pytest.mark.parametrize("normalized", [False, True])
def test_autocast_computes_products_in_its_type(normalized: bool, device: torch.device) -> None:
    tensors = inputs(device, batch=2, hidden=24, normalized=normalized)
    tensors[2].requires_grad_()
    results = []
    for function in (whole(None), reference(None)):
        with torch.autocast(device.type, torch.bfloat16):
            outputs, last = function(*tensors)
        assert outputs.dtype == last.dtype == torch.float32  # the state is
        results.append((outputs.detach(), *torch.autograd.grad(outputs.sum() + last.sum(), tensors[2])))
    (ours, gradient), (right, right_gradient) = results
    torch.testing.assert_close(ours, right, rtol=2e-2, atol=2e-2)
    # The reference adds its gradient up in bf16, step by step: which single values come near depends on the device.
    assert (gradient - right_gradient).norm() < 2e-2 * right_gradient.norm()
    assert not torch.equal(ours, reference(None)(*tensors)[0])


def test_what_is_empty_or_does_not_fit_is_left_to_others(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, h, *parameters = inputs(device, batch=2, hidden=16)
    units = [ATR(weights=tuple(parameters[:2]))]
    assert atr.ATRKernel.whole(units, x[:, :, :0], [tuple(h)], None, reverse=False) is None
    monkeypatch.setattr(atr, "fits_on_chip", lambda weight, *, batch: False)
    assert atr.ATRKernel.whole(units, x, [tuple(h)], None, reverse=False) is None


@pytest.mark.gpu
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("batch", "hidden"), [(64, 512), (50, 512), (64, 1024)])
def test_persistent_equals_stepwise_bit_for_bit_200_times(
    batch: int, hidden: int, normalized: bool, device: torch.device
) -> None:
    tensors = inputs(device, batch=batch, hidden=hidden, normalized=normalized, dtype=torch.bfloat16)
    tensors[0] = randn(1, batch, 33, hidden, device=device, dtype=torch.bfloat16)
    numbers = (16, 32, 128, 4)
    for reverse in (False, True):
        wanted = outputs_and_gradients(whole(None, atr.Tiles(*numbers, False), reverse=reverse), tensors)
        run = whole(None, atr.Tiles(*numbers, True), reverse=reverse)
        for _ in range(100):
            ours = outputs_and_gradients(run, tensors)
            assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("normalized", [False, True])
def test_a_batch_too_large_for_the_gpu_is_split(normalized: bool, device: torch.device) -> None:
    tensors = inputs(device, batch=600, hidden=512, normalized=normalized, dtype=torch.bfloat16)
    weight = tensors[2].unsqueeze(0)
    tiles = atr.tile_rule(weight, batch=600)
    assert tiles.persistent
    assert len(list(atr.launches(600, LENGTH, tiles, weight=weight, normalized=normalized))) > 1
    assert_equal(whole(None), reference(None), tensors, storage=torch.bfloat16, slack=2)
