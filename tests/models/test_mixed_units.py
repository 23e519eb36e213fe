"""Models whose encoder has another unit than their decoder: kernels against the reference, search against training."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from nmt.models import decoder as decoders
from nmt.models import encoder as encoders
from nmt.models.base import Seq2Seq
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.registry import CELLS
from tests.models.small_model import ARCHITECTURES, PAIRS, SOURCE, TARGET, everything, make_model
from tests.models.two_cells import check

EVERY = [(encoder, decoder) for encoder, _ in PAIRS for decoder, _ in PAIRS if encoder != decoder]


def pairs() -> list[Any]:
    """Six by default, in which each unit is once the encoder's and once the decoder's."""
    return [pytest.param(*pair, marks=() if pair in PAIRS else pytest.mark.slow) for pair in EVERY]


def right(model: Seq2Seq) -> dict[str, torch.Tensor]:
    with selected("reference"):
        return everything(copy.deepcopy(model).double())


@pytest.mark.skipif(native.problem() is not None, reason=f"no compiled kernels: {native.problem()}")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("encoder", "decoder"), pairs())
def test_kernels_find_what_the_reference_finds(
    encoder: str, decoder: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("gru", encoder_cell=encoder, decoder_cell=decoder, **ARCHITECTURES[architecture])
    wanted = right(model)
    with torch.autocast("cpu", dtype=torch.bfloat16), selected("reference"):
        rounded = everything(model)
    for module in (decoders, encoders):
        monkeypatch.setattr(module, "live_rows", lambda *given, **options: pytest.fail("a loop was written out"))
    for unit in (encoder, decoder):
        monkeypatch.setattr(CELLS.get(unit), "step", lambda *given: pytest.fail("a step was taken alone"))
    check(everything(model), wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(everything(model), wanted, tolerance=6e-2, rounded=rounded)


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "rnnsearch_deepatt"])
@pytest.mark.parametrize(("encoder", "decoder"), pairs())
def test_steps_of_search_are_those_of_training(encoder: str, decoder: str, architecture: str, kernels: str) -> None:
    """The decoder's state is made of the encoder's last one, whatever parts either has."""
    keys = ARCHITECTURES.get(architecture, {"architecture": architecture})
    model = make_model("gru", encoder_cell=encoder, decoder_cell=decoder, **keys)
    with torch.inference_mode(), selected(kernels):
        logits = model(SOURCE, TARGET)
        state = model.start(SOURCE)
        assert {type(part) for part in state.states} == {CELLS.get(decoder).State}
        for t in range(TARGET.size(1)):
            step, state = model.step(None if t == 0 else TARGET[:, t - 1], state)
            words = TARGET[:, t] != 0
            torch.testing.assert_close(step[words], logits[words, t], atol=2e-6, rtol=1e-5)
