"""nmt-translate, nmt-eval and nmt-check with a file for the engine: what the run gives, refusals, streams, start-up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nmt import load
from nmt.cli import translate
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.library import light
from nmt.light import lines as pace
from nmt.run_check import command as check
from nmt.scoring import command as score
from tests.conftest import HANGS
from tests.exported_run import LINES, Exported, make_exported

HEAVY = ("torch", "numpy", "pydantic", "yaml", "sentencepiece", "tqdm")
LATE = (*HEAVY, "concurrent", "difflib", "gzip", "importlib.metadata", "logging", "platform", "random", "subprocess")
LATE = (*LATE, "tempfile", "textwrap", "threading", "traceback", "nmt.config", "nmt.interop.model_dir", "nmt.ops")
"""What takes time to import, and a line of text by a file does not need."""
TRANSLATE = "from nmt.cli.translate import main; main([sys.argv[1], '-q', '-o', '/dev/null'])"
LOAD = "import nmt; nmt.load(sys.argv[1]).translate('of b')"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return make_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.en"
    path.write_bytes(("\n".join(LINES) + "\nof a\r\nlast\u2028line").encode())
    return path


def run_and_file(
    exported: Exported, text: Path, capfd: pytest.CaptureFixture[str], *options: str
) -> tuple[tuple[int, str, list[str]], tuple[int, str, list[str]]]:
    """What the command does with either: exit code, output, and the messages but for names, places and times."""
    found = []
    for model, more in ((exported.run, ("--device", "cpu", "--precision", "fp32")), (exported.file, ())):
        code = translate.main([model, "-i", str(text), *options, *more])
        out, err = capfd.readouterr()
        found.append((code, out, [line.partition(" a second)")[2] or line for line in err.splitlines()]))
    return found[0], found[1]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--n-best", "3", "-q"),
        ("--n-best", "5", "-q"),
        ("--beam-size", "1", "--search", "greedy", "--max-length-offset", "0", "-q"),
        ("--split-long", "5", "--length-penalty", "0", "-q"),
        ("--shortlist", "none", "--split-long", "none", "--batch-tokens", "auto", "--min-length", "0", "-q"),
    ],
    ids=" ".join,
)
def test_output_is_that_of_the_run(
    exported: Exported, text: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    by_run, by_file = run_and_file(exported, text, capfd, *options)
    assert by_file[:2] == by_run[:2] and by_run[0] == 0 and len(by_run[1]) > 50
    first = 0 if "-q" in options else 1  # names the model
    assert by_file[2][first:] == by_run[2][first:] and (by_run[2] or "-q" in options)


def test_n_best_lists_are_those_of_the_run(exported: Exported, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (_, by_run, _), (_, by_file, _) = run_and_file(exported, text, capfd, "--format", "moses", "--n-best", "3")
    lists = [[line.split(" ||| ") for line in out.split("\n")[:-1]] for out in (by_file, by_run)]
    for found, wanted in zip(*lists, strict=True):
        assert found[:2] == wanted[:2] and len(found) == 4
        check_close(float(found[3]), float(wanted[3]))
        assert found[2] == f"score= {found[3]}"


def test_a_record_for_each_line_is_that_of_the_run(
    exported: Exported, text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--format", "jsonl", "--with", "tokens,scores,attention,alignment", "--n-best", "2", "--split-long", "6")
    (_, by_run, _), (_, by_file, _) = run_and_file(exported, text, capfd, *options)
    for found, wanted in zip(by_file.split("\n")[:-1], by_run.split("\n")[:-1], strict=True):
        check_close(json.loads(found), json.loads(wanted))


def test_words_in_which_normalisation_puts_spaces_are_aligned_as_by_the_run(
    exported: Exported, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["don\u00b4t stop", "a\u200bb c", "of a\u00a8b \u2026 x\u00b8y longaer sentence of by", "a \u00ad b"]
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for options in ((), ("--split-long", "6")):
        given = ("--format", "jsonl", "--with", "alignment", "--n-best", "3", *options)
        (_, by_run, _), (_, by_file, _) = run_and_file(exported, text, capfd, *given)
        for line, found, wanted in zip(lines, *(out.split("\n")[:-1] for out in (by_file, by_run)), strict=True):
            alignments = [
                [own["alignment"] for own in json.loads(record)["translations"]] for record in (found, wanted)
            ]
            assert alignments[0] == alignments[1] and all(alignments[0])
            assert all(source < len(line.split()) for own in alignments[0] for source, _ in own)


def check_close(found: Any, wanted: Any) -> None:
    """The same but for rounding of numbers."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for own, other in zip(found, wanted, strict=True):
            check_close(own, other)
    else:
        assert found == (pytest.approx(wanted, abs=1e-3) if isinstance(wanted, float) else wanted)


