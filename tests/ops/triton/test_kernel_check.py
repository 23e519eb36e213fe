"""The checks that a GPU's kernels must pass before `auto` runs them, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from nmt.kernel_check import cases
from nmt.kernel_check.cases import SMALL, WITHOUT_TRITON, all_keys, check_key
from nmt.ops import dispatch, sequence

first = pytest.importorskip("nmt.kernel_check.first", reason="Triton is not installed")

TINY = SMALL._replace(sentences=2, target=3, source=4, inputs=6, hidden=8, words=20)
KEYS = [key for key in all_keys() if key not in WITHOUT_TRITON and "normalized" not in key]
SLOW = [key for key in KEYS if "min_gru" in key and not key.startswith("sequence min_gru")]
"""Those of a unit that has, to loops, the form of `min_lstm`."""


@pytest.mark.parametrize("key", [pytest.param(key, marks=pytest.mark.slow if key in SLOW else ()) for key in KEYS])
def test_kernels_pass_their_checks(key: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()

    def runs_triton(operation: str, *, like: torch.Tensor, there: bool) -> bool:
        choice, verified = dispatch.selection()
        if choice == "reference" or operation not in verified or not there:
            return False
        used.add(operation)
        return True

    monkeypatch.setattr(cases, "TIMES", 1)  # more would be for graphs
    monkeypatch.setattr(dispatch.native, "usable", lambda like: False)
    for module in (dispatch, sequence):
        monkeypatch.setattr(module, "runs_triton", runs_triton)
    check_key(key, device, TINY, torch.float32)
    assert used == {key}


def test_the_first_kernel_adds_two_vectors(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    first.add_two_vectors(device)
    monkeypatch.setattr(first, "_add_kernel", {(1,): lambda x, y, total, SIZE: total.zero_()})
    with pytest.raises(RuntimeError, match="adds two vectors"):
        first.add_two_vectors(device)
