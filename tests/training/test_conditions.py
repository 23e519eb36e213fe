"""Scores are ranked together while what they were measured with stays: text, references, sentences, search."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config, DataConfig, DecodingConfig, EvaluationConfig, TrainingConfig
from nmt.data.text import ParallelText
from nmt.data.text_facts import ValidationFacts, facts_of_files, validation_facts
from nmt.optimization.schedules import Score
from nmt.training.run import build_ranking
from nmt.training.state import Ranking, conditions, differences
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, training_state, write_config, write_corpus

FACTS = ValidationFacts(10, "s", "t", "r")
BLEU = Config(run_dir="r", data=DataConfig(dev="d"), training=TrainingConfig(early_stopping_metric="bleu"))
LOSS = dataclasses.replace(BLEU, training=TrainingConfig(early_stopping_metric="loss"))


def changed(config: Config, **sections: Any) -> Config:
    return dataclasses.replace(config, **sections)


@pytest.mark.parametrize(
    ("decoding", "said"),
    [
        ({"beam_size": 5}, ["decoding.beam_size: 4 -> 5"]),
        ({"length_penalty": 1.0}, ["decoding.length_penalty: 0.6 -> 1.0"]),
        ({"max_length_offset": 9}, ["decoding.max_length_offset: 50 -> 9"]),
        ({"precision": "fp32"}, ["decoding.precision: 'auto' -> 'fp32'"]),
        ({"search_options": {"x": 1}}, ["decoding.search_options: {} -> {'x': 1}"]),
        ({"search": "beam"}, []),  # which `auto` means
        ({"n_best": 3, "batch_tokens": 99}, []),
    ],
)
def test_what_a_search_decides(decoding: dict[str, Any], said: list[str]) -> None:
    now = changed(BLEU, decoding=DecodingConfig(**decoding))
    assert list(differences(conditions(BLEU, FACTS), conditions(now, FACTS))) == said
    now = changed(LOSS, decoding=DecodingConfig(**decoding), evaluation=EvaluationConfig(max_sentences=2))
    assert list(differences(conditions(LOSS, FACTS), conditions(now, FACTS))) == []


@pytest.mark.parametrize("search", ["sample", "mbr", "beam", "diverse_beam", "noisy_beam"])
def test_the_best_of_more_samples_is_another_translation(search: str) -> None:
    """All other searches return more of the same hypotheses."""
    few, more = (changed(BLEU, decoding=DecodingConfig(search=search, n_best=number)) for number in (1, 3))
    said = ["decoding.n_best: 1 -> 3"] if search == "sample" else []
    assert list(differences(conditions(few, FACTS), conditions(more, FACTS))) == said


@pytest.mark.parametrize("metric", ["loss", "f1"])
def test_scores_of_labels_need_no_search(metric: str) -> None:
    training = TrainingConfig(early_stopping_metric=metric)
    tagging = changed(BLEU, task="tagging", training=training)
    searching = changed(tagging, decoding=DecodingConfig(beam_size=9))
    assert list(differences(conditions(tagging, FACTS), conditions(searching, FACTS))) == []
    other = FACTS._replace(target="x")
    said = list(differences(conditions(tagging, FACTS), conditions(tagging, other)))
    assert said == ["data.dev has different contents"]


def test_sentences_and_texts() -> None:
    few, all_of_them = (changed(BLEU, evaluation=EvaluationConfig(max_sentences=count)) for count in (9, 10))
    assert list(differences(conditions(BLEU, FACTS), conditions(few, FACTS))) == ["evaluation.max_sentences: None -> 9"]
    assert list(differences(conditions(BLEU, FACTS), conditions(all_of_them, FACTS))) == []
    assert list(differences(conditions(few, None), conditions(BLEU, FACTS))) == []
    source, target, references = (FACTS._replace(**{name: "x"}) for name in ("source", "target", "references"))
    found = [list(differences(conditions(BLEU, FACTS), conditions(BLEU, other))) for other in (source, target)]
    assert found == [["data.dev has different contents"], []]
    found = [list(differences(conditions(LOSS, FACTS), conditions(LOSS, other))) for other in (target, references)]
    assert found == [["data.dev has different contents"], []]
    now = conditions(BLEU, references)
    assert list(differences(conditions(BLEU, FACTS), now)) == ["references of data.dev has different contents"]


def test_a_shortlist_is_its_contents(tmp_path: Path) -> None:
    found = []
    for name, content in (("a", b"1"), ("b", b"1"), ("b", b"2")):
        (tmp_path / name).write_bytes(content)
        config = changed(BLEU, decoding=DecodingConfig(shortlist=str(tmp_path / name)))
        found.append(conditions(config, FACTS))
    assert list(differences(found[0], found[1])) == []
    assert list(differences(found[1], found[2])) == ["decoding.shortlist has different contents"]
    assert len(list(differences(conditions(BLEU, FACTS), found[0]))) == 1


def test_a_language_model_is_its_weights(tmp_path: Path) -> None:
    found = []
    for name, content in (("a", b"1"), ("b", b"1"), ("b", b"2")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "model.safetensors").write_bytes(content)
        config = changed(BLEU, decoding=DecodingConfig(language_model=str(tmp_path / name)))
        found.append(conditions(config, FACTS))
    assert list(differences(found[0], found[1])) == []
    assert list(differences(found[1], found[2])) == ["decoding.language_model has different contents"]


def test_facts_tell_texts_apart() -> None:
    texts = [ParallelText(["a", "b"], ["c"]), ParallelText(["a b"], ["c"]), ParallelText(["a", "b", ""], ["c"])]
    assert len({validation_facts(text, []).source for text in texts}) == 3
    sets: list[list[list[str]]] = [[["a"], ["b"]], [["a", "b"]], [["b"], ["a"]]]
    assert len({validation_facts(texts[0], each).references for each in sets}) == 3


def test_facts_are_of_all_files(tmp_path: Path) -> None:
    (one, two) = files = [tmp_path / "one", tmp_path / "two"]
    one.write_text("a\n")
    two.write_text("b\n")
    before = facts_of_files(files)
    assert before is not None and before.lines == 2
    two.write_text("c\n")
    assert facts_of_files(files) != before
    assert facts_of_files([]) is None


def scored(config: Config, facts: ValidationFacts | None) -> dict[str, Any]:
    ranking = build_ranking(task_of(config), facts)
    ranking.add(1, 5.0, regular=True)
    ranking.add(2, 4.0, regular=True)
    return ranking.state_dict()


def test_a_ranking_goes_on_or_begins_anew() -> None:
    same = build_ranking(task_of(BLEU), FACTS)
    assert same.load_state_dict(scored(BLEU, FACTS)) is None
    assert (same.ranked(), same.without_best) == ([1, 2], 1)
    old = scored(BLEU, FACTS)
    del old["conditions"]  # as versions wrote it that did not look at them
    kept = build_ranking(task_of(BLEU), FACTS)
    assert kept.load_state_dict(old) is None and kept.ranked() == [1, 2]
    assert kept.state_dict()["conditions"] == conditions(BLEU, FACTS)
    for now, said in (
        (build_ranking(task_of(BLEU), FACTS._replace(source="x")), "data.dev has different contents"),
        (build_ranking(task_of(LOSS), FACTS), "training.early_stopping_metric: 'bleu' -> 'loss'"),
        (Ranking(metric="bleu", higher_is_better=True, options={"a": 1}), "options of bleu: {} -> {'a': 1}"),
    ):
        assert now.load_state_dict(scored(BLEU, FACTS)) == said
        assert (now.ranked(), now.without_best, now.regular_best) == ([], 0, None)


def test_a_rate_that_follows_scores_does_not_compare_them_either() -> None:
    schedule = Score(lr=1.0, hidden_size=4)
    schedule.end_validation(20.0, higher_is_better=True)
    schedule.forget_scores()
    schedule.end_validation(3.0, higher_is_better=False)
    assert schedule.rate == 1.0
    schedule.end_validation(3.0, higher_is_better=False)
    assert schedule.rate == 0.5


def test_an_average_that_waits_for_a_plateau_does_not_compare_them_either(tmp_path: Path) -> None:
    """A loss is above the BLEU before, which does not mean that the model gets better or worse."""
    write_corpus(tmp_path)
    for steps, metric in ((12, "bleu"), (18, "loss")):
        training = {"max_steps": steps, "average_after": 1, "early_stopping_metric": metric}
        assert nmt_train(write_config(tmp_path, training=training)) == 0
    average = training_state(tmp_path / "run", 18)["updater"]["average"]
    (validation,) = (event for event in events(tmp_path / "run", kinds=("validation",)) if event["step"] == 18)
    assert average["scores"] == [pytest.approx(validation["loss"])] and not average["has_begun"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates that ended for want of a better score, as all rates are 0."""
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder)
    training = {"max_steps": 9, "patience": 1, "validate_every": 2, "lr": 1e-12, "early_stopping_metric": "bleu"}
    assert nmt_train(write_config(folder, training=training)) == 0
    assert training_state(folder / "run", 4)["ranking"]["scores"].keys() == {2, 4}
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.dev=OTHER", "data.dev has different contents; references of data.dev has different contents"),
        ("evaluation.max_sentences=3", "evaluation.max_sentences: None -> 3"),
        ("decoding.beam_size=1", "decoding.search: 'beam' -> 'greedy'; decoding.beam_size: 2 -> 1"),
        ("decoding.batch_tokens=64", None),
    ],
)
def test_a_resumed_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, said: str | None
) -> None:
    """It had run out of patience: with another ranking it goes on until it does so again."""
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    for language in ("en", "de"):
        lines = (trained / f"dev.{language}").read_text().splitlines(keepends=True)
        (tmp_path / f"other.{language}").write_text("".join(lines[1:]))
    capsys.readouterr()
    words = (f"run_dir={run}", change.replace("OTHER", str(tmp_path / "other")))
    assert nmt_train(trained / "tiny.yaml", *(word for key in words for word in ("--set", key))) == 0
    lines = capsys.readouterr().err.splitlines()
    if said is None:
        assert len(lines) == 1 and "nothing to do" in lines[0]
        return
    assert [line.partition(": ")[2] for line in lines if "new ranking" in line] == [said]
    assert training_state(run, 8)["ranking"]["scores"].keys() == {6, 8}
    assert [row["step"] for row in json.loads((run / "checkpoints/best.json").read_text())["steps"]] == [6, 8]


def test_a_finished_run_does_not_need_its_text(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    keys = (f"run_dir={tmp_path / 'run'}", f"data.dev={tmp_path / 'gone'}")
    capsys.readouterr()
    assert nmt_train(trained / "tiny.yaml", *(word for key in keys for word in ("--set", key))) == 0
    assert "nothing to do" in capsys.readouterr().err
