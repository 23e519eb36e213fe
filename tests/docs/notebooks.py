"""Jupyter notebooks as programs: their code cells one after the other, with the commands that they call."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

COMMANDS = {"nmt-train": "nmt.cli.train", "nmt-compare": "nmt.experiments.command"}


def program_of(notebook: Path, changes: dict[str, str]) -> str:
    """A program in Python that does what the notebook does, but for `%pip` and `%matplotlib`.

    `changes`: lines and what stands in their places.
    """
    found, parts = json.loads(notebook.read_text(encoding="utf-8")), ["import subprocess, sys", "from glob import glob"]
    assert (found["nbformat"], found["metadata"]["kernelspec"]["language"]) == (4, "python")
    assert all(cell["outputs"] == [] for cell in found["cells"] if cell["cell_type"] == "code")
    for cell in found["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            continue
        if text.startswith("%%writefile "):
            name, _, body = text.removeprefix("%%writefile ").partition("\n")
            parts.append(f"open({name!r}, 'w').write({body!r} + '\\n')")
            continue
        parts += [_line(changes.pop(line, line)) for line in text.split("\n")]
    assert not changes, f"{notebook.name} has no such lines: {list(changes)}"
    return "\n".join(parts) + "\n"


def _line(line: str) -> str:
    if line.startswith(("%pip ", "%matplotlib ")):
        return ""
    if not line.startswith("!"):
        return line
    command, *arguments = shlex.split(line[1:])
    words = ", ".join(f"*glob({word!r})" if "*" in word else f"f{word!r}" for word in arguments)
    return f"subprocess.run([{sys.executable!r}, '-m', {COMMANDS[command]!r}, {words}], check=True)"
