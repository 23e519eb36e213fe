"""nmt-light: one line for each line, whatever the lines are, and one line for each mistake."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.light import Request, Translator, command
from nmt.light import lines as pace
from nmt.light.binding import Results
from nmt.light.lines import Pace, windows
from nmt.light.translator import EngineError
from tests.conftest import HANGS
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import pieces

REPOSITORY = Path(__file__).parents[2]
ONE, TWO = "\u4e01", "\u4e02\u4e03"  # pieces of the model
RUN = """
import os, sys
from pathlib import Path
import nmt.light.translator as translator
translator.shared_library = lambda: Path(os.environ["ENGINE"])
from nmt.light.command import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = make_model(section())
    path = tmp_path_factory.mktemp("model") / "model.nmt"
    vocabularies = pieces(own.source_vocab_size), pieces(own.target_vocab_size)
    path.write_bytes(content_of(own, subwords=vocabularies))
    return path


@pytest.fixture
def run(engine: Path, model: Path, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command in this process, on a file with these bytes: exit code, lines, what is said."""
    monkeypatch.setattr("nmt.light.translator.shared_library", lambda: engine)

    def called(text: bytes | None, *arguments: object, models: tuple[object, ...] = (model,)) -> Any:
        given = [] if text is None else ["-i", str(tmp_path / "input")]
        (tmp_path / "input").write_bytes(text or b"")
        code = command.main([*map(str, models), *given, *map(str, arguments)])
        said = capfd.readouterr()
        return code, said.out, said.err

    return called


def process(engine: Path, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    environment = {**os.environ, "ENGINE": str(engine)}
    given = [sys.executable, "-c", RUN, *map(str, arguments)]
    return subprocess.Popen(given, env=environment, stderr=subprocess.PIPE, **options)


def test_a_line_for_each_line(run: Any, engine: Path, model: Path) -> None:
    text = f"{ONE}\r\n\n \n{TWO} {ONE}\u2028{ONE}\n{ONE}"
    code, out, err = run(text.encode())
    with Translator(model, library=engine) as translator:
        expected = [translator.translate(line).text for line in (ONE, "", " ", f"{TWO} {ONE}\u2028{ONE}", ONE)]
        assert len(set(expected)) > 2
    assert (code, out) == (0, "".join(f"{line}\n" for line in expected))
    first, last = err.splitlines()
    assert first.startswith(f"nmt-light: {model}, ") and last.startswith("nmt-light: 5 lines in ")
    assert "; 2 empty" in last
    assert run(b"") == (0, "", run(b"")[2])


def test_a_file_of_prefixes_has_one_for_each_line(run: Any, engine: Path, model: Path, tmp_path: Path) -> None:
    file, lines, prefixes = (
        tmp_path / "prefixes",
        [ONE, TWO, "", ONE] * 20,
        ["\u4e05 ", "", "\u4e03", "\u4e02\u4e03"] * 20,
    )
    file.write_text("".join(f"{prefix}\n" for prefix in prefixes))
    text = "".join(f"{line}\n" for line in lines).encode()
    code, out, _ = run(text, "--prefix", file)
    with Translator(model, library=engine) as translator:
        asked = [Request(line, prefix=prefix) for line, prefix in zip(lines, prefixes, strict=True)]
        assert (code, out.splitlines()) == (0, [one.text for one in translator.translate(asked, scores=False)])
        given = translator.translate(lines, prefix=prefixes, scores=False)
        assert out.splitlines() == [one.text for one in given]
        with pytest.raises(EngineError, match=f"prefix: 1 for {len(lines)} texts; give one for each"):
            translator.translate(lines, prefix=["x"])
    assert all(line.startswith(prefix.strip()) for line, prefix in zip(out.splitlines(), prefixes, strict=True))
    for wrong, said in (
        (text + b"\n", f"{file}: has fewer lines than the input; there must be one for each"),
        (b"\n", f"{file}: has more than 1 line, those of the input"),
    ):
        code, _, err = run(wrong, "--prefix", file)
        assert code == 1 and err.splitlines()[-1] == f"nmt-light: {said}"
    file.write_bytes(b"\n" * 39 + b"\xff\n")
    assert f"{file}, line 40: not UTF-8" in run(b"a\n" * 40, "--prefix", file)[2]


def test_a_file_of_constraints_has_an_object_for_each_line(run: Any, engine: Path, model: Path, tmp_path: Path) -> None:
    file, prefixes, lines = tmp_path / "constraints", tmp_path / "prefixes", [ONE, TWO, ONE, TWO] * 20
    text = "".join(f"{line}\n" for line in lines).encode()
    with Translator(model, library=engine) as translator:
        plain = translator.texts(lines)
        words = [(one.split() or ["b"])[0] for one in plain]
        wishes = [
            {"prefix": "\u4e03 "},
            {},
            {"avoid": [words[2], "zz"]},
            {"forbid": words[3], "target_prefix": "\u4e05"},
        ] * 20
        file.write_text("".join(json.dumps(own) + "\n" if own else "\n" for own in wishes))
        code, out, _ = run(text, "--constraints", file)
        asked = [
            Request(
                line,
                prefix=own.get("prefix", own.get("target_prefix", "")),
                forbidden=own.get("avoid", own.get("forbid", ())),
            )
            for line, own in zip(lines, wishes, strict=True)
        ]
        assert (code, out.splitlines()) == (0, [one.text for one in translator.translate(asked, scores=False)])
    found = out.splitlines()
    assert found[0].startswith("\u4e03") and found[1] == plain[1]
    assert words[2] not in found[2].split() and words[3] not in found[3].split()
    prefixes.write_text("x\n" * 80)
    for written, said in (
        ('{"forbid": 3}', f"{file}, line 2: forbid: 3 is neither a text nor a list of texts"),
        ('{"forbd": "x"}', f"{file}, line 2: 'forbd' is not a known key. Did you mean 'forbid'?"),
        ('{"require": "x"}', f"{file}, line 2: require: nmt-light does not have it; use nmt-translate with the run"),
        ('{"prefix": "a b", "forbid": "b"}', f"{file}, line 2: forbidden: 'b' is in the prefix"),
        ('{"forbid": " "}', f"{file}, line 2: forbidden: a phrase is empty"),
    ):
        file.write_text(f"\n{written}\n" + "\n" * 78)
        code, _, err = run(text, "--constraints", file)
        assert code == 1 and err.splitlines()[-1].startswith(f"nmt-light: {said}")
    file.write_text('{"prefix": "y"}\n' * 80)
    code, _, err = run(text, "--constraints", file, "--prefix", prefixes)
    assert code == 1 and f"{file}, line 1: prefix: is also given in {prefixes}, line 1; give one of the" in err


def test_a_glossary_is_a_file(run: Any, engine: Path, model: Path, tmp_path: Path) -> None:
    terms, text = tmp_path / "terms.tsv", f"{ONE} <b>{TWO}</b>\n".encode()
    terms.write_text(f"{ONE}\tA b\n")
    code, out, _ = run(text, "--glossary", terms, "--placeholders")
    with Translator(model, library=engine) as translator:
        (wanted,) = translator.texts([text.decode().strip()], glossary=terms, placeholders=True)
    assert (code, out) == (0, f"{wanted}\n") and "A b" in out and "<b>" in out
    code, _, err = run(text, "--glossary", terms, "-o", terms)
    assert code and f"{terms}" in err and terms.read_text() == f"{ONE}\tA b\n"
    terms.write_text("a\n")
    code, _, err = run(text, "--glossary", terms)
    assert (code, err) == (1, f"nmt-light: {terms}, line 1: 'a' is not a term, a tab and its translation\n")
    assert run(text, "--glossary", "none")[0] == 0


def test_samples_and_entropies(run: Any, engine: Path, model: Path) -> None:
    text = f"{ONE}\n{TWO} {ONE}\n".encode()
    given = ("--search", "sample", "--n-best", 5, "--search-option", "seed=4", "--search-option", "top_p=0.9")
    code, out, err = run(text, *given, "--format", "jsonl", "--with", "entropies,tokens")
    assert code == 0 and "5 samples a line" in err.splitlines()[0] and "widens" not in err
    found = [json.loads(line)["translations"] for line in out.splitlines()]
    with Translator(model, library=engine) as translator:
        options: dict[str, Any] = {"search": "sample", "n_best": 5, "details": ["entropies"]}
        for seed, same in ((4, True), (5, False)):
            results = translator.translate(
                [ONE, f"{TWO} {ONE}"], search_options={"seed": seed, "top_p": 0.9}, **options
            )
            assert (
                [[one.text for one in own.n_best] for own in results] == [[one["text"] for one in own] for own in found]
            ) == same
        assert translator.beam_size(search="sample", n_best=7, beam_size=2) == 7
    assert all(len(one["token_entropies"]) == len(one["tokens"]) for own in found for one in own)
    assert all(0 <= value < 10 for own in found for one in own for value in one["token_entropies"])
    for arguments, said in (
        (("--search-option", "seed"), "argument --search-option: 'seed' must be KEY=VALUE, such as temperature=0.7"),
        (("--search-option", "seed=1"), "--search-option: seed: only the search 'sample' has it"),
        (
            ("--search", "sample", *("--search-option", "top_p=2")),
            "--search-option: top_p: 2 is not allowed. Allowed: ",
        ),
        (("--search", "sample", *("--search-option", "seed=1") * 2), "--search-option: an option is given twice"),
    ):
        code, _, err = run(text, *arguments)
        assert code == 2 and err.startswith(f"nmt-light: {said}") and err.count("\n") == 1


def test_options_of_the_search_are_those_of_the_translator(run: Any, engine: Path, model: Path) -> None:
    text = "".join(f"{chr(0x4E00 + i % 12)}{chr(0x4E00 + 5 * i % 12)}\n" for i in range(40))
    with Translator(model, library=engine) as translator:
        for arguments, options in (
            (("--beam-size", 1), {"beam_size": 1}),
            (("--beam-size", 3, "--length-penalty", 2.5), {"beam_size": 3, "length_penalty": 2.5}),
            (("--max-length-offset", 1, "--threads", 2), {"max_length_offset": 1, "threads": 2}),
            (("--split-long", 1, "--kernels", "plain"), {"split_long": 1}),
            (("--search", "beam", "--beam-size", 1), {"search": "beam", "beam_size": 1}),
        ):
            found = run(text.encode(), "-q", *arguments)[1]
            assert found.splitlines() == translator.texts(text.splitlines(), **options)


def test_calls_of_the_engine_stay_short(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal has its effect after one; what is written does not depend on them."""
    lines = [f"{chr(0x4E00 + i % 12)}{chr(0x4E00 + 5 * i % 12)}\n".encode() for i in range(2100)]
    sizes, found = list[int](), Translator.found

    def called(self: Translator, lines: Sequence[bytes], **options: Any) -> Results:
        if lines:  # otherwise only the options are checked
            sizes.append(len(lines))
        return found(self, lines, **options)

    def ended(self: Translator, lines: Sequence[bytes], **options: Any) -> Results:
        results = called(self, lines, **options)
        if lines:
            os.kill(os.getpid(), signal.SIGTERM)
        return results

    monkeypatch.setattr(Translator, "found", called)
    written: list[str] = []
    for seconds, expected in ((9.0, [16, 32, 64, 128, 256, 512, 1000, 92]), (0.0, [16, 8, 4, 2, 1, 1, 1])):
        monkeypatch.setattr(pace, "SHORT", seconds)
        monkeypatch.setattr(pace, "LONG", seconds)
        sizes.clear()
        code, out, _ = run(b"".join(lines[: sum(expected)]), "--format", "jsonl", "--beam-size", 1)
        assert (code, sizes, out.count("\n")) == (0, expected, sum(expected))
        written.append(out)
    assert written[0].startswith(written[1])
    monkeypatch.setattr(Translator, "found", ended)
    sizes.clear()
    assert run(b"".join(lines), "-q") == (143, "", "nmt-light: terminated\n")
    assert sum(sizes) <= 16


def test_few_lines_at_a_time_do_not_make_calls_larger() -> None:
    """What a person types says nothing about the time of a call of many lines."""
    own = Pace()
    for _ in range(9):
        own.add(1, 0.01)
    assert own.lines == 16


def test_odd_lines_are_counted_and_named(run: Any) -> None:
    long = "".join(chr(0x4E00 + i % 12) for i in range(30))
    text = f"{ONE}\n{long}\n".encode() + b"\xff\xfe\n" + f"{ONE}\n".encode()
    code, out, err = run(text, "-q", "--errors", "replace", "--split-long", 20, "--max-length-offset", 0)
    assert (code, out.count("\n")) == (0, 4)
    assert "; 1 line translated in parts (--split-long): 2" in err
    assert "; 1 line not UTF-8, such bytes replaced by U+FFFD: 3" in err
    code, out, err = run(text, "-q", "--errors", "empty")
    assert code == 0 and out.split("\n")[2] == "" and "1 line not UTF-8, read as empty: 3" in err


def test_a_line_that_is_not_utf8_ends_it_after_those_before(run: Any) -> None:
    code, out, err = run(f"{ONE}\n{TWO}\n".encode() + b"a\xc3(\n" + ONE.encode(), "-q")
    assert (code, out.count("\n")) == (1, 2)
    assert "line 3: not UTF-8 (byte 0xc3 at position 2 of the line)" in err


def test_packed_text_and_a_file_as_output(run: Any, tmp_path: Path) -> None:
    expected = run(f"{ONE}\n{TWO}\n".encode())[1]
    (tmp_path / "text.gz").write_bytes(gzip.compress(f"{ONE}\n{TWO}\n".encode()))
    (tmp_path / "out").write_text("before")
    (tmp_path / "out").chmod(0o640)
    assert run(None, "-q", "-i", tmp_path / "text.gz", "-o", tmp_path / "out")[:2] == (0, "")
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    (tmp_path / "text.gz").write_bytes(gzip.compress(f"{ONE}\n".encode() * 999)[:-30])
    code, _, err = run(None, "-q", "-i", tmp_path / "text.gz", "-o", tmp_path / "out")
    assert code == 1 and "text.gz: not a readable gzip file" in err
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input", "out", "text.gz"]


def test_what_a_killed_process_has_left_is_no_obstacle(run: Any, tmp_path: Path) -> None:
    left = tmp_path / f".out.{os.getpid()}"
    left.write_text("part", encoding="utf-8")
    for name in ("out", "o" * 255):
        assert run(f"{ONE}\n".encode(), "-q", "-o", tmp_path / name)[:2] == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").count("\n") == 1
    assert left.read_text(encoding="utf-8") == "part"
    assert len(list(tmp_path.iterdir())) == 4  # with the input


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--beam-size", "0"], 2, "--beam-size: 0 is not allowed. Allowed: 1 to 1,000."),
        (["--beam-size", "many"], 2, "argument --beam-size: 'many' is not a whole number (--help lists all options)"),
        (["--split-long", "x"], 2, "argument --split-long: 'x' is not a whole number, or none (--help lists all op"),
        (["--length-penalty", "nan"], 2, "--length-penalty: nan is not allowed. Allowed: 0 to 10."),
        (
            ["--search", "greedy", "--beam-size", "2"],
            2,
            "--search: 'greedy' follows one hypothesis: beam_size must be 1",
        ),
        (["--kernels", "sse9"], 2, "--kernels: 'sse9' is not known, or this processor lacks them. Allowed: "),
        (["--threads", "0"], 2, "--threads: 0 is not allowed. Allowed: 1 to 1,024."),
        (["--beam", "2"], 2, "unrecognized arguments: --beam 2 (--help lists all options)"),
        (["-i", "none.txt"], 1, "none.txt: no such file"),
        (["-i", "."], 1, ".: cannot be read (Is a directory)"),
        (["-o", "."], 1, ".: is a directory; give the name of a file"),
        (["-o", "none/out"], 1, "none/out: cannot be written (No such file or directory)"),
        (["-o", "out.gz"], 2, "out.gz: output is not packed; leave out .gz"),
        (["-o", "MODEL"], 2, "MODEL: is also the input; choose another output file"),
    ],
)
def test_a_mistake_is_one_line(run: Any, model: Path, arguments: list[str], code: int, said: str) -> None:
    given = [str(model) if one == "MODEL" else one for one in arguments]
    found, out, err = run(None, "-q", *given)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"nmt-light: {said}".replace("MODEL", str(model)))


