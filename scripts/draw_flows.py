#!/usr/bin/env python3
"""Draw the data flow of each unit and architecture as SVG: the pictures of docs/units.md and docs/architectures.md.

    scripts/draw_flows.py [-o docs/flows]

A flow is a list of lines `name = operation inputs`. Names that begin with `_` are not shown. tests/docs/test_units.py
computes the flows of the units and compares the results with the units themselves.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]

UNITS = {
    "lrn": """
        before h'
        input p q r
        _a = + p h'
        i = σ _a
        _b = − q h'
        f = σ _b
        _m = × i r
        _n = × f h'
        h = + _m _n
    """,
    "olrn": """
        before h'
        input p q r s
        _a = + p h'
        i = σ _a
        _b = − q h'
        f = σ _b
        _m = × i r
        _n = × f h'
        c = + _m _n
        _d = − s c
        o = σ _d
        h = × o c
    """,
    "atr": """
        before h'
        input p
        q = U h'
        _a = + p q
        i = σ _a
        _b = − p q
        f = σ _b
        _m = × i p
        _n = × f h'
        h = + _m _n
    """,
    "sru": """
        before c'
        input x_r x_f x_c x_h
        _v = v_f c'
        _a = + x_f _v
        f = σ _a
        _m = × f c'
        _k = 1− f
        _n = × _k x_c
        c = + _m _n
        _w = v_r c'
        _b = + x_r _w
        r = σ _b
        _s = × r c
        _l = 1− r
        _t = × _l x_h
        h = + _s _t
        out c
    """,
    "ssru": """
        before c'
        input x_f x_c
        f = σ x_f
        _m = × f c'
        _k = 1− f
        _n = × _k x_c
        c = + _m _n
        h = relu c
        out c
    """,
    "min_gru": """
        before h'
        input x_z g
        z = σ x_z
        _m = × z g
        _k = 1− z
        _n = × _k h'
        h = + _m _n
    """,
    "min_lstm": """
        before h'
        input x_f x_i g
        f = σ x_f
        i = σ x_i
        _s = + f i
        _f = ÷ f _s
        _i = ÷ i _s
        _m = × _f h'
        _n = × _i g
        h = + _m _n
    """,
    "gru": """
        before h'
        input x_z x_r x_h
        _u = U_z h'
        _a = + x_z _u
        z = σ _a
        _w = U_r h'
        _b = + x_r _w
        r = σ _b
        _s = × r h'
        _v = V _s
        _c = + x_h _v
        g = tanh _c
        _m = × z h'
        _k = 1− z
        _n = × _k g
        h = + _m _n
    """,
    "lstm": """
        before h' c'
        input x_f x_i x_g x_o
        _uf = U_f h'
        _ui = U_i h'
        _ug = V h'
        _uo = U_o h'
        _af = + x_f _uf
        _ai = + x_i _ui
        _ag = + x_g _ug
        _ao = + x_o _uo
        f = σ _af
        i = σ _ai
        g = tanh _ag
        o = σ _ao
        _m = × f c'
        _n = × i g
        c = + _m _n
        _t = tanh c
        h = × o _t
        out c
    """,
}
"""Flows by the name of the unit. Names after `before` belong to the previous state, names after `input` are products of
the input. The value of the last line is carried to the next step, and so are the names after `out`."""

ARCHITECTURES = {
    "deepnmt": """
        input source_words
        before words_so_far
        _e = embeddings source_words
        _f = forward_unit _e
        _b = backward_unit _e _f
        _r = add,_norm _e _b
        _d = forward_units,|add,_norm_(N−1_x) _r
        _t = embeddings words_so_far
        _i = first_states _d
        _l = lower_unit _t _i
        _a = attention _l _d
        _h = higher_unit _l _a
        _s = add,_norm _t _h
        _u = two_units_each,|add,_norm_(N−1_x) _s _a
        _o = tanh_layer _u _a
        next_word = softmax _o
    """,
    "rnnsearch": """
        input source_words
        before words_so_far
        _e = embeddings source_words
        _f = forward_unit _e
        _b = backward_unit _e _f
        _t = embeddings words_so_far
        _i = first_state _b
        _l = lower_unit _t _i
        _a = attention _l _b
        _h = higher_unit _l _a
        _o = tanh_layer _h _a _t
        next_word = softmax _o
    """,
    "rnnsearch_deepatt": """
        input source_words
        before words_so_far
        _e = embeddings source_words
        _f = forward_unit _e
        _b = two_units,_backward|then_forward_... _e _f
        _t = embeddings words_so_far
        _i = first_state _b
        _l = lower_unit _t _i
        _a = attention_1 _l _b
        _h = unit_1 _l _a
        _c = attention_N _h _b
        _k = unit_N _h _c
        _o = tanh_layer _k _a _c _t
        next_word = softmax _o
    """,
    "transformer": """
        input source_words
        before words_so_far
        _e = embeddings source_words
        _m = norm,_unit_in_both|directions_or_self-attention _e
        _x = + _e _m
        _g = norm,|feed-forward _x
        _y = + _x _g
        _t = embeddings words_so_far
        _n = norm,_unit|or_self-attention _t
        _p = + _t _n
        _a = norm,|attention _p _y
        _q = + _p _a
        _h = norm,|feed-forward _q
        _z = + _q _h
        next_word = norm,|softmax _z
    """,
}
"""Flows by the name of the architecture; `_` in an operation is a space, `|` a new line."""

OPERATIONS = ("+", "−", "×", "÷", "σ", "tanh", "relu", "1−")
INK, PAPER = "#1B1F24", "#FFFFFF"
FILLS = {"before": "#CFE3F5", "input": "#E8E8E8", "matrix": "#F6CFA8", "operation": PAPER, "output": "#BFE5D4"}
SIZE = 14
LETTER = 8.0
"""Width of a letter of that size, roughly."""
COLUMN_GAP, ROW_GAP, MARGIN = 30.0, 16.0, 12.0


@dataclass
class Node:
    """Something that is drawn; a node without text is a bend of a line."""

    name: str
    operation: str
    inputs: list[str] = field(default_factory=list)
    column: int = 0
    place: float = 0.0
    """Position of its middle, across the flow."""
    down: bool = False
    """Whether the flow goes down; if not, it goes to the right."""
    x: float = 0.0
    y: float = 0.0
    reach: float = 0.0
    """The size of a bend along the flow, equal to its column's: lines turn between columns, not behind boxes."""

    @property
    def kind(self) -> str:
        """Its kind, which determines its colour."""
        if self.operation in ("before", "input", "output"):
            return self.operation
        return "operation" if self.operation in OPERATIONS else "matrix"

    @property
    def lines(self) -> list[str]:
        """Its lines of text."""
        if self.operation == "bend":
            return []
        named = {"before": self.name, "input": self.name, "output": self.inputs[0] if self.inputs else ""}
        text = named.get(self.operation, self.operation)
        return text.split("|") if len(text) > 4 else [text]

    @property
    def width(self) -> float:
        if self.operation == "bend":
            return 0.0 if self.down else self.reach
        longest = max(len(line.replace("_", "") if len(line) < 5 else line) for line in self.lines)
        return max(28.0, LETTER * longest + 12)

    @property
    def height(self) -> float:
        if self.operation == "bend":
            return self.reach if self.down else 8.0
        return 28.0 + 18 * (len(self.lines) - 1)

    @property
    def breadth(self) -> float:
        """Its size across the flow."""
        if self.operation == "bend":
            return 8.0
        return self.width if self.down else self.height


