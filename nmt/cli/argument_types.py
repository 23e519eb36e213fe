"""Types of numbers on the command line, each with an error that says what is allowed."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)

NONE = "none"
"""Takes away what the configuration of a model says."""


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    return _number(text, int, lambda number: number >= 1, "a whole number of 1 or more")


def positive_or_auto(text: str) -> int | str:
    """A whole number of 1 or more, or `auto`."""
    if text == "auto":
        return text
    return _number(text, int, lambda number: number >= 1, "a whole number of 1 or more, or auto")


def positive_or_none(text: str) -> int | str:
    """A whole number of 1 or more, or `none`."""
    if text == NONE:
        return text
    return _number(text, int, lambda number: number >= 1, "a whole number of 1 or more, or none")


def natural(text: str) -> int:
    """A whole number of 0 or more."""
    return _number(text, int, lambda number: number >= 0, "a whole number of 0 or more")


def not_negative(text: str) -> float:
    """A finite number of 0 or more."""
    return _number(text, float, lambda number: 0 <= number < float("inf"), "a number of 0 or more")


def minutes(text: str) -> float:
    """A finite number above 0."""
    return _number(text, float, lambda number: 0 < number < float("inf"), "a number of minutes above 0")


def _number(text: str, kind: Callable[[str], N], allowed: Callable[[N], bool], wanted: str) -> N:
    with contextlib.suppress(ValueError):
        number = kind(text)
        if allowed(number):
            return number
    raise argparse.ArgumentTypeError(f"'{text}' is not {wanted}")
