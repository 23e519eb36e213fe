"""The facts to report with every benchmark result: date, machine, versions and command."""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench_peer import peer_version

from nmt.cpus import available_cores, cpu_info


def facts(script: str, *, threads: int, peer: Sequence[str] | None) -> dict[str, str]:
    """Name -> value; `peer` begins with the Python of the peer's environment."""
    import torch

    from nmt.ops.hardware import bf16_hardware

    bf16 = bf16_hardware(torch.device("cpu")) or "no fast bf16 arithmetic"
    found = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{cpu_name()}, {available_cores()} cores, {bf16}",
        "versions": f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}",
        "threads": str(threads),
        "command": shlex.join([f"scripts/{script}", *_public(sys.argv[1:])]),
    }
    return found | ({"peer": peer_version(peer[0])} if peer else {})


def listed(stated: Mapping[str, str]) -> list[str]:
    """The lines of a Markdown list of facts, in which the command is code."""
    return [f"- {name}: `{value}`" if name == "command" else f"- {name}: {value}" for name, value in stated.items()]


def cpu_name() -> str:
    """The processor's name from Linux."""
    return cpu_info("model name") or "unknown processor"


def _public(words: Sequence[str]) -> list[str]:
    """The command line without the folders of this machine."""
    return [Path(word).name if Path(word).is_absolute() else word for word in words]
