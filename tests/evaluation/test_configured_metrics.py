"""Metrics with options in the configuration: what is computed, what is saved, which mistakes are named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config import dump, import_plugins, load_config, load_saved
from nmt.errors import ConfigError, say_once
from nmt.evaluation import build_metrics
from nmt.training.run import build_ranking
from nmt.training.state import Ranking
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, write_config, write_corpus

PLUGIN = '''
"""How many words a translation has."""
from dataclasses import dataclass

from nmt.errors import ConfigError
from nmt.evaluation import Metric, Score
from nmt.registry import METRICS


@METRICS.register("words_plugin")
class Words(Metric):
    """Words in all translations."""

    name = "words_plugin"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        each: float = 1.0
        """What a word counts."""

        def __post_init__(self):
            if self.each == 0:
                raise ValueError("each: a word must count something")

    def __init__(self, *, options=None):
        super().__init__(options=options)
        if self.options.each == 13:
            raise ConfigError("not here")

    def compute(self, hypotheses, references):
        score = sum(self.options.each * len(line.split()) for line in hypotheses)
        return Score("words", score, f"each:{self.options.each}", True)
'''


def load(folder: Path, metrics: Any, **training: Any) -> Any:
    path = folder / "a.yaml"
    content = {"run_dir": "x", "data": {"dev": "dev"}, "training": training, "evaluation": {"metrics": metrics}}
    path.write_text(yaml.safe_dump(content))
    return load_config(path)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "words.py"
    path.write_text(PLUGIN)
    import_plugins([path])
    return path


def test_options_reach_validation_the_test_text_and_the_log(tmp_path: Path, plugin: Path) -> None:
    write_corpus(tmp_path)
    metrics = [{"bleu": {"tokenize": "char"}}, "chrf", {"words_plugin": {"each": 0.5}}]
    config = write_config(
        tmp_path, evaluation={"metrics": metrics}, data={"test": str(tmp_path / "dev")},
        training={"max_steps": 1, "early_stopping_metric": "words_plugin"}, model={"init_range": 0.8},
    )  # fmt: skip
    assert nmt_train(config, "--plugin", str(plugin)) == 0
    (validation, test) = events(tmp_path / "run", kinds=("validation", "test"))
    for event in (validation, test):
        assert "tok:char" in event["signatures"]["bleu"] and "case:mixed" in event["signatures"]["bleu"]
        assert event["signatures"]["words_plugin"] == "words each:0.5"
    words = sum(len(line.split()) for line in (tmp_path / "run/test.de").read_text().splitlines())
    assert test["words_plugin"] == validation["words_plugin"] == 0.5 * words > 0
    assert json.loads((tmp_path / "run/checkpoints/best.json").read_text())["metric"] == "words_plugin"
    saved = load_saved(tmp_path / "run/config.yaml", [str(plugin)])
    bleu = {"tokenize": "char", "lowercase": False, "max_order": 4, "smooth": "exp", "language": None}
    assert saved.evaluation.metrics == [{"bleu": bleu}, "chrf", {"words_plugin": {"each": 0.5}}]


@pytest.mark.parametrize("metrics", [["bleu"], [{"bleu": None}], [{"bleu": {}}, "ter"], [{"bleu": {"tokenize": "zh"}}]])
def test_what_is_saved_comes_back_the_same(tmp_path: Path, metrics: Any) -> None:
    config = load(tmp_path, metrics)
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump(config))
    assert load_saved(saved) == load_config(saved) == config
    made = build_metrics(config.evaluation, language=config.data.target_language)
    assert [metric.name for metric in made] == [*(["bleu"]), *(["ter"] if "ter" in metrics else [])]
    assert made[0].options.tokenize == ("zh" if metrics[0] == {"bleu": {"tokenize": "zh"}} else None)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("metrics", "messages"),
    [
        (
            [{"bleu": {"tokenize": "zhh"}}],
            ["evaluation.metrics.bleu.tokenize: 'zhh' is not a known tokenizer of sacreBLEU. Did you mean 'zh'?"],
        ),
        (
            [{"bleu": {"tokenise": "zh", "lowercase": 1}}, {"chrf": {"order": 2}}],
            [
                "evaluation.metrics.bleu.lowercase: 1 is not true or false",
                "evaluation.metrics.bleu.tokenise: unknown key. Did you mean 'tokenize'?",
                "evaluation.metrics.chrf.order: unknown key. Allowed: none.",
            ],
        ),
        ([{"words_plugin": {"each": 0.0}}], ["evaluation.metrics.words_plugin.each: a word must count something"]),
        ([{"blue": {}}], ["evaluation.metrics: 'blue' is not a known metric. Did you mean 'bleu'?"]),
        ([{"bleu": 3}], ["evaluation.metrics.bleu: 3 is not a mapping of options to values"]),
        ([{"bleu": {}, "ter": {}}], ["evaluation.metrics: {'bleu': {}, 'ter': {}} is not one metric with its options"]),
        ([{}], ["evaluation.metrics: {} is not one metric with its options"]),
        ([3], ["evaluation.metrics.0: 3 is neither text nor a mapping of keys to values"]),
        (
            ["bleu", {"bleu": {"tokenize": "zh"}}],
            ["evaluation.metrics: 'bleu' is listed 2 times, but scores are distinguished by these names"],
        ),
    ],
)
def test_mistakes_are_named_with_their_keys(tmp_path: Path, plugin: Path, metrics: Any, messages: list[str]) -> None:
    path = tmp_path / "a.yaml"
    content = {"run_dir": "x", "plugins": [str(plugin)], "evaluation": {"metrics": metrics}}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as error:
        load_config(path)
    lines = [re.sub(r"^  (line \d+: )?", "", line) for line in str(error.value).splitlines()[1:]]
    assert len(lines) == len(messages), lines
    assert all(line.startswith(message) for line, message in zip(lines, messages, strict=True)), lines


def test_a_run_saved_with_a_metric_twice_still_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "saved.yaml"
    path.write_text(yaml.safe_dump({"run_dir": "x", "evaluation": {"metrics": ["bleu", "ter", "bleu"]}}))
    say_once.cache_clear()
    assert load_saved(path).evaluation.metrics == ["bleu", "ter"]
    assert "a metric that is listed twice in an older saved configuration is used once" in caplog.text
    with pytest.raises(ConfigError, match="'bleu' is listed 2 times"):
        load_config(path)


def test_a_metric_that_refuses_to_be_used_here_shows_before_training(
    tmp_path: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path, evaluation={"metrics": [{"words_plugin": {"each": 13.0}}]})
    assert load_config(config).evaluation.metrics == [{"words_plugin": {"each": 13.0}}]  # it may do elsewhere
    assert nmt_train(config, "--plugin", str(plugin)) == 2
    first, line = capsys.readouterr().err.splitlines()
    assert first == f"nmt-train: {config}:"
    assert re.fullmatch(r"  line \d+: evaluation\.metrics: metric words_plugin: not here", line)


def test_a_tokenizer_that_cannot_be_used_here_shows_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(self: object, **settings: object) -> None:
        raise RuntimeError("needs extra packages")

    monkeypatch.setattr("nmt.evaluation.metrics.BLEU.__init__", unavailable)
    write_corpus(tmp_path)
    config = write_config(tmp_path, evaluation={"metrics": [{"bleu": {"tokenize": "ja-mecab"}}]})
    assert nmt_train(config) == 2
    assert "tokenizer 'ja-mecab' cannot be used here: needs extra packages" in capsys.readouterr().err
    assert not (tmp_path / "run/log.jsonl").exists()


def ranking(folder: Path, metrics: Any) -> Ranking:
    return build_ranking(task_of(load(folder, metrics, early_stopping_metric="bleu")))


def test_scores_with_other_options_are_not_compared(tmp_path: Path) -> None:
    usual, char = ranking(tmp_path, ["bleu"]), ranking(tmp_path, [{"bleu": {"tokenize": "char"}}])
    assert usual.higher_is_better and char.higher_is_better
    usual.add(6, 30.0, regular=True)
    char.load_state_dict(usual.state_dict())
    assert char.best is None
    char.add(6, 50.0, regular=True)
    again = ranking(tmp_path, [{"bleu": {"tokenize": "char", "lowercase": False}}])
    again.load_state_dict(char.state_dict())
    assert again.best == 50.0
    old = usual.state_dict()
    del old["options"]  # as versions without options of metrics saved it
    for metrics, best in ((["bleu"], 30.0), ([{"bleu": {}}], 30.0), ([{"bleu": {"lowercase": True}}], None)):
        now = ranking(tmp_path, metrics)
        now.load_state_dict(old)
        assert now.best == best
