"""The rule for lines whose bytes are not UTF-8: an error, a replacement, or an empty line."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, Literal

from nmt.errors import DataError
from nmt.files.noted import NotedLines
from nmt.light.encodings import is_wide, not_utf8

Policy = Literal["strict", "replace", "empty"]
POLICIES: Final[Sequence[Policy]] = ("strict", "replace", "empty")
_FATE: Final = MappingProxyType({"replace": "such bytes replaced by U+FFFD", "empty": "read as empty"})


class NotUtf8Error(DataError):
    """A line that is not UTF-8, where the user of the text chose, or could have chosen, what becomes of it."""


class Undecodable:
    """The rule for such lines of one text, and the lines found.

    `strict` raises DataError at the first, `replace` reads it with U+FFFD in place of the bytes that are not UTF-8,
    `empty` as an empty line.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        """Without a policy the text must be UTF-8, as with `strict`, but nobody can choose otherwise."""
        self.policy: Policy = policy or "strict"
        self._error = DataError if policy is None else NotUtf8Error
        self.noted = NotedLines()
        self.first = ""
        """The message about the first of them, where the policy is not `strict`."""
        self._unasked: set[int] = set()

    def decoded(self, raw: bytes, *, name: str, number: int) -> str:
        """The text of line `number` (from 1) of the text `name`, its line end included.

        Raises DataError naming both for bytes that are not UTF-8 where the policy is `strict`.
        """
        try:
            if not is_wide(raw):
                return raw.decode("utf-8")
        except UnicodeDecodeError:
            pass
        if self.policy == "strict":
            raise self._error(f"{name}, line {number}: {not_utf8(raw)}")
        self.first = self.first or f"{name}, line {number}: {not_utf8(raw)}"
        self.noted.add(number)
        self._unasked.add(number)
        return raw.decode("utf-8", "replace") if self.policy == "replace" else ""

    def had(self, number: int) -> bool:
        """Whether line `number`, from 1, was such a line; may be called once for each line."""
        found = number in self._unasked
        self._unasked.discard(number)
        return found

    def summary(self) -> str:
        """A message about these lines and their treatment; only if there were any."""
        return self.noted.said(f"not UTF-8, {_FATE[self.policy]}")
