"""README.md and the pages that continue it are true: commands run, configurations load, examples do what is said."""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml

from nmt.config import load_config
from nmt.registry import CELLS
from tests.conftest import REPOSITORY, page_of
from tests.console import call, entry_points, parser_of
from tests.tiny_training import write_config, write_corpus

PAGES = (
    "README.md",
    "docs/commands.md",
    "docs/configuring.md",
    "docs/installing.md",
    "docs/several_gpus.md",
    "docs/units.md",
    "docs/from_zero.md",
)
README = "\n".join(page_of(name) for name in PAGES)
"""What is tested here; tests/zero/test_guide.py has more of the last one."""
GUIDE = page_of("docs/fast_translation.md")
TINY = {
    "model.hidden_size": 8,
    "model.embedding_size": 8,
    "data.tokenizer_options.vocab_size": 320,
    "data.workers": 1,
    "training.max_steps": 2,
    "training.validate_every": 2,
    "training.precision": "fp32",
    "decoding.beam_size": 2,
}
"""Makes seconds of a shipped configuration's minutes."""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


def blocks(language: str | None = None) -> list[Block]:
    found = [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.M | re.S)]
    return [block for block in found if language in (None, block.language)]


def the_block(language: str, *parts: str) -> str:
    """The only block of `language` that contains all `parts`."""
    (block,) = [block for block in blocks(language) if all(part in block.text for part in parts)]
    return block.text


def commands() -> list[str]:
    """Command lines of the blocks without a language, without prompt and comment."""
    starts = (*(f"{name} " for name in entry_points()), "scripts/", "pip ", ". ", "$ ", "torchrun ")
    lines = [line for block in blocks("") for line in block.text.splitlines() if line.startswith(starts)]
    return [re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip() for line in lines]


COMMANDS = commands()
OURS = [line for line in COMMANDS if line.startswith("nmt-")]
TORCHRUN = [line for line in COMMANDS if line.startswith("torchrun ")]


def test_each_block_is_of_a_kind_that_is_checked() -> None:
    assert {block.language for block in blocks()} <= {"", "python", "yaml"}
    kinds = ("scripts/", "nmt-", "torchrun ", "pip install ", ". .venv/bin/activate", "cat bad.yaml")
    assert [line for line in COMMANDS if not line.startswith(kinds)] == []
    assert len(OURS) >= 4


@pytest.mark.parametrize("line", [*OURS, *re.findall(r"^nmt-.*", GUIDE, flags=re.M)])
def test_options_exist(line: str) -> None:
    name, *arguments = shlex.split(line)
    parser_of(name).parse_args(arguments)


@pytest.mark.parametrize("line", TORCHRUN)
def test_torchrun_starts_commands_with_options_that_exist(line: str) -> None:
    """Two ranks are started with the first of them in tests/distributed/test_torchrun.py."""
    from torch.distributed.run import parse_args

    launch = parse_args(shlex.split(line)[1:])
    assert launch.module
    parser_of(f"nmt-{launch.training_script.removeprefix('nmt.cli.')}").parse_args(launch.training_script_args)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command, with those of the commands below it."""
    found = {option for action in parser._actions for option in action.option_strings}
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found.union(*(options_of(inner) for choices in below for inner in choices.values()))


def test_the_list_names_existing_commands_and_options() -> None:
    rows = [row for row in page_of("docs/commands.md").split("\n\n")[2].split("\n- ") if "`nmt-" in row]
    assert {row.split("`")[1].split()[0] for row in rows} == set(entry_points())
    assert f"All {len(entry_points())} commands" in README
    for row in rows:
        name = row.split("`")[1].split()[0]
        known = options_of(parser_of(name))
        named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row.replace(name, "")))
        assert named <= known, f"{name}: {named - known}"


@pytest.mark.parametrize("script", sorted({line.split()[0] for line in COMMANDS if line.startswith("scripts/")}))
def test_scripts_are_there_and_can_be_run(script: str) -> None:
    """They make environments for minutes; what they do is tested in tests/scripts."""
    path = REPOSITORY / script
    assert os.access(path, os.X_OK)
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")


def test_environment_and_extras_are_the_real_ones() -> None:
    assert ". .venv/bin/activate" in COMMANDS
    assert "venv=${NMT_VENV:-$root/.venv}" in (REPOSITORY / "scripts/setup_env").read_text(encoding="utf-8")
    (line,) = re.findall(r"^pip install '\.\[serve\]'\n# extras: (.*)$", README, flags=re.M)
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    extras = setup[setup.index("extras_require=") : setup.index("entry_points=")]
    assert set(line.split()) == set(re.findall(r'"(\w+)": ', extras))


@pytest.mark.parametrize("name", PAGES)
def test_linked_files_exist(name: str) -> None:
    page = REPOSITORY / name
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")))
    assert links and [link for link in links if not (page.parent / link).exists()] == []


def test_shipped_configurations_are_those_it_lists() -> None:
    section = README[README.index("## Shipped configurations\n") + 3 :].split("\n#")[0]
    listed = set()
    for name in re.findall(r"`([\w{},]+\.yaml)`", section):
        units = re.search(r"\{(.*)\}", name)
        listed |= {re.sub(r"\{.*\}", unit, name) for unit in units[1].split(",")} if units else {name}
    assert listed == {path.name for path in (REPOSITORY / "configs").glob("*.yaml")}


def test_the_multi30k_commands_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exactly its lines, but with overrides for nmt-train and a corpus of nonsense where nmt-data has put one."""
    block = the_block("", "nmt-data multi30k", "-o translations.de")
    lines = [shlex.split(line) for line in block.splitlines()]
    assert lines[0] == ["nmt-data", "multi30k"]
    assert [line[0] for line in lines[1:]] == ["nmt-train", "nmt-translate", "nmt-eval", "nmt-export"]
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    data = tmp_path / "data/multi30k"
    data.mkdir(parents=True)
    for language in ("en", "de"):
        for name, text in (("train", "train"), ("val", "dev"), ("test_2016_flickr", "dev")):
            (data / f"{name}.{language}.gz").write_bytes(gzip.compress(Path(f"{text}.{language}").read_bytes()))
    small = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    for line in lines[1:]:
        extra = [*small, "--device", "cpu"] if line[0] == "nmt-train" else []
        capfd.readouterr()
        assert call(*line, *extra) == 0
        if line[0] == "nmt-eval":
            assert capfd.readouterr().out.splitlines()[1].startswith("BLEU ")
    assert len((tmp_path / "translations.de").read_text(encoding="utf-8").splitlines()) == 8
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A dog runs.\n")))
    capfd.readouterr()
    assert call("nmt-translate", lines[-1][-1]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_the_first_configuration_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = the_block("yaml", "run_dir: runs/first")
    Path("first.yaml").write_text(text, encoding="utf-8")
    config = load_config("first.yaml")
    assert (config.model.cell, config.training.lr, config.data.train) == ("atr", 1e-3, "corpus/train")
    Path("corpus").mkdir()
    write_corpus(Path("corpus"))
    (line,) = re.findall(r"`(nmt-train first\.yaml [^`]*)`", README)
    small = ("--set", "data.tokenizer_options.vocab_size=320", "--device", "cpu")
    assert call(*shlex.split(line), *small, "--dry-run") == 0
    assert "120 pairs read" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "first.yaml"]


