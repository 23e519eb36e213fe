"""`kernels: triton` on a CPU, where Triton's interpreter runs the kernels of training and of the search."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import translate
from tests.tiny_training import events, nmt_train, write_config, write_corpus

pytest.importorskip("triton")


@pytest.mark.parametrize("cell", ["atr", "lrn"])
def test_training_and_translating_give_what_pytorch_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    """Values and gradients: the losses of later updates follow from those of the first."""
    losses, texts = [], []
    for kernels in ("triton", "reference"):
        folder = tmp_path / kernels
        folder.mkdir()
        write_corpus(folder, train=6, dev=2)
        changes = {"max_steps": 3, "batch_sentences": 2, "log_every": 1, "validate_every": 3}
        config = write_config(folder, model={"cell": cell, "dropout": 0.0}, training=changes)
        assert nmt_train(config, "--set", f"kernels={kernels}") == 0
        losses.append([event["loss"] for event in events(folder / "run", kinds=("train", "validation"))])
        capsys.readouterr()
        assert translate.main([str(folder / "run"), "-i", str(folder / "dev.en")]) == 0
        texts.append(capsys.readouterr().out)
    assert len(losses[0]) == 4 and losses[0] == pytest.approx(losses[1], abs=2e-5)
    assert texts[0] == texts[1] and texts[0].count("\n") == 2