def parse(flow: str) -> dict[str, Node]:
    """The nodes of a flow by their names, each after its inputs."""
    nodes: dict[str, Node] = {}
    carried: list[str] = []
    for line in flow.strip().splitlines():
        first, *rest = line.split()
        if rest[0] == "=":
            nodes[first] = Node(first, rest[1], rest[2:])
        elif first == "out":
            carried += rest
        else:
            nodes |= {name: Node(name, first) for name in rest}
    for name in (list(nodes)[-1], *carried):
        nodes[f"out {name}"] = Node(f"out {name}", "output", [name])
    return nodes


def set_columns(nodes: dict[str, Node]) -> None:
    """Put each node to the right of its inputs, and each input of the flow just before its first reader."""
    for node in nodes.values():
        node.column = 1 + max((nodes[name].column for name in node.inputs), default=-1)
    for node in nodes.values():
        readers = [other.column for other in nodes.values() if node.name in other.inputs]
        if not node.inputs and node.operation == "input":
            node.column = max(0, min(readers) - 1)
    last = max(node.column for node in nodes.values())
    for node in nodes.values():
        if node.operation == "output":
            node.column = last


def with_bends(nodes: dict[str, Node]) -> tuple[list[list[Node]], dict[tuple[str, str], list[Node]]]:
    """The columns, and the path of each line: its ends and a bend in each column between them."""
    columns: list[list[Node]] = [[] for _ in range(1 + max(node.column for node in nodes.values()))]
    for node in nodes.values():
        columns[node.column].append(node)
    ways = {}
    for node in nodes.values():
        for name in node.inputs:
            start = nodes[name]
            between = range(start.column + 1, node.column)
            bends = [Node("", "bend", column=column, down=node.down) for column in between]
            for bend in bends:
                columns[bend.column].append(bend)
            ways[name, node.name] = [start, *bends, node]
    return columns, ways


