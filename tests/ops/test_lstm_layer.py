"""The LSTM layer of PyTorch against ours step by step; on a GPU, where there is one, that is cuDNN's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt import ops
from nmt.cells import LSTM
from nmt.ops import dispatch
from nmt.ops.lstm import fused as module
from nmt.ops.lstm.fused import can_run, lstm_layer_fused
from nmt.ops.recurrence import Recurrent
from nmt.ops.sequence import reference
from tests.ops.triton.comparison import MASKS, assert_equal, make_mask, outputs_and_gradients, randn

BATCH, LENGTH, WIDTH, HIDDEN = 3, 5, 4, 6
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def inputs(*, started: bool = True, dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    """x, input matrix, recurrent matrix and bias, h, c."""
    x = randn(BATCH, LENGTH, WIDTH, device=DEVICE, dtype=dtype)
    matrices = [randn(4 * HIDDEN, n, device=DEVICE, dtype=dtype, seed=n) for n in (WIDTH, HIDDEN)]
    bias = randn(4 * HIDDEN, device=DEVICE, dtype=dtype, seed=1)
    state = [randn(BATCH, HIDDEN, device=DEVICE, dtype=dtype, seed=n) if started else None for n in (2, 3)]
    return [x, *matrices, bias, *state]


def fused(mask: Tensor | None, *, reverse: bool) -> Any:
    def run(x: Tensor, matrix: Tensor, weight: Tensor, bias: Tensor, h: Any, c: Any) -> tuple[Tensor, ...]:
        state = None if h is None else (h, c)
        outputs, last = lstm_layer_fused(x, matrix, Recurrent(weight, bias), state, mask, reverse=reverse)
        return outputs, *last

    return run


def by_steps(mask: Tensor | None, *, reverse: bool) -> Any:
    def run(x: Tensor, matrix: Tensor, weight: Tensor, bias: Tensor, h: Any, c: Any) -> tuple[Tensor, ...]:
        state = None if h is None else (h, c)
        outputs, last = reference(ops.LSTM(weights=(weight, bias)), F.linear(x, matrix), state, mask, reverse=reverse)
        return outputs, *last

    return run


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_values_and_all_gradients(mask: str, started: bool, reverse: bool) -> None:
    live = make_mask(mask, BATCH, LENGTH, DEVICE)
    ours, right = fused(live, reverse=reverse), by_steps(live, reverse=reverse)
    assert_equal(ours, right, inputs(started=started))
    tensors = inputs(started=started, dtype=torch.float64)
    results = zip(*(outputs_and_gradients(function, tensors) for function in (ours, right)), strict=True)
    for found, wanted in results:
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("mask", ["none", "holes"])
def test_low_precision(mask: str) -> None:
    live = make_mask(mask, BATCH, LENGTH, DEVICE)
    tensors = inputs(dtype=torch.bfloat16)
    outputs, *last = fused(live, reverse=False)(*tensors)
    assert outputs.dtype == torch.bfloat16
    assert {part.dtype for part in last} == {torch.float32}
    assert_equal(fused(live, reverse=False), by_steps(live, reverse=False), tensors, storage=torch.bfloat16, slack=2)


def test_autocast_decides_the_type() -> None:
    tensors = [x if x is None else x.requires_grad_() for x in inputs()]
    with torch.autocast(DEVICE.type, torch.bfloat16):
        outputs, h, _ = fused(make_mask("padding", BATCH, LENGTH, DEVICE), reverse=True)(*tensors)
    assert outputs.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(outputs.float().sum() + h.sum(), tensors[2])
    assert gradient.dtype == torch.float32


@pytest.mark.parametrize("reverse", [False, True])
def test_what_stands_at_padding_is_not_read(reverse: bool) -> None:
    mask = make_mask("holes", BATCH, LENGTH, DEVICE)
    assert mask is not None
    tensors = inputs()
    wanted = outputs_and_gradients(fused(mask, reverse=reverse), tensors)
    tensors[0] = torch.where(mask[..., None], tensors[0], torch.nan)
    for found, right in zip(outputs_and_gradients(fused(mask, reverse=reverse), tensors), wanted, strict=True):
        assert torch.equal(found, right)


def test_a_row_without_a_real_step_keeps_its_state_to_the_bit() -> None:
    mask = make_mask("holes", BATCH, LENGTH, DEVICE)
    assert mask is not None
    assert not mask[0].any()
    tensors = inputs()
    outputs, h, c = fused(mask, reverse=False)(*tensors)
    assert torch.equal(outputs[0], tensors[4][0].expand(LENGTH, HIDDEN))
    assert torch.equal(h[0], tensors[4][0])
    assert torch.equal(c[0], tensors[5][0])


def test_parts_of_a_packed_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN refuses states that are not contiguous."""
    run, seen = module._run, []
    monkeypatch.setattr(module, "_run", lambda x, first, *rest: (seen.extend(first), run(x, first, *rest))[1])
    h, c = randn(BATCH, 2 * HIDDEN, device=DEVICE).chunk(2, -1)
    tensors = [*inputs()[:4], h, c]
    for found, right in zip(*(f(None, reverse=True)(*tensors) for f in (fused, by_steps)), strict=True):
        torch.testing.assert_close(found, right)
    assert len(seen) == 2
    assert all(part.is_contiguous() for part in seen)


