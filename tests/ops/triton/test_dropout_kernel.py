"""The kernel of dropout has the masks of the reference, bit for bit."""

from __future__ import annotations

import pytest
import torch

from nmt.ops.dropout import Draw, by_kernel, reference_dropout
from tests.ops.triton.comparison import outputs_and_gradients, randn

fused = pytest.importorskip("nmt.ops.dropout.triton", reason="Triton is not installed")


def places(count: int, device: torch.device) -> torch.Tensor:
    found = torch.randint(2**63 - 1, (count,), generator=torch.Generator().manual_seed(1))
    found[:1] = 2**63 - 1
    return found.to(device)


@pytest.mark.parametrize(
    ("rows", "width", "dtype", "key", "layer"),
    [
        (5, 64, torch.float32, 2**63 - 12345, 2**32 - 1),
        (7, 150, torch.bfloat16, 1, 2),
        (9, 80, torch.float16, 2**31, 2**31),
        (40, 3, torch.float32, 2**32, 0),
    ],
)
def test_values_and_gradients(
    rows: int, width: int, dtype: torch.dtype, key: int, layer: int, device: torch.device
) -> None:
    x, draw = randn(rows, width, device=device, dtype=dtype), Draw(key, layer, places(rows, device))
    ours = outputs_and_gradients(lambda x: (by_kernel(fused.dropout_triton, x, 0.3, draw),), [x])
    wanted = outputs_and_gradients(lambda x: (reference_dropout(x, 0.3, draw),), [x])
    for one, other in zip(ours, wanted, strict=True):
        assert torch.equal(one == 0, other == 0)
        # The interpreter cuts off the digits that bf16 has not, where a GPU rounds.
        exact = dtype != torch.bfloat16 or device.type == "cuda"
        torch.testing.assert_close(one, other, rtol=0 if exact else 2**-7, atol=0)
    assert (ours[0] == 0).any() and (ours[0] != 0).any()


def test_without_places_and_of_another_layout(device: torch.device) -> None:
    x = randn(30, 9, device=device).t()
    draw = Draw(2**33 + 1)
    for p in (0.5, 1 - 1e-12):
        assert torch.equal(fused.dropout_triton(x, p, draw), reference_dropout(x, p, draw))
    assert fused.dropout_triton(x[:0], 0.5, draw).shape == (0, 30)
