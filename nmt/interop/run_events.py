"""What a run has recorded: RUN/log.jsonl, a JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nmt.errors import DataError, missing
from nmt.files import LARGEST_LOG, is_file, read_file

EVENTS = "log.jsonl"


def read_events(run: Path) -> list[dict[str, Any]]:
    """All whole lines of RUN/log.jsonl."""
    path = run / EVENTS
    if not is_file(path):
        raise DataError(missing(path, f"is {run} a run directory?"))
    return read_log(path)[0]


def read_log(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a log, and how many others it has: a crash, or a full disk, leaves half a line."""
    # Not splitlines: a sample translation may hold U+2028 and its like.
    lines = [line for line in read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace").split("\n") if line]
    events = [event for event in map(_event, lines) if event is not None]
    return events, len(lines) - len(events)


def _event(line: str) -> dict[str, Any] | None:
    """What a line tells of; None where it is damaged."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
