"""A run that has ended for want of a better score, and resumes with another validation text."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiny_training import nmt_train

KEYS = ("training.max_steps=9", "training.patience=1", "training.validate_every=2", "training.lr=1e-12")


def ranked_with_less_text(config: Path, dev: Path) -> list[int]:
    """Train, remove half of the validation text `dev` and train again; returns the steps that are ranked then."""
    arguments = [word for key in KEYS for word in ("--set", key)]
    for share in (1, 2):
        lines = dev.read_text(encoding="utf-8").splitlines(keepends=True)
        dev.write_text("".join(lines[: len(lines) // share]), encoding="utf-8")
        assert nmt_train(config, *arguments) == 0
    best = json.loads((dev.parent / "run/checkpoints/best.json").read_text(encoding="utf-8"))
    return [row["step"] for row in best["steps"]]
