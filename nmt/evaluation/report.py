"""The results of nmt-eval as text of 80 columns, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from nmt.evaluation.metrics import Score
from nmt.evaluation.significance import APPROXIMATE, BOOTSTRAP, Comparison, Confidence, Interval

WIDTH = 80
"""Columns of a text table, where that can be."""
NARROWEST = 24
"""Columns that names keep; a table that is still too wide comes in several parts."""
_FIGURE = re.compile(r"[+-]?[\d,]*\.?\d+")
_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
TEST_NAMES: Final = {BOOTSTRAP: "paired bootstrap", APPROXIMATE: "paired approximate randomisation"}
SAMPLE_NAMES: Final = {BOOTSTRAP: "resamples", APPROXIMATE: "trials"}


class Group(NamedTuple):
    """A part of a text, such as the sentences of a length."""

    name: str
    size: int
    """Its sentences, or words."""
    score: float
    keys: Mapping[str, Any]
    """What JSON says of it in place of its name."""


class Groups(NamedTuple):
    """The parts of a text that one metric has scored."""

    title: str
    head: tuple[str, str]
    """What the names and the sizes are called."""
    rows: Sequence[Group]


class Result(NamedTuple):
    """All measurements of one system with one metric."""

    score: Score
    comparisons: Sequence[tuple[str, Comparison]] = ()
    """Name of each baseline and the comparison with it."""
    groups: Mapping[str, Groups] = {}
    """By what makes the groups, such as `length`."""
    confidence: Confidence | None = None


class System(NamedTuple):
    """A system and what was measured of it, metric by metric."""

    name: str
    results: Sequence[Result]


def as_json(systems: Sequence[System]) -> str:
    """A list of objects with sacreBLEU's keys `name`, `score` (unrounded) and `signature`, one for each metric.

    For several systems, a list of objects with `system` and `metrics`, the list of that system. `brevity_penalty` and
    other parts of BLEU, `confidence`, `baselines`, and `by_length` and its like are included if requested; `mean` and
    `ci` are sacreBLEU's names for the true mean and for half the width of the 95% interval.
    """
    entries = [[_json_object(result) for result in system.results] for system in systems]
    several = [{"system": system.name, "metrics": own} for system, own in zip(systems, entries, strict=True)]
    return json.dumps(several if len(systems) > 1 else entries[0], indent=1, ensure_ascii=False)


def _json_object(result: Result) -> dict[str, Any]:
    """One metric as sacreBLEU writes it, with what was asked for besides."""
    score = result.score
    entry: dict[str, Any] = {"name": score.name, "score": score.score, "signature": score.signature}
    if score.breakdown is not None:
        entry["brevity_penalty"], entry["ratio"] = score.breakdown.brevity_penalty, score.breakdown.ratio
        entry["length"], entry["reference_length"] = score.breakdown.length, score.breakdown.reference_length
        entry["precisions"] = list(score.breakdown.precisions)
    if result.confidence is not None:
        interval, signature = result.confidence
        entry["confidence"] = {"mean": interval.mean, "ci": interval.half_width, "signature": signature}
    for name, one in result.comparisons:
        own: dict[str, Any] = {"baseline": name, "baseline_score": one.baseline_score, "test": one.test}
        if one.system is not None:
            own |= {"mean": one.system.mean, "ci": one.system.half_width}
        entry.setdefault("baselines", []).append(own | {"p_value": one.p_value, "signature": one.signature})
    for kind, (_, (_, sizes), rows) in result.groups.items():
        entry[f"by_{kind}"] = [{**row.keys, sizes: row.size, "score": row.score} for row in rows]
    return entry


class Table(NamedTuple):
    """A head and rows with the same number of cells; the first cell is the row's name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


def text_tables(tables: Sequence[Table], signatures: Sequence[tuple[str, str]]) -> str:
    """Columns aligned with spaces, numbers at the right and words at the left, in WIDTH columns."""
    parts = []
    for table in tables:
        title = f"{table.title}:\n" if table.title else ""
        parts += [title + _aligned(part) for part in _fitted(table)]
    longest = max((len(name) for name, _ in signatures), default=0)
    lines = [_wrapped(f"{name:<{longest}}  ", signature) for name, signature in signatures]
    return "\n\n".join([*parts, *(["signatures:\n" + "\n".join(lines)] if lines else [])])


