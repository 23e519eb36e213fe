"""scripts/bench_train.py: what it measures, writes and adds up, with a tiny model and a fake peer."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.tiny_training import write_config, write_corpus

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_train.py"
PARTS = {"data", "encoder", "decoder", "loss", "backward", "optimizer"}
SIDES, PER_SIDE = ("encoder", "decoder"), ("layers", "feed_forward")
LOG = """
import sys
if len(sys.argv) > 2 and sys.argv[2] == "joeynmt":
    print("Total params: 1,234")
    for rate in {rates}:
        print(f"Epoch 1, Step: 5, Tokens per Sec: {{rate:8}}, Lr: 0.001000")
else:
    print("JoeyNMT 0, PyTorch 0")
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, which saves processes; it imports the files beside it."""
    sys.path.insert(0, str(SCRIPT.parent))
    yield importlib.import_module("bench_train")
    sys.path.remove(str(SCRIPT.parent))


def bench(script: ModuleType, folder: Path, *arguments: str) -> int:
    case = ["--config", str(write_config(folder)), "--work", str(folder / "work"), "--precision", "fp32"]
    small = ["--updates", "2", "--warm-up", "1", "--repeats", "1", "--threads", "1"]
    code: int = script.main([*case, *small, *arguments])
    return code


def fake_peer(folder: Path, rates: list[int]) -> list[str]:
    """A python that logs as JoeyNMT does, and a configuration for it."""
    program = folder / "peer.py"
    program.write_text(LOG.format(rates=rates))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    (folder / "peer.yaml").write_text("training: {updates: 1}\n")
    return ["--peer", str(python), str(folder / "peer.yaml"), "--peer-updates", "20"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_rates_parts_and_the_ratio_to_a_peer(script: ModuleType, folder: Path) -> None:
    peer = fake_peer(folder, [1, 100, 300, 200])  # the first is a warm-up
    output = folder / "train.md"
    assert bench(script, folder, *peer, "-o", str(output)) == 0
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    assert results["JoeyNMT"][0]["target_tokens_per_second"] == 200
    assert results["JoeyNMT"][0]["parameters"] == 1234
    case = results["tiny fp32"][0]
    assert set(case["milliseconds"]) == PARTS
    assert all(value > 0 for value in case["milliseconds"].values())
    assert case["sentences"] == 8 and 0 <= case["padding"] < 1
    assert case["target_tokens"] <= 8 * 8  # the words of 8 sentences and their end symbols, without padding
    text = output.read_text()
    assert f"{case['target_tokens_per_second'] / 200:.2f} x" in text
    assert str(folder) not in text

    assert bench(script, folder, "--append", "-o", str(output)) == 0
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    assert {name: len(runs) for name, runs in results.items()} == {"JoeyNMT": 1, "tiny fp32": 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn", "blocks"])
def test_eager_pytorch_takes_the_same_batches(script: ModuleType, folder: Path, name: str) -> None:
    content = yaml.safe_load(write_config(folder).read_text())
    if name == "blocks":
        widths = {f"{side}_{what}": 8 if what == "feed_forward" else 1 for side in SIDES for what in PER_SIDE}
        content["model"] = {"architecture": "transformer", "cell": "gru", "embedding_size": 8, "dropout": 0.2}
        content["model"]["architecture_options"] = {"heads": 2, **widths}
    config, output = folder / f"{name}.yaml", folder / "train.md"
    config.write_text(yaml.safe_dump(content))
    assert bench(script, folder, "--config", str(config), "--eager", "-o", str(output)) == 0
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    cases = ("", ", eager PyTorch", ", eager PyTorch, memory kept")
    own, peer, kept = (results[f"{name} fp32{case}"][0] for case in cases)
    assert own["target_tokens"] == peer["target_tokens"] == kept["target_tokens"]
    ratios = [own["target_tokens_per_cpu_second"] / one["target_tokens_per_cpu_second"] for one in (peer, kept)]
    assert " / ".join(f"{ratio:.2f} x" for ratio in ratios) in output.read_text()


def test_what_goes_wrong_is_one_line(script: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(script, folder, *fake_peer(folder, [1])) == 1
    assert "\nscripts/bench_train.py: JoeyNMT ended early: " in capsys.readouterr().err
    assert bench(script, folder, "--set", "model.cell=gruu") == 2
    assert "Did you mean 'gru'?" in capsys.readouterr().err
