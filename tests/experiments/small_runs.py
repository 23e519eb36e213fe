"""Run directories as training leaves them, with a tiny model, a log and translations that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from nmt.config import load_config
from nmt.data.whitespace import WhitespaceTokenizer
from nmt.models import build_model

SOURCE = [
    "one two three four",
    "two three",
    "three one two",
    "four four two one",
    "one three five six",
    "six five four",
]
RIGHT = [line.upper() for line in SOURCE]
CONFIG = """
run_dir: {folder}/{name}
seed: {seed}
model: {{cell: {cell}, hidden_size: 12, embedding_size: 8, tie_embeddings: none}}
data: {{train: {folder}/text/train, dev: {folder}/text/test, test: {folder}/text/test, tokenizer: whitespace}}
training: {{max_steps: 1000, batch_sentences: 8}}
decoding: {{beam_size: 3, max_length_offset: 3}}
evaluation: {{metrics: [bleu]}}
"""


def events(*, offset: float = 0.0) -> list[dict[str, Any]]:
    """The log of a run of 1,000 updates, with validations whose scores `offset` changes."""
    place = {"epoch": 1.0, "seconds": 60}
    return [
        {"event": "start", "step": 0, "parameters": 2017, "cpu": "A CPU", "threads": 1, "precision": "fp32",
         "torch": "2.13"},
        {"event": "train", "step": 10, **place, "target_tokens_per_second": 100.0},
        {"event": "validation", "step": 400, "epoch": 0.5, "seconds": 50, "cpu_seconds": 40.0 + offset, "loss": 3.5,
         "bleu": 1.0 + offset, "new_best": True, "signatures": {"bleu": "BLEU x"}},
        {"event": "train", "step": 500, **place, "target_tokens_per_second": 5000.0},
        {"event": "train", "step": 900, **place, "target_tokens_per_second": 300.0},
        {"event": "train", "step": 950, **place, "target_tokens_per_second": None},
        {"event": "validation", "step": 800, "epoch": 1.5, "seconds": 90, "cpu_seconds": 80.0 + offset, "loss": 2.5,
         "bleu": 5.0 + offset, "new_best": True, "signatures": {"bleu": "BLEU x"}},
        {"event": "validation", "step": 1000, "epoch": 1.6, "seconds": 99, "cpu_seconds": 99.0 + offset, "loss": None,
         "bleu": 4.0 + offset, "new_best": False, "signatures": {"bleu": "BLEU x"}},
        {"event": "end", "step": 1000, "epoch": 1.6, "seconds": 100, "cpu_seconds": 1171.4, "reason": "enough",
         "finished": True},
        {"event": "test", "step": 1000, "checkpoint": "step-800", "bleu": 12.5, "signatures": {"bleu": "BLEU tok:13a"},
         "not_finite": 0},
    ]  # fmt: skip


def make_run(
    folder: Path,
    name: str,
    translations: Sequence[str] | None,
    *,
    seed: int = 1,
    cell: str = "gru",
    log: Sequence[dict[str, Any]] | None = None,
) -> str:
    """A run below `folder`, without translations for None; return its directory."""
    run, text = folder / name, folder / "text"
    text.mkdir(exist_ok=True, parents=True)
    for file, lines in (("test.en", SOURCE), ("test.de", RIGHT)):
        (text / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    checkpoint = run / "checkpoints" / "step-800"
    checkpoint.mkdir(parents=True)
    (run / "config.yaml").write_text(CONFIG.format(folder=folder, name=name, seed=seed, cell=cell))
    found = events() if log is None else log
    if translations is None:
        found = [event for event in found if event["event"] != "test"]
    else:
        (run / "test.de").write_text("".join(line + "\n" for line in translations), encoding="utf-8")
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in found))
    (run / "train.log").write_text("2026-11-20 23:59:00 run x\n2026-11-21 00:10:00 test text translated\n")
    files = [text / "test.en"]
    tokenizer = WhitespaceTokenizer.train(files, files, options=WhitespaceTokenizer.Options(), seed=1)
    (run / "tokenizer").mkdir()
    tokenizer.save(run / "tokenizer")
    torch.manual_seed(seed)
    model = build_model(load_config(run / "config.yaml").model, tokenizer.source_size, tokenizer.target_size)
    save_file(model.state_dict(), checkpoint / "model.safetensors")
    return str(run)


def with_faults(*places: int) -> list[str]:
    """The right translations, but these lines are wrong by a word."""
    return [line + " SEVEN" if place in places else line for place, line in enumerate(RIGHT)]
