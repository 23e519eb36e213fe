"""Files of terms and their translations, and what is found of them in lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.errors import DataError
from nmt.kept_text.lines import load_glossary
from nmt.kept_text.matcher import Matcher

TERMS = {
    "hot": "heiß",
    "dog": "Hund",
    "hot dog": "Wiener",
    "hot dog stand": "Würstchenbude",
    "US": "USA",
    "New York": "Neu York",
    "c++": "C++",
    "'s": "s",
}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("a Dog, DOGS and dogged dog", ["Dog", "dog"]),
        ("a hot  dog and a hot cat", ["hot  dog", "hot"]),
        ("hot dog stands, a hot dog stand", ["hot dog", "hot dog stand"]),
        ("the US and us in New york, New York", ["US", "New York"]),
        ("c++ or c+ or (C++)", ["c++", "C++"]),
        ("the dog's", ["dog", "'s"]),
        ("no hot dog", ["hot dog"]),
        ("", []),
    ],
)
def test_whole_words_the_longest_first(line: str, wanted: list[str]) -> None:
    found = Matcher(TERMS).find(line)
    assert [line[slice(*span)] for span, _ in found] == wanted


def test_a_term_in_another_case_has_its_own_translation() -> None:
    glossary = Matcher({"bank": "Ufer", "Bank": "Geldhaus"})
    assert [target for _, target in glossary.find("bank Bank BANK")] == ["Ufer", "Geldhaus", "Ufer"]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "glossary.tsv"
    path.write_text("# of animals\n\ndog\tHund \r\nhot  dog\tWiener\ndog\tHund\n")
    assert [target for _, target in load_glossary(path).find("dog, hot dog")] == ["Hund", "Wiener"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\ncat\n", "line 2: 'cat' is not a term, a tab and its translation"),
        ("dog\tHund\tKöter\n", r"line 1: 'dog\\tHund\\tKöter' is not a term, a tab and its translation"),
        ("dog\t \n", "line 1: "),
        ("dog\tHund\ndog\tKöter\n", "line 2: 'dog' has two translations, 'Hund' and 'Köter'"),
        ("\n# nothing\n", "the glossary is empty"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "glossary.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"glossary.tsv[,:] ?{message}"):
        load_glossary(path)
    with pytest.raises(DataError, match=r"missing.tsv: no such file"):
        load_glossary(tmp_path / "missing.tsv")
