"""What a dry run says of the memory that training needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import load_config
from nmt.data.batching import collate
from nmt.data.prepare import prepare
from nmt.dry_run.printed import activation_bytes, print_memory
from nmt.training.task import MemorySample, task_of
from tests.tiny_training import write_config, write_corpus

CPU = torch.device("cpu")


@pytest.mark.parametrize(("moments", "ema", "copies"), [(0, False, 2), (2, False, 4), (2, True, 5), (1, True, 4)])
def test_weights_gradients_moments_and_the_average_are_counted(
    capsys: pytest.CaptureFixture[str], moments: int, ema: bool, copies: int
) -> None:
    model: Any = torch.nn.Linear(1024, 1024, bias=False)  # 4 MiB
    print_memory(model, activations=3 << 20, moments=moments, ema=ema)
    printed = capsys.readouterr().out
    assert f"{4 * copies + 3} MiB = {4 * copies} MiB (weights, gradients" in printed and "+ 3 MiB (" in printed
    assert ("moving average" in printed) is ema


def test_the_batch_that_needs_most_has_the_largest_attention(tmp_path: Path) -> None:
    """Sentences x source x target: here the batch of the longest translations, whose sources are shorter."""
    write_corpus(tmp_path)
    pairs = [("ba be bi bo bu da", "ba")] * 8 + [("ba be bi bo", "ba be bi bo bu da de di do du")] * 8
    for side, language in enumerate(("en", "de")):
        (tmp_path / f"train.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    config = load_config(write_config(tmp_path))
    task = task_of(config)
    data = task.prepare(tmp_path / "run", progress=False)
    sample = task.memory_sample(data, task.build_batches(data))
    assert (sample.batch.source.size(1), sample.batch.target.size(1), sample.rows) == (5, 11, 8)


def test_activations_are_those_of_all_sentences_of_the_batch(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = load_config(write_config(tmp_path))
    data = prepare(config, tmp_path / "run", progress=False)
    task = task_of(config)
    model = task.build_model(data.tokenizer, device=CPU).train()
    batch = collate(data.train, [5, 5])
    two, eight = (activation_bytes(task, model, MemorySample(batch, count), device=CPU) for count in (2, 8))
    assert eight == 4 * two > 0