def test_the_summary_counts_what_is_odd(exported: Exported, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "odd"
    text.write_bytes(b"a\xff\n\n" + b"sentence of " * 60 + b"\n\xe4\xb8\x80 b\n")
    options = ("--errors", "replace", "--max-length-offset", "0", "--split-long", "110")
    by_run, by_file = run_and_file(exported, text, capfd, *options)
    assert by_file[:2] == by_run[:2] and by_file[2][1:] == by_run[2][1:]
    assert "1 empty" in by_file[2][-1] and "longer than training allowed" in by_file[2][-1]
    assert "length limit" in by_file[2][-1] and "not UTF-8" in by_file[2][-1] and "split_long" in by_file[2][-1]
    assert translate.main([exported.file, "-i", str(text)]) == 1
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"nmt-translate: {text}, line 1: not UTF-8")


def test_lines_of_other_formats_without_and_with_wishes(
    exported: Exported, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts, lines = tmp_path / "lines.jsonl", [{"text": line} for line in LINES]
    lines += [{"text": "a b", "prefix": "x "}, {"text": LINES[0], "forbid": ["b", "B"]}]
    texts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    by_run, by_file = run_and_file(exported, texts, capfd, "--input-format", "jsonl", "-q")
    assert by_file == by_run and by_run[0] == 0
    for form, line, problem in (
        ("jsonl", '{"text": "b", "require": ["x"]}', f"required: {exported.file} is one file for the engine"),
        ("jsonl", '{"text": "b", "prefix": "x y", "forbid": ["X"]}', "forbidden: 'x' is in the prefix"),
        ("tsv", "b\tx", f"required: {exported.file} is one file for the engine"),
    ):
        texts.write_text(f"\n{line}\n")
        assert translate.main([exported.file, "-i", str(texts), "--input-format", form, "-q"]) == 1
        assert capfd.readouterr().err.startswith(f"nmt-translate: {texts}, line 2: {problem}")


def test_samples_with_options_are_those_of_the_run_and_of_the_library(
    exported: Exported, text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--search", "sample", "--n-best", "3"]
    arguments += ["--search-option", "temperature=0.7", "--search-option", "seed=5"]
    by_run, by_file = run_and_file(exported, text, capfd, *arguments, "--format", "text", "-q")
    assert by_file == by_run
    line = text.read_text(encoding="utf-8").split("\n")[0]
    options = {"temperature": 0.7, "seed": 5}
    found = load(exported.file).translate(line, search="sample", n_best=3, search_options=options)
    assert by_file[1].split("\n")[:3] == [sample.text for sample in found.n_best]
    for given, problem in (
        (["--search-option", "temperature=0.5"], "--search-option: temperature: only the search 'sample' has it"),
        (
            ["--search", "sample", "--search-option", "beam=2"],
            "--search-option: beam: 2 is not an option.",
        ),
    ):
        assert translate.main([exported.file, "-i", str(text), *given]) == 2
        assert problem in capfd.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--search", "noisy_beam"),
        ("--ensemble-weights", "2"),
        ("--shortlist", "words.txt"),
        ("--language-model", "lm"),
        ("--language-model-weight", "0.2"),
        ("--device", "cuda"),
        ("--plugin", "x.py"),
        ("--precision", "int8"),
        ("--checkpoint", "last"),
    ],
    ids=" ".join,
)
def test_what_a_file_does_not_have_is_refused_by_name(
    exported: Exported, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    given = [str(text) if option == "TEXT" else option for option in options]
    assert translate.main([exported.file, "-i", str(text), "-o", str(tmp_path / "out"), *given]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert options[0].removeprefix("--") in line and exported.file in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.en"]


def test_other_mistakes_are_one_line(
    exported: Exported,
    text: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = tmp_path / "damaged.nmt"
    damaged.write_bytes(Path(exported.file).read_bytes()[:-40])
    for models, code, message in (
        ([str(damaged)], 1, f"{damaged}: truncated"),
        (["gone.nmt"], 1, "gone.nmt: No such file"),
        ([exported.file, exported.run], 2, f"{exported.file}: is one file for the engine, but {exported.run} is not"),
        ([exported.file, "-o", exported.file], 1, f"{exported.file}: is a part of the model"),
        ([exported.file, "--beam-size", "5000"], 2, "--beam-size: 5000 is not allowed. Allowed: 1 to 1,000."),
        ([exported.file, "--precision", "int8"], 2, f"--precision: int8 was asked for, but {exported.file} is in fp32"),
        ([exported.file, "--ensemble-mean", "log_probabilities"], 2, "--ensemble-mean: there is only 1 model"),
        ([exported.file] * 2 + ["--ensemble-mean", "log_probabilities"], 2, "--ensemble-mean: "),
    ):
        assert translate.main([*models, "-i", str(text)]) == code
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"nmt-translate: {message}")
    assert score.main([exported.file, "--text", str(text)]) == 1
    assert "is one file for the engine, accepted only by nmt-translate, nmt-eval," in capfd.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert translate.main([exported.file, "-i", str(text)]) == 2
    assert capfd.readouterr().err.startswith(f"nmt-translate: WORLD_SIZE: {exported.file} is one file for the engine")


def test_several_files_are_an_ensemble(
    exported: Exported, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = str(tmp_path / "other.nmt")
    assert export.main([exported.run, "--checkpoint", "20", "-o", other, "--precision", "fp32"]) == 0
    outputs = []
    for models in ([exported.file, other], [f"{exported.run}/checkpoints/step-{step}" for step in (10, 20)]):
        capfd.readouterr()
        precision = [] if models[0] == exported.file else ["--precision", "fp32"]
        assert translate.main([*models, "-i", str(text), "--device", "cpu", *precision]) == 0
        outputs.append(capfd.readouterr())
    assert outputs[0].out == outputs[1].out and " by 2 models" in outputs[0].err
    assert f"an ensemble of 2 models ({exported.file}, {other}) by the engine on cpu, beam 3" in outputs[0].err


def test_scores_are_those_of_the_run(exported: Exported, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for model in (exported.run, exported.file):
        options = ["--source", str(text), "--ref", str(text), "--metrics", "chrf", "--json", "--device", "cpu"]
        assert evaluate.main([model, *options, "--precision", "fp32", "--beam-size", "2"]) == 0
        found.append(json.loads(capfd.readouterr().out))
    assert found[0] == found[1]


def test_a_file_is_checked(exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, damaged = exported.file, tmp_path / "damaged.nmt"
    content = bytearray(Path(file).read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    assert check.main([file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("holds: en to de, deepnmt gru, ") and "beam 3, length penalty" in lines[0]
    assert lines[2].startswith("translate: by the engine, in fp32, on this machine with ")
    assert lines[1:2] + lines[3:] == ["resume: a file for the engine has no training state", f"{file}: all is well"]
    assert check.main([str(damaged), file, str(tmp_path / "gone.nmt"), "--json"]) == 1
    said = capsys.readouterr()
    bad, good = map(json.loads, said.out.splitlines())
    assert good == {"file": file, "ok": True, "precision": "fp32", "problems": []}
    assert not bad["ok"] and len(bad["problems"]) == 1 and bad["problems"][0].startswith(f"{damaged}: ")
    assert said.err == f"nmt-check: {tmp_path / 'gone.nmt'}: no such file\n"


def command(exported: Exported, *options: str) -> list[str]:
    return [sys.executable, "-m", "nmt.cli.translate", exported.file, *options]


def test_nothing_heavy_is_imported(exported: Exported, text: Path) -> None:
    program = (
        "import sys; from nmt.cli import translate; from nmt.run_check import command as check; "
        "options = ['--format', 'jsonl', '--with', 'tokens,scores,attention,alignment']; "
        "code = translate.main([sys.argv[1], '-i', sys.argv[2], *options]) or check.main([sys.argv[1]]); "
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, exported.file, str(text)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    "door", ["from nmt.cli.translate import main; main([sys.argv[1], '-q', '-o', '/dev/null'])", LOAD]
)
def test_a_start_imports_only_what_a_line_needs(exported: Exported, door: str) -> None:
    program = f"import sys; {door}; print([name for name in {LATE!r} if name in sys.modules])"
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # -S: what an environment imports is not ours
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, exported.file],
        input="of b\n",
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_line_of_a_slow_pipe_is_answered_at_once(exported: Exported) -> None:
    with subprocess.Popen(command(exported, "-q"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        answers = []
        for line in (b"a longaer sentence\n", b"\n", b"of b\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answers.append(process.stdout.readline())
        process.stdin.close()
        assert process.wait(HANGS) == 0
    assert [bool(answer.strip()) for answer in answers] == [True, False, True]


def test_a_pipe_that_does_not_block_is_waited_for(exported: Exported) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with subprocess.Popen(command(exported), stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(reading)
        assert process.stdout is not None and process.stderr is not None
        assert b"by the engine" in process.stderr.readline()
        for line in (b"a longaer sentence\n", b"of b\n"):
            time.sleep(0.3)  # in which it finds nothing to read
            os.write(writing, line)
            assert process.stdout.readline().strip()
        os.close(writing)
        assert (process.wait(HANGS), process.stdout.read()) == (0, b"")


def test_no_more_is_translated_than_is_read(exported: Exported, tmp_path: Path) -> None:
    text = tmp_path / "long"
    text.write_text("a longaer sentence of ax\n" * 200_000)
    with subprocess.Popen(
        command(exported, "-i", str(text), "-q"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(HANGS) == 141 and process.stderr.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it(exported: Exported, tmp_path: Path, number: int, code: int) -> None:
    text, output = tmp_path / "long", tmp_path / "out"
    text.write_text("a longaer sentence of ax\n" * 1_000_000)
    with subprocess.Popen(command(exported, "-i", str(text), "-o", str(output)), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None and b"by the engine" in process.stderr.readline()
        time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(HANGS) == code
        assert len(process.stderr.read().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["long"]


def test_a_call_that_takes_long_is_followed_by_shorter_ones(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = light.EngineFiles([exported.file], device="cpu", precision="auto", checkpoint="best", plugins=())
    sizes: list[int] = []
    monkeypatch.setattr(pace, "SHORT", 9.0)
    files.lines(["a"] * 100, {}, on_call=sizes.append)
    assert sizes == [16, 32, 52]
    monkeypatch.setattr(pace, "SHORT", 0.0)
    monkeypatch.setattr(pace, "LONG", 0.0)
    sizes.clear()
    files.lines(["a"] * 33, {}, on_call=sizes.append)
    assert sizes == [16, 8, 4, 2, 1, 1, 1]
