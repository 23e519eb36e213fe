"""What options of several architectures have in common."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def within(name: str, value: int | None, least: int, most: int) -> None:
    """Raise ValueError for an option `name` that is neither from `least` to `most` nor None."""
    if value is not None and not least <= value <= most:
        raise ValueError(f"{name}: must be {least} to {most}, not {value}")


def check_dropouts(options: Any) -> None:
    """Raise ValueError for the first option of a dataclass whose name ends with `dropout` and that is no such share."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name.endswith("dropout") and value is not None and not 0 <= value < 1:
            raise ValueError(f"{field.name}: must be at least 0 and less than 1, not {value:g}")
