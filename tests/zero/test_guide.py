"""docs/from_zero.md has each hyper-parameter of Zero, and names keys that exist."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from nmt.config.schema import SECTIONS, Config
from nmt.registry import OPTIMIZERS, SCHEDULES, TOKENIZERS
from nmt.zero import settings
from nmt.zero.settings import DEFAULTS, SAME
from tests.conftest import page_of
from tests.console import call
from tests.zero.files import tiny_hyper_parameters, tiny_model, write_checkpoint

GUIDE = page_of("docs/from_zero.md")
LINES = re.findall(r"^- ((?:`\w+`(?:, )?)+): (.*(?:\n  .*)*)$", GUIDE.split("## All hyper-parameters\n")[1], flags=re.M)
ROWS = {name: here for there, here in LINES for name in re.findall(r"`(\w+)`", there)}
"""What the page says of a hyper-parameter."""
WITHOUT = set(re.findall(r"`(\w+)`", GUIDE.split("These have no key: ")[1].split("\n\n")[0]))
"""Hyper-parameters of models that are not converted, and those without a counterpart."""


def test_the_table_is_complete() -> None:
    assert len(DEFAULTS) == 99 == len(ROWS) + len(WITHOUT)
    assert ROWS.keys() | WITHOUT == DEFAULTS.keys()


def test_the_keys_exist() -> None:
    keys = {field.name for field in dataclasses.fields(Config)}
    keys |= {f"{name}.{field.name}" for name, section in SECTIONS.items() for field in dataclasses.fields(section)}
    for name, here in ROWS.items():
        named = [text.partition(":")[0] for text in re.findall(r"`([^`]+)`", here)]
        assert here.startswith("no key: ") or any(text in keys for text in named), name
        assert [text for text in named if "." in text and not text.startswith(".") and text not in keys] == [], name
    for name, key in SAME.items():
        assert f"`{key}`" in ROWS[name], name


@pytest.mark.parametrize("name", sorted(DEFAULTS.keys() - set(settings.OF_THE_MODEL)))
def test_what_has_a_key_is_taken_over_and_what_has_none_is_not(name: str) -> None:
    """But for files, and what is "set by hand"; hyper-parameters of the model itself are in tests/zero."""
    default = DEFAULTS[name]
    others = {bool: not default, str: "batch", list: [9]}
    strategies = ("noam", "gnmt+", "epoch", "score", "cosine", "vanilla")
    bases = [{**DEFAULTS, "lrate_strategy": strategy, "safe_nan": True} for strategy in strategies]
    bases += [{**DEFAULTS, "initializer": initializer} for initializer in ("uniform", "normal")]
    bases += [{**DEFAULTS, "batch_or_token": mode} for mode in ("batch", "token")]
    changed = {name: others.get(type(default), abs(default) * 3 + 0.25 if isinstance(default, float) else 7)}
    if name == "lrate_strategy":
        changed[name] = "noam"
    differs = any(settings.sections(base) != settings.sections({**base, **changed}) for base in bases)
    here = "no key: " if name in WITHOUT else ROWS[name]
    by_hand = "set by hand" in here or name in settings.FILES or name == "lrate_patience"  # needs data.dev
    assert differs == (not here.startswith("no key: ") and not by_hand)


def test_the_options_exist() -> None:
    components = {"training.schedule_options": SCHEDULES, "training.optimizer_options": OPTIMIZERS}
    components |= {"data.tokenizer_options": TOKENIZERS}
    seen = 0
    for there, here in LINES:
        for named, section in re.findall(r"^((?:`\w+`(?:, )?)+) in `([\w.]+)`", here):
            members = [components[section].get(member) for member in components[section].names()]
            known = {field.name for member in members for field in dataclasses.fields(member.Options)}
            options = re.findall(r"`(\w+)`", named)
            assert set(options) <= known and len(options) == there.count("`") / 2, there
            seen += len(options)
    assert seen >= 14


def test_the_workflow_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exactly its lines, but for the checkpoint, an .npz where TensorFlow's files would be, and a shorter training."""
    monkeypatch.chdir(tmp_path)
    config, arrays = tiny_model()
    write_checkpoint(Path("zero"), arrays, tiny_hyper_parameters(config))
    for side, language in (("src", "en"), ("tgt", "de")):
        Path(f"zero/{side}.vocab").rename(f"zero/vocab.{language}")
        Path("corpus").mkdir(exist_ok=True)
        for name in ("test.bpe", "corpus/train.bpe", "corpus/dev.bpe"):
            Path(f"{name}.{language}").write_text("w3 w4 w8\nw5 w3\n" * 3)
    Path("test.raw.de").write_text("w3 w4 w8\nw5 w3\n" * 3)
    lines = re.findall(r"^nmt-.*", GUIDE, flags=re.M)
    assert [line.split()[0] for line in lines] == [
        f"nmt-{name}" for name in ("convert", "translate", "eval", "score", "train", "convert")
    ]
    for line in lines:
        name, *arguments = shlex.split(line.replace("zero/train/best", "zero/model.npz").replace("2000", "2"))
        more = ["--device", "cpu"] if name in ("nmt-translate", "nmt-score", "nmt-train") else []
        assert call(name, *arguments, *more) == 0, capsys.readouterr().err
    assert {path.name for path in Path().glob("more.*")} == {"more.npz", "more.src.vocab", "more.tgt.vocab"}
