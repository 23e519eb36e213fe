"""nmt-translate by several processes: every line once and in order, as one process translates them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.synthetic import distill
from tests.distributed.launch import Ranks
from tests.distributed.work import distill_run, translate_run
from tests.tiny_run import make_run

LINES = [
    "a b",
    "",
    "long er a",
    "unknown c",
    "\u2028",
    " ",
    "d",
    "a\x85b",
    "c c c c c c c c",
    "b",
    "a d c b",
    "<s>",
    "d d",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    (tmp_path / "in").write_bytes("\r\n".join(LINES).encode())
    return tmp_path


def start(folder: Path, *arguments: str, size: int) -> Ranks:
    return Ranks(size, translate_run, [str(folder / "run"), *arguments], folder=folder / "said")


@pytest.mark.parametrize(("size", "form"), [(2, "jsonl"), (3, "text")])
def test_same_lines_as_one_process_in_the_same_order(folder: Path, size: int, form: str) -> None:
    """In windows of 3 lines a process, so that the last one has fewer lines than there are processes."""
    common = ("-i", str(folder / "in"), "--format", form, "--n-best", "2")
    assert translate.main([str(folder / "run"), *common, "-o", str(folder / "alone"), "--device", "cpu"]) == 0
    ranks = start(folder, *common, "-o", str(folder / "together"), size=size)
    assert ranks.wait() == [0] * size, ranks.said(0)
    own, other = ((folder / name).read_text("utf-8") for name in ("together", "alone"))
    if form == "jsonl":  # the last digits of a score depend on the number of threads on CPUs without AVX-512
        own, other = (re.sub(r"(\.\d{4})\d+", r"\1", text) for text in (own, other))
    assert own == other
    loaded, summary = ranks.said(0)
    assert f"on cpu, {size} processes, beam 3, " in loaded and "13 lines in" in summary
    assert not any(ranks.said(rank) for rank in range(1, size))


def test_distilled_text_is_shared_and_goes_on_when_a_process_is_killed(folder: Path) -> None:
    source = ["--source", str(folder / "in"), "--n-best", "2", "-o"]
    assert distill.main([str(folder / "run"), *source, str(folder / "alone"), "--device", "cpu"]) == 0
    arguments = [str(folder / "run"), *source, str(folder / "together")]
    killed = Ranks(2, distill_run, arguments, 1, folder=folder / "killed", timeout=5)
    assert killed.wait()[0] == -9 and not (folder / "together.de").exists()
    ranks = Ranks(2, distill_run, arguments, None, folder=folder / "said")
    assert ranks.wait() == [0, 0], ranks.said(0)
    for language in ("en", "de"):
        assert (folder / f"together.{language}").read_bytes() == (folder / f"alone.{language}").read_bytes()
    assert "nmt-distill: resumes after 6 of 13 lines" in ranks.said(0)
    assert not ranks.said(1)


def test_an_ensemble_is_shared_as_a_model_is(folder: Path) -> None:
    make_run(folder / "other", steps=[30], best=[30])
    common = (str(folder / "other"), "-i", str(folder / "in"))
    assert translate.main([str(folder / "run"), *common, "-o", str(folder / "alone"), "--device", "cpu"]) == 0
    ranks = start(folder, *common, "-o", str(folder / "together"), size=2)
    assert ranks.wait() == [0] * 2, ranks.said(0)
    assert (folder / "together").read_bytes() == (folder / "alone").read_bytes()
    loaded, summary = ranks.said(0)
    assert "an ensemble of 2 models (" in loaded and "13 lines in" in summary and "by 2 models" in summary


def test_standard_input_cannot_be_shared(folder: Path) -> None:
    ranks = start(folder, "-o", str(folder / "out"), size=2)
    assert ranks.wait() == [2, 2]
    assert "give it with -i" in ranks.said(0)[-1]
    assert not (folder / "out").exists()


def test_an_error_of_one_leaves_no_output(folder: Path) -> None:
    """Rank 1 sees another file of that name."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/in").write_text("a\n")
    tricks = {0: ("elsewhere", folder), 1: ("elsewhere", folder / "elsewhere")}
    arguments = [str(folder / "run"), "-i", "in", "-o", str(folder / "out")]
    ranks = Ranks(2, translate_run, arguments, tricks, folder=folder / "said")
    assert ranks.wait() == [1, 1]
    assert "not all processes have the same text to translate" in "".join(ranks.said(0) + ranks.said(1))
    assert not (folder / "out").exists()
