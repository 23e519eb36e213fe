"""scripts/demo.py: the main job in miniature, and what it prints."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

TINY = (
    "training.max_steps=4",
    "training.log_every=2",
    "training.validate_every=2",
    "training.batch_sentences=8",
    "model.hidden_size=8",
    "model.embedding_size=8",
    "data.tokenizer_options.vocab_size=400",
    "decoding.max_length_offset=1",
    "decoding.beam_size=1",
    "evaluation.max_sentences=4",
)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/demo.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def overrides(run: Path) -> list[str]:
    return [part for setting in (f"run_dir={run}", *TINY) for part in ("--set", setting)]


def test_the_demo_shows_curve_samples_score_and_figures(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = demo(*overrides(run))
    assert done.returncode == 0, done.stderr
    assert re.search(r"update  training loss\n +2 +\d+\.\d{4}\n +4 ", done.stdout)
    assert re.search(r"update  held-out loss   BLEU\n +2 +\d+\.\d{4} +\d+\.\d\d\n", done.stdout)
    assert len(re.findall(r"^source .*\nreference .*\ntranslation", done.stdout, re.MULTILINE)) == 5
    score = re.search(
        r"^BLEU = (\S+)  nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:", done.stdout, re.MULTILINE
    )
    assert score is not None
    proposed = re.search(r"^echo (.*) \| \S+/nmt-translate ", done.stdout, re.MULTILINE)
    assert proposed is not None
    assert shlex.split(proposed[1])[0] in (run / "corpus" / "test.en").read_text(encoding="utf-8").splitlines()
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(rf"demo: BLEU = {re.escape(score[1])} seconds = \d+", last)
    assert len((run / "demo.de").read_text(encoding="utf-8").splitlines()) == 500


@pytest.mark.parametrize(
    ("setting", "message"),
    [("training.lr=fast", "training.lr"), pytest.param("nothing", "nothing", marks=pytest.mark.slow)],
)
def test_a_mistake_ends_the_demo_with_its_line(tmp_path: Path, setting: str, message: str) -> None:
    done = demo(*overrides(tmp_path / "run"), "--set", setting)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_a_failing_step_ends_the_demo(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo("--set", f"run_dir={tmp_path / 'file' / 'run'}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "demo: BLEU" not in done.stdout


def test_the_proposed_sentence_was_translated_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    right_one = importlib.import_module("demo").right_one
    rows = [
        ("The old man buys a new door today .", "richtig", "falsch"),
        ("Short .", "kurz", "kurz"),
        ("The old man does not buy a door .", "gut", "gut"),
    ]
    assert right_one(rows) == "The old man does not buy a door ."
    assert right_one(rows[:1]) == rows[0][0]
