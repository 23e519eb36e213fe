"""A run directory with a tiny untrained language model, for tests of searches that it joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from nmt.config import dump, load_config
from nmt.data import Tokenizer, Vocabulary
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.interop import run_layout
from nmt.language_models.model import LanguageModel
from nmt.models import build_model
from tests.tiny_run import TARGET_WORDS


def tiny_config(run: Path, *, tokenizer: str = "whitespace", cell: str = "lstm", **options: Any) -> Any:
    return load_config(
        {
            "run_dir": str(run),
            "task": "language_model",
            "model": {
                "architecture": "language_model",
                "cell": cell,
                "hidden_size": 5,
                "embedding_size": 4,
                "layer_norm": False,
                "dropout": 0.0,
                "architecture_options": {"layers": 2, **options},
            },
            "data": {"train": "text", "tokenizer": tokenizer},
        }
    )


def tiny_language_model(words: int, *, seed: int = 5, spread: float = 30.0, **settings: Any) -> LanguageModel:
    """Of so many words, in evaluation mode; it is far from sure of nothing."""
    torch.manual_seed(seed)
    model: Any = build_model(tiny_config(Path("unused"), **settings).model, words, words)
    with torch.no_grad():
        model.words.embedding.mul_(spread)
        for cell in model.cells:
            for weight in cell.parameters():
                weight.mul_(2.0)
    return model.eval()


def target_words() -> Tokenizer:
    """The words that a run with words translates to (`tests.tiny_run.words`)."""
    known = Vocabulary(TARGET_WORDS)
    return WhitespaceTokenizer(known, known, options=WhitespaceOptions(joint=True))


def make_language_model(run: Path, tokenizer: Tokenizer, *, name: str = "whitespace", seed: int = 5) -> LanguageModel:
    """Write `run` with such a model over the words of a joint `tokenizer`, and return it."""
    config = tiny_config(run, tokenizer=name)
    model = tiny_language_model(tokenizer.target_size, seed=seed)
    directory = run_layout.step_dir(run, 1)
    directory.mkdir(parents=True)
    for folder in (run, directory):
        (folder / run_layout.CONFIG).write_text(dump(config))
    (run / run_layout.TOKENIZER).mkdir()
    tokenizer.save(run / run_layout.TOKENIZER)
    save_file(dict(model.state_dict()), directory / run_layout.WEIGHTS)
    return model


def log_q(model: LanguageModel, ids: list[int]) -> Tensor:
    """Log-probabilities [T] of ids, the end symbol among them if it is there, each after those before it."""
    source = torch.tensor([[2, *ids[:-1]]])
    return -model.token_losses(source, torch.tensor([ids]))[0].double()
