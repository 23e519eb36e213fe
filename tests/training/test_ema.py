"""Moving average of the weights."""

from __future__ import annotations

import hashlib
import io
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from nmt.errors import CheckpointError
from nmt.training.update import EMA, PlateauAverage
from tests.tiny_training import nmt_train, training_state, write_config, write_corpus


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def moved(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)


def test_average_follows_its_equation():
    model = Tied()
    ema = EMA(model, decay=0.3)
    expected = model.first.weight.detach().clone()
    for n in range(1, 8):
        moved(model)
        ema.update(model)
        decay = min(0.3, (1 + n) / (10 + n))
        expected += (1 - decay) * (model.first.weight.detach() - expected)
    with ema.applied(model):
        torch.testing.assert_close(model.first.weight.detach(), expected)


def test_weights_come_back_even_after_an_error():
    model = Tied()
    ema = EMA(model, decay=0.9)
    moved(model)
    ema.update(model)
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    storage = model.first.weight.data_ptr()
    with pytest.raises(RuntimeError, match="stop"), ema.applied(model):
        assert not torch.equal(model.first.weight, trained["first.weight"])
        assert model.second.weight is model.first.weight
        raise RuntimeError("stop")
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert model.first.weight.data_ptr() == storage


def test_training_goes_on_after_a_validation():
    model = Tied()
    ema = EMA(model, decay=0.9)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        optimizer.zero_grad()
        model.second(model.first(torch.ones(2, 3))).sum().backward()
        optimizer.step()
        ema.update(model)
        before = {name: value.clone() for name, value in ema.state_dict()["averages"].items()}
        with ema.applied(model), torch.no_grad():
            model.second(model.first(torch.ones(2, 3)))
        after = ema.state_dict()["averages"]
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_state_resumes_through_a_file():
    model = Tied()
    ema = EMA(model, decay=0.9)
    moved(model)
    ema.update(model)
    stream = io.BytesIO()
    torch.save(ema.state_dict(), stream)
    stream.seek(0)
    resumed = EMA(Tied(), decay=0.9)
    resumed.load_state_dict(torch.load(stream, weights_only=True))
    for average in (ema, resumed):
        average.update(model)
    assert resumed.updates == ema.updates == 2
    for name, value in ema.state_dict()["averages"].items():
        assert torch.equal(value, resumed.state_dict()["averages"][name])


def test_state_of_another_model_is_refused():
    ema = EMA(Tied(), decay=0.9)
    with pytest.raises(CheckpointError, match="second.bias"):
        EMA(nn.Linear(3, 3), decay=0.9).load_state_dict(ema.state_dict())
    with pytest.raises(CheckpointError, match=r"weight has shape \(3, 3\), expected \(3, 2\)"):
        state = EMA(nn.Linear(3, 3), decay=0.9).state_dict()
        EMA(nn.Linear(2, 3), decay=0.9).load_state_dict(state)


def test_decay_is_checked():
    with pytest.raises(ValueError, match="ema_decay"):
        EMA(Tied(), decay=1.0)


def test_an_average_that_waits_for_a_plateau_is_the_mean_of_the_weights_since() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    average = PlateauAverage(model, patience=2)

    def step(value: float) -> None:
        torch.nn.init.constant_(model.weight, value)
        average.update(model)

    def validated() -> float:
        with average.applied(model):
            return float(model.weight.detach()[0, 0])

    for number, score in enumerate((5.0, 4.0, 3.0)):
        step(float(number))
        average.end_validation(score, higher_is_better=False)
    assert not average.has_begun and validated() == 2.0
    average.end_validation(3.5, higher_is_better=False)  # better than 5 and 4, all but the last two
    assert average.has_begun is False
    average.end_validation(4.5, higher_is_better=False)
    assert average.has_begun and validated() == 2.0
    for value in (10.0, 20.0, 60.0):
        step(value)
    assert validated() == 30.0 and float(model.weight.detach()[0, 0]) == 60.0
    other = PlateauAverage(model, patience=2)
    other.load_state_dict(average.state_dict())
    step(70.0)
    other.update(model)
    with other.applied(model):
        assert float(model.weight.detach()[0, 0]) == 40.0 and validated


def test_a_validation_without_a_score_is_no_plateau() -> None:
    average = PlateauAverage(nn.Linear(2, 1), patience=1)
    begun = []
    for score in (math.nan, 5.0, math.nan, 4.0, 6.0, 5.0):
        average.end_validation(score, higher_is_better=False)
        begun.append(average.has_begun)
    assert begun == [False, False, False, False, True, True]


def test_validations_of_a_run_begin_the_average(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    training = {"average_after": 1, "validate_every": 2, "lr": 1.0, "early_stopping_metric": "loss"}
    assert nmt_train(write_config(tmp_path, training=training)) == 0
    average = training_state(tmp_path / "run", 12)["updater"]["average"]
    assert average["has_begun"] and 0 < average["updates"] < 12 and len(average["scores"]) == 6


def test_a_run_whose_version_saved_only_the_number_of_updates_does_not_warm_up_again(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    training = {"ema_decay": 0.9, "max_steps": 3, "save_every": 3, "validate_every": 3}
    assert nmt_train(write_config(tmp_path, training=training)) == 0
    folder = tmp_path / "run/checkpoints/step-3"
    state = torch.load(folder / "training.pt", weights_only=True)
    state["updater"]["ema_updates"] = state["updater"].pop("average")["updates"]
    torch.save(state, folder / "training.pt")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    del sums["SHA256SUMS"]
    (folder / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in sums.items()))
    assert nmt_train(write_config(tmp_path, training={**training, "max_steps": 5})) == 0
    assert training_state(tmp_path / "run", 5)["updater"]["average"] == {"updates": 5}
