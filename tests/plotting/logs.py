"""Logs of runs that were never trained, for tests of what is drawn of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIGNATURES = {"bleu": "BLEU nrefs:1", "chrf": "chrF2 nrefs:1"}


def train(step: int, **more: Any) -> dict[str, Any]:
    numbers = {"loss": 8 - step / 100, "objective": 7.5, "lr": 1e-5 * step, "grad_norm": 1 + 1 / step}
    speed = {"target_tokens_per_second": 3000.0 + step}
    return {"event": "train", **_now(step), **numbers, **speed, **more}


def validation(step: int, **more: Any) -> dict[str, Any]:
    scores = {"loss": 7 - step / 100, "bleu": step / 20, "chrf": step / 10}
    return {"event": "validation", **_now(step), **scores, "signatures": SIGNATURES, "new_best": True, **more}


def events(*, steps: int = 6, every: int = 50) -> list[dict[str, Any]]:
    """A run with an event of training each `every` updates, and a validation after each second one."""
    found = [{"event": "start", **_now(0)}]
    for number in range(1, steps + 1):
        found.append(train(number * every))
        if number % 2 == 0:
            found.append(validation(number * every))
    return found


def write_run(run: Path, what: list[dict[str, Any]], *, tail: str = "") -> Path:
    run.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(event) + "\n" for event in what)
    (run / "log.jsonl").write_text(lines + tail, encoding="utf-8")
    return run


def _now(step: int) -> dict[str, Any]:
    return {"step": step, "epoch": step / 100, "seconds": step * 0.6, "cpu_seconds": step * 0.5}
