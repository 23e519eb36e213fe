"""Where outputs go: plain files of the user's own are replaced, all else is written in place, by any command."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import translate
from nmt.corpora import command as data
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.light.errors import EngineError
from nmt.light.output import Output, Written, descriptor_of
from nmt.optimization import average
from nmt.ranking import command as rank
from nmt.synthetic import distill
from tests.quick_python import quick_python
from tests.tiny_run import make_run

PYTHON = " ".join(quick_python())
COMMAND = [*quick_python(), "-m", "nmt.corpora.command", "split", "-o"]
"""A command that starts fast; all have the same writer."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_run(tmp_path_factory.mktemp("runs") / "run"))


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=os.environ)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
def test_standard_output_by_its_names_is_appended_to(name: str, tmp_path: Path) -> None:
    (tmp_path / "all").write_text("before\n")
    for count in (1, 2):
        with (tmp_path / "all").open("ab") as stream:
            subprocess.run([*COMMAND, name], input=b"One. Two.\n", stdout=stream, stderr=subprocess.PIPE, check=True)
        assert (tmp_path / "all").read_text() == "before\n" + "One.\nTwo.\n" * count


def test_another_descriptor_and_a_pipe_of_the_shell(tmp_path: Path) -> None:
    command = f"{sys.executable} -m nmt.corpora.command split -o"
    done = shell(
        f"echo 'One. Two.' | {command} /dev/fd/7 7>>seven; echo A. | {command} >(cat > eight); sleep 0.5", tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seven").read_text() == "One.\nTwo.\n"
    assert (tmp_path / "eight").read_text() == "A.\n"


def test_a_fifo_and_a_device(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    with Output(str(fifo), read=()) as output:
        output.write(b"text\n")
    reader.join(10)
    assert read == [b"text\n"] and stat.S_ISFIFO(fifo.stat().st_mode)
    with Output("/dev/null", read=()) as output:
        output.write(b"text\n")


def test_a_plain_file_is_replaced_at_the_end_and_keeps_what_belongs_to_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 4321, 1234)
    before, link = file.stat(), tmp_path / "link"
    link.symlink_to(file)
    with Output(str(link), read=()) as output:
        output.write(b"new")
        assert file.read_text() == "old"
    after = file.stat()
    assert file.read_text() == "new" and link.is_symlink()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    with pytest.raises(RuntimeError), Output(str(file), read=()) as output:
        output.write(b"newer")
        raise RuntimeError
    assert file.read_text() == "new" and sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("refused", ["os.replace", "os.chown", "os.chmod"])
def test_what_cannot_be_replaced_is_written_into(refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file that is mounted by itself, or one of another owner."""
    file = tmp_path / "file"
    file.write_text("old and longer")
    if os.geteuid() == 0:
        os.chown(file, 4321, 1234)
    elif refused == "os.chown":
        pytest.skip("only root can make a file of another owner")
    inode = file.stat().st_ino

    def fails(*_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(refused, fails)
    written = Written(str(file))
    written.stream.write(b"new")
    assert file.read_text() == "old and longer"
    written.finish()
    assert file.read_text() == "new" and file.stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who cannot write to a folder")
def test_a_file_in_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine").write_text("old")
    (folder / "theirs").write_text("old")
    os.chown(folder / "mine", 65534, 65534)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)

    def as_nobody(name: str) -> str | None:
        child = (
            "import os, sys, tempfile, nmt.light.translator\n"
            "from nmt.light.output import Output; os.setegid(65534); os.seteuid(65534)\n"
            "with Output(sys.argv[1], read=()) as output:\n    output.write(b'new')"
        )
        done = subprocess.run([sys.executable, "-c", child, str(folder / name)], capture_output=True, text=True)
        return done.stderr.splitlines()[-1] if done.returncode else None

    assert as_nobody("mine") is None and (folder / "mine").read_text() == "new"
    assert "cannot be written (Permission denied)" in str(as_nobody("theirs"))
    assert "cannot be written (Permission denied)" in str(as_nobody("new"))
    assert (folder / "theirs").read_text() == "old" and len(list(folder.iterdir())) == 2


def test_a_descriptor_is_told_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("")
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "loop").symlink_to("loop")
    assert (
        descriptor_of(str(tmp_path / "1"))
        is descriptor_of("nowhere/2")
        is descriptor_of(str(tmp_path / "loop"))
        is None
    )
    assert descriptor_of(str(tmp_path / "link")) == descriptor_of("/dev/stdout") == 1
    assert descriptor_of("/dev/stderr") == 2
    with pytest.raises(EngineError, match="cannot be written"):
        Output("/dev/fd/987", read=())


def test_a_dash_is_standard_output_once(
    run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, hypothesis, lists = tmp_path / "in", tmp_path / "hyp", tmp_path / "list"
    text.write_text("a b\n")
    hypothesis.write_text("x\n")
    lists.write_text("0 ||| x y ||| s= 1 ||| 1\n")
    assert translate.main([run, "-i", str(text), "-o", "-"]) == 0
    translation = capfd.readouterr().out
    assert translation.count("\n") == 1
    assert translate.main([run, "-i", str(text), "-o", "out", "--alignment", "-"]) == 0
    assert "-" in capfd.readouterr().out and Path("out").read_text() == translation
    assert rank.main([str(lists), "--weights", "s=1", "-o", "-"]) == 0
    assert capfd.readouterr().out == "x y\n"
    wrong: Any = [
        (translate.main, [run, "-i", str(text), "--alignment", "-"], "--alignment -: is also the output"),
        (translate.main, [run, "-i", str(text), "-o", "-", "--alignment", "-"], "--alignment -: is also the output"),
        (evaluate.main, [run, "--source", str(text), "--ref", str(hypothesis), "-o", "-"], "-o -: standard output has"),
        (
            evaluate.main,
            [run, "--source", str(text), "--ref", str(hypothesis), "-o", "/dev/fd/1"],
            "-o /dev/fd/1: standard output has",
        ),
        (export.main, [run, "-o", "-"], "'-' is standard output, which cannot be written here"),
        (average.main, [run, "--last", "2", "-o", "-"], "'-' is standard output"),
        (distill.main, [run, "--train", "x", "-o", "-"], "'-' is standard output"),
        (data.main, ["clean", "x", "-o", "-"], "'-' is standard output"),
    ]
    for main, arguments, said in wrong:
        try:
            assert main(arguments) == 2
        except SystemExit as stop:
            assert stop.code == 2
        assert said in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hyp", "in", "list", "out"]


NAMES = [(["-o", "-"], "-"), ([], "-"), (["-o", "-"], "/dev/stdout"), ([], "/dev/fd/1"),
    (["-o", "/dev/stdout"], "/proc/self/fd/1"), (["-o", "link"], "-"), ([], "same")]  # fmt: skip
FAST = {("| cat", 0), ("| cat", 3), ("> same", 4), ("> same", 5), ("> same", 6), (">> same", 6)}


@pytest.mark.parametrize(
    ("target", "output", "alignment"),
    [
        pytest.param(target, *names, marks=() if (target, place) in FAST else pytest.mark.slow)
        for place, names in enumerate(NAMES)
        for target in ("> same", ">> same" if names[1] == "same" else "| cat")
    ],
)
def test_two_outputs_are_not_mixed(run: str, tmp_path: Path, output: list[str], alignment: str, target: str) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    words = " ".join([run, *output, "--alignment", alignment, "--device cpu --quiet"])
    done = shell(
        f"echo a b | {' '.join(quick_python())} -m nmt.cli.translate {words} {target}; echo ${{PIPESTATUS[1]}}",
        tmp_path,
    )
    assert done.stderr == f"nmt-translate: --alignment {alignment}: is also the output; choose another file\n"


@pytest.mark.parametrize("name", ["", "-o -", "-o /dev/stdout"])
def test_standard_output_that_is_the_input_would_never_end(name: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("One. Two.\n")
    done = shell(
        f"timeout 60 {' '.join(quick_python())} -m nmt.corpora.command split -i text {name} >> text; echo $?", tmp_path
    )
    assert "is also the input (text)" in done.stderr and (tmp_path / "text").read_text() == "One. Two.\n"
    assert done.stdout == "2\n"


def test_files_of_a_prefix_are_written_as_other_outputs(tmp_path: Path) -> None:
    for language, line in (("en", "The bear sleeps."), ("de", "Der Bär schläft.")):
        (tmp_path / f"t.{language}").write_text(f"{line}\n", encoding="utf-8")
    kept, linked, link = tmp_path / "out.en", tmp_path / "linked", tmp_path / "out.de"
    kept.write_text("old")
    kept.chmod(0o640)
    linked.write_text("old")
    link.symlink_to(linked)
    command = ["clean", str(tmp_path / "t"), "--languages", "en", "de", "-o", str(tmp_path / "out"), "--overwrite"]
    assert data.main(command) == 0
    assert kept.read_text() == "The bear sleeps.\n" and stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert link.is_symlink() and linked.read_text(encoding="utf-8") == "Der Bär schläft.\n"
