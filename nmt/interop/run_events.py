"""What a run has recorded: RUN/log.jsonl, a JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nmt.errors import DataError
from nmt.files.safe import LARGEST_LOG
from nmt.files.whole import is_file, read_file

EVENTS = "log.jsonl"


def read_events(run: Path) -> list[dict[str, Any]]:
    """All complete lines of RUN/log.jsonl."""
    path = run / EVENTS
    if not is_file(path):
        raise DataError(f"{path}: no such file; is {run} a run directory?")
    # Not splitlines: a sample translation may hold U+2028 and its like.
    lines = read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace").split("\n")
    return [json.loads(line) for line in lines if line.endswith("}")]
