"""Translation of lines by several processes: each translates a part, and rank 0 puts the parts together."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.cli.opened import Translate
from nmt.data.text_facts import file_digest
from nmt.errors import ConfigError
from nmt.light.results import Hypothesis, Result
from nmt.search.values import Details, Request
from nmt.training.distributed import World, check_same, interleave


def check_input(path: str | None, *, world: World) -> None:
    """Check that all processes read the same file; a single process may translate anything.

    Raises ConfigError if no file is given, DataError if it cannot be read, RankError if the processes' files differ.
    """
    if world.size == 1:
        return
    if path is None or (os.path.exists(path) and not os.path.isfile(path)):
        raise ConfigError("several processes must read the same input file; give it with -i")
    check_same(world, "text to translate", lambda: file_digest(Path(path)))


def translate_across_processes(
    translate: Translate, lines: Sequence[str | Request], details: Details = (), *, world: World
) -> list[Result]:
    """The translations of `lines`, in order, on rank 0; each process has the same lines and translates its part.

    The other processes get an empty list.
    """
    if world.size == 1:
        return translate(lines, details)
    # Every n-th line, so that in a sorted text no process gets all the long lines.
    parts = world.gather([_packed(result) for result in translate(lines[world.rank :: world.size], details)])
    return [*map(_unpacked, interleave(parts))] if world.is_main else []


def _packed(result: Result) -> str:
    return json.dumps(dataclasses.asdict(result), default=torch.Tensor.tolist)


def _unpacked(packed: str) -> Result:
    fields = json.loads(packed)
    hypotheses = [Hypothesis(**_with_tuples(own)) for own in fields.pop("n_best")]
    return Result(n_best=hypotheses, **_with_tuples(fields))


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
