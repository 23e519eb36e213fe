"""The kernels of ATR against its reference, cut into several programs and groups of programs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.errors import ConfigError
from nmt.ops import dispatch
from nmt.ops.atr.reference import atr_reference
from nmt.ops.recurrence import Recurrent
from tests.ops.triton.comparison import assert_equal, make_mask, outputs_and_gradients, randn

atr = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")

LENGTH = 4
STEPWISE = (2, 16, 16, 4, 0)  # sentences, channels, depth, warps, persistent
ALONE = (16, 64, 16, 4, 1)  # one persistent program: the interpreter runs programs one after the other


def inputs(device: torch.device, *, batch: int, hidden: int, started: bool = True, dtype: Any = torch.float32) -> Any:
    """projected, weight, bias and h."""
    x = randn(batch, LENGTH, hidden, device=device, dtype=dtype)
    weight = randn(hidden, hidden, device=device, seed=1).div_(hidden**0.5).to(dtype)
    h = randn(batch, hidden, device=device, seed=3) if started else None
    return [x, weight, randn(hidden, device=device, seed=2), h]


def bound(function: Callable[..., Any], mask: torch.Tensor | None, **options: Any) -> Callable[..., Any]:
    options = {"reverse": False, "activation": "none", "gates": "twin"} | options
    return lambda x, weight, bias, h: function(x, Recurrent(weight, bias), h, mask, **options)


def check(device: torch.device, mask: str, tensors: Any, tiles: Any, **options: Any) -> None:
    live = make_mask(mask, tensors[0].size(0), LENGTH, device)
    assert_equal(bound(atr.atr_triton, live, tiles=tiles, **options), bound(atr_reference, live, **options), tensors)


@pytest.mark.parametrize(
    ("mask", "started", "reverse", "batch", "hidden"),
    [
        ("none", False, False, 2, 16),
        ("holes", True, True, 5, 32),  # three groups, the last of them not full, of two programs
        ("padding", True, False, 3, 40),  # the last program has half its channels, the last product half its depth
    ],
)
def test_several_programs_step_by_step(
    mask: str, started: bool, reverse: bool, batch: int, hidden: int, device: torch.device
) -> None:
    tiles = STEPWISE if device.type == "cpu" else (16, *STEPWISE[1:])
    check(device, mask, inputs(device, batch=batch, hidden=hidden, started=started), tiles, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("gates", ["twin", "coupled", "coupled_input"])
@pytest.mark.parametrize("activation", ["none", "output", "state", "candidate"])
def test_all_designs_in_one_persistent_program(
    activation: str, gates: str, reverse: bool, device: torch.device
) -> None:
    tensors = inputs(device, batch=3, hidden=24)
    check(device, "holes", tensors, ALONE, reverse=reverse, activation=activation, gates=gates)


def test_persistent_and_stepwise_are_the_same_bits(device: torch.device) -> None:
    tensors = inputs(device, batch=3, hidden=24)
    runs = [bound(atr.atr_triton, None, tiles=(*ALONE[:4], persistent)) for persistent in (1, 0)]
    first, second = (outputs_and_gradients(run, tensors) for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_products_with_fp32_state(dtype: torch.dtype, device: torch.device) -> None:
    tensors = inputs(device, batch=3, hidden=24, dtype=dtype)
    outputs, last = bound(atr.atr_triton, None, tiles=ALONE)(*tensors)
    assert (outputs.dtype, last.dtype) == (dtype, torch.float32)
    kernel = bound(atr.atr_triton, None, tiles=ALONE)
    assert_equal(kernel, bound(atr_reference, None), tensors, storage=dtype, slack=2)  # rounded states are multiplied


def test_both_directions_in_one_launch_are_the_two_alone(device: torch.device) -> None:
    x = randn(2, LENGTH, 2, 24, device=device)
    weight, bias = randn(2, 24, 24, device=device, seed=1) / 5, randn(2, 24, device=device, seed=2)
    h = randn(2, 2, 24, device=device, seed=3)
    mask = make_mask("holes", 2, LENGTH, device)
    design = {"activation": "output", "gates": "twin", "tiles": (16, 32, 16, 4, 0)}

    def apart(x: Any, weight: Any, bias: Any, h: Any) -> tuple[torch.Tensor, torch.Tensor]:
        runs = [
            atr.atr_triton(x[:, :, d], Recurrent(weight[d], bias[d]), h[d], mask, reverse=d == 1, **design)
            for d in (0, 1)
        ]
        outputs, last = zip(*runs, strict=True)
        return torch.cat(outputs, -1), torch.stack(last)

    def both(x: Any, weight: Any, bias: Any, h: Any) -> Any:
        return atr.atr_both_triton(x, Recurrent(weight, bias), h, mask, **design)

    tensors = [x, weight, bias, h]
    for a, b in zip(outputs_and_gradients(both, tensors), outputs_and_gradients(apart, tensors), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # the GEMMs add in another order


def test_autocast_computes_products_in_its_type(device: torch.device) -> None:
    x, weight, bias, h = inputs(device, batch=2, hidden=24)
    weight.requires_grad_()
    results = []
    for function in (bound(atr.atr_triton, None), bound(atr_reference, None)):
        with torch.autocast(device.type, torch.bfloat16):
            outputs, last = function(x, weight, bias, h)
        assert outputs.dtype == last.dtype == torch.float32  # the state is
        results.append((outputs.detach(), *torch.autograd.grad(outputs.sum() + last.sum(), weight)))
    (ours, gradient), (right, right_gradient) = results
    torch.testing.assert_close(ours, right, rtol=2e-2, atol=2e-2)
    # The reference adds its gradient up in bf16, step by step: which single values come near depends on the device.
    assert (gradient - right_gradient).norm() < 2e-2 * right_gradient.norm()
    assert not torch.equal(ours, bound(atr_reference, None)(x, weight, bias, h)[0])


def test_fp64_is_left_to_the_reference_and_that_is_said_once(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = [tensor.double() for tensor in inputs(device, batch=2, hidden=16)]
    dispatch._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        ours = [bound(atr.atr_triton, None)(*tensors) for _ in range(2)][-1]
    torch.testing.assert_close(ours, bound(atr_reference, None)(*tensors))
    assert [record.getMessage() for record in caplog.records] == [
        "atr: the PyTorch reference runs instead of the Triton kernel: there is none for weights of float64."
    ]


def test_fp64_is_an_error_for_who_insists_on_triton(device: torch.device) -> None:
    tensors = [tensor.double() for tensor in inputs(device, batch=2, hidden=16)]
    refused = "^kernels: 'triton' cannot run atr: .* weights of float64. Use auto.$"
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=refused):
        bound(atr.atr_triton, None)(*tensors)


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "hidden"), [(64, 512), (50, 512), (64, 1024)])
def test_persistent_equals_stepwise_bit_for_bit_200_times(batch: int, hidden: int, device: torch.device) -> None:
    x, weight, bias, h = inputs(device, batch=batch, hidden=hidden, dtype=torch.bfloat16)
    x = randn(batch, 33, hidden, device=device, dtype=torch.bfloat16)
    numbers = (16, 32, 128, 4)
    tensors = [x, weight, bias, h]
    for reverse in (False, True):
        wanted = outputs_and_gradients(bound(atr.atr_triton, None, reverse=reverse, tiles=(*numbers, 0)), tensors)
        run = bound(atr.atr_triton, None, reverse=reverse, tiles=(*numbers, 1))
        for _ in range(100):
            ours = outputs_and_gradients(run, tensors)
            assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))


@pytest.mark.gpu
def test_a_batch_too_large_for_the_gpu_is_split(device: torch.device) -> None:
    tensors = inputs(device, batch=600, hidden=512, dtype=torch.bfloat16)
    tiles = atr.tile_rule(tensors[1].unsqueeze(0), batch=600)
    assert tiles.persistent
    assert len(list(atr.launches(600, LENGTH, tiles, weight=tensors[1].unsqueeze(0)))) > 1
    assert_equal(bound(atr.atr_triton, None), bound(atr_reference, None), tensors, storage=torch.bfloat16, slack=2)
