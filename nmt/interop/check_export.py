"""Is an exported folder whole, and can it be translated with: what nmt-check asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nmt.errors import CheckpointError, NmtError
from nmt.interop.exported import check_file, format_name, read_checksums
from nmt.interop.model_dir import read_model


@dataclass
class ExportCheck:
    """What was found in an exported folder."""

    folder: Path
    stored: str | None = None
    """The format of its weights, if known."""
    problems: list[str] = field(default_factory=list)
    """Each one line that names the file."""


def check_export(folder: Path, *, plugins: Sequence[str] = ()) -> ExportCheck:
    """Check everything that lies in an exported folder; nothing is changed."""
    found = ExportCheck(folder)
    try:
        sums = read_checksums(folder)
    except CheckpointError as error:
        found.problems.append(str(error))
        return found
    for name, digest in sums.items():
        try:
            check_file(folder / name, digest)
        except CheckpointError as error:
            found.problems.append(str(error))
    if found.problems:
        return found
    try:
        found.stored = format_name(folder)
        if found.stored is None:
            found.problems.append(f"{folder}: its weights do not state their format; they are not from an export")
        read_model(folder, plugins=plugins, device=torch.device("cpu"))
    except NmtError as error:
        found.problems += str(error).split("\n")
    return found
