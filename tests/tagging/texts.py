"""Small texts with labels, in columns and with spaces between words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

NAMES = {"PER": ["Anna", "Bob Smith", "Carl"], "LOC": ["Rome", "New York"]}
OTHERS = ["the", "cat", "saw", "went", "to", ",", "1996"]
TEXTS = (("train", 0), ("dev", 1), ("test", 2))


def write_columns(folder: Path, *, lines: int = 120) -> None:
    """train.conll, dev.conll and test.conll: word, a column of nothing, label in IOB1."""
    for name, seed in TEXTS:
        generator, text = random.Random(seed), ["-DOCSTART- -X- O\n"]
        for _ in range(lines if name == "train" else 15):
            rows = []
            for _ in range(generator.randint(1, 7)):
                kind = generator.choice(["PER", "LOC", "", ""])
                words = (generator.choice(NAMES[kind]) if kind else generator.choice(OTHERS)).split()
                rows += [f"{word} - {f'I-{kind}' if kind else 'O'}" for word in words] + ["and - O"]
            text.append("".join(f"{row}\n" for row in rows))
        (folder / f"{name}.conll").write_text("\n".join(text), encoding="utf-8")


def write_segmented(folder: Path, *, lines: int = 120) -> None:
    """train.txt, dev.txt and test.txt, with an empty line each."""
    for name, seed in TEXTS:
        generator, text = random.Random(seed), [""]
        for _ in range(lines if name == "train" else 15):
            words = [generator.choice(["ba", "dedi", "g", "cofucofu"]) for _ in range(generator.randint(1, 6))]
            text.append(generator.choice(["  ", "\u3000", " "]).join(words))
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def write_config(folder: Path, *, task: str = "tagging", options: Any = None, **changes: dict[str, Any]) -> Path:
    """tag.yaml for the texts in `folder`, with sections updated; its run directory is folder/run."""
    suffix = "conll" if task == "tagging" else "txt"
    sections: dict[str, Any] = {
        "model": {
            "architecture": "tagger",
            "cell": "lrn",
            "hidden_size": 8,
            "embedding_size": 6,
            "layer_norm": False,
            "dropout": 0.2,
            "architecture_options": {"character_size": 4, "character_hidden_size": 5} if task == "tagging" else {},
        },
        "data": {
            **{name: str(folder / f"{name}.{suffix}") for name, _ in TEXTS},
            "tokenizer": "tagged_words" if task == "tagging" else "tagged_characters",
        },
        "training": {
            "max_steps": 12,
            "batch_sentences": 8,
            "lr": 0.02,
            "schedule": "constant",
            "precision": "fp32",
            "log_every": 3,
            "validate_every": 6,
        },
    }
    for section, values in changes.items():
        sections[section] |= values
    path = folder / "tag.yaml"
    text = {"run_dir": str(folder / "run"), "task": task, "task_options": options or {}, **sections}
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    return path
