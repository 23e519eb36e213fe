"""What the registers of the engine's programs hold at a place of a program, as terms of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nmt.interop.engine.program import Value
from nmt.onnx_export.graph import Term, op


class Piece(NamedTuple):
    """Neighbouring columns of a register that are columns of a term."""

    column: int
    width: int
    term: Term
    start: int
    """First column in the term"""
    whole: int
    """Columns of the term"""

    @property
    def end(self) -> int:
        return self.column + self.width

    def cut(self, column: int, end: int) -> Piece:
        """Those of its columns that lie between these."""
        first, last = max(column, self.column), min(end, self.end)
        return self._replace(column=first, width=last - first, start=self.start + first - self.column)


class Registers:
    """Pieces by the numbers of registers. ONNX has no variables: writing changes what the next reading finds."""

    def __init__(self, missing: Callable[[Value], Term]) -> None:
        """`missing` gives what is read before it was written."""
        self._missing = missing
        self._pieces: dict[int, list[Piece]] = {}
        self._parts: dict[tuple[str, int, int], Term] = {}

    def read(self, value: Value) -> Term:
        """The term of these columns."""
        column, end, found = value.column, value.column + value.width, list[Term]()
        while column < end:
            pieces = self._pieces.get(value.register, [])
            piece = next((piece for piece in pieces if piece.column <= column < piece.end), None)
            if piece is None:
                until = min([end, *(piece.column for piece in pieces if piece.column > column)])
                gap = Value(value.register, column, until - column)
                self.write(gap, self._missing(gap))
                continue
            piece = piece.cut(column, end)
            found.append(self._part(piece))
            column = piece.end
        return found[0] if len(found) == 1 else op("Concat", *found, axis=-1)

    def write(self, value: Value, term: Term) -> None:
        """These columns are those of `term` from now on."""
        column, end, kept = value.column, value.column + value.width, list[Piece]()
        for piece in self._pieces.get(value.register, []):
            outside = piece.cut(piece.column, column), piece.cut(end, piece.end)
            kept += [part for part in outside if part.width > 0]
        self._pieces[value.register] = [*kept, Piece(column, value.width, term, 0, value.width)]

    def pieces(self, register: int) -> list[Piece]:
        """What is known of a register, from the first column on."""
        return sorted(self._pieces.get(register, []), key=lambda piece: piece.column)

    def _part(self, piece: Piece) -> Term:
        if piece.width == piece.whole:
            return piece.term
        key = piece.term.name, piece.start, piece.width
        if key not in self._parts:
            self._parts[key] = piece.term.part(piece.start, piece.width)
        return self._parts[key]
