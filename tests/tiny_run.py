"""A run directory with a tiny untrained model, for tests of what reads one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmt.config import dump, load_config
from nmt.data import Tokenizer, Vocabulary
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.interop import run_layout
from nmt.models import build_model

SOURCE_WORDS = ["a", "b", "c", "d", "long@@", "er"]
TARGET_WORDS = ["x", "y", "z", "u", "v", "w", "t@@"]


def words() -> Tokenizer:
    """The tokenizer of a run with words."""
    return WhitespaceTokenizer(Vocabulary(SOURCE_WORDS), Vocabulary(TARGET_WORDS), options=WhitespaceOptions())


def subwords(folder: Path) -> Tokenizer:
    """A small joint tokenizer by SentencePiece; its text is put in `folder`."""
    text = folder / "text"
    text.write_text(
        "".join(f"{a} long{b}er sentence of {a}{b} \u00df\n" for a in "abcd" for b in "xyzuv"), encoding="utf-8"
    )
    options = SentencePieceOptions(vocab_size=300)
    return SentencePieceTokenizer.train([text], [text], options=options, seed=1)


def make_run(
    run: Path, *, steps: Sequence[int] = (10, 20), best: Sequence[int] = (10, 20), sentencepiece: bool = False
) -> Path:
    """Write `run` with a checkpoint of other random weights at each step, and with words or subwords."""
    run.mkdir()
    (run / "in.yaml").write_text(
        f"run_dir: {run}\n"
        "model: {cell: gru, hidden_size: 8, embedding_size: 8, encoder_layers: 2, decoder_layers: 2, init_range: 0.8, "
        "layer_norm: false, dropout: 0.0}\n"
        f"data: {{train: corpus, tokenizer: {'sentencepiece' if sentencepiece else 'whitespace'}}}\n"
        "training: {schedule: constant, clip_norm: 5.0}\n"
        "decoding: {beam_size: 3, max_length_offset: 4, batch_tokens: 60}\n"
    )
    config = load_config(run / "in.yaml")
    (run / run_layout.CONFIG).write_text(dump(config))
    tokenizer = subwords(run) if sentencepiece else words()
    (run / run_layout.TOKENIZER).mkdir()
    tokenizer.save(run / run_layout.TOKENIZER)
    for step in steps:
        torch.manual_seed(step)
        model = build_model(config.model, tokenizer.source_size, tokenizer.target_size)
        directory = run_layout.step_dir(run, step)
        directory.mkdir(parents=True)
        (directory / run_layout.CONFIG).write_text(dump(config))
        save_file(dict(model.state_dict()), directory / run_layout.WEIGHTS)
    if best:
        rows = tuple(run_layout.Scored(step, 1.0 + place) for place, step in enumerate(best))
        run_layout.write_best(run, run_layout.Best("loss", rows))
    return run


def change_weights(run: Path, alter: Callable[[dict[str, Tensor]], object], *, step: int = 10) -> Path:
    """Rewrite the weights of a checkpoint, changed by `alter`; return their file."""
    file = run_layout.step_dir(run, step) / run_layout.WEIGHTS
    weights = load_file(file)
    alter(weights)
    save_file(weights, file)
    return file
