"""What a kernel must compute to be right: the checks pass with what is right and see what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt.cells import LRN
from nmt.kernel_check import cases
from nmt.kernel_check.cases import SMALL, Case, DifferenceError, all_keys, check_key
from nmt.kernel_check.checking import find_out
from nmt.models.attention import AttentionQuery
from nmt.models.graphed import GraphedModel
from nmt.ops.dispatch import Selection, selection

CPU = torch.device("cpu")


@pytest.mark.parametrize("key", [key for key in all_keys() if "normalized" not in key])
def test_what_is_right_passes(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the C kernels, where there are any."""
    monkeypatch.setattr(cases, "TIMES", 1)  # more would be for graphs
    for storage in (torch.float32, torch.bfloat16):
        check_key(key, CPU, SMALL, storage)
    with torch.no_grad():
        check_key(key, CPU, SMALL, torch.float32)


def with_gradient(factor: float, value: torch.Tensor) -> torch.Tensor:
    """The same value with a gradient that is so many times as large."""
    return factor * value - (factor - 1) * value.detach()


def test_what_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is off by 1 in 1,000, in the last step alone."""
    sequence = LRN.sequence

    def wrong(self: LRN, *arguments: Any, **options: Any) -> Any:
        outputs, last = sequence(self, *arguments, **options)
        return outputs, last if selection().choice == "reference" else last._replace(h=last.h * 1.001)

    monkeypatch.setattr(LRN, "sequence", wrong)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients), pytest.raises(DifferenceError, match="result 1 differs from the refer"):
            check_key("sequence lrn", CPU, SMALL, torch.float32)


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by 1 in 100, where the values are right; of the loss its weighted sum alone is differentiated."""
    sequence, loss = LRN.sequence, cases.linear_cross_entropy

    def wrong_sequence(self: LRN, *arguments: Any, **options: Any) -> Any:
        outputs, last = sequence(self, *arguments, **options)
        return (outputs if selection().choice == "reference" else with_gradient(1.01, outputs)), last

    def wrong_loss(*arguments: Any, **options: Any) -> Any:
        total, *losses = loss(*arguments, **options)
        return (total if selection().choice == "reference" else with_gradient(1.01, total)), *losses

    monkeypatch.setattr(LRN, "sequence", wrong_sequence)
    monkeypatch.setattr(cases, "linear_cross_entropy", wrong_loss)
    for key in ("sequence lrn", "linear_cross_entropy"):
        with pytest.raises(DifferenceError, match="differs from the reference's by "):
            check_key(key, CPU, SMALL, torch.float32)
        with torch.no_grad():
            check_key(key, CPU, SMALL, torch.float32)


def test_wrong_words_of_a_decoding_step_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherWords(GraphedModel):
        def best(self, *arguments: Any) -> Any:
            found, state = super().best(*arguments)
            return found._replace(words=found.words.roll(1, 1)), state

    monkeypatch.setattr(cases, "GraphedModel", OtherWords)
    with pytest.raises(DifferenceError, match="the best words differ"):
        check_key("decoding_step", CPU, SMALL, torch.float32)


def test_what_is_not_a_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = AttentionQuery.attend

    def without_context(self: AttentionQuery, *arguments: Any) -> Any:
        found = attend(self, *arguments)
        return found if selection().choice == "reference" else tuple(part * torch.nan for part in found)

    monkeypatch.setattr(AttentionQuery, "attend", without_context)
    with pytest.raises(DifferenceError):
        check_key("attention", CPU, SMALL, torch.float32)


def test_what_goes_wrong_in_a_later_run_is_seen() -> None:
    """A recorded graph is replayed for the first time in the third one."""
    network, runs = torch.nn.Linear(3, 2), list[str]()

    def run(network: Any, x: torch.Tensor) -> list[torch.Tensor]:
        runs.append(selection().choice)
        found = network(x.to(network.weight.dtype))
        return [2 * found if runs.count("auto") == 3 else found]

    with pytest.raises(DifferenceError, match="result 0 differs"):
        Case(CPU, SMALL, torch.float32, Selection("auto")).check(network, [(4, 3)], run)
    assert runs == ["reference"] * 2 + ["auto"] * 3


@pytest.mark.gpu
def test_on_this_gpu_all_is_right() -> None:
    found = find_out(all_keys(), torch.device("cuda"), again=True)
    assert {key: outcome for key, outcome in found.items() if outcome.state != "right"} == {}
