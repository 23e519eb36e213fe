"""Starts processes as torchrun does, but in a fraction of the time: forked from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
# The optimizer's first step imports torch._dynamo; the registries import their members when first asked.
CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo", "sacrebleu", "nmt.training.run", "nmt.training.optimizers", "nmt.training.schedules",
        "nmt.data.whitespace", "nmt.evaluation.metrics", "nmt.models.recurrent", "nmt.search.beam", "nmt.cells",
        "nmt.distributed.process_group", "tests.distributed.work",
    ]
)  # fmt: skip


TORCHS_OWN = re.compile(r"\[(rank\d+\]:\[)?[WEI]\d|frame #|Exception raised from|<omitting python frames>|$")


class Ranks:
    """Processes that run `function(*arguments)` together; what rank N writes to stderr is in FOLDER/rank-N.err."""

    def __init__(
        self, size: int, function: Callable[..., Any], *arguments: Any, folder: Path, timeout: float = 60
    ) -> None:
        """`timeout`: seconds after which they give a silent one up."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NMT_TIMEOUT": timeout}
        self.processes = []
        for rank in range(size):
            environment = {**common, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": 1}
            values = {name: str(value) for name, value in environment.items()}
            process = CONTEXT.Process(target=_run, args=(values, folder / f"rank-{rank}.err", function, arguments))
            process.start()
            self.processes.append(process)

    def wait(self, seconds: float = 60) -> list[int]:
        """Exit codes of all, minus the number of a signal; AssertionError if one has not ended in so many seconds."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, deadline - time.monotonic()))
        hanging = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        for process in self.processes:
            process.kill()
            process.join()
        assert not hanging, f"rank {hanging} did not end; they said {[self.said(rank) for rank in hanging]}"
        return [process.exitcode for process in self.processes]

    def said(self, rank: int) -> list[str]:
        """Lines that a rank has written to stderr, without torch's own: `nmt-train` switches those off as it starts."""
        lines = (self.folder / f"rank-{rank}.err").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not TORCHS_OWN.match(line)]


def _run(environment: dict[str, str], stderr: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch

    os.environ.update(environment)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with stderr.open("wb", buffering=0) as stream:
        os.dup2(stream.fileno(), 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.exit(function(*arguments))
