"""A sentence pair read by one model or several: probabilities, entropies, and names of what is inside each."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.inspection.looking import inspect_pair
from nmt.search.ensemble import EnsembleMean
from nmt.search.reading import entropies_of
from tests.models.test_seq2seq import SOURCE, TARGET, make

S, T = SOURCE[0].tolist(), TARGET[1].tolist()


def test_probabilities_and_entropies_are_the_model_s() -> None:
    model = make(cell="lrn").float()
    found = inspect_pair([model], S, T)
    with torch.no_grad():
        p = model(SOURCE[:1], TARGET[1:2])[0].softmax(-1)
    torch.testing.assert_close(found.log_probs.exp(), p[range(len(T)), T], rtol=0, atol=1e-6)
    torch.testing.assert_close(found.entropies, -(p * p.log()).sum(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("of", ["probabilities", "log_probabilities"])
def test_of_several_models(of: str) -> None:
    models = [make(cell="lrn").float(), make(cell="gru", encoder_layers=1).float()]
    with torch.no_grad():
        each = [model(SOURCE[:1], TARGET[1:2])[0].log_softmax(-1) for model in models]
    mean = EnsembleMean((0.25, 0.75), of)  # type: ignore[arg-type]
    if of == "probabilities":
        wanted = (0.25 * each[0].exp() + 0.75 * each[1].exp()).log()
    else:
        wanted = (0.25 * each[0] + 0.75 * each[1]).log_softmax(-1)
    found = inspect_pair(models, S, T, mean=mean)
    torch.testing.assert_close(found.log_probs, wanted[range(len(T)), T], rtol=0, atol=1e-5)
    torch.testing.assert_close(found.entropies, -(wanted.exp() * wanted).sum(-1), rtol=0, atol=1e-5)
    assert list(found.attention) == ["0.decoder.0", "1.decoder.0"]
    for number, model in enumerate(models):
        alone = inspect_pair([model], S, T)
        assert torch.equal(found.attention[f"{number}.decoder.0"], alone.attention["decoder.0"])
        own = [name for name in found.units if name.startswith(f"{number}.")]
        assert own == [f"{number}.{name}" for name in alone.units]
        assert {found.units[name].unit for name in own} == {("lrn", "gru")[number]}


def test_entropies_by_hand() -> None:
    log_probs = torch.tensor([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]).log()
    torch.testing.assert_close(entropies_of(log_probs), torch.tensor([math.log(2), 0.0, math.log(4)]))
