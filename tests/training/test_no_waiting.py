"""From the batch to the gradients nothing waits for a GPU: what is asked of the ids is known where batches are made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt.config import load_config
from nmt.data.batching import Batch
from nmt.data.prepare import prepare
from nmt.ops.dispatch import selected, triton_problem
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.distributed import World
from nmt.training.run import build_updater
from nmt.training.task import task_of
from nmt.training.update import Precision
from tests.fake_gpu import FAKE_GPU, pretend_a_gpu
from tests.tiny_training import write_config, write_corpus

TRITON = pytest.param("triton", marks=pytest.mark.skipif(triton_problem() is not None, reason=str(triton_problem())))


@pytest.mark.parametrize("choice", ["reference", TRITON])
@pytest.mark.parametrize("cell", ["gru", "lrn"])
def test_no_micro_batch_asks_a_gpu(cell: str, choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    model = {"cell": cell, "dropout": 0.1, "layer_norm": cell == "gru"}
    config = load_config(write_config(tmp_path, model=model, training={"accumulate": 2}))
    data = prepare(config, tmp_path / "run", progress=False)
    group = next(build_batches(config, data.train).groups(Position(1, 0)))
    updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
    updater.model.to(FAKE_GPU).train()
    monkeypatch.setattr(updater, "precision", Precision("fp32", "a test", FAKE_GPU))
    launched = pretend_a_gpu(monkeypatch)
    with selected(choice):
        total = updater._backward(group)
        assert total.device == FAKE_GPU
        assert all(weight.grad is not None for weight in updater.model.parameters())
        assert ("loss_gradient_kernel" in launched) == (choice == "triton")
        with pytest.raises(RuntimeError):  # this is how waiting would be found
            updater.model.loss(*group.batches[0].to(FAKE_GPU)[:2])


def test_batches_for_a_gpu_are_made_where_it_can_copy_them_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path)
    config = load_config(write_config(tmp_path))
    corpus = prepare(config, tmp_path / "run", progress=False).train
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x + 1000)  # so that it can be told apart here

    def first(world: World | None) -> Batch:
        return next(build_batches(config, corpus, world=world).groups(Position(1, 0))).batches[0]

    plain, on_cpu, on_gpu = first(None), first(World(torch.device("cpu"))), first(World(torch.device("cuda")))
    for name in ("source", "target", "words"):
        assert torch.equal(getattr(plain, name), getattr(on_cpu, name))
        assert torch.equal(getattr(plain, name) + 1000, getattr(on_gpu, name))
