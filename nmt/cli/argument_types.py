"""Types of numbers on the command line, each with an error that says what is allowed."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
from collections.abc import Callable
from typing import TypeVar

from nmt.errors import refused, shown
from nmt.light.options import NONE, OPTIONS, Option
from nmt.limits import LARGEST, MOST, MOST_MINUTES

N = TypeVar("N", int, float)
_DIGITS = 30

LARGEST_RATIO = 1e6

DETAILS = OPTIONS["details"].choices

WORDS = "words"
"""The feature that every n-best list has: `nmt.evaluation.ranking`."""


def any_text(value: str) -> str:
    """Text as it is, where an argument without a type is the name of a file, in which `~` is the home directory."""
    return value


def details(text: str) -> tuple[str, ...]:
    """Names of details of a translation, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in DETAILS:
            raise argparse.ArgumentTypeError(refused("", name, DETAILS, problem="is not known"))
    return names


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each at most once."""
    return tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name))


def feature_name(text: str) -> str:
    """The name of a feature of an n-best list."""
    if not text or any(letter.isspace() or letter in "=,|" for letter in text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a name; a name has no spaces and none of = , |")
    if text == WORDS:
        raise argparse.ArgumentTypeError(
            f"'{WORDS}' is the name that nmt-rank gives to the number of words; choose another name"
        )
    return text


def feature_weights(text: str) -> dict[str, float]:
    """`NAME=NUMBER` separated by commas, each name at most once."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals or name in found:
            twice = "is given twice" if name in found else "is not NAME=NUMBER"
            raise argparse.ArgumentTypeError(f"{shown(part)} {twice}; write for example score=1,lm=0.3")
        wanted = f"a number from {-LARGEST:g} to {LARGEST:g}"
        found[name] = _number(value, float, lambda number: abs(number) <= LARGEST, wanted)
    return found


def heads(text: str) -> str | tuple[int, ...]:
    """`mean`, `all`, or numbers from 1, separated by commas."""
    if text in ("mean", "all"):
        return text
    try:
        return tuple(dict.fromkeys(positive(number) for number in text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not mean, all, or numbers of heads such as 1,3") from None


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    return _whole(text, 1, MOST)


def whole_of(option: Option) -> Callable[[str], int | str]:
    """The type of an option that is a whole number, or one of its words."""
    also = "".join(f", or {word}" for word in option.words)

    def read(text: str) -> int | str:
        return text if text in option.words else _whole(text, int(option.least), int(option.most), also=also)

    return read


def number_of(option: Option) -> Callable[[str], float]:
    """The type of an option that is a number."""
    return lambda text: _number(text, float, lambda a: option.least <= a <= option.most, option.allowed())


def natural(text: str) -> int:
    """A whole number of 0 or more."""
    return _whole(text, 0, MOST)


def seed(text: str) -> int:
    """A seed of NumPy's generator."""
    return _whole(text, 1, 2**32 - 1)


def resamples(text: str) -> int:
    """Number of resamples of a test set; each needs memory."""
    return _whole(text, 1, 10**6)


def ensemble_weights(text: str) -> list[float] | str:
    """Numbers above 0, separated by commas, or `none`."""
    if text == NONE:
        return text
    wanted = f"one number above 0 for each model, such as 2,1, or {NONE}"
    try:
        return [_number(part, float, lambda weight: 0 < weight <= LARGEST, wanted) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not {wanted}") from None


def minutes(text: str) -> float:
    """A number of minutes above 0."""
    wanted = f"a number of minutes above 0 and at most {MOST_MINUTES:,}"
    return _number(text, float, lambda number: 0 < number <= MOST_MINUTES, wanted)


def port(text: str) -> int:
    """A TCP port; 0: any free port."""
    return _whole(text, 0, 65_535)


def network(text: str) -> str:
    """An IP address, or the addresses of a network."""
    try:
        return str(ipaddress.ip_network(text.strip()))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an address such as 127.0.0.1, or a network such as 10.0.0.0/8"
        ) from None


def seconds(text: str) -> float:
    """A number of seconds above 0, at most a day."""
    wanted = "a number of seconds above 0 and at most 86,400"
    return _number(text, float, lambda number: 0 < number <= 86_400, wanted)


def milliseconds(text: str) -> float:
    """A number of milliseconds, at most a second."""
    return _number(text, float, lambda number: 0 <= number <= 1000, "a number of milliseconds from 0 to 1,000")


def share(text: str) -> float:
    """A fraction."""
    return _number(text, float, lambda number: 0 <= number <= 1, "a number from 0 to 1")


def ratio(text: str) -> float:
    """Largest ratio of two lengths."""
    return _number(text, float, lambda number: 1 <= number <= LARGEST_RATIO, f"a number from 1 to {LARGEST_RATIO:g}")


def dynamic(text: str) -> tuple[float, float]:
    """A rate of dynamic evaluation, optionally followed by a comma and a decay."""
    rate, _, decay = text.partition(",")
    return (
        _number(rate, float, lambda value: 0 < value <= LARGEST, "a number above 0"),
        _number(decay or "0", float, lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    )


def temperature(text: str) -> float:
    """The temperature: log-probabilities are divided by it."""
    return _number(text, float, lambda value: 0 < value <= LARGEST, "a number above 0")


def top_p(text: str) -> float:
    """A probability above 0."""
    return _number(text, float, lambda value: 0 < value <= 1, "a number above 0 and at most 1")


def _whole(text: str, least: int, most: int, *, also: str = "") -> int:
    wanted = f"a whole number of {least} or more" if most == MOST else f"a whole number from {least} to {most:,}"
    return _number(text, _integer, lambda number: least <= number <= most, wanted + also)


def _integer(text: str) -> int:
    if len(text) > _DIGITS:  # Python itself limits integers to some thousands of digits
        raise ValueError
    return int(text)


def _number(text: str, kind: Callable[[str], N], allowed: Callable[[N], bool], wanted: str) -> N:
    with contextlib.suppress(ValueError):
        number = kind(text)
        if allowed(number):
            return number
    raise argparse.ArgumentTypeError(f"{shown(text)} is not {wanted}")
