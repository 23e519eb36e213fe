"""Learning rates: the sequences of the original system, resuming, limits, mistakes in options."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from nmt.config import component_options, load_config
from nmt.errors import ConfigError
from nmt.registry import SCHEDULES
from nmt.training.schedules import Schedule
from tests.conftest import golden_names
from tests.training.zero_schedules import schedule_from_zero

TOLERANCE = 1e-12
NAMES = ["budgeted", "constant", "cosine", "epoch", "gnmt+", "inverse_sqrt", "noam", "score"]


def make(name: str, lr: float = 1e-3, hidden_size: int = 64, **options: object) -> Schedule:
    built = component_options(SCHEDULES.get(name), options)
    made: Schedule = SCHEDULES.get(name)(lr=lr, hidden_size=hidden_size, options=built)
    return made


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("name", golden_names("lr_"))
def test_zero_sequences(name, golden):
    config, arrays = golden(name)
    schedule = schedule_from_zero(config)
    close(schedule.rate, arrays["initial_lr"])
    if "steps" in arrays:
        close([schedule.at_step(int(step)) for step in arrays["steps"]], arrays["lr"])
        assert schedule.rate == pytest.approx(arrays["lr"][-1], rel=TOLERANCE)


@pytest.mark.parametrize("name", golden_names("lr_epoch"))
def test_zero_epochs(name, golden):
    config, arrays = golden(name)
    schedule = schedule_from_zero(config)
    during, after = [], []
    for epoch in arrays["epochs"]:
        during.append(schedule.at_step(0))
        schedule.end_epoch(int(epoch))
        after.append(schedule.rate)
    close(during, arrays["lr_during_epoch"])
    close(after, arrays["lr_after_epoch"])
    unnumbered = schedule_from_zero(config)
    for expected in arrays["lr_after_epoch_without_index"]:
        unnumbered.end_epoch(None)
        close(unnumbered.rate, expected)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", golden_names("lr_score"))
def test_zero_scores(name, golden, resume):
    config, arrays = golden(name)
    schedule = schedule_from_zero(config)
    rates = []
    for score in arrays["eval_scores"]:
        schedule.end_validation(float(score), higher_is_better=True)
        rates.append(schedule.at_step(len(rates)))
        if resume:
            state = json.loads(json.dumps(schedule.state_dict()))
            schedule = schedule_from_zero(config)
            schedule.load_state_dict(state)
    close(rates, arrays["lr_after_eval"])


@pytest.mark.parametrize("name", golden_names("lr_score"))
def test_a_loss_is_a_negated_score(name, golden):
    config, arrays = golden(name)
    schedule = schedule_from_zero(config)
    rates = []
    for score in arrays["eval_scores"]:
        schedule.end_validation(-float(score), higher_is_better=False)
        rates.append(schedule.rate)
    close(rates, arrays["lr_after_eval"])


def test_nan_score_is_a_bad_one():
    schedule = make("score", decay=0.5, patience=1)
    schedule.end_validation(math.nan, higher_is_better=True)
    assert schedule.rate == 5e-4
    schedule.end_validation(1.0, higher_is_better=True)
    assert schedule.rate == 5e-4


def test_all_schedules_are_registered():
    assert set(NAMES) <= set(SCHEDULES.names())
    with pytest.raises(ConfigError, match="noan.*Did you mean 'noam'"):
        SCHEDULES.get("noan")


@pytest.mark.parametrize("name", NAMES)
def test_at_step_is_pure_and_state_resumes(name):
    first, second = make(name), make(name)
    first.end_epoch(1)
    first.end_validation(0.5, higher_is_better=False)
    first.end_validation(0.6, higher_is_better=False)
    steps = [0, 1, 10, 4000, 123_456, 10_000_000]
    rates = [first.at_step(step) for step in steps]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.rate == first.rate
    assert [second.at_step(step) for step in reversed(steps)] == rates[::-1]
    assert all(math.isfinite(rate) and rate >= 0 for rate in rates)


@pytest.mark.parametrize("name", NAMES)
def test_every_rate_is_clamped(name):
    schedule = make(name, lr=0.5, min_lr=0.01, max_lr=0.02)
    rates = [schedule.rate] + [schedule.at_step(step) for step in (0, 3, 5000, 10**7)]
    schedule.end_epoch(30)
    for _ in range(30):
        schedule.end_validation(1.0, higher_is_better=True)
    rates.append(schedule.rate)
    assert min(rates) >= 0.01 and max(rates) <= 0.02


def test_constant_warms_up_linearly():
    schedule = make("constant", lr=1.0, warmup_steps=4)
    assert [schedule.at_step(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_inverse_sqrt_peaks_at_the_end_of_the_warmup():
    schedule = make("inverse_sqrt", lr=0.8, warmup_steps=4)
    rates = [schedule.at_step(step) for step in (0, 1, 2, 3, 15, 35)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.4, 0.8 / 3])


def test_cosine_without_max_lr_peaks_at_lr():
    schedule = make("cosine", lr=0.4, warmup_steps=2, period=4, period_factor=2.0, decay=0.5)
    rates = [schedule.at_step(step) for step in (0, 1, 2, 4, 6, 10, 14)]
    assert rates == pytest.approx([0.0, 0.2, 0.4, 0.2, 0.2, 0.1, 0.1])


def test_budgeted_falls_to_its_smallest_rate_at_the_end_of_the_training():
    schedule = make("budgeted", lr=0.4, warmup_steps=4, min_lr=0.1)
    assert schedule.needs_end
    found = []
    for step, share in [(0, 0.0), (1, 0.0), (9, 0.25), (9, 0.5), (9, 1.0), (9, 1.7)]:
        schedule.use_share(share)
        found.append(schedule.at_step(step))
    quarter = 0.1 + 0.3 * (1 + math.sqrt(0.5)) / 2
    assert found == pytest.approx([0.1, 0.2, quarter, 0.25, 0.1, 0.1])
    straight = make("budgeted", lr=0.4, warmup_steps=0, min_lr=0.1, shape="linear")
    straight.use_share(0.25)
    assert straight.at_step(0) == pytest.approx(0.325)
    below = make("budgeted", lr=0.01, warmup_steps=0, min_lr=0.1)
    below.use_share(0.5)
    assert below.at_step(3) == 0.1


@pytest.mark.parametrize("unit", ["atr", "gru", "lrn", "lstm", "olrn", "sru"])
def test_the_published_setting_still_learns_in_its_second_half(unit):
    training = load_config(f"wmt14_{unit}.yaml").training
    schedule = make(training.schedule, lr=training.lr, **training.schedule_options)
    rates = [schedule.at_step(step) for step in range(0, training.max_steps, 1000)]
    assert 0.25 < sum(rates[len(rates) // 2 :]) / sum(rates) < 0.5
    assert schedule.at_step(2 * training.max_steps) == pytest.approx(training.lr / 2)


def test_gnmt_does_not_overflow():
    schedule = make("gnmt+", lr=1e-3, warmup_steps=10, decay_start=10**9, decay_end=10**9 + 1)
    assert schedule.at_step(0) == 1e-3
    assert schedule.at_step(1000) == 4e-3
    assert schedule.at_step(10**10) == 0.0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("noam", {"warmup_steps": 0}, "warmup_steps"),
        ("noam", {"warmup_step": 5}, "warmup_step"),
        ("inverse_sqrt", {"warmup_steps": -1}, "warmup_steps"),
        ("constant", {"warmup_steps": -1}, "warmup_steps"),
        ("constant", {"min_lr": 0.1, "max_lr": 0.05}, "max_lr"),
        ("constant", {"min_lr": -0.1}, "min_lr"),
        ("gnmt+", {"decay_start": 9, "decay_end": 9}, "decay_end"),
        ("gnmt+", {"replicas": 0}, "replicas"),
        ("gnmt+", {"warmup_steps": True}, "warmup_steps"),
        ("epoch", {"decay": 0.0}, "decay"),
        ("score", {"patience": 0}, "patience"),
        ("score", {"decay": 1.5}, "decay"),
        ("cosine", {"period": 0}, "period"),
        ("cosine", {"period_factor": 0.5}, "period_factor"),
        ("cosine", {"min_lr": math.nan}, "min_lr"),
        ("budgeted", {"warmup_steps": -1}, "warmup_steps"),
        ("budgeted", {"shape": "square"}, "shape.*cosine.*linear"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **options)


def test_hyper_parameters_of_zero_are_checked():
    with pytest.raises(ConfigError, match="lrate_strategy.*'linear'"):
        schedule_from_zero({"lrate_strategy": "linear", "lrate": 1.0})
    with pytest.raises(ConfigError, match="hidden_size"):
        schedule_from_zero({"lrate_strategy": "noam", "lrate": 1.0, "warmup_steps": 3})
    with pytest.raises(ConfigError, match="lrate"):
        schedule_from_zero({"lrate_strategy": "vanilla"})
