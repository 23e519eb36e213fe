"""docs/layers.md: its examples run, one after the other as a reader has them, and learn what they are said to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "layers.md"
EXAMPLE = GUIDE.parent / "examples/layers/characters.py"


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    exec(compile(EXAMPLE.read_text(encoding="utf-8"), str(EXAMPLE), "exec"), {})
    nats, written = capsys.readouterr().out.splitlines()
    assert float(nats.split()[0]) < 1.0, "a model that knows no more than the letters' frequencies has 2.8"
    assert written.startswith("the ") and len(written) == 41
