"""Policies with their options as a command line has them: `wait_k,wait=3`."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final, NamedTuple

from nmt.config.options import component_options, with_options
from nmt.errors import ConfigError
from nmt.registry import POLICIES

_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)")
_MOST: Final = 100
"""Numbers of a range."""


class Setting(NamedTuple):
    """A policy with its options."""

    policy: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """As a command line has it, such as `wait_k,wait=3`."""
        return ",".join([self.policy, *(f"{name}={value}" for name, value in self.options.items())])


def settings(text: str, *, called: str | None = None) -> list[Setting]:
    """What `POLICY[,OPTION=VALUE...]` stands for: with a range such as `wait=1..9` one for each of its numbers.

    Raises ConfigError for a policy or an option that is not known; its message begins with `called` or `--live TEXT`.
    """
    called = called or f"--live {text}"
    policy, options = with_options(text, called=called)
    kind = POLICIES.get(policy)
    choices: dict[str, list[Any]] = {}
    for name, value in options.items():
        numbers = _RANGE.fullmatch(str(value))
        if numbers is None:
            choices[name] = [value]
            continue
        first, last = int(numbers[1]), int(numbers[2])
        if not first <= last < first + _MOST:
            raise ConfigError(f"{called}: {value} is not a range of 1 to {_MOST} numbers, such as 1..9")
        choices[name] = [*range(first, last + 1)]
    each = itertools.product(*choices.values())
    found = [Setting(policy, dict(zip(choices, values, strict=True))) for values in each]
    for one in found:
        component_options(kind, one.options, key=policy)
    return found
