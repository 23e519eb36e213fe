"""A program of the persistent ATR kernels that waits for others in vain; that they meet, `test_atr_kernels` shows."""

from __future__ import annotations

import pytest
import torch

from tests.ops.triton.comparison import randn

kernels = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 4, 6, 32
BM, BN = 4, 16


@pytest.mark.parametrize("normalized", [False, True])
def test_a_program_that_waits_in_vain_puts_out_nan(
    normalized: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type != "cpu":
        pytest.skip("on a GPU no program stays away")
    monkeypatch.setattr(kernels, "MOST_POLLS", kernels.tl.constexpr(20))
    x, weight, vector = randn(BATCH, LENGTH, HIDDEN, device=device), torch.eye(HIDDEN), torch.zeros(HIDDEN)
    states, state = torch.zeros(BATCH, LENGTH + 2, HIDDEN), torch.zeros(BATCH, HIDDEN)
    mask, sums = torch.ones(BATCH, LENGTH, dtype=torch.uint8), torch.zeros(BATCH, LENGTH, 2, HIDDEN // BN)
    count = torch.zeros(kernels.COUNTER.value, dtype=torch.int32)
    kernels.atr_forward_kernel[(1,)](  # one program of two
        x, weight, vector, vector, mask, state, states, sums, count,
        0, *x.stride()[:2], *mask.stride(), BATCH, LENGTH, 0, BATCH, 0, LENGTH,
        H=HIDDEN, GATES="twin", TANH_CANDIDATE=False, TANH_STATE=False, MASKED=True, REVERSE=1, NORMALIZED=normalized,
        SUMS=True, REST=True, PERSISTENT=True, PRECISION="ieee", BM=BM, BN=BN, KC=16,
    )  # fmt: skip
    ours = states[:, 1:-1, :BN]
    # Without layer norm the step that runs first waits for nobody.
    assert ours[:, -1].isnan().all() if normalized else ours[:, -1].isfinite().all()
    assert ours[:, :-1].isnan().all()
    assert state[:, :BN].isnan().all()
