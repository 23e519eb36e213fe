"""Metrics that look at the sources: the example of docs/plugins.md, by every door, with a stand-in for its package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import nmt
from nmt.config import import_plugins
from nmt.errors import ConfigError, DataError
from nmt.evaluating.groups import by_length
from nmt.evaluation import Metric, Score, build_metric, paired_test
from nmt.evaluation.metrics import counting
from tests.console import call
from tests.experiments import small_runs
from tests.own_components import registries_restored, write_example
from tests.tiny_training import events, nmt_train, write_config, write_corpus

SOURCES = ["a b c", "a b", "d e f g", "a", "b c d e f"] * 4
RIGHT = [line.upper() for line in SOURCES]
CLOSE = [line if place % 5 else line + " x y z" for place, line in enumerate(RIGHT)]
FAR = [line if place % 2 else line + " x y z w v" for place, line in enumerate(RIGHT)]


class Model:
    """Its score is high where a translation is as long as source and reference."""

    calls = 0

    def predict(self, rows: list[dict[str, str]], *, batch_size: int, gpus: int) -> Any:
        Model.calls += 1
        assert batch_size == 16 and gpus == 0
        scores = [
            1 / (1 + abs(len(row["mt"].split()) - len(row["src"].split())) + (row["ref"] != row["mt"])) for row in rows
        ]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    package: Any = ModuleType("comet")
    package.download_model, package.load_from_checkpoint = (lambda name: f"{name}.ckpt"), (lambda path: Model())
    monkeypatch.setitem(sys.modules, "comet", package)
    with registries_restored():
        yield str(write_example(tmp_path, "my_comet"))


def write(folder: Path, **texts: list[str]) -> dict[str, str]:
    for name, lines in texts.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return {name: str(folder / name) for name in texts}


def test_nmt_eval_scores_compares_and_cuts_by_length(plugin: str, tmp_path: Path, capsys) -> None:
    files = write(tmp_path, src=SOURCES, ref=RIGHT, close=CLOSE, far=FAR)
    texts = ["--hyp", files["far"], files["close"], "--ref", files["ref"], "--plugin", plugin, "--metrics", "my_comet"]
    assert call("nmt-eval", *texts, "--source", files["src"], "--json", "--by-length", "--confidence") == 0
    far, close = (one["metrics"][0] for one in json.loads(capsys.readouterr().out))
    assert close["score"] == pytest.approx((16 + 4 / 5) / 20) and far["score"] < close["score"]
    assert close["baselines"][0]["p_value"] < 0.05
    assert close["baselines"][0]["signature"] == "model:wmt22-comet-da|seed:12345|bs:1000"
    assert close["confidence"]["mean"] == pytest.approx(close["score"], abs=0.03) and close["confidence"]["ci"] > 0
    assert close["by_length"][0]["score"] == pytest.approx(close["score"]), "all lines are short"
    assert call("nmt-eval", *texts) == 2
    assert "--metrics my_comet: needs --source" in capsys.readouterr().err
    (tmp_path / "src").write_text("one line\n")
    assert call("nmt-eval", *texts, "--source", files["src"]) == 1
    assert "has 20 lines but" in capsys.readouterr().err


def test_in_python(plugin: str, tmp_path: Path) -> None:
    import_plugins([plugin])
    Model.calls = 0
    found = nmt.evaluate({"far": FAR, "close": CLOSE}, RIGHT, source=SOURCES, metrics=["my_comet"], confidence=True)
    assert found.systems["close"]["my_comet"] == pytest.approx((16 + 4 / 5) / 20)
    assert Model.calls == 2, "each text is scored once, for its score, interval and comparison"
    with pytest.raises(ConfigError, match="metric my_comet: needs the sources"):
        nmt.evaluate(CLOSE, RIGHT, metrics=["my_comet"])
    with pytest.raises(ConfigError, match="source: none of the metrics looks at it"):
        nmt.evaluate(CLOSE, RIGHT, source=SOURCES)
    with pytest.raises(DataError, match="1 source but 20 translations"):
        build_metric("my_comet").score(CLOSE, [RIGHT], sources=["a"])


def test_tests_of_significance_are_those_of_means(plugin: str) -> None:
    """Compared with numpy's own resampling of the same draws."""
    import_plugins([plugin])
    metric = counting(build_metric("my_comet"))
    one = paired_test(metric, CLOSE, baseline=FAR, references=[RIGHT], samples=200, seed=3, sources=SOURCES)
    close, far = (np.array(metric.score(text, [RIGHT], sources=SOURCES).segments) for text in (CLOSE, FAR))
    drawn = np.random.default_rng(3).choice(20, size=(200, 20), replace=True)
    differences = np.abs(close[drawn].mean(1) - far[drawn].mean(1))
    expected = (np.sum(differences - differences.mean() > close.mean() - far.mean()) + 1) / 201
    assert one.p_value == pytest.approx(expected)
    dealt = paired_test(
        metric, CLOSE, baseline=FAR, references=[RIGHT], samples=200, test="approximate", sources=SOURCES
    )
    assert dealt.p_value < 0.05 and dealt.system is None
    (short, long) = by_length(RIGHT, most=(3,)).scored(metric, CLOSE, [RIGHT], sources=SOURCES).rows
    assert (short.size, long.size) == (12, 8)
    assert short.score == pytest.approx(close[[len(line.split()) <= 3 for line in RIGHT]].mean())


