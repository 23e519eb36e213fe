"""nmt.train: what it returns, mistakes, signals, other threads, and what it leaves as it was."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.ops.dispatch import selection
from tests.tiny_training import before_step, write_config, write_corpus


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A configuration as a mapping, whose training takes a second."""
    write_corpus(tmp_path)
    read: dict[str, Any] = yaml.safe_load(write_config(tmp_path).read_text())
    return {**read, "run_dir": tmp_path / "run"}


def test_it_trains_and_returns_what_the_run_says(config: dict[str, Any]) -> None:
    kernels = selection()
    training = nmt.train(config, overrides={"training.max_steps": 6, "data.test": config["data"]["dev"]}, device="cpu")
    assert (training.finished, training.interrupted, training.step) == (True, False, 6)
    assert training.ending == "training.max_steps = 6 is reached"
    assert (training.best_step, training.metric, training.run_dir) == (6, "loss", config["run_dir"])
    assert training.validation is not None and training.validation["step"] == 6
    assert training.best_score == pytest.approx(training.validation["loss"])
    assert training.test[0]["signatures"]["bleu"].startswith("BLEU nrefs:1")
    assert {"start", "train", "validation", "checkpoint", "test"} <= {line["event"] for line in training.log()}
    assert selection() == kernels
    again = nmt.train(config, overrides=["training.max_steps=6"], device="cpu")
    assert (again.finished, again.step, again.best_step) == (True, 6, 6)
    with nmt.load(training.run_dir, device="cpu") as translator:
        assert isinstance(translator.translate("ba da").text, str)


def test_all_mistakes_are_named_at_once(config: dict[str, Any]) -> None:
    config["model"]["hiden_size"] = 3
    with pytest.raises(nmt.ConfigError) as caught:
        nmt.train(config, overrides={"training.lr": "much"}, device="cpu")
    first, *lines = str(caught.value).split("\n")
    assert first == "configuration:"
    assert sorted(line.strip() for line in lines) == [
        "--set: training.lr: 'much' is not a number",
        "model.hiden_size: unknown key. Did you mean 'hidden_size'?",
    ]
    with pytest.raises(nmt.ConfigError, match="no such file. Did you mean 'demo.yaml'"):
        nmt.train("demo.yml")
    with pytest.raises(nmt.ConfigError, match="max_minutes: 0 is not"):
        nmt.train(config, max_minutes=0)
    with pytest.raises(nmt.ConfigError, match="device: 'tpu' is not allowed"):
        nmt.train(config, device="tpu")
    with pytest.raises(TypeError, match="config must be a path"):
        nmt.train(3)  # type: ignore[arg-type]


def test_ctrl_c_saves_and_returns_and_the_same_call_goes_on(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        before_step(patched, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
        training = nmt.train(config, device="cpu")
    assert (training.interrupted, training.finished, training.step) == (True, False, 4)
    assert training.ending == "stopped by Ctrl-C"
    assert (config["run_dir"] / "checkpoints/step-4").is_dir()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    training = nmt.train(config, device="cpu")
    assert (training.finished, training.step) == (True, 12)
    assert training.validation is not None and training.validation["step"] == 12


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_save_and_then_do_what_they_would_have_done(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    came: list[int] = []
    before = signal.signal(sent, lambda number, frame: came.append(number))
    try:
        with monkeypatch.context() as patched:
            before_step(patched, 3, lambda: os.kill(os.getpid(), sent))
            nmt.train(config, device="cpu")
    finally:
        signal.signal(sent, before)
    assert came == [sent]
    assert (config["run_dir"] / "checkpoints/step-4").is_dir()


def test_in_another_thread_it_trains_as_well(config: dict[str, Any]) -> None:
    found: list[nmt.Training] = []
    thread = threading.Thread(target=lambda: found.append(nmt.train(config, device="cpu")))
    thread.start()
    thread.join(60)
    assert found[0].finished
