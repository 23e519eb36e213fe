"""What the processes do that the tests start; importable, because it is named across processes."""

from __future__ import annotations

import builtins
import dataclasses
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.cli import train, translate
from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.search import values
from nmt.search.values import Translation
from nmt.synthetic import corpus, distill
from nmt.system import CpuClock
from nmt.tasks.translation import build_batches
from nmt.training.batches import Group, Position
from nmt.training.distributed import World, check_same, connected
from nmt.training.run import build_updater
from nmt.training.state import Limits
from nmt.training.task import task_of
from nmt.training.update import Update, Updater
from nmt.training.validation import Validation, Validator
from tests.conftest import REPOSITORY

Step = tuple[Update, dict[str, Tensor], dict[str, Tensor]]
"""What an update did, the gradients it added up and the weights it led to."""


def updates(config_file: Path, world: World, *, steps: int, double: bool, bad: int | None = None) -> Iterator[Step]:
    """The first updates of a run: with SGD, or with Adam in float64. `bad`: rank 1 meets a NaN in that one."""
    config = load_config(config_file)
    data = prepare(config, config.run_dir, progress=False)
    updater = build_updater(task_of(config), data.tokenizer, device=world.device, world=world)
    if double:
        updater.model.double()
    else:
        updater.optimizer = torch.optim.SGD(updater.model.parameters())
    groups = build_batches(config, data.train, world=world).groups(Position(1, 0))
    for step, group in enumerate(islice(groups, steps)):
        if step == bad and world.rank == 1:
            before = next(updater.model.parameters()).detach().clone()
            next(updater.model.parameters()).data.fill_(torch.nan)
            update = updater.update(group, step=step)
            next(updater.model.parameters()).data.copy_(before)
        else:
            update = updater.update(group, step=step)
        named = list(updater.model.named_parameters())
        grads = {name: weight.grad.clone() for name, weight in named if weight.grad is not None}
        yield update, grads, {name: weight.detach().clone() for name, weight in named}


def save_updates(jobs: list[tuple[Path, dict[str, Any]]], folder: Path) -> int:
    """The `updates` of several configurations, each with its options; saved as FOLDER/<size>-<job>-<rank>.pt."""
    with connected("cpu") as world:
        for number, (config_file, options) in enumerate(jobs):
            done = [
                ((u.applied, u.objective, u.nll, u.grad_norm), *rest)
                for u, *rest in updates(config_file, world, **options)
            ]
            torch.save(done, folder / f"{world.size}-{number}-{world.rank}.pt")
    return 0


def exchange(folder: Path) -> int:
    """Every exchange that there is, asserted on each rank."""
    with connected("cpu") as world:
        ranks = list(range(world.size))
        assert world.gather({"rank": world.rank, "text": "ü\udc80\u2028" * world.rank}) == [
            {"rank": rank, "text": "ü\udc80\u2028" * rank} for rank in ranks
        ]
        assert world.from_main(world.rank + 7) == 7
        assert world.largest(world.rank, -world.rank, 0.1) == (world.size - 1, 0, 0.1)
        assert world.total(world.rank + 0.25) == sum(ranks) + 0.25 * world.size
        for number in range(2):
            with world.main_first():
                file = folder / f"made-{number}"
                assert file.exists() != world.is_main
                file.touch()
        check_same(world, "anything", lambda: "same")
        assert not world.stop_is_asked()
        world.gather(None)
        if world.rank == 1:
            world.ask_to_stop()
        world.gather(None)
        world._asked = 0.0
        assert world.stop_is_asked()
    return 0


def benchmark(arguments: list[str]) -> int:
    """What scripts/bench_distributed.py does in each process that it starts."""
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    return int(importlib.import_module("bench_distributed").main(arguments))


Trick = Callable[[int], None]
"""Something that happens to a rank of a run, given its number, before it begins."""