def test_training_and_comparing(plugin: str, tmp_path: Path, capsys) -> None:
    write_corpus(tmp_path)
    config = write_config(
        tmp_path,
        data={"test": str(tmp_path / "dev")},
        training={"max_steps": 2, "validate_every": 2, "early_stopping_metric": "my_comet"},
        evaluation={"metrics": ["my_comet"]},
    )
    assert nmt_train(config, "--plugin", plugin) == 0
    (validation,) = events(tmp_path / "run", kinds=("validation",))
    (test,) = events(tmp_path / "run", kinds=("test",))
    assert 0 < validation["my_comet"] == test["my_comet"] <= 1
    other = small_runs.make_run(tmp_path, "gru-1", small_runs.with_faults(0, 1))
    more = small_runs.make_run(tmp_path, "lrn-1", small_runs.with_faults(2), cell="lrn")
    capsys.readouterr()
    given = ["--metrics", "my_comet", "--plugin", plugin, "--format", "csv", "--samples", "200"]
    assert call("nmt-compare", other, more, *given, "--save", str(tmp_path / "saved")) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].endswith("COMET,COMET_sd,COMET_p") and not table.splitlines()[2].endswith(",")
    files = sorted(map(str, (tmp_path / "saved").glob("*.json")))
    assert call("nmt-compare", *files, "--format", "csv", "--samples", "200") == 0
    assert capsys.readouterr().out == table, "records need neither plugin nor package"


def test_a_metric_of_the_old_form_works_as_before(tmp_path: Path, capsys) -> None:
    files = write(tmp_path, src=SOURCES, ref=RIGHT, close=CLOSE)
    with registries_restored():
        plugin = str(write_example(tmp_path, "exact"))
        texts = ["--hyp", files["close"], "--ref", files["ref"], "--plugin", plugin, "--metrics", "exact"]
        assert call("nmt-eval", *texts) == 0
        assert "80.00" in capsys.readouterr().out
        assert call("nmt-eval", *texts, "--source", files["src"]) == 2
        assert "--source: none of the metrics looks at it" in capsys.readouterr().err
        assert call("nmt-eval", *texts, "--confidence") == 2
        assert "'exact' has no scores of sentences (Score.segments)" in capsys.readouterr().err
        metric = build_metric("exact")
        assert isinstance(metric.score(CLOSE, [RIGHT], sources=SOURCES), Score)


def test_what_is_remembered_keeps_the_check_and_the_scorer_of_a_plugin() -> None:
    class Own(Metric):
        name, higher_is_better = "own", True
        seen: ClassVar[list[object]] = []

        def compute(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
            return Score("own", float(len(hypotheses)), "", True)

        def check(self, references: Sequence[Sequence[str]]) -> None:
            self.seen.append(references)

        def scorer(self) -> Any:
            return "of the plugin"

    metric = counting(Own())
    metric.check([["a"]])
    assert Own.seen == [[["a"]]] and metric.scorer() == "of the plugin"
    assert metric.score(["a", "b"], [["a", "b"]]).score == 2.0