def test_the_example_of_several_corpora_is_a_configuration(tmp_path: Path) -> None:
    block = yaml.safe_load(the_block("yaml", "sampling_temperature"))
    text = {"run_dir": "run", "training": {"max_epochs": 1}, **block}
    (tmp_path / "several.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    data = load_config(tmp_path / "several.yaml").data
    assert data.sampling_temperature == 5.0 and data.train is not None and len(data.train) == 2


def test_the_example_of_bpe_dropout_is_a_configuration(tmp_path: Path) -> None:
    block = yaml.safe_load(the_block("yaml", "bpe_dropout"))
    text = {"run_dir": "run", "training": {"max_epochs": 1}, **block}
    (tmp_path / "subwords.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    assert load_config(tmp_path / "subwords.yaml").data.tokenizer_options["bpe_dropout"] == 0.1


def test_the_report_of_mistakes_is_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    CELLS.names()
    shipped = {name: cell for name, cell in CELLS._members.items() if cell.__module__.startswith("nmt.cells.")}
    monkeypatch.setattr(CELLS, "_members", shipped)  # without what plugins of other tests have registered
    block = the_block("", "bad.yaml")
    shown, command = re.findall(r"^\$ (.*)$", block, flags=re.M)
    _, text, report = re.split(r"^\$ .*\n", block, flags=re.M)
    assert shown == "cat bad.yaml"
    Path("bad.yaml").write_text(text, encoding="utf-8")
    assert call(*shlex.split(command)) == 2
    assert capsys.readouterr().err == report


def test_the_unit_of_ones_own_trains_and_translates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CELLS.names()  # all shipped ones are there before a copy is made
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))
    write_corpus(tmp_path)
    Path("my_units.py").write_text(the_block("python", "@CELLS.register"), encoding="utf-8")
    lines = yaml.safe_load(the_block("yaml", "plugins:"))
    config = write_config(tmp_path, model=lines["model"], training={"max_steps": 1})
    assert call("nmt-train", "--config", str(config), "--set", f"plugins={lines['plugins']}", "--device", "cpu") == 0
    (line,) = re.findall(r"`(nmt-translate RUN --plugin [^`]*)`", README)
    assert call(*shlex.split(line.replace("RUN", "run")), "-i", "dev.en", "-o", "out") == 0
    assert len(Path("out").read_text(encoding="utf-8").splitlines()) == 8


def test_the_unit_of_ones_own_starts_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    CELLS.names()
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))
    names: dict[str, Any] = {}
    exec(the_block("python", "@CELLS.register"), names)
    torch.manual_seed(0)
    cell = names["Leaky"](5, 4)
    cell.reset_parameters(0.08)
    assert 0.04 < cell.recurrent.weight.abs().max() <= 0.08
    assert not cell.input.bias.any()
    x = torch.randn(2, 3, 5)
    outputs, last = cell.sequence(cell.project(x))
    f, g = cell.project(x[:, 0]).chunk(2, -1)
    torch.testing.assert_close(outputs[:, 0], (1 - f.sigmoid()) * g.tanh())
    torch.testing.assert_close(last.h, outputs[:, -1])


def test_the_zero_example_gives_zeros_numbers(golden: Callable[[str], Any]) -> None:
    config, arrays = golden("deepnmt_lrn_cae1_ln1")
    variables = {name.removeprefix("var/"): arrays[name] for name in arrays.files if name.startswith("var/")}
    source, target = (torch.from_numpy(arrays[f"in/{side}"]) for side in ("source", "target"))
    names = {"hyper_parameters": config, "variables": variables, "source": source, "target": target}
    exec(the_block("python", "zero.from_arrays"), names)
    assert names["loss"].item() == pytest.approx(float(arrays["out/loss"]), abs=1e-9)
    wanted = arrays["grad/var/nmt/bias"]
    np.testing.assert_allclose(names["gradients"]["nmt/bias"], wanted, rtol=0, atol=1e-9 * abs(wanted).max())
