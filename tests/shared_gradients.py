"""Gradients of processes that share the batches of an update."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from nmt.training.batches import Position
from nmt.training.distributed import Share, World
from nmt.training.run import build_updater
from nmt.training.task import Task

CPU = torch.device("cpu")


def sharing(share: Share) -> World:
    """The world of one of several processes, which exchange nothing."""
    world = World(CPU)
    world.rank, world.size = share.rank, share.size
    return world


def gradients(task: Task, data: Any, shares: Sequence[Share], *, updates: int) -> list[Tensor]:
    """Of the last of the first `updates`, weights unchanged before; those of all shares added up."""
    total: list[Tensor] = []
    for share in shares:
        updater = build_updater(task, data.tokenizer, device=CPU)
        updater.model.train()
        for group in islice(task.build_batches(data, world=sharing(share)).groups(Position(1, 0)), updates):
            updater.optimizer.zero_grad()
            updater._backward(group)
        mine = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
            for weight in updater.model.parameters()
        ]
        total = mine if not total else [a + b for a, b in zip(total, mine, strict=True)]
    return total
