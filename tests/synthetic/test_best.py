"""nmt-distill --keep-best-share: which pairs stay, what is said of the others, and kills at every moment."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import nmt
from nmt.errors import ConfigError, DataError
from nmt.synthetic import distill
from nmt.synthetic.corpus import Output, Progress, Work, translate_corpus
from tests.synthetic.test_commands import folder as run_folder
from tests.synthetic.test_commands import written as written_by_command
from tests.synthetic.test_corpus import LINES, _kill_at, folder, upper, work_of, written

__all__ = ["folder", "run_folder"]


def last_digits(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Scores pairs by what their source ends with: line 10 before line 1 before line 9 and all others."""
    return [float(source[-1]) if source[-1].isdigit() else 99.0 for source, _ in pairs]


def best(folder: Path, *, share: float = 0.5) -> Work:
    return replace(work_of(folder), keep_best_share=share, scored_by=folder / "model", alignment=True)


def make(work: Work, prefix: Path) -> Progress:
    output = Output(str(prefix), work)
    progress = output.progress()
    translate_corpus(work, output, progress, upper, window=6, score=last_digits)
    return progress


def test_the_best_stay_in_their_order(folder: Path) -> None:
    progress = make(best(folder), folder / "made")
    whole = [line for line in (*LINES, "more", "and more") if line.strip() and line not in ("fails", "too long")]
    order = sorted(whole, key=lambda line: last_digits([(line, "")])[0])
    stay = set(order[: len(whole) // 2])
    assert [source for source, _ in written(folder / "made")] == [line for line in whole if line in stay]
    assert len(Path(f"{folder}/made.alignment").read_text().split("\n")) == len(stay) + 1
    counts = progress.counts
    assert (counts.pairs, counts.dropped, counts.halves, counts.highest) == (7, 7, 4, 5.0)
    names = ["made.alignment", "made.de", "made.en", "made.manifest.json"]
    assert sorted(path.name for path in folder.glob("made*")) == names


MOMENTS = 30
"""Times that something is put on disk, or gets its name."""


@pytest.mark.parametrize("when", sorted({*range(0, MOMENTS, 5), *range(MOMENTS - 7, MOMENTS + 1)}))
def test_a_kill_at_any_moment_changes_nothing(folder: Path, when: int) -> None:
    make(best(folder), folder / "whole")
    child = os.fork()
    if not child:
        _kill_at(when)
        make(best(folder), folder / "made")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if when < MOMENTS else 0)
    make(best(folder), folder / "made")
    for suffix in ("en", "de", "alignment", "manifest.json"):
        assert Path(f"{folder}/made.{suffix}").read_bytes() == Path(f"{folder}/whole.{suffix}").read_bytes()
    assert len([*folder.glob("made*")]) == 4


def test_scores_that_are_known_are_not_computed_again(folder: Path) -> None:
    calls = list[int]()

    def fails(pairs: Sequence[tuple[str, str]]) -> list[float]:
        calls.append(len(pairs))
        if len(calls) == 1:
            raise DataError("no more memory")
        return last_digits(pairs)

    for _ in range(3):
        work = best(folder)
        output = Output(str(folder / "made"), work)
        progress = output.progress()
        try:
            translate_corpus(work, output, progress, upper, window=6, score=fails)
        except DataError:
            assert not (folder / "made.en").exists()
    assert calls == [14, 14]


def test_what_is_refused(folder: Path, run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="keep_best_share: 1 must be above 0 and below 1"):
        best(folder, share=1.0)
    make(best(folder), folder / "made")
    with pytest.raises(ConfigError, match=r"keep_best_share: 0.5 -> 0.25"):
        make(best(folder, share=0.25), folder / "made")
    assert distill.main(["run", "-o", "made/x", "--train", "text/train", "--keep-best-share", "0.5"]) == 2
    assert "--keep-best-share: needs a model of the other direction: give scored_by" in capsys.readouterr().err
    options = ("--keep-best-share", "0.5", "--scored-by", "run")
    assert distill.main(["run", "-o", "made/x", "--train", "text/train", *options]) == 2
    assert "translates from en to de as the teacher does; a model from de to en is needed" in capsys.readouterr().err


def test_the_command_keeps_what_a_model_of_the_other_direction_finds_probable(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distill.main(["run", "-o", "made/all", "--train", "text/train"]) in (0, 1)
    whole = [pair for pair in written_by_command("made/all") if all(pair)]
    shutil.copytree("run", "reverse")
    for config in Path("reverse").glob("**/config.yaml"):
        text = config.read_text(encoding="utf-8").replace("source_language: en", "source_language: de")
        config.write_text(text.replace("target_language: de", "target_language: en"), encoding="utf-8")
    with nmt.load("reverse") as model:
        scores = [-one.score for one in model.score([target for _, target in whole], [source for source, _ in whole])]
    highest = sorted(scores)[len(whole) // 2 - 1]
    capsys.readouterr()
    options = ("--keep-best-share", str((len(whole) // 2) / len(whole)), "--scored-by", "reverse")
    assert distill.main(["run", "-o", "made/best", "--train", "text/train", *options]) in (0, 1)
    kept = [pair for pair, score in zip(whole, scores, strict=True) if score <= highest]
    assert written_by_command("made/best") == kept
    said = capsys.readouterr().err
    assert f"{len(whole) - len(kept)} pairs with a cross entropy above {highest:.3f} dropped" in said
