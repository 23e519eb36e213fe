"""Hyper-parameters of Zero are read as data: literals of Python, JSON and key=value; every mistake is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.errors import ConfigError
from nmt.zero.settings import DEFAULTS, read_hyper_parameters


def read(*arguments: str, beside: Path = Path("nowhere"), saved: str | None = None) -> dict[str, Any]:
    return read_hyper_parameters(arguments, beside=beside, saved=saved).given


def file(folder: Path, content: str) -> str:
    (folder / "config.py").write_text(content)
    return str(folder / "config.py")


@pytest.mark.parametrize(
    "content",
    [
        'dict(\n hidden_size=64,  # wide\n cell="ATR", gpus=[0, 1],\n  ema_decay=-1., lrate=5e-4, layer_norm=True\n)',
        "{'hidden_size': 64, 'cell': 'atr', 'gpus': [0, 1], 'ema_decay': -1.0, 'lrate': 5e-4, 'layer_norm': True}",
        '{"hidden_size": 64, "cell": "Atr", "gpus": [0, 1], "ema_decay": -1, "lrate": 0.0005, "layer_norm": true}\n{',
    ],
)
def test_dictionaries(content: str, tmp_path: Path) -> None:
    wanted = {"hidden_size": 64, "cell": "atr", "gpus": [0, 1], "ema_decay": -1.0, "lrate": 5e-4, "layer_norm": True}
    if content.endswith("{"):
        (tmp_path / "param.json").write_text(content)
        assert read(beside=tmp_path) == wanted
    else:
        assert read(file(tmp_path, content)) == wanted


def test_what_comes_later_wins(tmp_path: Path) -> None:
    (tmp_path / "param.json").write_text('{"beam_size": 2, "embed_size": 3, "max_len": 4, "dropout": 0.5, "N_src": 1}')
    found = read_hyper_parameters(
        ["max_len=9,layer_norm=TRUE", file(tmp_path, "dict(embed_size=7, max_len=8)"), "model_name=DeepNMT"],
        beside=tmp_path,
    )
    assert found.given == {
        "beam_size": 2, "embed_size": 7, "max_len": 9, "dropout": 0.5, "layer_norm": True, "model_name": "deepnmt"
    }  # fmt: skip
    assert found.unknown == ("N_src",)
    assert found.complete == {**DEFAULTS, **found.given}
    assert read(beside=tmp_path, saved='{"beam_size": 6}') == {"beam_size": 6}  # what came with the arrays


@pytest.mark.parametrize(
    "content",
    [
        "__import__('os').mkdir('sprung')",
        "dict(cell=__import__('os').mkdir('sprung'))",
        "{'cell': [open('sprung', 'w')][0]}",
        "dict(**{'cell': open('sprung', 'w')})",
        "dict([('cell', open('sprung', 'w'))])",
        "(lambda: open('sprung', 'w'))() or {}",
        "{**open('sprung', 'w')}",
        "open('sprung', 'w')",
        "dict(hidden_size=2 ** 9)",
        "import os",
        "[1]",
        "",
        "(" * 300 + ")" * 300,
        "dict(hidden_size=" + "-" * 5000 + "1)",
    ],
)
def test_nothing_is_evaluated(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"config\.py(, line 1: \w+)?: .*dictionary of literals"):
        read(file(tmp_path, content))
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("hiden_size=5", "hiden_size: Zero has no such hyper-parameter. Did you mean 'hidden_size'?"),
        ("hidden_size=big", "hidden_size: 'big' is not an integer"),
        ("hidden_size=2.0", "hidden_size: 2.0 is not an integer"),
        ("hidden_size=True", "hidden_size: True is not an integer"),
        ("layer_norm=1", "layer_norm: 1 is not True or False"),
        ("dropout=1e999", "dropout: inf is not a number"),
        ("beam_size=2,beam_size=3", "beam_size: given twice"),
        ("missing.py", "missing.py: cannot be read: No such file"),
    ],
)
def test_mistakes_on_the_command_line(argument: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(argument)
    assert message in str(caught.value)


def test_all_mistakes_of_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(file(tmp_path, "dict(cel='gru', hidden_size='64', cell=3, gpus=0)"))
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'config.py'}:",
        "  cel: Zero has no such hyper-parameter. Did you mean 'cell'?",
        "  hidden_size: '64' is not an integer",
        "  cell: 3 is not text",
        "  gpus: 0 is not a list",
    ]
    (tmp_path / "param.json").write_text("not JSON")
    with pytest.raises(ConfigError, match=r"param.json: not JSON"):
        read(beside=tmp_path)
    (tmp_path / "param.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"param.json: cannot be read: not UTF-8"):
        read(beside=tmp_path)
    (tmp_path / "config.py").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        read(str(tmp_path / "config.py"))