def train_run(arguments: list[str], tricks: dict[int, tuple[str, Any]]) -> int:
    """nmt-train on each rank, where `tricks` names for some ranks one of the functions below and its argument."""
    rank = int(os.environ["RANK"])
    more: list[str] = []
    if rank in tricks:
        name, argument = tricks[rank]
        more = globals()[name](argument) or []
    return train.main([*arguments, "--device", "cpu", *more])


def translate_run(arguments: list[str], tricks: dict[int, tuple[str, Any]] | None = None) -> int:
    """nmt-translate on each rank, in windows of 3 lines for each; `tricks` as in `train_run`."""
    rank = int(os.environ["RANK"])
    if tricks and rank in tricks:
        name, argument = tricks[rank]
        globals()[name](argument)
    values.WINDOW = 3
    return translate.main([*arguments, "--device", "cpu"])


def distill_run(arguments: list[str], kill_rank_0_after: int | None) -> int:
    """nmt-distill on each rank, in windows of 3 lines for each; rank 0 is killed after so many windows."""
    if kill_rank_0_after is not None and os.environ["RANK"] == "0":
        append, windows = corpus.Writer.append, iter(range(1, 99))

        def killed(*given: Any, **options: Any) -> None:
            append(*given, **options)
            if next(windows) == kill_rank_0_after:
                os.kill(os.getpid(), signal.SIGKILL)

        corpus.Writer.append = killed  # type: ignore[method-assign]
    corpus.WINDOW = 3
    return distill.main([*arguments, "--device", "cpu"])


def signal_at(number_and_step: tuple[int, int]) -> None:
    """Send this process a signal right before the update that follows so many others."""
    number, chosen = number_and_step
    original = Updater.update

    def update(self: Updater, group: Group, *, step: int) -> Update:
        if step == chosen:
            os.kill(os.getpid(), number)
        return original(self, group, step=step)

    Updater.update = update  # type: ignore[method-assign]


def signal_in_validation(number: int) -> None:
    """Send this process a signal when it begins to translate for validation."""
    original = Validator.validate

    def validate(self: Validator, *arguments: Any, **options: Any) -> Validation:
        def translate(model: Any, lines: Sequence[str]) -> Iterator[Translation]:
            os.kill(os.getpid(), number)
            return self.translate(model, lines)

        return original(dataclasses.replace(self, translate=translate), *arguments, **options)

    Validator.validate = validate  # type: ignore[method-assign]


def cpu_seconds_per_update(seconds: float) -> None:
    """Let an update cost this process so much CPU time, and nothing else any."""
    done = []
    original = Updater.update

    def update(self: Updater, group: Group, *, step: int) -> Update:
        done.append(step)
        return original(self, group, step=step)

    Updater.update = update  # type: ignore[method-assign]
    CpuClock.seconds = lambda self: seconds * len(done)  # type: ignore[method-assign]


def late_after(step: int) -> None:
    """Let the time of this process, and of no other, be up after so many updates."""
    done = []
    original = Updater.update

    def update(self: Updater, group: Group, *, step: int) -> Update:
        done.append(step)
        return original(self, group, step=step)

    Updater.update = update  # type: ignore[method-assign]
    Limits.time_is_up = lambda self: len(done) >= step  # type: ignore[method-assign]


def add_arguments(arguments: list[str]) -> list[str]:
    """Start this process with other arguments than the others."""
    return arguments


def elsewhere(folder: Path) -> None:
    """Start this process in another directory."""
    os.chdir(folder)


def unreadable(name: str) -> None:
    """Let a file server fail for this process whenever it opens a file whose path ends so."""
    original = open

    def opened(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).endswith(name):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return original(file, *arguments, **options)

    builtins.open = opened


def other_weights(step: int) -> None:
    """Change a weight of this process behind the back of the others."""
    original = Updater.update

    def update(self: Updater, group: Group, *, step: int) -> Update:
        if step == chosen:
            next(self.model.parameters()).data.view(-1)[0] += 1
        return original(self, group, step=step)

    chosen = step
    Updater.update = update  # type: ignore[method-assign]


SIGSTOP, SIGKILL, SIGTERM, SIGINT = signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGINT
