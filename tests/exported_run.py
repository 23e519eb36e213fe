"""A tiny run with subwords, and files of it for the engine; tests that need them skip where there is no C compiler."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from nmt.exporting import command as export
from tests.compiled import needed_engine
from tests.tiny_run import make_run

LINES = [
    "a longaer sentence of ax",
    "",
    "c",
    "sentence of by b longber",
    "\u4e00 of b",
    "   ",
    "d longder sentence. of dz a longaer sentence",
]
"""Of its language, one with unknown words among them, and one that is longer than the others."""


class Exported(NamedTuple):
    """A run, and a file of it in fp32."""

    run: str
    file: str


def make_exported(folder: Path) -> Exported:
    """Both in `folder`; the file in fp32 computes as the run does."""
    needed_engine()
    run, file = make_run(folder / "run", sentencepiece=True), folder / "run.nmt"
    assert export.main([str(run), "-o", str(file), "--precision", "fp32"]) == 0
    return Exported(str(run), str(file))
