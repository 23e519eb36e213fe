"""docs/library.md is true: its examples run, in order, and its table has all options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nmt
from tests.conftest import REPOSITORY
from tests.tiny_run import make_run
from tests.tiny_training import write_corpus

GUIDE = (REPOSITORY / "docs/library.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, flags=re.M | re.S)
SMALL = {
    "model.hidden_size": 8,
    "model.embedding_size": 8,
    "data.tokenizer_options.vocab_size": 320,
    "data.workers": 1,
    "data.generator": "none",
    "data.train": "train",
    "data.dev": "dev",
    "decoding.max_length_offset": 3,
    "training.max_steps": 4,
    "training.validate_every": 2,
    "training.log_every": 1,
    "training.precision": "fp32",
}
"""Makes seconds of the minutes of demo.yaml."""


@pytest.fixture
def in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small runs/demo, text in files, and trainings that take seconds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/demo", sentencepiece=True)
    (tmp_path / "news.en").write_text("A dog runs.\nA cat sleeps.\n\n", encoding="utf-8")
    (tmp_path / "reference.de").write_text("Ein Hund rennt.\nEine Katze schläft.\n\n", encoding="utf-8")
    write_corpus(tmp_path)
    train = nmt.train

    def small(config: Any, *, overrides: Any = (), **options: Any) -> nmt.Training:
        return train(config, overrides={**SMALL, **dict(overrides)}, device="cpu", **options)

    monkeypatch.setattr(nmt, "train", small)
    opened: list[nmt.Translator] = []
    load = nmt.load

    def load_on_cpu(path: Any, **options: Any) -> nmt.Translator:
        opened.append(load(path, **{"device": "cpu", **options}))
        return opened[-1]

    monkeypatch.setattr(nmt, "load", load_on_cpu)
    yield
    for translator in opened:
        translator.close()


@pytest.mark.usefixtures("in_small")
def test_the_examples_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    assert len(BLOCKS) > 8
    for block in BLOCKS:
        exec(compile(block, "docs/library.md", "exec"), names)
    said = capsys.readouterr().out
    assert re.search(r"<nmt\.Translator runs/demo/checkpoints/step-10, en-de, cpu, \w+, in this process>", said)
    assert re.search(r"^training\.max_steps = 4 is reached 4$", said, flags=re.M)
    assert "nrefs:1|case:mixed" in said


@pytest.mark.usefixtures("in_small")
def test_three_lines_of_the_readme_translate(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(import nmt\n.*?)^```$", README, flags=re.M | re.S)
    assert README.index(block) < 2500  # on the first screen
    assert block in "\n\n".join(BLOCKS)
    exec(block, {})
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_its_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", GUIDE))
    assert [link for link in links if not (REPOSITORY / "docs" / link).exists()] == []
