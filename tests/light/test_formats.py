"""nmt-light writes what nmt-translate writes with the same file: formats, lists of translations, details, notes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt.light
from nmt.cli import translate
from nmt.exporting import command as export
from nmt.interop.engine.opened import compiled_engine
from nmt.light import command
from tests.conftest import REPOSITORY
from tests.exported_run import LINES, Exported, make_exported
from tests.light.file_parts import with_sections

Run = Callable[..., tuple[int, str, str]]
DETAILS = ("--format", "jsonl", "--with", "tokens,scores,attention,alignment")
ODD = b"a\xff of b\n" + b"sentence of " * 60 + b"\n\n\xe4\xb8\x80 b\r\nof a\x0blongaer\xe2\x80\xa8line\xff"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return make_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture
def both(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What both commands do: exit code, output, and the messages behind the times; asserts that they agree."""
    monkeypatch.setattr("nmt.light.translator.shared_library", compiled_engine)

    def run(*arguments: str) -> tuple[int, str, str]:
        found = []
        for main in (command.main, translate.main):
            code = main(arguments)
            out, err = capfd.readouterr()
            said = err.replace("(--split-long)", "(decoding.split_long)").replace("nmt-light: ", "nmt-translate: ")
            found.append((code, out, re.sub(r"(?s)^.* a second\)( by \d models)?", "", said)))
        assert found[0] == found[1]
        return found[0]

    return run


def records_of(out: str) -> list[dict[str, Any]]:
    """Those of --format jsonl."""
    return [json.loads(line) for line in out.split("\n")[:-1]]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--n-best", "1", "--format", "text"),
        ("--n-best", "3"),
        ("--n-best", "5", "--length-penalty", "2"),
        ("--n-best", "3", "--max-length-offset", "0", "--split-long", "5"),
        ("--format", "moses"),
        ("--format", "moses", "--n-best", "7", "--beam-size", "2"),
        ("--format", "jsonl"),
        ("--format", "jsonl", "--n-best", "2", "--split-long", "6", "--max-length-offset", "1"),
        ("--format", "jsonl", "--search", "greedy", "--beam-size", "1"),
        DETAILS,
        (*DETAILS, "--n-best", "3", "--split-long", "6"),
        (*DETAILS[:3], "alignment"),
        (*DETAILS[:3], "scores, tokens,scores"),
    ],
    ids=" ".join,
)
def test_lines_in_every_format(exported: Exported, both: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "text").write_bytes("\n".join(LINES).encode())
    code, out, _ = both(exported.file, "-i", str(tmp_path / "text"), "-q", *options)
    assert code == 0 and out.count("\n") >= len(LINES)
    if "jsonl" in options:
        records = records_of(out)
        assert [record["line"] for record in records] == list(range(len(LINES)))
        assert ("attention" in records[0]["translations"][0]) == ("tokens,scores,attention,alignment" in options)


