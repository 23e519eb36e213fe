"""Small texts with labels, of one text and of pairs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from scripts.demo_grammar.entailment import GROUP, LABELS, generate_pairs

PARTS = ("train", "dev", "test")
WORDS = ["red", "blue", "green", "house", "tree", "a", "the", "big"]


def write_pairs(folder: Path, *, groups: int = 20, held_out: int = 4) -> None:
    """train.jsonl, dev.jsonl and test.jsonl of pairs by the demo's grammar, with a line without a label each."""
    pairs = generate_pairs(groups + 2 * held_out, seed=3)
    cuts = [0, groups * GROUP, (groups + held_out) * GROUP, len(pairs)]
    for name, first, end in zip(PARTS, cuts, cuts[1:], strict=False):
        rows = [dict(zip(("sentence1", "sentence2", "gold_label"), pair, strict=False)) for pair in pairs[first:end]]
        rows.insert(1, {"sentence1": "?", "sentence2": "?", "gold_label": "-"})
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def write_colours(folder: Path, *, lines: int = 120) -> None:
    """train.tsv, dev.tsv and test.tsv: the label says whether a text names a colour; an empty text is among them."""
    for seed, name in enumerate(PARTS):
        generator, rows = random.Random(seed), ["label\tid\ttext\n"]
        for number in range(lines if name == "train" else 20):
            words = generator.choices(WORDS, k=generator.randint(0, 6)) if number else []
            label = "colour" if {"red", "blue", "green"} & set(words) else "plain"
            rows.append(f"{label}\t{number}\t{' '.join(words)}\n")
        (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")


def write_config(folder: Path, *, pairs: bool = True, options: Any = None, **changes: dict[str, Any]) -> Path:
    """classify.yaml for the texts in `folder`, with sections updated; its run directory is folder/run."""
    chosen = {"format": "json"} if pairs else {"texts": ["text"], "label": "label"}
    own = {"attention": "word_by_word", "labels": list(LABELS)} if pairs else {"labels": ["plain", "colour"]}
    sections: dict[str, Any] = {
        "model": {
            "architecture": "classifier",
            "cell": "lrn",
            "hidden_size": 8,
            "embedding_size": 6,
            "layer_norm": False,
            "dropout": 0.2,
            "architecture_options": own,
        },
        "data": {
            **{name: str(folder / f"{name}.{'jsonl' if pairs else 'tsv'}") for name in PARTS},
            "tokenizer": "whitespace",
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
        nested = (
            {"architecture_options": {**own, **values["architecture_options"]}}
            if "architecture_options" in values
            else {}
        )
        sections[section] |= {**values, **nested}
    path = folder / "classify.yaml"
    text = {"run_dir": str(folder / "run"), "task": "classification", "task_options": {**chosen, **(options or {})}}
    path.write_text(yaml.safe_dump({**text, **sections}), encoding="utf-8")
    return path