def arrange(columns: list[list[Node]], ways: dict[tuple[str, str], list[Node]]) -> None:
    """Order each column by the places of its neighbours, then move nodes so that lines are as straight as possible."""
    pairs = [pair for way in ways.values() for pair in itertools.pairwise(way)]

    def crossings() -> int:
        place = {id(node): row for column in columns for row, node in enumerate(column)}
        count = 0
        for (a, b), (c, d) in itertools.combinations(pairs, 2):
            if a.column == c.column:
                count += (place[id(a)] - place[id(c)]) * (place[id(b)] - place[id(d)]) < 0
        return count

    best, fewest = [list(column) for column in columns], crossings()
    for sweep in range(40):
        order = columns if sweep % 2 == 0 else columns[::-1]
        for column in order:
            place = {id(node): row for other in columns for row, node in enumerate(other)}
            size = {id(node): len(other) for other in columns for node in other}
            means = {}
            for row, node in enumerate(column):
                near = [a if b is node else b for a, b in pairs if node is a or node is b]
                if sweep % 4 < 2:
                    one_side = [other for other in near if (other.column < node.column) == (sweep % 2 == 0)]
                    near = one_side or near
                rows = [place[id(other)] / size[id(other)] for other in near]
                means[id(node)] = sum(rows) / len(rows) if rows else row / len(column)
            column.sort(key=lambda node: means[id(node)])
        if (now := crossings()) < fewest:
            best, fewest = [list(column) for column in columns], now
    for column, kept in zip(columns, best, strict=True):
        column[:] = kept
    for column in columns:
        top = 0.0
        for node in column:
            node.place = top + node.breadth / 2
            top += node.breadth + ROW_GAP
    for _ in range(60):
        for column in columns:
            for node in column:
                near = [a if b is node else b for a, b in pairs if node is a or node is b]
                node.place = sum(other.place for other in near) / len(near)
            _spread(column)


def _spread(column: list[Node]) -> None:
    """Move overlapping nodes of a column apart, in the same order and around the same mean place."""
    wanted = [node.place for node in column]
    for node, above in zip(column[1:], column, strict=False):
        node.place = max(node.place, above.place + (above.breadth + node.breadth) / 2 + ROW_GAP)
    shift = sum(want - node.place for want, node in zip(wanted, column, strict=True)) / len(column)
    for node in column:
        node.place += shift


def label(text: str, x: float, y: float, *, small: bool = False) -> str:
    """A line of text centred at x; in short names `_` begins an index. Small texts stand out from lines behind them."""
    size = SIZE - 2 if small else SIZE
    if len(text) > 4:
        inner = escape(text.replace("_", " "))
    else:
        base, _, index = text.partition("_")
        inner = escape(base) + (f'<tspan dy="3" font-size="{size - 4}">{escape(index)}</tspan>' if index else "")
    border = f' stroke="{PAPER}" stroke-width="3" paint-order="stroke"' if small else ""
    return f'<text x="{x:.1f}" y="{y + size * 0.36:.1f}" font-size="{size}"{border}>{inner}</text>'


