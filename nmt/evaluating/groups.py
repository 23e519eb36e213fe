"""Scores of the parts of a text: of lines by their length, or by a name such as their domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nmt.data import read_lines
from nmt.data.text import Policy, Undecodable
from nmt.errors import ConfigError, DataError, counted, printable, refused
from nmt.evaluation import Metric
from nmt.evaluation.metrics import check_streams
from nmt.evaluation.report import Group, Groups
from nmt.registry import GROUPINGS

CORPUS, FREQUENCY, LENGTH = "corpus", "frequency", "length"
LENGTHS = (10, 20, 30, 40, 50)
"""The most words of the lines of each group but the last."""


class Grouping(NamedTuple):
    """The group of each line of a text."""

    title: str
    head: str
    """What the names are."""
    names: Sequence[str]
    """The group of each line."""
    keys: Mapping[str, Mapping[str, Any]]
    """All groups in their order, and what JSON says of each."""

    def scored(
        self,
        metric: Metric,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        sources: Sequence[str] | None = None,
    ) -> Groups:
        """The score of each group that has a line, as that of a text; they do not average to that of the whole text.

        Raises DataError for streams of different lengths.
        """
        check_streams(hypotheses, references)
        places: dict[str, list[int]] = {name: [] for name in self.keys}
        for place, name in enumerate(self.names):
            places[name].append(place)
        found = []
        for name, rows in places.items():
            if rows:
                own, right = [hypotheses[i] for i in rows], [[stream[i] for i in rows] for stream in references]
                score = metric.score(own, right, sources=None if sources is None else [sources[i] for i in rows])
                found.append(Group(name, len(rows), score.score, self.keys[name]))
        return Groups(self.title, (self.head, "sentences"), found)


@GROUPINGS.register(LENGTH)
def by_length(lines: Sequence[str], *, of: str = "the first reference", most: Sequence[int] = LENGTHS) -> Grouping:
    """Each line by its number of words; `most`: of each group but the last, ascending."""
    bounds = [*zip((0, *(length + 1 for length in most)), (*most, None), strict=True)]
    names = [f"{first}+" if last is None else f"{first}-{last}" for first, last in bounds]
    keys = {name: {"first": first, "last": last} for name, (first, last) in zip(names, bounds, strict=True)}
    own = [names[sum(len(line.split()) > length for length in most)] for line in lines]
    return Grouping(f"by words in {of}", "words", own, keys)


def by_name(kind: str, names: Sequence[str]) -> Grouping:
    """Each line by what a file calls it, such as its domain."""
    return Grouping(f"by {kind}", kind, names, {name: {"name": name} for name in dict.fromkeys(names)})


def read_names(path: str, kinds: Sequence[str], *, lines: int, policy: Policy) -> dict[str, list[str]]:
    """For each of `kinds` the names of all lines, from a file with a name a line, or from a table in TSV with a head.

    A file with one line more than there are `lines` has a head, whose cells are the kinds.
    Raises DataError for other numbers of lines and for lines without a name, ConfigError for a kind without a column.
    """
    rows = [line.split("\t") for line in read_lines(path, undecodable=Undecodable(policy))]
    if len(rows) not in (lines, lines + 1):
        wanted = f"needs one for each of the {counted(lines, 'line')} of the text, and may have a head above them"
        raise DataError(f"--groups {path}: has {counted(len(rows), 'line')}; it {wanted}")
    head, first = (rows[0], 2) if len(rows) > lines else ([*kinds] if len(kinds) == 1 else [], 1)
    for kind in kinds:
        if kind not in head:
            if not head:
                raise DataError(f"--groups {path}: needs a head that names its columns, for --by {' '.join(kinds)}")
            allowed = [*filter(None, head), LENGTH, FREQUENCY]
            raise ConfigError(refused("--by", kind, allowed, problem=f"is no column of {path}"))
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for number, row in enumerate(rows[first - 1 :], start=first):
        if len(row) != len(head):
            what = f"{counted(len(row), 'column')}; allowed: {len(head)}"
            raise DataError(f"{path}, line {number}: has {what}, " + ("as the head" if first > 1 else "a name"))
        for kind in kinds:
            name = printable(row[head.index(kind)].strip())
            if not name:
                raise DataError(f"{path}, line {number}: the name is missing that {kind} has; each line needs one")
            found[kind].append(name)
    return found
