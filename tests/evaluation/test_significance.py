"""Paired bootstrap: the same figures as the sacrebleu command, and a seed that matters."""

from __future__ import annotations

import os
import random

import pytest
from sacrebleu.significance import PairedTest

from nmt.errors import ConfigError, DataError
from nmt.evaluation import paired_bootstrap
from nmt.registry import METRICS

WORDS = ["a", "the", "dog", "cat", "house", "tree", "small", "big", "red", "runs", "sits", "and", "or", "under"]


def corrupted(lines: list[str], *, share: float, seed: int) -> list[str]:
    """The lines with a share of their words replaced at random."""
    source = random.Random(seed)
    return [" ".join(source.choice(WORDS) if source.random() < share else w for w in line.split()) for line in lines]


@pytest.fixture(scope="module")
def references() -> list[str]:
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=source.randint(4, 12))) for _ in range(60)]


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_equal_to_sacrebleu(references, name, monkeypatch):
    good = corrupted(references, share=0.2, seed=1)
    bad = corrupted(references, share=0.5, seed=2)
    metric = METRICS.get(name)()
    found = paired_bootstrap(metric, good, baseline=bad, references=[references], samples=200, seed=7)

    monkeypatch.setenv("SACREBLEU_SEED", "7")
    systems = [("bad", bad), ("good", good)]
    signatures, columns = PairedTest(systems, {"M": metric.scorer()}, [references], test_type="bs", n_samples=200)()
    (label,) = signatures
    baseline, system = columns[label]
    assert found.system == pytest.approx((system.score, system.mean, system.ci))
    assert found.baseline == pytest.approx((baseline.score, baseline.mean, baseline.ci))
    assert found.p_value == system.p_value < 0.05
    assert "seed:7" in found.signature and "bs:200" in found.signature


def test_a_system_is_not_better_than_itself(references):
    lines = corrupted(references, share=0.3, seed=3)
    found = paired_bootstrap(METRICS.get("bleu")(), lines, baseline=lines, references=[references], samples=50)
    assert found.system == found.baseline
    assert found.p_value == 1


def test_seed_decides_and_the_environment_is_restored(references, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    good, bad = corrupted(references, share=0.3, seed=4), corrupted(references, share=0.35, seed=5)

    def mean(seed: int) -> float:
        metric = METRICS.get("bleu")()
        found = paired_bootstrap(metric, good, baseline=bad, references=[references], samples=50, seed=seed)
        return found.system.mean

    assert mean(1) == mean(1) != mean(2)
    assert os.environ["SACREBLEU_SEED"] == "99"
    monkeypatch.delenv("SACREBLEU_SEED")
    mean(1)
    assert "SACREBLEU_SEED" not in os.environ


def test_mistakes(references):
    metric = METRICS.get("bleu")()
    with pytest.raises(DataError, match="59 translations but 60 lines"):
        paired_bootstrap(metric, references, baseline=references[1:], references=[references])
    for wrong in ({"seed": 0}, {"samples": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            paired_bootstrap(metric, references, baseline=references, references=[references], **wrong)