def test_the_file_of_standard_input_is_not_overwritten(engine: Path, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(f"{ONE}\n", encoding="utf-8")
    for option in ("-o", "--alignment"):
        with text.open("rb") as stream, process(engine, model, "-q", option, text, stdin=stream) as running:
            assert running.stderr
            said = f"nmt-light: {text}: is also the input; choose another output file\n"
            assert (running.wait(HANGS), running.stderr.read().decode()) == (2, said)
        assert text.read_text(encoding="utf-8") == f"{ONE}\n"
    with Path(os.devnull).open("rb") as stream, process(engine, model, "-q", "-o", os.devnull, stdin=stream) as running:
        assert running.wait(HANGS) == 0


def test_no_model_of_an_ensemble_is_overwritten(run: Any, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.nmt"
    other.write_bytes(model.read_bytes())
    for option in ("-o", "--alignment"):
        said = f"nmt-light: {other}: is also the input; choose another output file\n"
        assert run(ONE.encode(), "-q", option, other, models=(model, other)) == (2, "", said)
    assert other.read_bytes() == model.read_bytes()


def test_help_ends_with_examples_that_parse(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--help"]) == 0
    text = capfd.readouterr().out
    assert text.endswith(f"\n\n{command.EXAMPLES}\n") and max(map(len, text.splitlines())) < 80
    examples = command.EXAMPLES.splitlines()[1:]
    assert examples
    for example in examples:
        words = shlex.split(example)
        words = words[words.index("nmt-light") + 1 :]
        ends = [place for place, word in enumerate(words) if word in ("<", ">")]
        command.build_parser().parse_args(words[: min(ends, default=len(words))])


def test_a_model_that_there_is_not(run: Any, model: Path) -> None:
    for models in (("none.nmt",), (model, "none.nmt")):
        assert run(None, "-q", models=models) == (1, "", "nmt-light: none.nmt: No such file or directory\n")


def test_who_sends_a_line_and_waits_has_its_answer(engine: Path, model: Path) -> None:
    with process(engine, model, "-q", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin and running.stdout and running.stderr
        for line in (ONE, "", TWO):
            running.stdin.write(f"{line}\n".encode())
            running.stdin.flush()
            assert running.stdout.readline().endswith(b"\n")
        running.send_signal(signal.SIGTERM)
        assert (running.wait(HANGS), running.stderr.read()) == (143, b"nmt-light: terminated\n")


@contextlib.contextmanager
def children_begin_with(number: int, what: Any) -> Iterator[None]:
    """What a signal does in processes that are started in the block, wherever the tests run."""
    before = signal.signal(number, what)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there are no terminals that hang up here")
def test_a_terminal_that_hangs_up_ends_it_but_not_under_nohup(engine: Path, model: Path) -> None:
    with children_begin_with(signal.SIGHUP, signal.SIG_DFL):
        running = process(engine, model, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with running:
        assert running.stderr
        running.stderr.readline()  # that it is ready
        running.send_signal(signal.SIGHUP)
        assert (running.wait(60), running.stderr.read()) == (129, b"nmt-light: hung up\n")
    with children_begin_with(signal.SIGHUP, signal.SIG_IGN):
        running = process(engine, model, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with running:
        assert running.stdin and running.stdout and running.stderr
        running.stderr.readline()
        running.send_signal(signal.SIGHUP)
        running.stdin.write(f"{ONE}\n".encode())
        running.stdin.close()
        assert running.stdout.read().endswith(b"\n") and running.wait(60) == 0


def test_a_closed_standard_output_is_an_error(engine: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"{ONE}\n", encoding="utf-8")
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", RUN, model, "-q", "-i", tmp_path / "text"]
    environment = {**os.environ, "ENGINE": str(engine)}
    done = subprocess.run(closed, env=environment, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and done.stderr.startswith(b"nmt-light: standard output: cannot be written (")


def test_a_line_without_a_translation_is_an_error_at_the_end(run: Any, tmp_path: Path) -> None:
    own = make_model(section())
    with torch.no_grad():
        own.embeddings.source[4 + ord(ONE) - 0x4E00] = 3e38  # as `pieces` numbers characters
    vocabularies = pieces(own.source_vocab_size), pieces(own.target_vocab_size)
    (tmp_path / "odd.nmt").write_bytes(content_of(own, subwords=vocabularies))
    code, out, err = run(f"{TWO}\n{ONE}\n{TWO}\n".encode(), "-q", models=(tmp_path / "odd.nmt",))
    first, second, third, end = out.split("\n")
    assert (code, second, end) == (1, "", "") and first == third != ""
    assert "; 1 line has no translation with a finite score: 2;" in err
    assert run(f"{TWO}\n".encode(), "-q", models=(tmp_path / "odd.nmt",))[:2] == (0, f"{first}\n")


def test_a_pipe_that_does_not_block_is_waited_for(engine: Path, model: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with process(engine, model, stdin=reading, stdout=subprocess.PIPE) as running:
        os.close(reading)
        assert running.stdout and running.stderr
        running.stderr.readline()  # that it is ready
        for line in (ONE, TWO):
            time.sleep(0.3)  # in which it finds nothing to read
            os.write(writing, f"{line}\n".encode())
            assert running.stdout.readline().endswith(b"\n")
        os.close(writing)
        assert (running.wait(HANGS), running.stdout.read()) == (0, b"")
        assert b"nmt-light: 2 lines in " in running.stderr.read()


def test_a_signal_ends_what_takes_long(engine: Path, model: Path, tmp_path: Path) -> None:
    """The text is translated in one call of the engine, which would take far longer than this test waits."""
    (tmp_path / "text").write_text(f"{ONE}\n" * 50_000, encoding="utf-8")
    options = ("--beam-size", "500", "-i", tmp_path / "text", "-o", tmp_path / "out")
    with process(engine, model, *options) as running:
        assert running.stderr
        running.stderr.readline()  # that it is ready
        time.sleep(0.3)
        running.send_signal(signal.SIGTERM)
        try:
            assert (running.wait(HANGS), running.stderr.read()) == (143, b"nmt-light: terminated\n")
        finally:
            running.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_ctrl_c_and_a_reader_that_goes_away(engine: Path, model: Path, tmp_path: Path) -> None:
    with children_begin_with(signal.SIGINT, signal.default_int_handler):  # which jobs in the background ignore
        running = process(engine, model, "-o", tmp_path / "out", stdin=subprocess.PIPE)
    with running:
        assert running.stdin and running.stderr
        running.stderr.readline()  # that it is ready
        running.send_signal(signal.SIGINT)
        assert (running.wait(HANGS), running.stderr.read()) == (130, b"nmt-light: interrupted\n")
    assert not list(tmp_path.iterdir())
    (tmp_path / "text").write_text(f"{ONE}\n" * 2500, encoding="utf-8")
    reading, writing = os.pipe()
    os.close(reading)
    with process(engine, model, "-q", "-i", tmp_path / "text", stdout=writing) as running:
        assert running.stderr
        os.close(writing)
        assert (running.wait(HANGS), running.stderr.read()) == (141, b"")


def test_a_disk_that_is_full_is_said(engine: Path, model: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with process(engine, model, "-q", stdin=subprocess.PIPE, stdout=Path("/dev/full").open("wb")) as running:
        _, err = running.communicate(f"{ONE}\n".encode(), HANGS)
    assert running.returncode == 1 and err.startswith(b"nmt-light: standard output: cannot be written (")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_an_error(option: str, unbuffered: str) -> None:
    called = [sys.executable, "-m", "nmt.light.command", option]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("nmt-light: standard output: cannot be written (")


def test_it_waits_for_none_of_the_slow_imports() -> None:
    package = Path(command.__file__).parents[1]  # so that what is above it is not imported, either
    code = f"import sys; sys.path.append({str(package)!r}); import light.command; print(*sorted(sys.modules))"
    bare = [sys.executable, "-I", "-S", "-c", code]
    loaded = set(subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {"typing", "pathlib", "dataclasses", "inspect", "json", "gzip", "shutil", "torch", "numpy"}


def test_a_carriage_return_belongs_to_the_end_of_a_line_and_to_no_other(tmp_path: Path) -> None:
    """A last line without an end keeps it, as text that a line feed will end."""
    (tmp_path / "text").write_bytes(b"one\r\n\r\r\ntw\ro\nthree\r")
    assert sum(windows(str(tmp_path / "text"), Pace()), []) == [b"one", b"\r", b"tw\ro", b"three\r"]


def test_lines_longer_than_any_text_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nmt.light.lines.LONGEST_LINE", 10)
    monkeypatch.setattr("nmt.light.lines._BLOCK", 4)
    (tmp_path / "text").write_bytes(b"one\ntwo three\n" + b"x" * 40 + b"\nrest")
    seen = []
    with pytest.raises(EngineError, match=r"text, line 3: longer than \d+ MiB; is it text\?$"):
        for lines in windows(str(tmp_path / "text"), Pace()):
            seen += lines
    assert seen == [b"one", b"two three"]


def test_live_a_word_in_gives_a_word_out(engine: Path, model: Path) -> None:
    """Before the next word is sent; a part of a character waits; each line has a line, and is a session of its own."""
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with process(engine, model, "--live", "wait_k,wait=1", bufsize=0, **pipes) as started:
        assert started.stdin is not None and started.stdout is not None
        started.stdin.write(ONE.encode())
        first = started.stdout.read(1)
        for byte in f"{TWO} \r\n\n{TWO}".encode():
            started.stdin.write(bytes([byte]))
        rest, said = started.communicate()
    with Translator(model, library=engine) as translator:
        sessions = [translator.live("wait_k,wait=1") for _ in range(2)]
        lines = [one.feed(text) + one.end() for one, text in zip(sessions, (f"{ONE}{TWO} ", TWO), strict=True)]
    assert (first + rest).decode().split("\n") == [lines[0], "", lines[1], ""] and lines[0] and lines[1]
    assert started.returncode == 0 and b"3 lines live in" in said


@pytest.mark.parametrize(
    ("given", "text", "code", "said"),
    [
        (["wait_k,3"], b"", 2, "--live: 3: is not an option of wait_k. Allowed: wait.\n"),
        (["wait_k", "--n-best", "2"], b"", 2, "--n-best: does not go together with --live\n"),
        (["wait_k", "--split", "sentences"], b"", 2, "--split: does not go together with --live\n"),
        (["wait_k", "--format", "jsonl"], b"", 2, "--format: does not go together with --live\n"),
        (["wait_k", "--errors", "empty"], b"", 2, "--errors empty: does not go together with --live. Allowed: strict,"),
        (["wait_k", "--beam-size", "0"], b"", 2, "--beam-size: 0 is not allowed"),
        (["wait_k"], b"a\xffb", 1, "input: byte 0xff is not UTF-8, or see --errors\n"),
        (["wait_k", "--errors", "replace", "-q"], b"a\xffb", 0, ""),
    ],
)
def test_what_live_refuses(given: list[str], text: bytes, code: int, said: str, run: Any) -> None:
    found, out, err = run(text, "--live", *given)
    assert (found, bool(out)) == (code, not code) and said in err
