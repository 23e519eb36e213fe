"""The command of docs/several_gpus.md, with torchrun itself: it starts the processes again when one has been killed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.training.logs import read_events
from tests.conftest import REPOSITORY, page_of
from tests.tiny_training import events, write_config, write_corpus

KILL = """
import os, pathlib, signal
from nmt.training.update import Updater
original = Updater.update
def update(self, group, *, step):
    if step == 5 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, group, step=step)
Updater.update = update
"""


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path, training={"save_every": 4, "validate_every": 8, "max_steps": 8})
    (tmp_path / "kill.py").write_text(KILL, encoding="utf-8")
    guide = page_of("docs/several_gpus.md")
    line = next(line for line in guide.splitlines() if line.startswith("torchrun ") and "nmt.cli.train" in line)
    words = shlex.split(line.replace("--nproc-per-node 8", "--nproc-per-node 2").replace("wmt14_lrn.yaml", str(config)))
    command = [sys.executable, "-m", "torch.distributed.run", *words[1:], "--device", "cpu", "--plugin", "kill.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "nmt-train: rank 0 of 2: lost contact with another process while adding up gradients" in done.stderr
    assert [event["step"] for event in events(tmp_path / "run", kinds=("checkpoint",))] == [4, 8]
    starts = [event for event in read_events(tmp_path / "run") if event["event"] == "start"]
    assert [(start["resumed"], start["processes"]) for start in starts] == [(False, 2), (True, 2)]
