"""Before training: whether a model fits into the memory that there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt.config import load_config
from nmt.training import preflight
from tests.models.parameters import count_parameters
from tests.tiny_training import write_config, write_corpus


@pytest.mark.parametrize(("ema", "training", "copies"), [(0.0, True, 4), (0.9, True, 5), (0.9, False, 1)])
def test_a_model_is_refused_by_one_byte_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: float, training: bool, copies: int
) -> None:
    write_corpus(tmp_path)
    config = load_config(write_config(tmp_path, training={"ema_decay": ema}))
    needed = 4 * copies * count_parameters(config, 9, 9)
    monkeypatch.setattr(preflight, "SMALL", 0)
    for there, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(preflight, "memory", lambda there=there: there)
        message = preflight.too_large(config, (9, 9), device=torch.device("cpu"), training=training)
        assert (message is None) is fits
