"""Significance and intervals: the same figures as the sacrebleu command, and a seed that matters."""

from __future__ import annotations

import random

import pytest
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from nmt.errors import ConfigError, DataError
from nmt.evaluation import paired_test
from nmt.evaluation.metrics import counting
from nmt.evaluation.significance import confidence
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


@pytest.mark.parametrize("test", ["bootstrap", "approximate"])
@pytest.mark.parametrize("name", ["bleu", "chrf++", "ter"])
def test_equal_to_sacrebleu(references, name, test, monkeypatch):
    good = corrupted(references, share=0.4, seed=1)
    bad = corrupted(references, share=0.4, seed=2)
    metric = METRICS.get(name)()
    monkeypatch.setattr("nmt.evaluation.significance._PART", 9000)  # several parts, the last one smaller
    found = paired_test(metric, good, baseline=bad, references=[references, bad[::-1]], test=test, samples=200, seed=7)

    monkeypatch.setenv("SACREBLEU_SEED", "7")
    systems = [("bad", bad), ("good", good)]
    kind = {"bootstrap": "bs", "approximate": "ar"}[test]
    streams = [references, bad[::-1]]
    signatures, columns = PairedTest(systems, {"M": metric.scorer()}, streams, test_type=kind, n_samples=200)()
    (label,) = signatures
    baseline, system = columns[label]
    if test == "bootstrap":
        assert found.system == (system.score, system.mean, system.ci)
        assert found.baseline == (baseline.score, baseline.mean, baseline.ci)
    else:
        assert found.system is None and found.baseline is None
    assert found.baseline_score == baseline.score
    assert found.p_value == system.p_value
    assert 0.01 < found.p_value < 1, "sums of many samples were compared"
    assert found.signature == signatures[label].format()
    assert "seed:7" in found.signature and f"{kind}:200" in found.signature


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_intervals_are_those_of_sacrebleu(references, name, monkeypatch):
    lines = corrupted(references, share=0.3, seed=1)
    metric = METRICS.get(name)()
    found = confidence(metric, lines, [references], samples=150, seed=9)

    monkeypatch.setenv("SACREBLEU_SEED", "9")
    scorer = metric.scorer()
    result = scorer.corpus_score(lines, [references], n_bootstrap=150)
    assert found.interval == (result.score, pytest.approx(result._mean, abs=1e-12), result._ci)
    assert found.signature == scorer.get_signature().format()


def test_a_counting_metric_gives_the_same_and_counts_each_sentence_once(references, monkeypatch):
    good, bad = (corrupted(references, share=0.3, seed=seed) for seed in (4, 5))
    plain, metric = METRICS.get("ter")(), counting(METRICS.get("ter")())
    counted = []
    count = TER._compute_segment_statistics
    monkeypatch.setattr(TER, "_compute_segment_statistics", lambda *given: counted.append(1) or count(*given))
    given = {"baseline": bad, "references": [references], "samples": 20}
    found = [paired_test(metric, good, **given), metric.compute(good, [references])]
    found += [metric.compute(good[:9], [references[:9]]), confidence(metric, bad, [references], samples=20)]
    assert len(counted) == len({*zip(good, references, strict=True), *zip(bad, references, strict=True)})
    expected = [paired_test(plain, good, **given), plain.compute(good, [references])]
    expected += [plain.compute(good[:9], [references[:9]]), confidence(plain, bad, [references], samples=20)]
    assert found == expected
    assert (metric.name, metric.higher_is_better) == ("ter", False)


def test_a_counting_metric_knows_all_references(references: list[str]) -> None:
    lines, other = corrupted(references, share=0.3, seed=6), corrupted(references, share=0.2, seed=7)
    plain, metric = METRICS.get("bleu")(), counting(METRICS.get("bleu")())
    for streams in ([references, other], [references, other], [references]):  # at the second time all counts are known
        assert metric.compute(lines, streams) == plain.compute(lines, streams)


def test_a_system_is_not_better_than_itself(references):
    lines = corrupted(references, share=0.3, seed=3)
    found = paired_test(METRICS.get("bleu")(), lines, baseline=lines, references=[references], samples=50)
    assert found.system == found.baseline
    assert found.p_value == 1
    approximate = paired_test(
        METRICS.get("bleu")(), lines, baseline=lines, references=[references], test="approximate", samples=50
    )
    assert approximate.p_value == 1


def test_seed_decides(references):
    good, bad = corrupted(references, share=0.3, seed=4), corrupted(references, share=0.35, seed=5)

    def mean(seed: int) -> float:
        metric = METRICS.get("bleu")()
        found = paired_test(metric, good, baseline=bad, references=[references], samples=50, seed=seed)
        return found.system.mean

    assert mean(1) == mean(1) != mean(2)


def test_mistakes(references):
    metric = METRICS.get("bleu")()
    with pytest.raises(DataError, match="59 translations but 60 lines"):
        paired_test(metric, references, baseline=references[1:], references=[references])
    for wrong in ({"seed": 0}, {"samples": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            paired_test(metric, references, baseline=references, references=[references], **wrong)
    with pytest.raises(ConfigError, match=r"significance: 'sign' is not a known test. Allowed: bootstrap, approximate"):
        paired_test(metric, references, baseline=references, references=[references], test="sign")
