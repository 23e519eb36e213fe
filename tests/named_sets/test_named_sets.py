"""Validation and test sets that have names: scored apart, ranked by one or by their mean."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt.config import load_config, load_saved
from nmt.data.prepare import prepare
from nmt.errors import ConfigError
from nmt.interop.run_layout import read_best
from nmt.plotting.curves import default_panels, read_logs
from tests.console import call
from tests.tiny_training import events, nmt_train, same, training_state, write_config, write_corpus

METRICS = {"metrics": ["bleu", "chrf"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`near` and `far`: 8 sentences as in training, and 5 with the words in another order."""
    write_corpus(tmp_path)
    for language in ("en", "de"):
        lines = (tmp_path / f"dev.{language}").read_text(encoding="utf-8").splitlines()
        (tmp_path / f"near.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        turned = [" ".join(line.split()[::-1]) + " ba be"[: 3 * (len(lines) % 3)] for line in lines[:5]]
        (tmp_path / f"far.{language}").write_text("".join(f"{line}\n" for line in turned), encoding="utf-8")
    return tmp_path


def sets(folder: Path, *names: str) -> dict[str, str]:
    return {name: str(folder / name) for name in names or ("far", "near")}


def trained(folder: Path, *, run: str = "run", data: dict[str, Any], **sections: Any) -> list[dict[str, Any]]:
    """The validations of a run of 12 updates."""
    path = write_config(folder, data=data, **{"evaluation": METRICS, **sections})
    assert nmt_train(path, "--set", f"run_dir={folder / run}") == 0
    return events(folder / run, kinds=("validation",))


def test_each_set_has_the_scores_of_a_run_that_has_it_alone(folder: Path) -> None:
    found = trained(folder, data={"dev": sets(folder)})
    alone = {name: trained(folder, run=name, data={"dev": str(folder / name)}) for name in ("far", "near")}
    assert [event["step"] for event in found] == [6, 12]
    for place, event in enumerate(found):
        for score in ("loss", "bleu", "chrf"):
            own = {name: one[place][score] for name, one in alone.items()}
            assert {name: event[f"{score}@{name}"] for name in own} == own
            assert event[score] == pytest.approx(sum(own.values()) / 2)
        assert event["loss@near"] != event["loss@far"]
        assert event["perplexity"] == pytest.approx(math.exp(event["loss"]))
        assert [*event["signatures"]] == ["bleu", "chrf", "bleu@far", "chrf@far", "bleu@near", "chrf@near"]
        assert event["signatures"]["bleu@far"].startswith("BLEU@far nrefs:1|")
        assert event["signatures"]["bleu"].endswith("|mean:far+near")
        assert [(one["set"], one["source"]) for one in event["samples"]] == [
            (name, one[place]["samples"][0]["source"]) for name, one in alone.items()
        ]
    log = (folder / "run" / "train.log").read_text(encoding="utf-8")
    assert f"loss@near {found[1]['loss@near']:.4f}  " in log and "dev far: 5 pairs read" in log
    assert "pooled" not in log


@pytest.mark.parametrize("metric", ["loss", "loss@far", "chrf", "chrf@near"])
def test_checkpoints_are_ranked_by_one_set_or_by_the_mean(folder: Path, metric: str) -> None:
    ranked = {"early_stopping_metric": metric, "keep_best": 2, "keep_last": 9}
    found = trained(folder, data={"dev": sets(folder)}, training=ranked)
    best = read_best(folder / "run")
    assert best is not None and best.metric == metric
    assert {row.step: row.score for row in best.steps} == pytest.approx({one["step"]: one[metric] for one in found})
    assert [row.score for row in best.steps] == sorted(
        (row.score for row in best.steps), reverse=metric.startswith("chrf")
    )


def test_the_limit_of_sentences_is_for_each_set(folder: Path) -> None:
    evaluation = {**METRICS, "max_sentences": 6, "keep_translations": True}
    (first, _) = trained(folder, data={"dev": sets(folder)}, evaluation=evaluation)
    assert first["translated"] == 6 + 5
    lines = (folder / "run" / "validation" / "step-6.txt").read_text(encoding="utf-8").splitlines()
    own = trained(folder, run="far", data={"dev": str(folder / "far")}, evaluation=evaluation)
    kept = (folder / "far" / "validation" / "step-6.txt").read_text(encoding="utf-8").splitlines()
    assert lines[:5] == kept and first["bleu@far"] == own[0]["bleu"]


def test_a_run_resumes_bit_for_bit(folder: Path) -> None:
    ranked = {"early_stopping_metric": "bleu@far", "patience": 9}
    whole = trained(folder, run="whole", data={"dev": sets(folder)}, training=ranked)
    trained(folder, data={"dev": sets(folder)}, training={**ranked, "max_steps": 6})
    assert trained(folder, data={"dev": sets(folder)}, training={**ranked, "max_steps": 12}) == whole
    assert same(training_state(folder / "run", 12)["ranking"], training_state(folder / "whole", 12)["ranking"])
    assert nmt_train(folder / "tiny.yaml", "--set", f"run_dir={folder / 'run'}") == 0, "finished"


def test_only_the_set_that_ranks_decides_whether_scores_can_be_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranked = {"early_stopping_metric": "bleu@far"}
    trained(folder, data={"dev": sets(folder)}, training={**ranked, "max_steps": 6})
    (folder / "near.en").write_text((folder / "near.en").read_text().replace("b", "g"), encoding="utf-8")
    capsys.readouterr()
    trained(folder, data={"dev": sets(folder)}, training={**ranked, "max_steps": 8})
    assert "new ranking" not in capsys.readouterr().err
    (folder / "far.en").write_text((folder / "far.en").read_text().replace("b", "g"), encoding="utf-8")
    trained(folder, data={"dev": sets(folder)}, training={**ranked, "max_steps": 10})
    assert "cannot be compared with old ones: data.dev has different contents" in capsys.readouterr().err
    trained(folder, data={"dev": sets(folder)}, training={"early_stopping_metric": "bleu", "max_steps": 12})
    assert "early_stopping_metric: 'bleu@far' -> 'bleu'" in capsys.readouterr().err


def test_the_order_of_the_sets_decides_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ("--set", f"data.dev={json.dumps(sets(folder))}")
    other = ("--set", f"data.dev={json.dumps(sets(folder, 'near', 'far'))}")
    assert nmt_train(write_config(folder, training={"max_steps": 6}), *first) == 0
    assert nmt_train(write_config(folder, training={"max_steps": 8}), *other) == 0
    assert "new ranking" not in capsys.readouterr().err


def test_a_run_with_pooled_text_resumes_with_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pooled = [str(folder / "near"), str(folder / "far")]
    data = {"dev": pooled, "test": pooled}
    first = trained(folder, data=data, training={"max_steps": 6})
    said = capsys.readouterr().err
    for part in ("dev", "test"):
        line = f"{part}: 2 texts are pooled and scored as one; data.{part}: {{NAME: TEXT, ...}} has them scored apart\n"
        assert said.count(line) == 1
    assert not [key for key in first[0] if "@" in key] and (folder / "run" / "test.de").is_file()
    found = trained(folder, data={"dev": sets(folder), "test": sets(folder)})
    said = capsys.readouterr().err
    assert "a new ranking of checkpoints begins" in said and "changed since the last start: data.dev: [" in said
    assert "loss@far" in found[-1] and "loss@far" not in found[0]


def test_test_sets_have_files_and_scores_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, training = folder / "run", {"average_last": 2}
    trained(folder, data={"dev": sets(folder), "test": sets(folder)}, training=training)
    plain, average = events(run, kinds=("test",))
    assert (plain["checkpoint"], average["checkpoint"]) == ("step-12", "average")
    for event, middle in ((plain, ""), (average, ".average")):
        assert event["bleu"] == pytest.approx((event["bleu@near"] + event["bleu@far"]) / 2)
        assert event["not_finite"] == 0
        for name, lines in (("near", 8), ("far", 5)):
            output = run / f"test{middle}.{name}.de"
            assert len(output.read_text(encoding="utf-8").splitlines()) == lines
            capsys.readouterr()
            assert call("nmt-eval", "--hyp", str(output), "--ref", str(folder / f"{name}.de"), "--metrics", "chrf") == 0
            assert f" {event[f'chrf@{name}']:.2f} " in capsys.readouterr().out
    assert not (run / "test.de").exists()
    log = (run / "train.log").read_text(encoding="utf-8")
    assert f"test far BLEU = {plain['bleu@far']:.2f} with step-12" in log
    assert nmt_train(folder / "tiny.yaml", "--set", f"run_dir={run}") == 0
    assert "nothing to do" in capsys.readouterr().err
    (run / "test.far.de").unlink()
    assert nmt_train(folder / "tiny.yaml", "--set", f"run_dir={run}") == 0
    assert (run / "test.far.de").is_file(), "made again"


def test_references_are_by_names(folder: Path) -> None:
    references = {"far": [str(folder / "far.de"), str(folder / "far.en")]}
    data = {"dev": sets(folder), "test": sets(folder), "dev_references": references, "test_references": references}
    found = trained(folder, data=data)
    for event in (found[0], *events(folder / "run", kinds=("test",))):
        signatures = event["signatures"]
        assert "nrefs:1|" in signatures["bleu@near"] and "nrefs:2|" in signatures["bleu@far"]
        assert "nrefs:1|" in signatures["bleu"] and "nrefs:2|" in signatures["bleu"]


def test_runs_are_compared_on_each_set(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"dev": sets(folder), "test": sets(folder)}
    for seed in (1, 2):
        path = write_config(folder, data=data, evaluation=METRICS)
        assert nmt_train(path, "--set", f"run_dir={folder / f'r{seed}'}", "--set", f"training.lr=0.0{seed}") == 0
    capsys.readouterr()
    runs = [str(folder / name) for name in ("r1", "r2")]
    tables = []
    assert call("nmt-compare", *runs, "--metrics", "chrf", "--save", str(folder / "records")) == 0
    tables.append(capsys.readouterr().out)
    words = " ".join(tables[0].split())
    assert f"far: {folder.name}/far; near: {folder.name}/near, 13 sentences" in words
    (event,) = events(folder / "r2", kinds=("test",))
    for name in ("chrf", "chrf@near", "chrf@far"):
        assert f"{event[name]:.2f}" in tables[0], "as in the log"
    assert "chrF2@near" in tables[0] and "mean:far+near" in tables[0]
    records = [str(folder / "records" / f"{name}.json") for name in ("r1", "r2")]
    assert call("nmt-compare", *records, "--metrics", "chrf") == 0
    assert capsys.readouterr().out == tables[0]
    record = json.loads((folder / "records" / "r1.json").read_text())
    assert record["test"]["sets"] == {"near": 8, "far": 5}
    assert {"loss@near", "bleu@far"} <= record["curve"][0].keys()


def test_curves_of_each_set_are_drawn(folder: Path) -> None:
    trained(folder, data={"dev": sets(folder)})
    panels = default_panels(read_logs([folder / "run"]))
    assert [panel.name for panel in panels][:9] == [
        *("loss", "loss@far", "loss@near", "bleu", "chrf", "bleu@far", "chrf@far", "bleu@near", "chrf@near")
    ]
    assert {panel.key: panel.title for panel in panels}["bleu@far"] == "BLEU, far"
    assert call("nmt-plot", str(folder / "run"), "-o", str(folder / "curves.svg"), "--panels", "bleu@far,loss") == 0


def test_callbacks_and_the_saved_configuration_have_the_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "seen.py").write_text(
        "from nmt.registry import CALLBACKS, NoOptions\n"
        "from nmt.training.callbacks import Callback\n"
        "@CALLBACKS.register('seen')\n"
        "class Seen(Callback):\n"
        "    def on_validation(self, result):\n"
        f"        open({str(folder / 'seen')!r}, 'a').write(f\"{{result.scores['loss@far']}}\\n\")\n"
    )
    monkeypatch.chdir(folder)
    data = {"dev": {"near": "near", "far": ["far", "far"]}}
    path = write_config(folder, data=data, training={"callbacks": ["seen"]})
    assert nmt_train(path, "--set", f"plugins=[{folder / 'seen.py'}]") == 0
    found = events(folder / "run", kinds=("validation",))
    seen = [float(line) for line in (folder / "seen").read_text().splitlines()]
    assert seen == pytest.approx([one["loss@far"] for one in found])
    assert load_saved(folder / "run" / "config.yaml").data.dev == {
        "near": str(folder / "near"),
        "far": [str(folder / "far")] * 2,
    }
    assert "dev far: 2 texts are pooled" in (folder / "run" / "train.log").read_text()
    assert call("nmt-check", str(folder / "run"), "--plugin", str(folder / "seen.py")) == 0
    (folder / "moved").mkdir()
    for name in ("run", *(f"{part}.{language}" for part in ("near", "far") for language in ("en", "de"))):
        shutil.move(folder / name, folder / "moved" / name)
    moved = load_saved(folder / "moved" / "run" / "config.yaml").data.dev
    assert isinstance(moved, dict) and moved["near"] == str(folder / "moved" / "near")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"data": {"dev": {"a b": "near"}}}, 2, "data.dev: 'a b' is no name of a set, which has letters, digits"),
        ({"data": {"dev": {"near": 3}}}, 2, "data.dev.near: 3 is not text"),
        ({"data": {"dev": {"near": {"source": "x"}}}}, 2, "data.dev: {'source': 'x'} is not allowed; a mapping is"),
        ({"data": {"dev": {"near": "near", "far": "no"}}}, 1, "data.dev.far: neither no.en nor no.en.gz exists"),
        ({"data": {"test": {"far": ["near", "no"]}}}, 1, "data.test.far.1: neither no.en nor no.en.gz exists"),
        ({"data": {"dev_references": {"dev": "dev.de"}}}, 2, "data.dev_references: must name sets if data.dev does"),
        (
            {"data": {"dev": {"near": "near"}, "dev_references": "near.de"}},
            2,
            "data.dev_references: must name sets if data.dev does, and only then",
        ),
        (
            {"data": {"dev": {"near": "near"}, "dev_references": {"nearer": "near.de"}}},
            2,
            "data.dev_references.nearer: 'nearer' is no set of data.dev. Did you mean 'near'? Allowed: near.",
        ),
        (
            {"data": {"dev": {"near": "near"}, "dev_references": {"near": "no.de"}}},
            1,
            "data.dev_references.near: no.de: no such file",
        ),
        (
            {"data": {"dev": {"near": "near"}}, "training": {"early_stopping_metric": "bleu@far"}},
            2,
            "'bleu@far' is not in evaluation.metrics. Did you mean 'bleu@near'? Allowed: loss, bleu, loss@near,",
        ),
        ({"training": {"early_stopping_metric": "bleu@near"}}, 2, "'bleu@near' is not in evaluation.metrics."),
    ],
)
def test_what_is_refused(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, dict[str, Any]],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    assert nmt_train(write_config(folder, **changes)) == code
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
    assert not (folder / "run").exists()


