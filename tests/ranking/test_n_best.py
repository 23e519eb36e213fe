"""N-best lists in Moses' format: what is read is written again, and what is none is named by its line."""

from __future__ import annotations

import pytest

from nmt.errors import DataError
from nmt.ranking.n_best import groups_of, read_n_best

LIST = [
    "0 ||| ein Hund ||| score= -1.25 ||| -1.25",
    "0 ||| &#124;&#124;&#124; a ||| score= -2 TM= -1 -3.5 ||| -2 ||| 0-0 1-1",
    "3 |||  |||  ||| -inf",
]


def test_what_is_read_is_written_again() -> None:
    entries = list(read_n_best(LIST, name="list"))
    assert [entry.line() for entry in entries] == [f"{line}\n" for line in LIST]
    assert [dict(entry.features) for entry in entries] == [
        {"score": -1.25},
        {"score": -2.0, "TM": -1.0, "TM.2": -3.5},
        {},
    ]
    assert entries[1].text == "||| a"
    assert [[entry.number for entry in group] for group in groups_of(entries)] == [[0, 0], [3]]


def test_features_and_scores_are_written_where_they_belong() -> None:
    entry = list(read_n_best(LIST, name="list"))[1]
    more = entry.with_feature("lm", -7.25).with_score(-1.0)
    written = "score= -2 TM= -1 -3.5 lm= -7.250000 ||| -1.000000 ||| 0-0 1-1"
    assert more.line() == f"0 ||| &#124;&#124;&#124; a ||| {written}\n"
    (again,) = read_n_best([more.line()], name="list")
    assert again.features["lm"] == -7.25


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ein Hund", "not of the form 'number ||| text |||"),
        ("x ||| ein Hund ||| score= 1 ||| 1", "not of the form 'number"),
        ("1 ||| ein Hund ||| -1.5 ||| 1", "'-1.5' is not a name of a feature; allowed: 'name= number'"),
        ("1 ||| ein Hund ||| lm= nan ||| 1", "'nan', the value of 'lm', is not a number"),
        ("1 ||| ein Hund ||| lm: -3 ||| 1", "'lm:' is not a name of a feature"),
        ("1 ||| ein Hund ||| lm= score= 1 ||| 1", "'lm' has no value"),
        ("1 ||| ein Hund ||| score= 1 lm= ||| 1", "'lm' has no value"),
        ("1 ||| ein Hund ||| a.2= 3 a= 1 2 ||| 1", "'a.2' is given twice"),
        ("100001 ||| ein Hund ||| lm= 1 ||| 1", "comes after 0: more than 100,000 lines without a translation"),
        ("1 ||| ein Hund ||| lm= 1 lm= 2 ||| 1", "'lm' is given twice"),
        ("1 ||| a ||| a,b= 1 ||| 1", "'a,b' is not a name of a feature"),
    ],
)
def test_what_is_no_list_is_named_by_its_line(line: str, message: str) -> None:
    with pytest.raises(DataError, match="list, line 2: ") as caught:
        list(read_n_best([LIST[0], line], name="list"))
    assert message in str(caught.value)


def test_numbers_do_not_fall() -> None:
    with pytest.raises(DataError, match="list, line 2: number 0 comes after 3"):
        list(read_n_best([LIST[2], LIST[0]], name="list"))
