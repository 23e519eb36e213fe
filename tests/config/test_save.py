"""A saved configuration loads back equal, or is not saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmt.config import Config, DataConfig, EvaluationConfig, load_config, load_saved, write_config
from nmt.errors import ConfigError, DataError
from nmt.registry import CELLS


@pytest.mark.parametrize(
    "name", ["3e-4", "08", "0o7", "1_000", "null", "1.", "yes", " run ", "a\x85b", "=", "./~", "\u2028"]
)
def test_names_that_look_like_something_else(tmp_path: Path, name: str) -> None:
    config = Config(run_dir=name, data=DataConfig(train=[name], dev=name))
    write_config(tmp_path / "config.yaml", config)
    again = load_saved(tmp_path / "config.yaml")
    assert (again.run_dir, again.data.train, again.data.dev) == (name, [name], name)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_metrics_with_options_and_numbers(tmp_path: Path) -> None:
    source = tmp_path / "in.yaml"
    source.write_text(
        "run_dir: r\ntraining: {lr: 1e-20}\nevaluation: {metrics: [{bleu: {tokenize: zh}}, chrf]}\n"
        "decoding: {shortlist: '08'}\n"
    )
    config = load_config(source)
    write_config(tmp_path / "config.yaml", config)
    assert load_saved(tmp_path / "config.yaml") == config


@pytest.fixture
def pair_cell() -> Iterator[None]:
    """A unit of a plugin with an option that YAML has no type for."""

    @dataclass(frozen=True, kw_only=True)
    class PairOptions:
        pair: tuple[int, int] = (1, 2)

    class PairCell:
        Options = PairOptions

    CELLS.register("pair")(PairCell)  # type: ignore[arg-type]
    yield
    del CELLS._members["pair"]


@pytest.mark.usefixtures("pair_cell")
def test_what_would_not_load_again_is_not_saved(tmp_path: Path) -> None:
    config = Config(run_dir="r")
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, cell="pair", cell_options={"pair": (1, 2)})
    )
    path = tmp_path / "config.yaml"
    path.write_text("before")
    with pytest.raises(ConfigError, match="config.yaml: this configuration would not load again once it is saved"):
        write_config(path, config)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_what_would_load_as_something_else_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of an older format, applied to what this version writes, stand for any mistake in reading."""
    config = Config(run_dir="r", evaluation=EvaluationConfig(max_sentences=5))
    monkeypatch.setattr("nmt.config.load.upgrade", lambda raw, **_: {**raw, "seed": 2, "evaluation": {}, "format": 1})
    path = tmp_path / "config.yaml"
    with pytest.raises(ConfigError, match="config.yaml: this configuration would not load"):
        write_config(path, config)
    monkeypatch.setattr("nmt.config.load.upgrade", lambda raw, **_: {"run_dir": "r", "evaluation": {}})
    with pytest.raises(ConfigError, match="load back equal.*: evaluation.max_sentences: 5 would load as null"):
        write_config(path, config)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere/config.yaml: cannot be written"):
        write_config(tmp_path / "nowhere" / "config.yaml", Config(run_dir="r"))
