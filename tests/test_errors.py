"""The wording of messages."""

from __future__ import annotations

import pytest

from nmt.errors import counted


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1_203, "1,203 lines"), (1_000_001, "1,000,001 lines")],
)
def test_a_count_has_its_noun_in_the_right_number(number: int, said: str) -> None:
    assert counted(number, "line") == said


def test_a_noun_that_takes_more_than_an_s() -> None:
    assert [counted(number, "vocabulary", "vocabularies") for number in (1, 2)] == ["1 vocabulary", "2 vocabularies"]
