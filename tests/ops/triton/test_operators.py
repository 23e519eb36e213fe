"""The kernels as operators of torch: its own checks, autocast, compilation, checkpointing, the way to them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from nmt.errors import ConfigError
from nmt.ops import dispatch
from nmt.ops.lrn.reference import lrn_reference
from nmt.registry import CELLS
from tests.ops.triton.comparison import make_mask, randn

lrn = pytest.importorskip("nmt.ops.lrn.triton", reason="Triton is not installed")
sru = pytest.importorskip("nmt.ops.sru.triton", reason="Triton is not installed")

UNITS = ("atr", "gru", "lrn", "lstm", "olrn", "sru")
BATCH, LENGTH, HIDDEN = 2, 3, 5


def leaf(*shape: int, device: torch.device, seed: int = 0) -> torch.Tensor:
    return randn(*shape, device=device, seed=seed).requires_grad_()


def samples(device: torch.device) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """An operator and its arguments."""
    mask = make_mask("holes", BATCH, LENGTH, device)
    h = leaf(1, BATCH, HIDDEN, device=device, seed=1)
    c = leaf(1, BATCH, HIDDEN, device=device, seed=2)
    peepholes = leaf(1, HIDDEN, device=device, seed=3), leaf(1, HIDDEN, device=device, seed=4)
    x = leaf(1, BATCH, LENGTH, 4 * HIDDEN, device=device)
    both = leaf(BATCH, LENGTH, 2, 3 * HIDDEN, device=device).permute(2, 0, 1, 3)
    return {
        "olrn": (lrn.lrn_op, (x, mask, h, True, True, True, None)),
        "lrn, both directions": (lrn.lrn_op, (both, None, None, False, False, False, None)),
        "sru": (sru.sru_op, (x, *peepholes, mask, h, c, False, None)),
    }


@pytest.mark.parametrize("name", ["olrn", "lrn, both directions", "sru"])
def test_operators_pass_the_checks_of_torch(name: str, device: torch.device) -> None:
    operator, arguments = samples(device)[name]
    torch.library.opcheck(operator, arguments)


def run_lrn(x: torch.Tensor) -> torch.Tensor:
    outputs, last = lrn.lrn_triton(x, None, None, reverse=False, tanh=False)
    return outputs.float().sum() + last.sum()


def test_autocast_gives_low_precision_outputs_and_an_fp32_state(device: torch.device) -> None:
    x, weight = randn(BATCH, LENGTH, 4, device=device), leaf(3 * HIDDEN, 4, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        outputs, last = lrn.lrn_triton(F.linear(x, weight), None, None, reverse=False, tanh=False)
    assert (outputs.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    (ours,) = torch.autograd.grad(outputs.float().sum() + last.sum(), weight)
    outputs, last = lrn_reference(F.linear(x, weight), None, None, reverse=False, tanh=False)
    (wanted,) = torch.autograd.grad(outputs.sum() + last.sum(), weight)
    assert ours.dtype == torch.float32
    assert (ours - wanted).norm() < 2e-2 * wanted.norm()


def test_a_compiled_model_contains_the_operator_whole(device: torch.device) -> None:
    x = leaf(BATCH, LENGTH, 3 * HIDDEN, device=device)
    compiled = torch.compile(lambda x: run_lrn(2 * x), backend="aot_eager", fullgraph=True)
    (ours,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(run_lrn(2 * x), x)[0])


def test_activation_checkpointing(device: torch.device) -> None:
    x = leaf(BATCH, LENGTH, 3 * HIDDEN, device=device)
    (ours,) = torch.autograd.grad(checkpoint(run_lrn, x, use_reentrant=False), x)
    assert torch.equal(ours, torch.autograd.grad(run_lrn(x), x)[0])


class Layer(torch.nn.Module):
    """A recurrent layer on its kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = CELLS.get("lrn")(4, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, last = lrn.lrn_triton(self.cell.project(x), None, None, reverse=False, tanh=False)
        return outputs.sum() + last.sum()


def test_distributed_data_parallel(device: torch.device) -> None:
    """As a process alone, whose gradients go through the buckets of the exchange."""
    layer, x = Layer().to(device), randn(BATCH, LENGTH, 4, device=device)
    (wanted,) = torch.autograd.grad(layer(x), layer.cell.input_weight)
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        torch.nn.parallel.DistributedDataParallel(layer)(x).backward()
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(layer.cell.input_weight.grad, wanted)


@pytest.mark.parametrize("used", [0, 1])
def test_gradients_where_only_one_output_is_used(used: int, device: torch.device) -> None:
    x = leaf(BATCH, LENGTH, 3 * HIDDEN, device=device)
    (ours,) = torch.autograd.grad(lrn.lrn_triton(x, None, None, reverse=False, tanh=False)[used].sum(), x)
    (wanted,) = torch.autograd.grad(lrn_reference(x, None, None, reverse=False, tanh=False)[used].sum(), x)
    torch.testing.assert_close(ours, wanted)


def on_gpu(dtype: torch.dtype = torch.float32) -> Any:
    """What `choose` asks of a tensor on a GPU."""
    return SimpleNamespace(is_cuda=True, dtype=dtype, device=torch.device("cuda"))


@pytest.fixture
def _capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize("choice", ["auto", "triton"])
@pytest.mark.parametrize("operation", sorted(dispatch.TRITON_KERNELS))
def test_kernels_run_on_a_gpu(operation: str, choice: str) -> None:
    def reference() -> None:
        raise AssertionError

    with dispatch.selected(choice, verified=dispatch.TRITON_KERNELS):
        kernel: Callable[..., Any] = dispatch.choose(operation, reference, like=on_gpu())
    assert kernel.__name__ == f"{operation}_triton"
    with dispatch.selected("reference"):
        assert dispatch.choose(operation, reference, like=on_gpu()) is reference


@pytest.mark.usefixtures("_capable")
def test_fp64_is_left_to_the_reference() -> None:
    with dispatch.selected("auto", verified={"lrn"}):
        assert dispatch.choose("lrn", lrn_reference, like=on_gpu(torch.float64)) is lrn_reference
    refused = "cannot run lrn: there is none for float64. Use auto."
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=refused):
        dispatch.choose("lrn", lrn_reference, like=on_gpu(torch.float64))


@pytest.mark.parametrize("options", [{}, {"started": True, "reverse": True}])
@pytest.mark.parametrize("unit", UNITS)
def test_units_run_on_their_kernels(
    unit: str, options: dict[str, bool], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = CELLS.get(unit)(4, HIDDEN).to(device)
    x = randn(BATCH, LENGTH, 4, device=device)
    packed = randn(BATCH, cell.state_size, device=device, seed=1)
    state = cell.unpack_state(packed) if options.get("started") else None
    mask = make_mask("holes", BATCH, LENGTH, device)

    def run() -> list[torch.Tensor]:
        outputs, last = cell.sequence(cell.project(x), state, mask, reverse=options.get("reverse", False))
        parameters = list(cell.parameters())
        gradients = torch.autograd.grad(outputs.sum() + sum(part.sum() for part in last), parameters)
        return [outputs, *last, *gradients]

    with dispatch.selected("reference"):
        wanted = run()
    used = []

    def choose(operation: str, reference: Any, *, like: torch.Tensor) -> Any:
        used.append(operation)
        return dispatch.load_kernel(dispatch.TRITON_KERNELS[operation])

    monkeypatch.setattr(importlib.import_module(f"nmt.ops.{unit}"), "choose", choose)
    torch.testing.assert_close(run(), wanted)
    assert used == [unit]
