"""Lines that a summary names: how many, and the first of them."""

from __future__ import annotations

from nmt.files.noted import SHOWN, NotedLines


def test_all_are_counted_and_the_first_few_named() -> None:
    noted = NotedLines()
    assert not noted
    for number in range(1, SHOWN + 2):
        assert len(noted.numbers) == number - 1 and "..." not in noted.listed
        noted.add(number)
    assert noted.listed == ", ".join(map(str, range(1, SHOWN + 1))) + ", ..."
    assert noted.lines == f"{SHOWN + 1} lines" and noted
