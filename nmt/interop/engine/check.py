"""Is a file for the engine whole, and what is it: what nmt-check asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.errors import CheckpointError, counted, missing
from nmt.interop.engine.opened import open_engine, text_of
from nmt.light.errors import EngineError
from nmt.light.pretrained import is_pretrained

_WORDS = ("source_language", "target_language", "architecture", "precision")


@dataclass
class FileCheck:
    """What was found in a file for the engine."""

    file: Path
    stored: str | None = None
    """The format of its weights, if known."""
    holds: str = ""
    """Languages, model and search, in words."""
    kernels: str | None = None
    """What it is computed with on this machine."""
    problems: list[str] = field(default_factory=list)
    """Each one line that names the file."""


def check_file(file: Path) -> FileCheck:
    """Check the checksum, the tables, the programs and the card of a file.

    Raises CheckpointError where there is none, ConfigError where the engine cannot be compiled.
    """
    if not file.exists() and not is_pretrained(file):
        raise CheckpointError(missing(file))
    found = FileCheck(file)
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
    languages, decoding = f"{card['source_language']} to {card['target_language']}", card.get("decoding")
    parameters = card.get("parameters")
    model = f"{card['architecture']} {text_of(card, 'units', '')}".strip()
    said = [languages, model]
    said += [counted(parameters, "parameter")] if isinstance(parameters, int) else []
    if isinstance(decoding, dict):
        said += [f"beam {decoding.get('beam_size')}, length penalty {decoding.get('length_penalty')}"]
    return ", ".join([*said, f"written by nmt {text_of(card, 'nmt_version')}"])
