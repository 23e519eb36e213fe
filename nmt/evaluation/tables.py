"""Tables of numbers and words, as text of 80 columns, Markdown or LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 80
"""Columns of a text table, where that can be."""
NARROWEST = 24
"""Columns that names keep; a table that is still too wide comes in several parts."""
_FIGURE = re.compile(r"[+-]?[\d,]*\.?\d+")
_ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


class Table(NamedTuple):
    """A head and rows with the same number of cells; the first cell is the row's name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


def as_text(tables: Sequence[Table], signatures: Sequence[tuple[str, str]], *, width: int = WIDTH) -> str:
    """Columns aligned with spaces, numbers at the right and words at the left, in `width` columns."""
    parts = []
    for table in tables:
        title = f"{table.title}:\n" if table.title else ""
        parts += [title + _aligned(part) for part in _fitted(table, width)]
    longest = max((len(name) for name, _ in signatures), default=0)
    lines = [_wrapped(f"{name:<{longest}}  ", signature, width) for name, signature in signatures]
    return "\n\n".join([*parts, *(["signatures:\n" + "\n".join(lines)] if lines else [])])


def as_markdown(tables: Sequence[Table], signatures: Sequence[tuple[str, str]]) -> str:
    """Tables of pipes, and the signatures as a list."""
    parts = []
    for table in tables:
        title = f"{_markdown(table.title)}:\n\n" if table.title else ""
        sides = ["-:" if right else "-" for right in _figures(table)]
        rows = [[_markdown(cell) for cell in row] for row in (table.head, *table.rows)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        parts.append(title + "\n".join([lines[0], f"|{'|'.join(sides)}|", *lines[1:]]))
    return "\n\n".join([*parts, "\n".join(f"- {_markdown(name)}: `{signature}`" for name, signature in signatures)])


def as_latex(tables: Sequence[Table], signatures: Sequence[tuple[str, str]]) -> str:
    r"""Tables of the package booktabs, titles and signatures as comments, which a caption can take."""
    parts = []
    for table in tables:
        title = f"% {table.title}\n" if table.title else ""
        sides = "".join("r" if right else "l" for right in _figures(table))
        head, *rows = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in (table.head, *table.rows)]
        lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        parts.append(title + "\n".join([*lines, r"\end{tabular}"]))
    return "\n\n".join([*parts, "\n".join(f"% {name}: {signature}" for name, signature in signatures)])


def shortened(name: str, width: int) -> str:
    """`name` in at most `width` columns, without its middle, because the end of a path matters most."""
    if len(name) <= width:
        return name
    end = (width - 3) * 2 // 3
    return f"{name[: width - 3 - end]}...{name[-end:]}"


def _fitted(table: Table, width: int) -> list[Table]:
    """The table with shorter names where it is too wide, and in parts with some columns each where it still is."""
    widths = _widths(table)
    names = max(NARROWEST, width - sum(widths[1:]) - 2 * (len(widths) - 1))
    if widths[0] > names:
        rows = [(shortened(row[0], names), *row[1:]) for row in table.rows]
        table = table._replace(rows=rows)
        widths = _widths(table)
    parts: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        if parts[-1] and widths[0] + sum(widths[c] + 2 for c in (*parts[-1], column)) > width:
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


def _wrapped(name: str, signature: str, width: int) -> str:
    """A signature in lines that end at its bars."""
    lines = [name]
    for part in re.findall(r"[^|]+\|?", signature):
        if len(lines[-1]) + len(part) > width and len(lines[-1]) > len(name):
            lines.append(" " * len(name))
        lines[-1] += part
    return "\n".join(lines)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<\[])", r"\\\1", text)


def _latex(text: str) -> str:
    return text.translate(_ESCAPED).replace(" +- ", r" $\pm$ ")
