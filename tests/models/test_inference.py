"""The copy of a model that a search runs: which of its matrices are converted, and that the model stays as it is."""

from __future__ import annotations

import pytest
import torch

from nmt.models.inference import inference_copy
from nmt.ops.matrices import Int8Matrix
from tests.models.small_model import SOURCE, TARGET, make_model


@pytest.mark.parametrize("tie", ["none", "target_softmax", "all"])
def test_all_matrices_of_a_step_are_int8_and_the_embeddings_are_not(tie: str) -> None:
    model = make_model("gru", tie_embeddings=tie)
    before = model(SOURCE, TARGET)
    copied = inference_copy(model, int8=True)
    assert isinstance(copied.embeddings.softmax_table, Int8Matrix)
    assert copied.embeddings.source is model.embeddings.source
    assert tie == "all" or copied.embeddings.target is model.embeddings.target
    matrices = [weight for part in (copied.decoder, copied.readout) for weight in part.parameters() if weight.dim() > 1]
    assert matrices and all(isinstance(weight, Int8Matrix) for weight in matrices)
    assert not any(isinstance(weight, Int8Matrix) for weight in copied.encoder.parameters())
    assert torch.equal(model(SOURCE, TARGET), before)


def test_without_a_conversion_it_is_the_model() -> None:
    model = make_model("gru")
    assert inference_copy(model) is model