def test_other_tasks_know_no_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(folder, data={"dev": sets(folder)})
    assert nmt_train(path, "--set", "task=language_model") == 2
    assert "data.dev: the task 'language_model' knows no sets with names; give a list" in capsys.readouterr().err


def test_sets_of_several_directions_have_their_tags(folder: Path) -> None:
    def text(source: str, target: str) -> dict[str, Any]:
        return {"prefix": str(folder / "near"), "languages": [source, target]}

    data = {
        **{"source_language": "mul", "target_language": "mul", "target_tag": True, "tokenizer": "sentencepiece"},
        "tokenizer_options": {"vocab_size": 310},
        "train": {"prefix": str(folder / "train"), "languages": ["en", "de"], "directions": "both"},
    }
    directions = {"from": text("de", "en"), "to": text("en", "de"), "ways": {**text("en", "de"), "directions": "both"}}
    config = load_config(write_config(folder, data={**data, "dev": directions, "test": {"to": text("en", "de")}}))
    prepared = prepare(config, folder / "run", progress=False)
    for name, tags in (("from", [">>en<<"]), ("to", [">>de<<"]), ("ways", [">>de<<", ">>en<<"])):
        held = prepared.dev[name]
        assert held.corpus is not None and len(held.corpus) == 8 * len(tags)
        for part, tag in enumerate(tags):
            assert held.text.source[8 * part].startswith(f"{tag} ")
            ids = held.corpus.source(8 * part).tolist()
            assert prepared.tokenizer.source_tokens(ids)[0] == tag
    assert prepared.test["to"].text.source[0].startswith(">>de<< ")
    wrong = write_config(folder, data={**data, "source_language": "en", "dev": {"from": text("de", "en")}})
    with pytest.raises(ConfigError, match="data.dev.from: its source is 'de', but data.source_language is 'en'"):
        load_config(wrong)
