"""Measures of lag, by hand, and of sessions."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.live.lag import Lag, hear, lag_of, mean_lag


@pytest.mark.parametrize(
    ("delays", "source", "reference", "wanted"),
    [
        ([1, 2, 3, 3], 3, 4, Lag(1.25, 1.25, 0.75, 1.3125)),
        ([3, 3, 3], 3, 3, Lag(3, 3, 1, 3)),  # after the whole sentence
        ([1, 2, 3], 3, None, Lag(1, 1, 2 / 3, 1)),  # word by word
        ([2, 3, 3, 3], 3, 2, Lag((2 + 1.5) / 2, (2 + 2.25) / 2, 11 / 6, (2 + 2.25 + 2.25 + 2.25) / 4)),
        ([1, 1], 4, 2, Lag((1 - 1) / 2, 0, 2 / 8, 1)),  # ends before all has been read
    ],
)
def test_by_hand(delays: list[float], source: int, reference: int | None, wanted: Lag) -> None:
    assert lag_of(delays, source=source, reference=reference) == pytest.approx(wanted)


def test_nothing_has_no_lag() -> None:
    for delays, source, reference in (([], 3, 3), ([1], 0, 1), ([1], 1, 0)):
        with pytest.raises(ValueError, match="have words"):
            lag_of(delays, source=source, reference=reference)


class Echo:
    """A translator whose sessions say each word when the word after it has been read."""

    def live(self, policy: str) -> Any:
        assert policy == "wait_k"
        return EchoSession()


class EchoSession:
    def __init__(self) -> None:
        self.waiting = ""

    def __enter__(self) -> EchoSession:
        return self

    def __exit__(self, *_: object) -> None: ...

    def feed(self, text: str) -> str:
        found, self.waiting = self.waiting, text
        return found

    def end(self) -> str:
        return self.waiting.strip()


def test_words_are_timed_when_they_are_returned() -> None:
    found = hear(Echo(), ["a b c", "", "d"])
    assert [one.text for one in found] == ["a b c", "", "d"]
    assert [one.delays for one in found] == [(2, 3, 3), (), (1,)]
    assert mean_lag(found, ["x y z", "x", "u"]) == pytest.approx(Lag((2 + 1) / 2, 1.5, (8 / 9 + 1) / 2, 1.5))
    with pytest.raises(ValueError, match="no sentence"):
        mean_lag(found[1:2])
