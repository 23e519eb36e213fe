"""A peer for benchmarks: JoeyNMT, installed in a separate environment, which trains for some updates or translates."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.errors import DataError

USERS_ENVIRONMENT = dict(os.environ)
"""The environment before nmt.cli is imported, which adds variables: a peer runs as its users run it."""
LOG_EVERY = 5
_RATE = re.compile(r"Tokens per Sec: +([\d,]+)")
_GENERATION = re.compile(r"Generation took ([\d.]+)")
_PARAMETERS = re.compile(r"Total params: +([\d,]+)")


def run_joeynmt(
    python: str, config: Path, *, work: Path, updates: int, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Train for `updates` updates without validation: target tokens a second, peak memory.

    JoeyNMT logs the real target tokens of every 5 updates; the first line is a warm-up and not counted.
    Raises DataError with its last line if it fails.
    """
    if updates < 2 * LOG_EVERY:
        raise DataError(f"--peer-updates: must be {2 * LOG_EVERY} or more, because the first {LOG_EVERY} do not count")
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    content["model_dir"] = str((work / "joeynmt").resolve())
    content["training"] |= {"updates": updates, "logging_freq": LOG_EVERY, "validation_freq": 10 * updates}
    file, log = work / "joeynmt.yaml", work / "joeynmt.log"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    shutil.rmtree(work / "joeynmt", ignore_errors=True)
    with log.open("w", encoding="utf-8") as stream:
        command = [python, "-m", "joeynmt", "train", str(file), "--skip-test"]
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=dict(environment))
        _, _, usage = os.wait4(process.pid, 0)
    shutil.rmtree(work / "joeynmt", ignore_errors=True)
    text = log.read_text(encoding="utf-8")
    rates = [int(rate.replace(",", "")) for rate in _RATE.findall(text)][1:]
    if len(rates) < updates // LOG_EVERY - 1:
        raise DataError(f"JoeyNMT ended early: {(text.strip().splitlines() or ['no message'])[-1]}")
    parameters = _PARAMETERS.search(text)
    return {
        "target_tokens_per_second": statistics.median(rates),
        "peak_mb": usage.ru_maxrss / 1024,
        "parameters": int(parameters[1].replace(",", "")) if parameters else None,
    }


def translate_joeynmt(
    python: str, config: Path, checkpoint: Path, *, beam: int, lines: Sequence[str], work: Path, **environment: str
) -> tuple[float, list[str]]:
    """The seconds reported by JoeyNMT, without loading, and the translations of `lines`.

    `environment` is added to the user's environment. Raises DataError with JoeyNMT's last line if it fails.
    """
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    content["testing"] |= {"beam_size": beam, "load_model": str(checkpoint.resolve())}
    file = work / "joeynmt.decode.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    done = subprocess.run(
        [python, "-m", "joeynmt", "translate", str(file)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        env={**USERS_ENVIRONMENT, **environment},
        check=False,
    )
    took = _GENERATION.search(done.stderr) or _GENERATION.search(done.stdout)
    found = done.stdout.splitlines()
    if done.returncode != 0 or took is None or len(found) != len(lines):
        raise DataError(f"JoeyNMT did not translate: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return float(took[1]), found


def peer_version(python: str) -> str:
    """JoeyNMT and PyTorch in the environment of `python`."""
    program = "from importlib.metadata import version as v; print('JoeyNMT', v('joeynmt') + ', PyTorch', v('torch'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown version"
