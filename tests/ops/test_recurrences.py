"""The shared parts of the recurrences: layer norm, masks, time order, empty sequences."""

from __future__ import annotations

import pytest
import torch

from nmt.ops import LRN
from nmt.ops.recurrence import layer_norm, live_rows, time_order
from nmt.ops.sequence import sequence


def test_layer_norm_is_the_formula() -> None:
    x = torch.randn(3, 7, dtype=torch.float64) * 1e-4  # so small that epsilon counts
    scale, offset = torch.randn(7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    expected = scale * centred / torch.sqrt(variance + 1e-8) + offset
    torch.testing.assert_close(layer_norm(x, scale, offset), expected, rtol=1e-12, atol=1e-12)


def test_layer_norm_of_bf16_is_computed_in_fp32() -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    scale, offset = torch.ones(8), torch.zeros(8)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer_norm(x, scale, offset)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, layer_norm(x.float(), scale, offset))


def test_parts_are_normalised_apart() -> None:
    x, scale, offset = torch.randn(2, 6), torch.randn(6), torch.randn(6)
    y = layer_norm(x, scale, offset, widths=(4, 2))
    assert torch.equal(y[:, :4], layer_norm(x[:, :4], scale[:4], offset[:4]))
    assert torch.equal(y[:, 4:], layer_norm(x[:, 4:], scale[4:], offset[4:]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_only_time_steps_with_a_dead_row_are_selected(dtype: torch.dtype) -> None:
    live = live_rows(torch.tensor([[1, 1, 0], [1, 0, 1]], dtype=dtype), length=3)
    assert live[0] is None
    assert live[1].tolist() == [[True], [False]]
    assert live[2].tolist() == [[False], [True]]
    assert live_rows(None, length=2) == [None, None]


def test_time_order() -> None:
    assert list(time_order(3, reverse=False)) == [0, 1, 2]
    assert list(time_order(3, reverse=True)) == [2, 1, 0]


def test_noncontiguous_input_gives_the_same() -> None:
    projected = torch.randn(3, 4, 6)
    strided = projected.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(sequence(LRN(), strided), sequence(LRN(), projected))


def test_a_sequence_without_time_steps_returns_its_initial_state() -> None:
    h = torch.randn(2, 3)
    outputs, (last,) = sequence(LRN(), torch.empty(2, 0, 9), (h,))
    assert outputs.shape == (2, 0, 3)
    assert torch.equal(last, h)
