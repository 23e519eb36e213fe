"""Configurations that older versions have saved: what is read as something else, and that it is said."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config import Config, dump, load_config, load_saved, upgrade
from nmt.errors import ConfigError, say_once
from nmt.training.run_dir import check_resumable
from tests.tiny_training import nmt_train, same, training_state, write_config, write_corpus

SAID = "model.cell_options.gates: 'coupled' in an older saved configuration is read as 'coupled_input' (f = 1 - i)"
COUPLED = {"cell": "atr", "cell_options": {"gates": "coupled"}}


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    say_once.cache_clear()


def write(folder: Path, content: dict[str, Any], name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump({"run_dir": "x", **content}), encoding="utf-8")
    return path


def gates(config: Config) -> Any:
    return config.model.cell_options["gates"]


def test_a_saved_coupled_without_a_format_is_coupled_input_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, {"model": COUPLED})
    assert [gates(load_saved(path)) for _ in range(2)] == ["coupled_input"] * 2
    assert [record.getMessage() for record in caplog.records] == [SAID]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_so_is_that_of_one_side(tmp_path: Path, side: str) -> None:
    own = {f"{side}_cell": "atr", f"{side}_cell_options": {"gates": "coupled"}}
    config = load_saved(write(tmp_path, {"model": {"cell": "gru", **own}}))
    assert getattr(config.model, f"{side}_cell_options")["gates"] == "coupled_input"
    alone = {"cell": "atr", f"{side}_cell_options": {"gates": "coupled"}}
    config = load_saved(write(tmp_path, {"model": alone}))
    assert getattr(config.model, f"{side}_cell_options")["gates"] == "coupled_input"
    assert gates(config) == "twin"


@pytest.mark.parametrize(("marks", "wanted"), [({}, "batch"), ({"format": 2}, "batch"), ({"format": 3}, "sentence")])
def test_the_mean_over_batches_has_a_name_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, marks: dict[str, int], wanted: str
) -> None:
    path = write(tmp_path, {**marks, "training": {"normalization": "sentence"}})
    assert load_saved(path).training.normalization == wanted
    assert len(caplog.records) == (wanted == "batch")
    assert (
        load_config(write(tmp_path, {"training": {"normalization": "sentence"}})).training.normalization == "sentence"
    )


def test_of_a_metric_that_is_listed_twice_one_stays_and_so_does_the_rest(tmp_path: Path) -> None:
    evaluation = {"metrics": ["bleu", "chrf", "bleu"], "max_sentences": 7}
    config = load_saved(write(tmp_path, {"evaluation": evaluation}))
    assert (config.evaluation.metrics, config.evaluation.max_sentences) == (["bleu", "chrf"], 7)


@pytest.mark.parametrize("gate", ["twin", "coupled", "coupled_input"])
def test_what_this_version_saves_is_read_as_it_is(tmp_path: Path, gate: str, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(write(tmp_path, {"model": {"cell": "atr", "cell_options": {"gates": gate}}}))
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump(config), encoding="utf-8")
    assert f"format: {upgrade.FORMAT}\n" in dump(config)
    for again in (load_saved(saved), load_config(saved)):
        assert again == config
        assert gates(again) == gate
    assert not caplog.records


def test_a_configuration_of_one_s_own_has_the_meaning_of_this_version(tmp_path: Path) -> None:
    assert gates(load_config(write(tmp_path, {"model": COUPLED}))) == "coupled"
    marked = write(tmp_path, {"format": 1, "model": COUPLED})
    assert gates(load_config(marked)) == "coupled_input"
    assert gates(load_config(marked, ["model.cell_options.gates=coupled"])) == "coupled"


def test_the_same_word_of_another_unit_is_left_alone() -> None:
    raw: dict[str, Any] = {"model": {"cell": "mine", "cell_options": {"gates": "coupled"}}}
    assert upgrade.upgrade(raw, unmarked=1, origin="x") == raw
    assert raw["model"]["cell_options"]["gates"] == "coupled"


@pytest.mark.parametrize("model", [None, 3, [], {"cell": []}, {"cell": "atr", "cell_options": ["coupled"]}])
def test_rules_take_whatever_there_is(model: Any) -> None:
    assert upgrade.upgrade({"model": model}, unmarked=1, origin="x") == {"model": model}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (upgrade.FORMAT + 1, f"{upgrade.FORMAT + 1} was written by a newer version of nmt"),
        *((wrong, f"{wrong!r} is not a format of a configuration") for wrong in (0, -1, True, 1.0, "1", None, [])),
    ],
)
@pytest.mark.parametrize("load", [load_saved, load_config])
def test_an_unknown_format_is_one_line(tmp_path: Path, load: Any, value: Any, problem: str) -> None:
    path = write(tmp_path, {"format": value})
    with pytest.raises(ConfigError) as error:
        load(path)
    said = re.sub(r"\n  line \d+:", "", str(error.value))
    assert said == f"{path}: format: {problem}. Allowed: 1 to {upgrade.FORMAT}."


def test_every_format_has_its_rules() -> None:
    assert sorted(upgrade.RULES) == list(range(2, upgrade.FORMAT + 1))


def as_saved_before(run: Path) -> None:
    """Make the configurations of a run what the version before formats has written."""
    for path in run.rglob("config.yaml"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"format: {upgrade.FORMAT}\n") and "gates: coupled_input" in text
        text = text.removeprefix(f"format: {upgrade.FORMAT}\n").replace("gates: coupled_input", "gates: coupled")
        path.write_text(text, encoding="utf-8")


def test_a_run_from_before_goes_on_as_coupled_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path)
    model = {"cell": "atr", "cell_options": {"gates": "coupled_input"}}
    config = write_config(tmp_path, model=model, training={"max_steps": 6, "validate_every": 3})
    run = tmp_path / "run"
    assert nmt_train(config) == 0
    whole = training_state(run, 6)
    assert nmt_train(config, "--overwrite", "--set", "training.max_steps=3") == 0
    as_saved_before(run)
    assert nmt_train(config, "--set", "model.cell_options.gates=coupled") == 2
    message = capfd.readouterr().err
    assert "model.cell_options.gates: 'coupled_input' -> 'coupled'" in message
    caplog.clear()
    say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert nmt_train(config) == 0
    assert [record.getMessage() for record in caplog.records].count(SAID) == 1
    assert same(training_state(run, 6), whole)
    assert gates(load_saved(run / "config.yaml")) == "coupled_input"
    assert check_resumable(load_saved(run / "config.yaml"), load_config(config), run=run) == []


def test_scales_of_layer_norms_that_an_older_version_did_not_name_began_at_one(tmp_path: Path) -> None:
    saved = write(tmp_path, {"model": {"cell": "lrn", "layer_norm": True}})
    assert load_saved(saved).model.layer_norm_scale == 1.0
    assert load_config(saved).model.layer_norm_scale == 0.5
