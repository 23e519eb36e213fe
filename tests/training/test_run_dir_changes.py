"""The differences between a run and the configuration with which it should resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.config import Config, load_config
from nmt.errors import ConfigError
from nmt.training.run_dir import check_resumable


def configured(*, dropout: float = 0.1, **model: Any) -> Config:
    tokenizer = {"tokenizer": "sentencepiece", "tokenizer_options": {"model_type": "bpe", "bpe_dropout": dropout}}
    return load_config({"run_dir": "r", "data": tokenizer, "model": model})


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (configured(dropout=0.2), ["  data.tokenizer_options.bpe_dropout: 0.1 -> 0.2"]),
        (
            configured(cell="ssru", cell_options={}),
            ["  model.cell: 'lrn' -> 'ssru'", "  model.cell_options: {'tanh': False} -> {"],
        ),
    ],
)
def test_the_options_that_differ_are_named_and_no_others(new: Config, lines: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        check_resumable(configured(), new, run=Path("r"))
    said = str(error.value).split("\n")[1:]
    assert len(said) == len(lines) and all(map(str.startswith, said, lines))
