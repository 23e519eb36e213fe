"""Units on their Triton kernels as models call them: autocast, checkpointing, several processes, the way to them."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from nmt.errors import ConfigError
from nmt.ops import LRN, dispatch
from nmt.ops.sequence import kernels_of, reference, sequence
from nmt.ops.unit import UNITS
from nmt.registry import CELLS
from tests.ops.triton.comparison import make_mask, randn
from tests.ops.units import by_triton

pytest.importorskip("triton", reason="Triton is not installed")

NAMES = sorted(name for name, unit in UNITS.items() if unit.triton)
BATCH, LENGTH, HIDDEN = 2, 3, 5


def leaf(*shape: int, device: torch.device, seed: int = 0) -> torch.Tensor:
    return randn(*shape, device=device, seed=seed).requires_grad_()


def run_lrn(x: torch.Tensor) -> torch.Tensor:
    outputs, (last,) = sequence(LRN(), x)
    return outputs.float().sum() + last.sum()


def test_autocast_gives_low_precision_outputs_and_an_fp32_state(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = randn(BATCH, LENGTH, 4, device=device), leaf(3 * HIDDEN, 4, device=device)
    with by_triton(monkeypatch) as used, torch.autocast(device.type, torch.bfloat16):
        outputs, (last,) = sequence(LRN(), F.linear(x, weight))
    assert used and (outputs.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    (ours,) = torch.autograd.grad(outputs.float().sum() + last.sum(), weight)
    outputs, (last,) = reference(LRN(), F.linear(x, weight), None, None, reverse=False)
    (wanted,) = torch.autograd.grad(outputs.sum() + last.sum(), weight)
    assert ours.dtype == torch.float32
    assert (ours - wanted).norm() < 2e-2 * wanted.norm()


def test_activation_checkpointing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(BATCH, LENGTH, 3 * HIDDEN, device=device)
    with by_triton(monkeypatch):
        (ours,) = torch.autograd.grad(checkpoint(run_lrn, x, use_reentrant=False), x)
        assert torch.equal(ours, torch.autograd.grad(run_lrn(x), x)[0])


class Layer(torch.nn.Module):
    """A recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = CELLS.get("lrn")(4, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return run_lrn(self.cell.project(x))


def test_distributed_data_parallel(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process alone, whose gradients go through the buckets of the exchange."""
    layer, x = Layer().to(device), randn(BATCH, LENGTH, 4, device=device)
    with by_triton(monkeypatch):
        (wanted,) = torch.autograd.grad(layer(x), layer.cell.input_weight)
        backend = "nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            torch.nn.parallel.DistributedDataParallel(layer)(x).backward()
        finally:
            torch.distributed.destroy_process_group()
    torch.testing.assert_close(layer.cell.input_weight.grad, wanted)


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("unit", ["gru", "lrn"])
def test_gradients_where_only_one_output_is_used(
    unit: str, used: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = CELLS.get(unit)(4, HIDDEN).to(device)
    x = leaf(BATCH, LENGTH, 3 * HIDDEN, device=device)

    def gradient() -> torch.Tensor:
        outputs, (last,) = sequence(cell.unit(), x)
        return torch.autograd.grad((outputs, last)[used].sum(), x)[0]

    with by_triton(monkeypatch):
        ours = gradient()
    with dispatch.selected("reference"):
        torch.testing.assert_close(ours, gradient())


def on_gpu(dtype: torch.dtype = torch.float32) -> Any:
    """What is asked of a tensor on a GPU."""
    return SimpleNamespace(is_cuda=True, dtype=dtype, device=torch.device("cuda"), size=lambda axis: 12)


@pytest.fixture
def _capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize("name", NAMES)
def test_kernels_run_on_a_gpu_where_they_are_verified(name: str) -> None:
    unit = CELLS.get(name)(4, HIDDEN).unit()
    module, _, kernel = str(unit.triton).partition(":")
    kind = getattr(importlib.import_module(module), kernel)
    with dispatch.selected("auto", verified={f"sequence {unit.words}"}):
        assert kernels_of("sequence", unit, like=on_gpu()) == [kind]
        assert kernels_of("conditional", unit, unit, like=on_gpu()) == []
    with dispatch.selected("triton"):
        assert kernels_of("conditional", unit, unit, like=on_gpu()) == [kind, kind]
    with dispatch.selected("reference"):
        assert kernels_of("sequence", unit, like=on_gpu()) == []


@pytest.mark.usefixtures("_capable")
def test_fp64_is_left_to_the_reference() -> None:
    with dispatch.selected("auto", verified={"sequence lrn"}):
        assert kernels_of("sequence", LRN(), like=on_gpu(torch.float64)) == []
    refused = "cannot run sequence lrn: there is no kernel for float64. Use auto."
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=refused):
        kernels_of("sequence", LRN(), like=on_gpu(torch.float64))


@pytest.mark.parametrize("options", [{}, {"started": True, "reverse": True}])
@pytest.mark.parametrize("unit", NAMES)
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
    with by_triton(monkeypatch) as used:
        torch.testing.assert_close(run(), wanted)
    assert used == [f"sequence {cell.unit().words}"]