def markdown_tables(tables: Sequence[Table], signatures: Sequence[tuple[str, str]]) -> str:
    """Tables of pipes, and the signatures as a list."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\|*_`<\[])", r"\\\1", text)

    parts = []
    for table in tables:
        title = f"{escaped(table.title)}:\n\n" if table.title else ""
        sides = ["-:" if right else "-" for right in _figures(table)]
        head, *rows = [f"| {' | '.join(map(escaped, row))} |" for row in (table.head, *table.rows)]
        parts.append(title + "\n".join([head, f"|{'|'.join(sides)}|", *rows]))
    return "\n\n".join([*parts, "\n".join(f"- {escaped(name)}: `{own}`" for name, own in signatures)])


def latex_tables(tables: Sequence[Table], signatures: Sequence[tuple[str, str]]) -> str:
    r"""Tables for the package booktabs, titles and signatures as comments, which a caption can take."""
    parts = []
    for table in tables:
        title = f"% {table.title}\n" if table.title else ""
        sides = "".join("r" if right else "l" for right in _figures(table))
        head, *rows = [
            " & ".join(cell.translate(_ESCAPED).replace(" +- ", r" $\pm$ ") for cell in row) + r" \\"
            for row in (table.head, *table.rows)
        ]
        lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        parts.append(title + "\n".join([*lines, r"\end{tabular}"]))
    return "\n\n".join([*parts, "\n".join(f"% {name}: {own}" for name, own in signatures)])


TABLES: Final = {"text": text_tables, "latex": latex_tables, "markdown": markdown_tables}


def as_csv(systems: Sequence[System]) -> str:
    """One table of unrounded numbers: a row for each score, of each comparison with a baseline, and for each group."""
    stream = io.StringIO()
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["system", "metric", "by", "group", "size", "score", "ci", "baseline", "p_value", "signature"])
    for system in systems:
        for score, comparisons, groups, sure in system.results:
            own = system.name, score.name
            whole = (*own, "", "", "", score.score, sure.interval.half_width if sure else "")
            alone: tuple[Any, ...] = "", "", sure.signature if sure else score.signature
            compared = [(name, one.p_value, one.signature) for name, one in comparisons]
            rows.writerows((*whole, *more) for more in compared or [alone])
            for kind, parts in groups.items():
                for row in parts.rows:
                    rows.writerow((*own, kind, row.name, row.size, row.score, "", "", "", score.signature))
    return stream.getvalue().removesuffix("\n")


def written(systems: Sequence[System], form: str) -> str:
    """As JSON or CSV; or, in one of the forms of TABLES, tables of the scores, then of what was asked for besides."""
    whole = _WHOLE.get(form)
    return TABLES[form](_tables(systems), _signatures(systems)) if whole is None else whole(systems)


_WHOLE: Final = {"csv": as_csv, "json": as_json}
FORMATS: Final = (*TABLES, *_WHOLE)


def _fitted(table: Table) -> list[Table]:
    """The table with shorter names where it is too wide, and in parts with some columns each where it still is."""
    widths = _widths(table)
    names = max(NARROWEST, WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1))
    if widths[0] > names:
        end = (names - 3) * 2 // 3  # without its middle, because the end of a path matters most
        short = [n if len(n) <= names else f"{n[: names - 3 - end]}...{n[-end:]}" for n, *_ in table.rows]
        table = table._replace(rows=[(n, *row[1:]) for n, row in zip(short, table.rows, strict=True)])
        widths = _widths(table)
    parts: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        if parts[-1] and widths[0] + sum(widths[c] + 2 for c in (*parts[-1], column)) > WIDTH:
            parts.append([])
        parts[-1].append(column)
    kept = [(0, *part) for part in parts]
    return [Table([table.head[c] for c in part], [[row[c] for c in part] for row in table.rows]) for part in kept]


def _aligned(table: Table) -> str:
    widths, figures = _widths(table), _figures(table)
    lines = []
    for row in (table.head, *table.rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, figures, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _widths(table: Table) -> list[int]:
    return [max(len(row[column]) for row in (table.head, *table.rows)) for column in range(len(table.head))]


def _figures(table: Table) -> list[bool]:
    """For each column, whether it holds numbers, which are aligned at the right."""
    cells = [[row[column] for row in table.rows if row[column]] for column in range(len(table.head))]
    return [bool(column) and all(_FIGURE.fullmatch(cell) for cell in column) for column in cells]


def _wrapped(name: str, signature: str) -> str:
    """A signature in lines that end at its bars."""
    lines = [name]
    for part in re.findall(r"[^|]+\|?", signature):
        if len(lines[-1]) + len(part) > WIDTH and len(lines[-1]) > len(name):
            lines.append(" " * len(name))
        lines[-1] += part
    return "\n".join(lines)


def _tables(systems: Sequence[System]) -> list[Table]:
    several = len(systems) > 1
    found = [_scores_of_several(systems) if several else _scores_of_one(systems[0])]
    parts = [(s.name, r.score) for s in systems for r in s.results if r.score.breakdown is not None]
    if parts:
        found.append(_breakdowns(parts, several=several))
    if several and any(result.confidence for system in systems for result in system.results):
        head = ("system", *(result.score.name for result in systems[0].results))
        rows: list[tuple[str, ...]] = [(s.name, *(_interval_of(r) for r in s.results)) for s in systems]
        found.append(Table(head, rows, "mean, 95% interval"))
    found += _comparisons(systems)
    for system in systems:
        for kind in dict.fromkeys(kind for result in system.results for kind in result.groups):
            # a row for each group, which all metrics have, a column for each metric
            measured = [(result.score.name, result.groups[kind]) for result in system.results if kind in result.groups]
            title, head, _ = measured[0][1]
            rows = []
            for same in zip(*(groups.rows for _, groups in measured), strict=True):
                rows.append((same[0].name, str(same[0].size), *(f"{part.score:.2f}" for part in same)))
            title += f", {system.name}" if several else ""
            found.append(Table((*head, *(name for name, _ in measured)), rows, title))
    return found


def _scores_of_one(system: System) -> Table:
    head, rows = ["metric", "score", "better", "mean, 95% interval"], []
    for result in system.results:
        better = "higher" if result.score.higher_is_better else "lower"
        rows.append((result.score.name, f"{result.score.score:.2f}", better, _interval_of(result)))
    size = 4 if any(result.confidence for result in system.results) else 3
    return Table(head[:size], [row[:size] for row in rows])


def _scores_of_several(systems: Sequence[System]) -> Table:
    scores = [result.score for result in systems[0].results]
    rows = [(system.name, *(f"{r.score.score:.2f}" for r in system.results)) for system in systems]
    lower = ", ".join(score.name for score in scores if not score.higher_is_better)
    title = f"scores (higher is better; {lower}: lower)" if lower else "scores (higher is better)"
    return Table(("system", *(score.name for score in scores)), rows, title)


def _breakdowns(parts: Sequence[tuple[str, Score]], *, several: bool) -> Table:
    """Brevity penalty, lengths and precisions of BLEU; of several systems or kinds of BLEU a row each."""
    kinds = len({score.name for _, score in parts}) > 1
    rows = []
    for system, score in parts:
        one = score.breakdown
        assert one is not None
        name = score.name if not several else f"{system} ({score.name})" if kinds else system
        lengths = f"{one.brevity_penalty:.3f}", f"{one.ratio:.3f}", str(one.length), str(one.reference_length)
        rows.append((name, *lengths, "/".join(f"{precision:.1f}" for precision in one.precisions)))
    head = ("system" if several else "metric", "penalty", "ratio", "words", "reference", "precisions")
    longest = max((row[-1].count("/") + 1 for row in rows), default=0)
    return Table(head, rows, f"brevity penalty, length and precisions of 1 to {longest} words")


def _comparisons(systems: Sequence[System]) -> list[Table]:
    """A table for each baseline: by metric, its own row and the rows of the systems compared with it."""
    found = []
    names = dict.fromkeys(name for s in systems for r in s.results for name, _ in r.comparisons)
    for name in names:
        rows: list[tuple[str, ...]] = []
        for place in range(len(systems[0].results)):
            compared = [(s.name, s.results[place], dict(s.results[place].comparisons).get(name)) for s in systems]
            against = [(system, result.score, found) for system, result, found in compared if found is not None]
            if not against:  # of what is counted, not scored
                continue
            _, score, first = against[0]
            rows.append(
                (f"baseline: {name}", score.name, f"{first.baseline_score:.2f}", _interval_text(first.baseline), "")
            )
            for system, score, comparison in against:
                label = system if len(systems) > 1 else "this system"
                p_value = f"{comparison.p_value:.4f}"
                interval = _interval_text(comparison.system)
                rows.append((label, score.name, f"{score.score:.2f}", interval, p_value))
        head = ["system", "metric", "score", "mean, 95% interval", "p-value"]
        if first.test == APPROXIMATE:
            head.remove("mean, 95% interval")
            rows = [(*row[:3], row[4]) for row in rows]
        title = f"{TEST_NAMES[first.test]}, {first.samples:,} {SAMPLE_NAMES[first.test]}"
        found.append(Table(head, rows, title))
    return found


def _signatures(systems: Sequence[System]) -> list[tuple[str, str]]:
    """Each metric's; where there was resampling, those with the seed and the number of samples."""
    found: dict[str, dict[str, None]] = {}
    plain: dict[str, str] = {}
    for result in (result for system in systems for result in system.results):
        name = result.score.name
        plain[name] = result.score.signature
        sampled = [result.confidence.signature] if result.confidence else []
        sampled += [comparison.signature for _, comparison in result.comparisons]
        found.setdefault(name, {}).update(dict.fromkeys(sampled))
    return [(name, signature) for name, all_of in found.items() for signature in (all_of or [plain[name]])]


def _interval_of(result: Result) -> str:
    return _interval_text(result.confidence.interval if result.confidence else None)


def _interval_text(interval: Interval | None) -> str:
    """True mean and half the width of the 95% interval."""
    return f"{interval.mean:.2f} +- {interval.half_width:.2f}" if interval else ""
