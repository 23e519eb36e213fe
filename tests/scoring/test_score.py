"""nmt-score: a number for each pair, and the perplexity of the corpus."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from nmt.scoring import command as score
from tests.tiny_run import make_run

SOURCE = ["a b c", "", "d", "a b unknown"]
TARGET = ["x y", "z", "", "u v nothing"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, lines in (("s", SOURCE), ("t", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]


def test_one_number_for_each_pair(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([run, *files]) == 0
    out, err = capsys.readouterr()
    means = [float(line) for line in out.splitlines()]
    assert len(means) == 4
    assert all(mean > 0 for mean in means)
    tokens = [3, 2, 1, 4]
    corpus = sum(mean * count for mean, count in zip(means, tokens, strict=True)) / 10
    summary = err.splitlines()[-1]
    assert f"perplexity {math.exp(corpus):.3f}" in summary
    assert "4 sentences, 10 target tokens" in summary
    assert "10.00% are not in the vocabulary" in summary
    assert "2 with an empty side, scored as the end symbol alone" in summary


def test_json(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([run, *files]) == 0
    means = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert score.main([run, *files, "--json", "--batch-tokens", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["scores"] == pytest.approx(means, abs=2e-6)
    assert record["perplexity"] == pytest.approx(math.exp(record["mean_nll"]))
    assert (record["sentences"], record["tokens"], record["unknown"], record["empty"]) == (4, 10, 1, 2)


def test_another_checkpoint_scores_differently(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([run, *files]) == 0
    best = capsys.readouterr().out
    assert score.main([run, *files, "--checkpoint", "last"]) == 0
    assert capsys.readouterr().out != best


def test_unequal_files(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[3]).write_text("x\n")
    assert score.main([run, *files]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "has 4 lines but" in err
    assert err.count("\n") == 1


def test_no_pairs(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in (files[1], files[3]):
        Path(name).write_text("")
    assert score.main([run, *files]) == 1
    assert "the corpus is empty" in capsys.readouterr().err


def test_the_option_model_is_an_alias(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for arguments in ([run, *files], ["--model", run, *files], [*files, run], [run, run, *files]):
        assert score.main(arguments) == 0
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1 and outputs[0].count("\n") == 4
    assert score.main([run, *files, "--model", "a", "b"]) == 2
    said = capsys.readouterr().err
    assert said == f"nmt-score: --model a b: MODEL {run} is also given; use one of the two\n"
    assert score.main(files) == 2
    assert capsys.readouterr().err.startswith("nmt-score: MODEL is missing; write it before the options")


def test_one_pair_is_one_sentence(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "st":
        (tmp_path / name).write_text("\n")
    assert score.main([run, "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]) == 0
    assert "; 1 sentence, 1 target token with end symbols" in capsys.readouterr().err


def test_usage(run: str, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([run, "--source", files[1]]) == 2
    assert score.main([run, "--source", files[1], "--target", "nowhere"]) == 1
    assert "nowhere: no such file" in capsys.readouterr().err
