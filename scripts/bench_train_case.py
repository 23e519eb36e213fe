"""One case of bench_train, run in a separate process: updates timed by part, printed as JSON.

python scripts/bench_train_case.py CONFIG.yaml RUN WARM_UP UPDATES, with the variables of OpenMP set by the caller.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nmt.cli  # noqa: F401  (sets variables before torch is imported, as the commands do)
from nmt.system import frozen_objects, keep_large_blocks

if TYPE_CHECKING:
    from nmt.config import Config
    from nmt.data.tokenizer import Tokenizer
    from nmt.training.batches import Group
    from nmt.training.update import Updater

PARTS = ("data", "encoder", "decoder", "loss", "backward", "optimizer")


class Parts:
    """Seconds by part; the clock of a part stops while a part inside it runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._open: list[str] = []
        self._mark = 0.0

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to `part`."""
        self._count()
        self._open.append(part)
        try:
            yield
        finally:
            self._count()
            self._open.pop()

    def wrap(self, owner: object, name: str, part: str) -> None:
        """Add the time of the method `name` of `owner` to `part`."""
        method: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.timed(part):
                return method(*arguments, **options)

        setattr(owner, name, timed)

    def _count(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._mark
        self._mark = now


def read(config_file: str, run: str, overrides: Sequence[str] = ()) -> tuple[Config, Tokenizer, Iterator[Group]]:
    """A configuration, its tokenizer, and its batches of the first epoch; `run`: for its text."""
    from nmt.config import load_config
    from nmt.data.prepare import prepare
    from nmt.tasks.translation import build_batches
    from nmt.training.batches import Position

    config = load_config(config_file, overrides)
    data = prepare(config, run, progress=False)
    return config, data.tokenizer, build_batches(config, data.train, sides=data.sides).groups(Position(1, 0))


def prepared(config_file: str, run: str, overrides: Sequence[str] = ()) -> tuple[Updater, Iterator[Group]]:
    """What trains the model of a configuration on the CPU, and its batches of the first epoch; `run`: for its text."""
    import torch

    from nmt.training.run import build_updater
    from nmt.training.task import task_of

    config, tokenizer, groups = read(config_file, run, overrides)
    return build_updater(task_of(config), tokenizer, device=torch.device("cpu")), groups


def measure(config_file: str, run: str, *, warm_up: int, updates: int) -> dict[str, Any]:
    """Train for `warm_up` and then `updates` updates; only the latter are measured.

    The time of a part excludes the parts inside it: the decoder without the encoder that it calls, `backward` without
    the forward pass. `optimizer` includes clipping and moving average. If the loss computes its gradient together with
    its value, both count as loss.
    """
    import torch

    from nmt.models.base import Seq2Seq

    updater, groups = prepared(config_file, run)
    parts = Parts()
    model: Seq2Seq = updater.model
    parts.wrap(model, "encode", "encoder")
    for name in ("prepare", "sequence"):
        parts.wrap(model.decoder, name, "decoder")
    parts.wrap(type(updater.objective.loss), "__call__", "loss")
    parts.wrap(updater, "_backward", "backward")
    parts.wrap(updater, "update", "optimizer")

    def step(number: int) -> tuple[Group, float]:
        started = time.perf_counter()
        with parts.timed("data"):  # nmt-train prepares it in a thread; here it is part of the time
            group = next(groups)
        updater.update(group, step=number)
        return group, time.perf_counter() - started

    with frozen_objects():
        for number in range(warm_up):
            step(number)
        parts.seconds = dict.fromkeys(PARTS, 0.0)
        started = time.process_time()
        done = [step(warm_up + number) for number in range(updates)]
        used = time.process_time() - started
    tokens = sum(group.target_tokens for group, _ in done)
    return {
        "target_tokens_per_cpu_second": tokens / used,
        "target_tokens_per_second": statistics.median(group.target_tokens / seconds for group, seconds in done),
        "target_tokens": tokens / updates,
        "sentences": sum(len(batch.rows) for group, _ in done for batch in group.batches) / updates,
        "padding": 1 - sum(group.tokens for group, _ in done) / sum(group.cells for group, _ in done),
        "milliseconds": {part: 1000 * seconds / updates for part, seconds in parts.seconds.items()},
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "precision": updater.precision.name,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    keep_large_blocks()
    print(json.dumps(measure(sys.argv[1], sys.argv[2], warm_up=int(sys.argv[3]), updates=int(sys.argv[4]))))
