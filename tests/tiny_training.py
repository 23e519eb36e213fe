"""A corpus of random words and a model of a few thousand weights, for tests that train for seconds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from nmt.cli import train

WORDS = [a + b for a in "bdfgklmn" for b in "aeiou"]
TIMES = {
    "seconds",
    "cpu_seconds",
    "validation_seconds",
    "target_tokens_per_second",
    "data_wait",
    "eta_seconds",
    "memory_mb",
}
"""Fields of the log that differ from run to run."""


def write_corpus(folder: Path, *, train: int = 120, dev: int = 8) -> None:
    """train.en, train.de, dev.en, dev.de: the target is each source word spelled backwards."""
    generator = random.Random(7)
    for name, pairs in (("train", train), ("dev", dev)):
        source = [[generator.choice(WORDS) for _ in range(generator.randint(1, 7))] for _ in range(pairs)]
        lines = {"en": source, "de": [[word[::-1] for word in words] for words in source]}
        for language, sentences in lines.items():
            text = "".join(" ".join(words) + "\n" for words in sentences)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def write_config(folder: Path, **changes: dict[str, Any]) -> Path:
    """tiny.yaml in `folder`, with sections updated; its run directory is folder/run."""
    sections: dict[str, dict[str, Any]] = {
        "model": {"cell": "gru", "hidden_size": 8, "embedding_size": 8, "layer_norm": False, "dropout": 0.2},
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "dev"),
            "tokenizer": "whitespace",
            "pool_batches": 4,
            "workers": 1,
        },
        "training": {
            "max_steps": 12,
            "batch_sentences": 8,
            "lr": 0.01,
            "schedule": "constant",
            "clip_norm": 5.0,
            "precision": "fp32",
            "log_every": 3,
            "validate_every": 6,
        },
        "decoding": {"beam_size": 2, "max_length_offset": 3},
        "evaluation": {"samples": 1},
    }
    for section, values in changes.items():
        sections[section] |= values
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({"run_dir": str(folder / "run"), **sections}), encoding="utf-8")
    return path


def nmt_train(config: Path, *arguments: str) -> int:
    """Run nmt-train in this process; return its exit code."""
    return train.main(["--config", str(config), "--device", "cpu", *arguments])


def events(run: Path, *, kinds: tuple[str, ...] = ("train", "validation", "checkpoint")) -> list[dict[str, Any]]:
    """The log's lines of these kinds, without the fields that tell the time."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: line[key] for key in line.keys() - TIMES} for line in lines if line["event"] in kinds]


def training_state(run: Path, step: int) -> dict[str, Any]:
    """The training state of a checkpoint, without what tells the time."""
    state: dict[str, Any] = torch.load(run / "checkpoints" / f"step-{step}" / "training.pt", weights_only=True)
    del state["progress"]["seconds"], state["progress"]["cpu_seconds"]
    del state["interval"]["seconds"], state["interval"]["waited"]
    return state


def same(left: Any, right: Any) -> bool:
    """Equality, bit by bit for tensors, of nested containers."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right) and left.dtype == right.dtype
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) or (left != left and right != right)


def before_step(monkeypatch: Any, step: int, act: Callable[[], object]) -> None:
    """Have `act` called in the training process right before the update that follows `step` others."""
    from nmt.training.update import Updater

    original = Updater.update

    def update(self: Updater, group: Any, *, step: int) -> Any:
        if step == chosen:
            act()
        return original(self, group, step=step)

    chosen = step
    monkeypatch.setattr(Updater, "update", update)
