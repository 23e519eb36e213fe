"""Prefixes, phrases, searches and ensembles on the command line; what is wrong is named with file and line."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate
from nmt.cli.arguments import ensemble_weights
from nmt.cli.lines import RequestReader
from nmt.errors import DataError
from nmt.evaluating import command as evaluate
from nmt.scoring import command as score
from nmt.search.values import Request
from tests.tiny_run import make_run

LINES = ["a b c", "", "d", "a b"]

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(make_run(tmp_path_factory.mktemp("runs") / "run"))] * 2


@pytest.fixture
def text(tmp_path: Path) -> str:
    return write(tmp_path / "text.en", LINES)


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def run(models: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """nmt-translate of the text, or of another one; its lines."""

    def call(*options: str, source: str = text, count: int = 1) -> list[str]:
        assert translate.main([*models[:count], "-i", source, *options]) == 0
        return capsys.readouterr().out.splitlines()

    return call


def test_prefixes_are_a_line_for_a_line(run: Run, tmp_path: Path) -> None:
    plain = run()
    prefixes = write(tmp_path / "prefix", ["w x", "y", "", "u"])
    found = run("--prefix", prefixes)
    assert [line.startswith(start) for line, start in zip(found, ["w x", "y", "", "u"], strict=True)] == [True] * 4
    assert found[1] == "y" and found[2] == plain[2]


def test_constraints_are_a_line_for_a_line(run: Run, tmp_path: Path) -> None:
    plain = run()
    first = plain[0].split()[0]
    wishes = [json.dumps({"forbid": [first]}), "", json.dumps({"target_prefix": "z"}), json.dumps({"avoid": "x"})]
    found = run("--constraints", write(tmp_path / "c.jsonl", wishes))
    assert first not in found[0].split() and found[2].startswith("z") and "x" not in found[3].split()
    objects = [
        {"text": "a b c", "forbid": [first]},
        None,
        {"text": "d", "prefix": "z"},
        {"text": "a b", "avoid": ["x"]},
    ]
    lines = ["" if one is None else json.dumps(one) for one in objects]
    assert run("--input-format", "jsonl", source=write(tmp_path / "in.jsonl", lines)) == found
    assert (
        run("--prefix", write(tmp_path / "p", ["", "", "", "w"]), "--constraints", str(tmp_path / "c.jsonl"))[:3]
        == found[:3]
    )


def test_the_same_for_several_windows_and_a_pipe(tmp_path: Path) -> None:
    reader = RequestReader("-", prefix=write(tmp_path / "p", ["x", "", "y"]))
    found = [*reader.requests(["a", "b"]), *reader.requests(["c"])]
    assert [one.prefix for one in found if isinstance(one, Request)] == ["x", "", "y"]
    reader.finish()
    assert RequestReader("-").requests(LINES) is LINES


def test_a_prefix_in_both_files_is_an_error(tmp_path: Path) -> None:
    files = {"prefix": write(tmp_path / "p", ["", "x"]), "constraints": write(tmp_path / "c", ['{"prefix": "y"}'] * 2)}
    reader = RequestReader("in", **files)
    (first,) = reader.requests(["a"])
    assert isinstance(first, Request) and first.prefix == "y"
    with pytest.raises(DataError, match=rf"^{tmp_path}/c, line 2: prefix: is also given in {tmp_path}/p, line 2; give"):
        reader.requests(["b"])


def test_tabs_are_those_of_fairseq() -> None:
    assert RequestReader("f", input_format="tsv").requests(["a b\tx y\tz", "c"]) == [
        Request(text="a b", required=("x y", "z"), where="f, line 1"),
        Request(text="c", where="f, line 2"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not a JSON object: '{\"text\": \"a\"' (Expecting ',' delimiter, column 13)"),
        ('["a"]', "not a JSON object: '[\"a\"]'"),
        ('{"prefix": "a"}', "the key 'text' is missing"),
        ('{"text": 3}', "text: 3 is not a text"),
        ('{"text": "a", "forbd": "x"}', "'forbd' is not a known key. Did you mean 'forbid'? Allowed: text, prefix, re"),
        ('{"text": "a", "forbid": 3}', "forbid: 3 is neither a text nor a list of texts"),
        ('{"text": "a", "forbid": [3]}', "forbid: 3 is not a text"),
        ('{"text": "a", "forbid": "x", "avoid": "y"}', "'avoid' is given twice"),
        ('{"text": "\\ud800"}', "text: '\\ud800' is not Unicode text"),
        ("[" * 100_000, "not a JSON object: '[[["),
    ],
)
def test_a_malformed_line_is_named(line: str, message: str) -> None:
    reader = RequestReader("in.jsonl", input_format="jsonl")
    with pytest.raises(DataError) as error:
        reader.requests(['{"text": "a"}', line])
    assert str(error.value).startswith(f"in.jsonl, line 2: {message}")


def fails(
    capsys: pytest.CaptureFixture[str], arguments: list[str], *, code: int = 2, main: Any = translate.main
) -> str:
    """The error, which is the only line but for the one that names the model."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    *before, error = err.splitlines(keepends=True)
    assert out == "" and all(" on cpu, " in line for line in before)
    return error