@pytest.mark.parametrize("options", [(), ("--n-best", "2"), ("--format", "jsonl"), DETAILS, ("--split-long", "5")])
def test_alignments_in_a_file(exported: Exported, both: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Both write the same, and nothing else changes by it."""
    (tmp_path / "text").write_bytes("\n".join(LINES).encode())
    arguments = (exported.file, "-i", str(tmp_path / "text"), "-q", *options)
    assert both(*arguments, "--alignment", str(tmp_path / "both")) == both(*arguments)
    found = []
    for main in (command.main, translate.main):
        assert main([*arguments, "-o", str(tmp_path / "out"), "--alignment", str(tmp_path / "aligned")]) == 0
        found.append((tmp_path / "aligned").read_text(encoding="utf-8"))
        (tmp_path / "aligned").unlink()
    assert found[0] == found[1]
    assert found[0].count("\n") == len(LINES)
    for name in ("out", "new"):
        one = ["-o", str(tmp_path / name), "--alignment", f"{tmp_path}/./{name}"]
        for main in (command.main, translate.main):
            assert main([*arguments, *one]) == 2
    assert not (tmp_path / "new").exists()
    _, out, _ = both(*arguments[:4], "--format", "jsonl", "--with", "alignment", *(options if "5" in options else ()))
    pairs = [record["translations"][0]["alignment"] for record in records_of(out)]
    assert found[0] == "".join(" ".join(f"{a}-{b}" for a, b in own) + "\n" for own in pairs)


@pytest.mark.parametrize("policy", ["replace", "empty"])
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_odd_lines(exported: Exported, both: Run, tmp_path: Path, policy: str, form: str) -> None:
    (tmp_path / "text").write_bytes(ODD)
    options = ("--errors", policy, "--format", form, "--max-length-offset", "0", "--split-long", "110")
    code, out, err = both(exported.file, "-i", str(tmp_path / "text"), *options)
    assert code == 0 and (f"; {'1' if policy == 'replace' else '3'} empty" in err) and "; 2 lines not UTF-8" in err
    assert "longer than training allowed" in err and "stopped at the length limit" in err
    if form == "jsonl":
        notes = [record.get("notes", []) for record in records_of(out)]
        assert {"not_utf8", "split", "length_limit", "longer_than_training"} == {note for own in notes for note in own}
        assert notes[0][0] == "not_utf8" and notes[2] == []


def test_lines_that_are_longer_than_any_of_the_ensembles_training(
    exported: Exported, both: Run, tmp_path: Path
) -> None:
    """Of the model whose training had the shortest; a card that is no JSON says nothing and keeps nobody from work."""
    content, files = Path(exported.file).read_bytes(), list[str]()
    for number, card in enumerate(({"longest_training_source": 50}, {"longest_training_source": 4}, None)):
        files.append(str(tmp_path / f"{number}.nmt"))
        written = b"{" if card is None else json.dumps(card).encode()
        Path(files[-1]).write_bytes(with_sections(content, META=written))
    (tmp_path / "text").write_text("a\na longaer sentence of ax\n", encoding="utf-8")
    _, out, err = both(*files, "-i", str(tmp_path / "text"), "--format", "jsonl", "--n-best", "2")
    assert [record["notes"] for record in records_of(out)] == [
        ["length_limit"],
        ["length_limit", "longer_than_training"],
    ]
    assert err.endswith("; 1 line longer than any in training (4 tokens): 2\n")


def test_parts_are_compared_with_the_training_one_by_one(exported: Exported, both: Run, tmp_path: Path) -> None:
    """As they are what the model reads; what is as long as the longest of the training is not longer."""
    (tmp_path / "text").write_text("a longaer sentence of ax. c longber sentence of by b.\n" * 2, encoding="utf-8")
    with nmt.light.Translator(exported.file, library=compiled_engine()) as translator:
        longest = translator.translate((tmp_path / "text").read_text(encoding="utf-8").split("\n")[0]).source_tokens
    for limit, noted in ((longest, False), (longest - 1, True)):
        written = json.dumps({"longest_training_source": limit}).encode()
        file = tmp_path / f"{limit}.nmt"
        file.write_bytes(with_sections(Path(exported.file).read_bytes(), META=written))
        arguments = (str(file), "-i", str(tmp_path / "text"), "--format", "jsonl", "--max-length-offset", "50")
        whole, parts = (
            {note for record in records_of(both(*arguments, "--split-long", split)[1]) for note in record["notes"]}
            for split in ("none", str(longest - 1))
        )
        assert ("longer_than_training" in whole) == noted
        assert "split" in parts and "longer_than_training" not in parts


def test_an_ensemble(exported: Exported, both: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = str(tmp_path / "other.nmt")
    assert export.main([exported.run, "--checkpoint", "20", "-o", other, "--precision", "int8"]) == 0
    capfd.readouterr()
    (tmp_path / "text").write_bytes("\n".join(LINES).encode())
    assert both(exported.file, other, "-i", str(tmp_path / "text"), "-q", *DETAILS, "--n-best", "2")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--with", "tokens"), "--with: allowed only with --format jsonl, not text"),
        (("--with", "token", "--format", "jsonl"), "argument --with: 'token' is not known."),
        (("--format", "json"), "argument --format: invalid choice: 'json' (choose from "),
        (("--n-best", "0"), "--n-best"),
        (("--n-best", "1001"), "--n-best"),
        (("--n-best", "2", "--search", "greedy", "--beam-size", "1"), "--n-best"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(
    exported: Exported,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr("nmt.light.translator.shared_library", compiled_engine)
    for name, main in (("nmt-light", command.main), ("nmt-translate", translate.main)):
        capfd.readouterr()
        assert main([exported.file, *arguments]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1) and err.startswith(f"{name}: ") and said in err


def test_a_wider_beam_is_said(exported: Exported, capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nmt.light.translator.shared_library", compiled_engine)
    (tmp_path / "text").write_text("a\n", encoding="utf-8")
    for arguments, line in (
        (("--n-best", "7"), "--n-best 7 widens the beam from 3 to 7"),
        (("--n-best", "3", "--beam-size", "2"), "--n-best 3 widens the beam from 2 to 3"),
        (("--n-best", "3"), None),
    ):
        for name, main in (("nmt-light", command.main), ("nmt-translate", translate.main)):
            assert main([exported.file, "-i", str(tmp_path / "text"), *arguments]) == 0
            said = capfd.readouterr().err.splitlines()
            assert (said[0] == f"{name}: {line}") if line else len(said) == 2


def test_the_guides_commands_are_commands() -> None:
    text = (REPOSITORY / "docs/light.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:echo .* \| )?nmt-light (.*?)(?: <.*|#.*)?$", text, re.M)
    assert len(lines) == 5
    for line in lines:
        parsed = command.build_parser().parse_args(shlex.split(line))
        assert all(name.endswith(".nmt") for name in parsed.models)


def test_the_guides_program_runs(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (REPOSITORY / "docs/light.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    shutil.copyfile(exported.file, tmp_path / "model.nmt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "nmt_light", nmt.light)  # as the wheel calls it
    monkeypatch.setattr("nmt.light.translator.shared_library", compiled_engine)
    exec(program, {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("en ")