class LikeOnGPU:
    """What is asked of a tensor on a GPU with cuDNN."""

    is_cuda, device = True, torch.device("cuda")

    def __init__(self, sentences: int = 100) -> None:
        self.sentences = sentences

    def __len__(self) -> int:
        return self.sentences

    def numel(self) -> int:
        return 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU with cuDNN, as torch tells of it; fields can be changed."""
    there = SimpleNamespace(major=9, minor=0, multi_processor_count=132, accepted=True)
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, device: SimpleNamespace(dtype=dtype))
    monkeypatch.setattr(torch, "cudnn_is_acceptable", lambda x: there.accepted and x.dtype == torch.float16)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: there)
    return there


def half(hidden: int = 256) -> Recurrent:
    return Recurrent(torch.zeros(4 * hidden, hidden, dtype=torch.float16), torch.zeros(4 * hidden))


def test_it_runs_only_in_the_persistent_form_of_cudnn(gpu: SimpleNamespace) -> None:
    x: Any = LikeOnGPU()
    assert can_run(x, half())
    for weight in (half().weight.float(), half().weight.bfloat16(), half(1152).weight, half(192).weight):
        assert not can_run(x, half()._replace(weight=weight))
    many: Any = LikeOnGPU(129)
    assert not can_run(many, half())
    assert not can_run(x, half()._replace(scale=torch.ones(4), offset=torch.zeros(4)))
    assert not can_run(torch.zeros(0, 2, 3), half())
    assert not can_run(torch.zeros(2, 2, 3), half())  # on a CPU


@pytest.mark.parametrize("change", [{"major": 7}, {"minor": 6}, {"multi_processor_count": 56}, {"accepted": False}])
def test_gpus_for_which_torch_does_not_ask_for_it(change: dict[str, Any], gpu: SimpleNamespace) -> None:
    vars(gpu).update(change)
    x: Any = LikeOnGPU()
    assert not can_run(x, half())


@pytest.mark.parametrize("mask", ["none", "holes"])
def test_sentences_and_widths_are_those_of_the_persistent_form(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = module._run, []
    monkeypatch.setattr(module, "_run", lambda x, *rest: (seen.append(x.shape), run(x, *rest))[1])
    fused(make_mask(mask, BATCH, LENGTH, DEVICE), reverse=False)(*inputs())
    assert seen == [(8, LENGTH, 128)]


@pytest.mark.parametrize(
    ("choice", "verified", "runs"),
    [("auto", (), False), ("auto", ("lstm_layer",), True), ("triton", (), True), ("reference", ("lstm_layer",), False)],
)
def test_it_runs_where_it_is_verified(
    choice: str, verified: tuple[str, ...], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "triton_version", lambda: "3.6.0")
    with dispatch.selected(choice, verified=verified):
        assert dispatch.use_verified("lstm_layer", SimpleNamespace(is_cuda=True)) is runs
        assert not dispatch.use_verified("lstm_layer", torch.zeros(1))


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_unit_takes_it_without_layer_norm(layer_norm: bool, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is the same by either way."""
    torch.manual_seed(0)
    cell, mask = LSTM(WIDTH, HIDDEN, layer_norm=layer_norm).to(DEVICE), make_mask("holes", BATCH, LENGTH, DEVICE)
    x = randn(BATCH, LENGTH, WIDTH, device=DEVICE)
    with dispatch.selected("reference"):
        wanted, last = cell.sequence(cell.project(x), None, mask, reverse=True)
    used = []
    monkeypatch.setattr(module, "use_verified", lambda operation, like: runs)
    monkeypatch.setattr(module, "can_run", lambda x, recurrent: not used.append("fused"))
    found, state = cell.layer(x, mask=mask, reverse=True)
    assert used == (["fused"] if runs and not layer_norm else [])
    torch.testing.assert_close((found, *state), (wanted, *last))