def test_files_of_other_lengths(
    models: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lines, found in ((3, "3"), (5, "5")):
        path = write(tmp_path / "p", ["x"] * lines)
        error = fails(capsys, [models[0], "-i", text, "--prefix", path], code=1)
        assert f"{text} has 4 lines but {path} has {found}; there must be one for each line" in error
        reader = RequestReader("standard input", prefix=path)
        with pytest.raises(
            DataError, match=f"{path} has (3 lines but standard input has more|more than the 4 lines of)"
        ):
            reader.requests(LINES)
            reader.finish()
    error = fails(capsys, [models[0], "-i", text, "--prefix", str(tmp_path / "none")], code=1)
    assert f"{tmp_path / 'none'}: no such file" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--search-option", "temperatur=2"], "--search-option temperatur: unknown key. Did you mean 'temp"),
        (["--search-option", "temperature"], "--search-option temperature: must be KEY=VALUE, such as temperature=0.7"),
        (["--search-option", "a=1", "--search-option", "a=2"], "--search-option a: given twice"),
        (
            ["--search", "sample", "--search-option", "top_p=2"],
            "--search-option top_p: must be above 0 and at m",
        ),
        (
            ["--search", "greedy", "--beam-size", "1", "--search-option", "temperature=2"],
            "--search-option temperature: unknown key",
        ),
        (["--min-length", "9"], "--min-length: 9 must not exceed 4, which max_length_offset and max_length_factor"),
        (["--search", "sample", "--coverage-penalty", "1"], "--coverage-penalty: 'sample' has none; beam, diverse_b"),
        (["--search", "greedy", "--beam-size", "4"], "--search: 'greedy' follows one hypothesis: beam_size must be 1"),
        (["--language-model-weight", "1"], "--language-model-weight: has no effect without decoding.language_model"),
        (["--checkpoint", "foo"], "--checkpoint: 'foo' is not allowed. Allowed: best, last, or a step such as"),
        (["--ensemble-weights", "2,1"], "--ensemble-weights: 2 weights for 1 model; give one for each"),
        (["--ensemble-mean", "log_probabilities"], "--ensemble-mean: there is only 1 model; give several"),
        (
            ["--input-format", "jsonl", "--constraints", "x"],
            "--constraints: not allowed with --input-format jsonl, whose",
        ),
    ],
)
def test_options_without_sense_are_one_line(
    models: list[str], text: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(capsys, [models[0], "-i", text, *options]).startswith(f"nmt-translate: {message}")


def test_a_prefix_with_a_forbidden_word_names_file_and_line(
    models: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c", ["", "", '{"prefix": "x y", "forbid": "y"}', ""])
    error = fails(capsys, [models[0], "-i", text, "--constraints", path], code=1)
    assert error == f"nmt-translate: {path}, line 3: forbidden: 'y' is in the prefix, 'x y'\n"


def test_bytes_of_prefixes_and_constraints_that_are_not_utf8(
    models: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix, constraints = tmp_path / "p", tmp_path / "c"
    prefix.write_bytes(b"y\nx\n\nz\xff\n")
    constraints.write_bytes(b'\n\n{"prefix": "z\xff"}\n\n')
    arguments = [models[0], "-q", "-i", text, "--prefix", str(prefix), "--constraints", str(constraints)]
    assert f"{constraints}, line 3: not UTF-8 (byte 0xff at" in fails(capsys, arguments, code=1)
    starts = {"replace": ("z\ufffd", "z\ufffd"), "empty": ("", "")}
    fates = {"replace": "such bytes replaced by U+FFFD", "empty": "read as empty"}
    for policy, fate in fates.items():
        assert translate.main([*arguments, "--errors", policy, "--format", "jsonl"]) == 0
        captured = capsys.readouterr()
        assert captured.err.splitlines()[-2:] == [
            f"nmt-translate: {prefix}: 1 line not UTF-8, {fate}: 4",
            f"nmt-translate: {constraints}: 1 line not UTF-8, {fate}: 3",
        ]
        reader = RequestReader("-", prefix=str(prefix), constraints=str(constraints), policy=policy)
        requests = reader.requests(LINES)
        assert [one.prefix or "" for one in requests if isinstance(one, Request)] == ["y", "x", *starts[policy]]


def test_searches_and_their_options(run: Run) -> None:
    sample = ("--search", "sample", "--n-best", "3", "--search-option", "temperature=2", "--search-option", "seed=5")
    first = run(*sample)
    assert len(first) == 12 and first == run(*sample) != run(*sample[:-1], "seed=6")
    assert run("--search", "noisy_beam", "--search-option", "noise_scale=3.5") != run()
    least = run("--min-length", "3", "--no-repeat-ngram", "1")
    assert all(len(line.split()) >= 3 and len(set(line.split())) == len(line.split()) for line in least if line)


def test_the_weights_of_an_ensemble(
    run: Run, models: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = [f"{models[0]}/checkpoints/step-{step}" for step in (10, 20)]
    target = write(tmp_path / "t", ["x y", "", "z", "u v"])

    def scores(*options: str) -> list[float]:
        assert score.main([*checkpoints, "--source", text, "--target", target, *options]) == 0
        return [float(line) for line in capsys.readouterr().out.splitlines()]

    equal = scores()
    assert scores("--ensemble-weights", "3,3") == pytest.approx(equal, abs=2e-6)
    assert scores("--ensemble-weights", "none") == equal
    assert scores("--ensemble-weights", "9,1") != pytest.approx(equal, abs=1e-3)
    assert scores("--ensemble-mean", "log_probabilities") != pytest.approx(equal, abs=1e-3)
    assert "2 weights for 3 models" not in fails(
        capsys, [*checkpoints, "--source", text, "--target", target, "--ensemble-weights", "1,2,3"], main=score.main
    )
    arguments = ["+".join(checkpoints), "--source", text, "--ref", target, "--json"]
    assert evaluate.main([*arguments, "--ensemble-weights", "9,1", "--no-repeat-ngram", "2"]) == 0
    error = fails(capsys_cleared(capsys), [*arguments, "--ensemble-weights", "1"], main=evaluate.main)
    assert error == "nmt-eval: --ensemble-weights: 1 weight for 2 models; give one for each\n"
    error = fails(capsys, ["--hyp", target, "--ref", target, "--search-option", "seed=1"], main=evaluate.main)
    assert error.startswith("nmt-eval: --search-option: allowed only with MODEL")


def capsys_cleared(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


def test_weights_are_numbers_above_0() -> None:
    assert ensemble_weights("2,1.5") == [2.0, 1.5] and ensemble_weights("none") == "none"
    for wrong in ("", "2,", "2,0", "a", "2;1", "nan", "inf,1"):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape("is not one number above 0 for each model")):
            ensemble_weights(wrong)
