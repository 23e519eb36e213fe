"""Callbacks of plugins: what they are told and when, how they stop training, what is kept, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import Choice
from nmt.errors import ConfigError, DataError
from nmt.registry import CALLBACKS
from nmt.training.callbacks import Callback, CallbackError, Callbacks, StopTraining, UpdateResult
from tests.own_components import registries_restored, write_example
from tests.tiny_training import events, nmt_train, write_config, write_corpus

TOLD: list[tuple[str, Any]] = []


class Notes(Callback):
    """Writes down what it is told."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        stop_at: int = 0
        """Update after which to stop."""

    seen = 0

    def on_start(self, start: Any) -> None:
        TOLD.append(("start", (start.step, start.rank, start.run.name, start.model.training, self.seen)))

    def on_update(self, update: UpdateResult) -> None:
        self.seen += 1
        TOLD.append(("update", update))
        if update.step == self.options.stop_at:
            raise StopTraining("it is late")

    def on_validation(self, validation: Any) -> None:
        TOLD.append(("validation", validation))

    def on_checkpoint(self, path: Path) -> None:
        TOLD.append(("checkpoint", (path.name, path.is_dir())))

    def on_end(self, end: Any) -> None:
        TOLD.append(("end", end))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Everywhere(Callback):
    every_rank = True


@pytest.fixture(autouse=True)
def callbacks() -> Iterator[None]:
    TOLD.clear()
    with registries_restored():
        CALLBACKS.register("notes")(Notes)
        CALLBACKS.register("everywhere")(Everywhere)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def config(folder: Path, *callbacks: Any, **training: Any) -> Path:
    settings = {"max_steps": 4, "validate_every": 2, "callbacks": list(callbacks), "log_every": 1, **training}
    return write_config(folder, training=settings, evaluation={"metrics": []})


def test_everything_is_told_in_order_and_state_outlives_a_resume(folder: Path) -> None:
    assert nmt_train(config(folder, "notes"), "--set", "training.max_steps=2") == 0
    kinds = ["start", "update", "update", "validation", "checkpoint", "end"]
    assert [kind for kind, _ in TOLD] == kinds
    told = dict(TOLD)
    assert told["start"] == (0, 0, "run", True, 0) and told["checkpoint"] == ("step-2", True)
    (validated,) = events(folder / "run", kinds=("validation",))
    assert told["validation"].scores["loss"] == pytest.approx(validated["loss"], rel=1e-6)
    assert told["validation"].new_best is True
    logged = events(folder / "run", kinds=("train",))
    for (_, update), line in zip(TOLD[1:3], logged, strict=True):
        assert (update.step, update.lr, update.applied) == (line["step"], line["lr"], True)
        assert update.loss == pytest.approx(line["loss"], rel=1e-6)
        assert update.objective == pytest.approx(line["objective"], rel=1e-6)
        assert update.grad_norm == pytest.approx(line["grad_norm"], rel=1e-6)
    assert (told["end"].step, told["end"].finished) == (2, True)
    TOLD.clear()
    assert nmt_train(config(folder, "notes")) == 0
    assert dict(TOLD)["start"] == (2, 0, "run", True, 2)


def test_a_wish_to_stop_ends_the_run_for_good(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is validated and saved; the same command has nothing to do; without the callback, or otherwise, it goes on."""
    stops = config(folder, {"notes": {"stop_at": 3}}, max_steps=6)
    assert nmt_train(stops) == 0
    assert "callback 'notes' has asked to stop: it is late at update 3" in capfd.readouterr().err
    assert [event["step"] for event in events(folder / "run", kinds=("validation",))] == [2, 3]
    assert (folder / "run/checkpoints/step-3").is_dir()
    assert nmt_train(stops) == 0
    said = "nothing to do, this run is finished: callback 'notes' has asked to stop: it is late"
    assert said in capfd.readouterr().err
    assert nmt_train(config(folder, {"notes": {"stop_at": 4}}, max_steps=6)) == 0
    assert (folder / "run/checkpoints/step-4").is_dir()
    assert nmt_train(config(folder, max_steps=6)) == 0
    said = capfd.readouterr().err
    assert "callback 'notes' is no longer there; its state is dropped" in said
    assert "training.max_steps = 6 is reached" in said


def test_the_example_of_the_guide_counts_over_a_resume(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = ("--plugin", str(write_example(folder, "enough")))
    file = config(folder, {"enough": {"score": "loss", "reaches": 0.1, "times": 3}}, max_steps=20)
    assert nmt_train(file, *own, "--set", "training.max_steps=4") == 0
    assert nmt_train(file, *own) == 0
    assert "callback 'enough' has asked to stop: loss was good enough 3 times at update 6" in capfd.readouterr().err


def test_only_rank_0_has_a_callback_unless_all_need_it() -> None:
    chosen = [Choice("notes", {}), Choice("everywhere", {})]
    assert list(Callbacks(chosen)._members) == ["notes", "everywhere"]
    assert list(Callbacks(chosen, is_main=False)._members) == ["everywhere"]


def test_a_wish_of_rank_0_is_known_to_the_others_without_its_words() -> None:
    assert Callbacks([Choice("notes", {})], is_main=False).stop_reason == "a callback has asked to stop"


def test_what_fails_in_a_callback_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise DataError("no such table")

    monkeypatch.setattr(Notes, "on_checkpoint", fail)
    with pytest.raises(CallbackError, match="callback 'notes', on_checkpoint: no such table"):
        Callbacks([Choice("notes", {})]).call("on_checkpoint", lambda member: member.on_checkpoint(Path("x")))


@pytest.mark.parametrize("kept", [{"path": Path("x")}, {"rows": [1, {2}]}, {"when": {Path("x"): 1}}])
def test_a_state_that_could_not_be_read_again_is_refused_when_it_is_saved(
    monkeypatch: pytest.MonkeyPatch, kept: dict[str, Any]
) -> None:
    monkeypatch.setattr(Notes, "state_dict", lambda self: kept)
    with pytest.raises(
        CallbackError, match="callback 'notes': its state_dict holds a (PosixPath|set). Allowed: numbers"
    ):
        Callbacks([Choice("notes", {})]).state_dict()


def test_a_plain_state_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"a": [1, 2.5, None, (True, "x")], 3: {"t": torch.zeros(2)}}
    monkeypatch.setattr(Notes, "state_dict", lambda self: kept)
    assert Callbacks([Choice("notes", {})]).state_dict()["states"]["notes"] is kept


def test_mistakes_are_named_with_their_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(config(folder, "notes", {"notes": {"stop": 1}}, "note", {"everywhere": 3})) == 2
    said = capsys.readouterr().err
    for line in (
        "training.callbacks.notes.stop: unknown key. Did you mean 'stop_at'?",
        "training.callbacks: 'note' is not a known callback. Did you mean 'notes'? Allowed: everywhere, notes.",
        "training.callbacks.everywhere: 3 is not a mapping of options to values",
        "training.callbacks: 'notes' is listed 2 times",
    ):
        assert line in said


def test_without_plugins_there_is_none_to_choose_from(folder: Path) -> None:
    from nmt.config import load_config

    for name in ("notes", "everywhere"):
        del CALLBACKS._members[name]
    with pytest.raises(
        ConfigError, match="'notes' is not a known callback. Allowed: none but those that plugins register"
    ):
        load_config(config(folder, "notes"))