def drawn(flow: str, *, title: str, down: bool = False) -> str:
    """The SVG of a flow, from left to right or downwards."""
    nodes = parse(flow)
    for node in nodes.values():
        node.down = down
    set_columns(nodes)
    columns, ways = with_bends(nodes)
    arrange(columns, ways)
    everything = [node for column in columns for node in column]
    first = min(node.place - node.breadth / 2 for node in everything) - MARGIN - (0 if down else 14)
    along = MARGIN
    for column in columns:
        thickest = max(node.height if down else node.width for node in column)
        for node in column:
            node.x, node.y, node.reach = along + thickest / 2, node.place - first, thickest
            if down:
                node.x, node.y = node.y, node.x
        along += thickest + COLUMN_GAP
    width = max(node.x + node.width / 2 for node in everything) + MARGIN
    height = max(node.y + node.height / 2 for node in everything) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="DejaVu Sans, Verdana, sans-serif" text-anchor="middle" fill="{INK}" '
        'role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="a" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        f'<path d="M0,0 L7,3 L0,6 z" fill="{INK}"/></marker></defs>',
        f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>',
    ]
    notes = []
    for (start, end), way in ways.items():
        parts.append(line(way))
        if nodes[end].operation in ("−", "÷") and nodes[end].inputs[1] == start:
            notes.append(note(nodes[end].operation, way))
    parts += notes
    shown = {name for node in nodes.values() if node.operation == "output" for name in node.inputs}
    for node in nodes.values():
        parts.append(box(node))
        is_named = node.inputs and node.operation != "output" and not node.name.startswith("_")
        if is_named and node.name not in shown:
            parts.append(label(node.name, node.x + node.width / 2 + 9, node.y - 11, small=True))
    return "\n".join([*parts, "</svg>", ""])


def note(text: str, way: list[Node]) -> str:
    """A text at the end of a path, such as the minus sign of an input that is subtracted."""
    end = way[-1]
    below = way[-2].y > end.y
    return label(text, end.x - end.width / 2 - 7, end.y + (10 if below else -10), small=True)


def line(way: list[Node]) -> str:
    """An arrow along a path."""
    path = ""
    for node, other in itertools.pairwise(way):
        if node.down:
            x0, y0, x1, y1 = node.x, node.y + node.height / 2, other.x, other.y - other.height / 2
            middle = (y0 + y1) / 2
            bent = f"{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f}"
        else:
            x0, y0, x1, y1 = node.x + node.width / 2, node.y, other.x - other.width / 2, other.y
            middle = (x0 + x1) / 2
            bent = f"{middle:.1f},{y0:.1f} {middle:.1f},{y1:.1f}"
        path += f" L{x0:.1f},{y0:.1f}" if path else f"M{x0:.1f},{y0:.1f}"
        path += f" C{bent} {x1:.1f},{y1:.1f}"
    return f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.2" marker-end="url(#a)"/>'


def box(node: Node) -> str:
    """A node with its text: round for operations, square for all other kinds."""
    radius = 14 if node.kind == "operation" else 4
    frame = (
        f'<rect x="{node.x - node.width / 2:.1f}" y="{node.y - node.height / 2:.1f}" width="{node.width:.1f}" '
        f'height="{node.height:.1f}" rx="{radius}" fill="{FILLS[node.kind]}" stroke="{INK}" stroke-width="1"/>'
    )
    first = node.y - 9 * (len(node.lines) - 1)
    return frame + "".join(label(text, node.x, first + 18 * row) for row, text in enumerate(node.lines))


def pictures() -> dict[str, str]:
    """The SVG of each unit and architecture by the name of its file."""
    units = {f"{name}.svg": drawn(flow, title=f"Data flow of a step of {name}") for name, flow in UNITS.items()}
    return units | {
        f"architecture_{name}.svg": drawn(flow, title=f"Data flow of {name}", down=True)
        for name, flow in ARCHITECTURES.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the data flow of each unit and architecture as SVG.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/flows", help="directory of the pictures")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
