"""What is wrong with an exported folder, or a file for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.errors import CheckpointError, NmtError, counted, missing
from nmt.files import is_file, is_folder
from nmt.interop import run_layout
from nmt.interop.engine.opened import open_engine, text_of
from nmt.light.errors import EngineError
from nmt.light.pretrained import is_pretrained
from nmt.texts import SEVERAL

_WORDS = ("source_language", "target_language", "architecture", "precision")
"""What the card of each file has."""


@dataclass
class ExportCheck:
    """What was found in an exported folder or file."""

    path: Path
    stored: str | None = None
    """The format of its weights, if known."""
    problems: list[str] = field(default_factory=list)
    """Each one line that names the file."""
    holds: str = ""
    """Of a file for the engine languages, model and search, in words."""
    kernels: str | None = None
    """What it is computed with on this machine; None for a folder."""


def check_file(file: Path) -> ExportCheck:
    """Check the checksum, the tables, the programs and the card of a file.

    Raises CheckpointError where there is none, ConfigError where the engine cannot be compiled.
    """
    if not file.exists() and not is_pretrained(file):
        raise CheckpointError(missing(file))
    found = ExportCheck(file)
    try:
        with open_engine([file]) as translator:
            found.kernels = translator.kernels
            card = translator.card
    except (CheckpointError, EngineError) as error:
        found.problems.append(str(error))
        return found
    lacking = [key for key in _WORDS if text_of(card, key) == "?"]
    if lacking:
        found.problems.append(f"{file}: its section META lacks {', '.join(lacking)}")
        return found
    found.stored, found.holds = text_of(card, "precision"), _in_words(card)
    return found


def _in_words(card: dict[str, Any]) -> str:
    ends, decoding = [text_of(card, f"{side}_language") for side in ("source", "target")], card.get("decoding")
    languages = " to ".join("several languages" if code == SEVERAL else code for code in ends)
    parameters = card.get("parameters")
    model = f"{card['architecture']} {text_of(card, 'units', '')}".strip()
    said = [languages, model]
    said += [counted(parameters, "parameter")] if isinstance(parameters, int) else []
    if isinstance(decoding, dict):
        said += [f"beam {decoding.get('beam_size')}, length penalty {decoding.get('length_penalty')}"]
    return ", ".join([*said, f"written by nmt {text_of(card, 'nmt_version')}"])


def is_exported(directory: Path) -> bool:
    """Whether this is an exported folder, however damaged."""
    from nmt.interop.exported import format_name

    if is_folder(run_layout.checkpoints_dir(directory)) or directory.parent.name == run_layout.CHECKPOINTS:
        return False
    return is_file(directory / run_layout.SUMS) or format_name(directory) is not None


def check_export(folder: Path, *, plugins: Sequence[str] = ()) -> ExportCheck:
    """Check everything that lies in an exported folder; nothing is changed."""
    import torch

    from nmt.interop.exported import check_file as check_sum
    from nmt.interop.exported import format_name, read_checksums
    from nmt.interop.model_dir import read_model

    found = ExportCheck(folder)
    try:
        sums = read_checksums(folder)
    except CheckpointError as error:
        found.problems.append(str(error))
        return found
    for name, digest in sums.items():
        try:
            check_sum(folder / name, digest)
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
