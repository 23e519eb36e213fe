"""The callbacks of docs/examples for W&B and MLflow, with stand-ins for the packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.own_components import registries_restored
from tests.tiny_training import events, nmt_train, write_config, write_corpus

TOLD: list[tuple[str, Any]] = []


class Record:
    """What `wandb.init` returns."""

    def __init__(self, id: str) -> None:
        self.id = id

    def log(self, values: dict[str, Any], *, step: int) -> None:
        TOLD.append(("log", (step, values)))

    def finish(self) -> None:
        TOLD.append(("finish", self.id))


def wandb() -> ModuleType:
    """Those functions of W&B that the example calls."""
    package: Any = ModuleType("wandb")

    def init(*, project: str, name: str, config: dict[str, Any], id: str | None, resume: str) -> Record:
        assert resume == "allow" and project == "nmt"
        TOLD.append(("init", (name, config["training"]["max_steps"], id)))
        return Record(id or "new")

    package.init = init
    package.Table = lambda columns, data: SimpleNamespace(columns=columns, data=data)
    return package


def mlflow() -> ModuleType:
    """Those functions of MLflow that the example calls."""
    package: Any = ModuleType("mlflow")

    def start_run(*, run_id: str | None, run_name: str) -> Any:
        TOLD.append(("init", (run_name, run_id)))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "new"))

    package.start_run = start_run
    package.log_dict = lambda value, file: TOLD.append((file, value))
    package.log_metrics = lambda values, *, step: TOLD.append(("log", (step, values)))
    package.end_run = lambda: TOLD.append(("finish", None))
    return package


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    TOLD.clear()
    write_corpus(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", wandb())
    monkeypatch.setitem(sys.modules, "mlflow", mlflow())
    with registries_restored():
        yield tmp_path


def train(folder: Path, name: str, *arguments: str) -> None:
    training = {"max_steps": 4, "validate_every": 2, "callbacks": [name]}
    config = write_config(folder, training=training, evaluation={"metrics": ["chrf++"], "samples": 2})
    plugin = str(REPOSITORY / f"docs/examples/plugins/{name}_callback.py")
    assert nmt_train(config, "--plugin", plugin, *arguments) == 0


def test_weights_and_biases_gets_all_and_goes_on_after_a_resume(folder: Path) -> None:
    train(folder, "wandb", "--set", "training.max_steps=2")
    assert [kind for kind, _ in TOLD] == ["init", "log", "log", "log", "finish"]
    assert TOLD[0][1] == ("run", 2, None)
    (validated,) = events(folder / "run", kinds=("validation",))
    step, values = TOLD[3][1]
    assert step == 2 and values["dev/chrf++"] == pytest.approx(validated["chrf++"], abs=1e-4)
    assert values["samples"].columns == [*validated["samples"][0]] == ["source", "reference", "translation"]
    assert values["samples"].data == [[*sample.values()] for sample in validated["samples"]]
    assert len(values["samples"].data) == 2
    train(folder, "wandb")
    assert TOLD[5] == ("init", ("run", 4, "new")) and TOLD[-1] == ("finish", "new")


def test_mlflow_gets_all_and_goes_on_after_a_resume(folder: Path) -> None:
    train(folder, "mlflow", "--set", "training.max_steps=2")
    assert [kind for kind, _ in TOLD] == ["init", "config.json", "log", "log", "log", "samples/2.json", "finish"]
    assert TOLD[0][1] == ("run", None) and TOLD[1][1]["training"]["max_steps"] == 2
    (validated,) = events(folder / "run", kinds=("validation",))
    step, values = TOLD[4][1]
    assert step == 2 and values["dev/chrfpp"] == pytest.approx(validated["chrf++"], abs=1e-4)
    assert TOLD[5][1] == validated["samples"]
    train(folder, "mlflow")
    assert TOLD[7] == ("init", ("run", "new")) and TOLD[-1] == ("finish", None)
