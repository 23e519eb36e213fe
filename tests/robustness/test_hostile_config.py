"""Configurations made to do harm: refused in one line, at once, and without a trace of them on the terminal."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import train, translate
from nmt.config import load_config
from nmt.config.schema import SECTIONS, Config
from nmt.errors import ConfigError
from nmt.evaluating import command as evaluate
from nmt.limits import LARGEST
from nmt.registry import INITIALIZERS, OPTIMIZERS, SCHEDULES, TOKENIZERS
from nmt.training.distributed import Launch

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


def test_a_number_of_thousands_of_digits_is_one_mistake_among_others(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("run_dir: x\nseed: " + "9" * 5000 + "\nsed: " + "-" + "9" * 900, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    (_, seed, other) = str(error.value).split("\n")
    assert seed == f"  line 2: seed: '{'9' * 39} ... {'9' * 9}' is not an integer"
    assert other == "  line 3: sed: unknown key. Did you mean 'seed'?"


def test_undecodable_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"run_dir: \xed\xa0\x80\n")
    with pytest.raises(
        ConfigError,
        match="bad.yaml, line 1: not UTF-8 .byte 0xed at position 10 of the line.",
    ):
        load_config(path)


def test_names_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text('run_dir: x\n"a\\nb\\e[2J": 1\nmodel: {cell: "gru\\r\\e[31m", "\\x07": 2}\nplugins: ["a\\nb.py"]\n')
    assert train.main(["--config", str(path)]) == 2
    assert set(capsys.readouterr().err) & {"\x1b", "\r", "\x07"} == set()
    path.write_text('run_dir: x\n"a\\nb\\e[2J": 1\nmodel: {cell: "gru\\r\\e[31m", "\\x07": 2}\n')
    assert train.main(["--config", str(path), "--dump-config"]) == 2
    said = capsys.readouterr().err
    assert set(said) & {"\x1b", "\r", "\x07"} == set()
    assert len(said.splitlines()) == 4, "the file and three mistakes"
    assert "  line 2: a\\nb\\x1b[2J: unknown key" in said


def test_mixed_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_bytes("\ufeffrun_dir: x\r\nseed: 3\rmodel: {cell: gru}\nkernels: auto".encode())
    config = load_config(path)
    assert (config.run_dir, config.seed, config.model.cell) == ("x", 3, "gru")


def test_aliases_are_allowed_in_good_measure(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("run_dir: x\nmodel: {hidden_size: &size 64, embedding_size: *size}\n")
    assert load_config(path).model.embedding_size == 64


HUGE = ("9223372036854775808", "1" + "0" * 80, "-1" + "0" * 80, "1e400", "-.inf", ".nan", "1e39", "{a: 1}", "[[]]")
COMPONENTS = {
    "model.initializer": INITIALIZERS,
    "data.tokenizer": TOKENIZERS,
    "training.optimizer": OPTIMIZERS,
    "training.schedule": SCHEDULES,
}
WITHOUT_LIMIT = {"max_lr"}
"""Options for which infinity says that there is none."""


def numbers(section: type, prefix: str) -> Iterator[str]:
    """Keys of whole numbers and of numbers with a fraction; both are no tables, and below the largest that fit."""
    for field in dataclasses.fields(section):
        if re.search(r"int|float|Positive|Natural|NotNegative|Fraction|Width|Depth|Seed", str(field.type)):
            yield f"{prefix}{field.name}"


def bad_settings() -> Iterator[tuple[str, ...]]:
    """The overrides of bad configurations, the wrong one last."""
    keys = [(key,) for key in numbers(Config, "")]
    keys += [(key,) for name, section in SECTIONS.items() for key in numbers(section, f"{name}.")]
    for key, registry in COMPONENTS.items():
        for name in ("adam", "sgd", "cosine", "gnmt+", "normal", "sentencepiece", "whitespace"):
            if name in registry.names():
                options = numbers(registry.get(name).Options, f"{key}_options.")
                keys += [(f"{key}={name}", option) for option in options]
    for *before, key in keys:
        for value in HUGE:
            if not (key.rpartition(".")[2] in WITHOUT_LIMIT and value in ("1e400", "-.inf")):
                yield (*before, f"{key}={value}")


def test_every_number_has_limits_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("run_dir: x\n")
    settings, accepted = list(bad_settings()), []
    assert len(settings) > 250
    for overrides in settings:
        key = overrides[-1].partition("=")[0]
        try:
            found: Any = load_config(path, overrides)
        except ConfigError as error:
            lines = str(error).splitlines()[1:]
            named = key.rpartition(".")[2]
            assert any(re.search(rf"\b{named}\b", line) for line in lines), (overrides, lines)
            assert all(len(line) <= 160 for line in lines), lines
        else:
            for part in key.split("."):
                found = found[part] if isinstance(found, dict) else getattr(found, part)
            if not (isinstance(found, float) and abs(found) <= LARGEST):
                accepted.append(overrides[-1])
    assert accepted == []


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (translate, ("run", "--length-penalty", "500"), "--length-penalty: '500' is not a number from 0 to 10"),
        (translate, ("run", "--length-penalty", "nan"), "--length-penalty: 'nan' is not a number from 0 to 10"),
        (translate, ("run", "--beam-size", "1" + "0" * 30), "is not a whole number from 1 to 10,000"),
        (translate, ("run", "--n-best", "9" * 5000), "is not a whole number from 1 to 10,000"),
        (translate, ("run", "--max-length-offset", "9" * 10), "is not a whole number from 0 to 1,000,000"),
        (translate, ("run", "--batch-tokens", "1" + "0" * 30), "is not a whole number of 1 or more, or auto"),
        (evaluate, ("--hyp", "x", "--ref", "x", "--seed", "9" * 20), "is not a whole number from 1 to 4,294,967,295"),
        (evaluate, ("--hyp", "x", "--ref", "x", "--samples", "9" * 9), "is not a whole number from 1 to 1,000,000"),
        (train, ("--config", "x", "--max-minutes", "-1"), "is not a number of minutes above 0 and at most 10,000,000"),
        (train, ("--config", "x", "--max-minutes", "1e300"), "is not a number of minutes above 0 and at most"),
        (train, ("--config", "x", "--max-minutes", "nan"), "is not a number of minutes above 0 and at most"),
    ],
)
def test_numbers_on_the_command_line_have_limits(command, arguments, message, capsys) -> None:
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and len(said) < 250


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e400", "1e7", "", "9" * 5000])
def test_a_timeout_that_cannot_be_counted_is_refused(value: str) -> None:
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    with pytest.raises(ConfigError, match="NMT_TIMEOUT: .* Allowed: a number of seconds above 0 and at most 1e"):
        Launch.read({**torchrun, "NMT_TIMEOUT": value})
    for wrong in ("1.5", "1e400", "nan", "-1", "9" * 5000):
        with pytest.raises(ConfigError, match="RANK: .* Allowed: a whole number of 0 or more"):
            Launch.read({**torchrun, "RANK": wrong})
