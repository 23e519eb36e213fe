"""Configurations made to do harm: refused in one line, at once, and without a trace of them on the terminal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nmt.cli import train
from nmt.config import load_config
from nmt.errors import ConfigError

NAMES = "abcdefghij"
BOMB = f"a: &a [{','.join('x' * 9)}]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip(NAMES, NAMES[1:], strict=False)
)

HOSTILE = {
    "aliases for billions": (BOMB, "line 5: more than 10,000 values, aliases written out"),
    "an alias for itself": ("a: &a [*a]", "line 1: found unconstructable recursive node"),
    "deep list": ("a: " + "[" * 20_000, "line 1: nested more than 50 deep"),
    "deep mapping": ("{a: " * 20_000, "line 1: nested more than 50 deep"),
    "a tag that runs": ("a: !!python/object/apply:os.system [echo]", "line 1: tags such as tag:yaml.org,2002:python"),
    "a harmless tag": ("run_dir: x\nseed: !!int abc", "line 2: tags such as tag:yaml.org,2002:int are not allowed"),
    "a tag that raises KeyError": ("a: !!bool x", "tags such as"),
    "many keys": ("\n".join(f"k{i}: 1" for i in range(20_000)), "more than 10,000 values"),
    "10 MB": ("run_dir: " + "x" * 10_000_000, "larger than 1 MiB"),
    "a number of 5000 digits": ("run_dir: x\nseed: " + "9" * 5000, "not readable as YAML"),
    "NUL": ("run_dir: a\0b", "not readable as YAML"),
    "escaped NUL": ('run_dir: "a\\0b"', "line 1: NUL and lone surrogates are not allowed"),
    "lone surrogate": ('seed: 1\nrun_dir: "\\ud800"', "line 2: NUL and lone surrogates are not allowed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused_in_one_line_at_once(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = HOSTILE[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    started = time.process_time()
    assert train.main(["--config", str(path), "--dry-run"]) == 2
    assert time.process_time() - started < 5
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 1000
    assert f"{path}: " in said and message in said


def test_undecodable_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"run_dir: \xed\xa0\x80\n")
    with pytest.raises(ConfigError, match="bad.yaml: cannot be read: not UTF-8 text$"):
        load_config(path)


def test_names_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text('run_dir: x\n"a\\nb\\e[2J": 1\nmodel: {cell: "gru\\r\\e[31m", "\\x07": 2}\nplugins: ["a\\nb.py"]\n')
    assert train.main(["--config", str(path)]) == 2
    assert set(capsys.readouterr().err) & {"\x1b", "\r", "\x07"} == set()
    path.write_text('run_dir: x\n"a\\nb\\e[2J": 1\nmodel: {cell: "gru\\r\\e[31m", "\\x07": 2}\n')
    assert train.main(["--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert set(said) & {"\x1b", "\r", "\x07"} == set()
    assert len(said.splitlines()) == 4, "the file and three mistakes"
    assert "  a\\nb\\x1b[2J: unknown key" in said


def test_mixed_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_bytes("\ufeffrun_dir: x\r\nseed: 3\rmodel: {cell: gru}\nkernels: auto".encode())
    config = load_config(path)
    assert (config.run_dir, config.seed, config.model.cell) == ("x", 3, "gru")


def test_aliases_are_allowed_in_good_measure(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("run_dir: x\nmodel: {hidden_size: &size 64, embedding_size: *size}\n")
    assert load_config(path).model.embedding_size == 64
