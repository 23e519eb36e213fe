"""scripts/train_systems: the systems that it compares are what their names say, and differ in nothing else."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from nmt.cli.common import execute
from nmt.config import load_config
from nmt.registry import MODELS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_systems"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("train_systems_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    loader.exec_module(module)
    sys.path[:] = before
    return module


def test_each_system_is_what_its_name_says(script: ModuleType) -> None:
    arguments = script.build_parser().parse_args(["--data", "data", "-o", "out"])
    assert len(script.SYSTEMS) == 13
    for system in script.SYSTEMS:
        words = script.command(system, 3, arguments)
        assert words[words.index("--max-cpu-minutes") + 1] == "13.4167"
        keys = [word for before, word in zip(words, words[1:], strict=False) if before == "--set"]
        config = load_config(words[3], overrides=keys)
        architecture, _, mixing = system.partition("-")
        outline = MODELS.get(config.model.architecture).outline(config.model)
        assert config.model.architecture == architecture
        assert outline.mixing == ("self-attention" if mixing == "attention" else mixing)
        assert (config.seed, config.run_dir, config.data.test) == (3, f"out/{system}-3", "data/test_2016_flickr")


def test_a_failure_is_told(script: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["deepnmt-gru", "-o", str(tmp_path), "--data", str(tmp_path / "none")]
    assert execute(script.build_parser(), script.main, given) == 1
    assert f"deepnmt-gru, seed 1: nmt-train ended with 1, see {tmp_path}/deepnmt-gru-1.txt" in capfd.readouterr().out
    assert "none/train" in (tmp_path / "deepnmt-gru-1.txt").read_text(encoding="utf-8")
    assert execute(script.build_parser(), script.main, ["deepnmt-brown"]) == 2
    assert "'deepnmt-brown' is not a known system. Allowed: deepnmt-gru," in capfd.readouterr().err
