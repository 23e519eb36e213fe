"""Phrases in texts: in any form of Unicode, in scripts with and without spaces, each where the user wrote it."""

from __future__ import annotations

from nmt.data.matching import canonical, folded, is_boundary


def test_forms_for_comparing_whole_texts() -> None:
    assert canonical(" cafe\u0301 \u00a0x\t") == "caf\u00e9 x" != canonical("Caf\u00e9 x")
    assert folded("\uff23afe\u0301\u00ad  \u2460\ufeff") == folded("caf\u00e9 1") == folded("CAFE\u0301 1")
    assert canonical("10\u00b2") != canonical("102")


def test_boundaries_of_texts() -> None:
    assert is_boundary("", "a") and is_boundary("a", "") and is_boundary("a", " b") and is_boundary("-", "a")
    assert not is_boundary("a", "b") and not is_boundary("\u00e4", "1") and not is_boundary("a", "\u0301")
