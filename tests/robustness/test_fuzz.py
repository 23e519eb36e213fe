"""Random and mutated input, a fixed number of examples, the same in every run: an answer or one line."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.config import Config, dump, load_saved
from nmt.config.load import validate
from nmt.config.upgrade import FORMAT, upgrade
from nmt.config.yaml12 import read_yaml
from nmt.data import read_lines
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import CheckpointError, ConfigError, DataError
from nmt.interop import run_layout
from nmt.interop.model_dir import load_model
from nmt.run_check.check_run import check_run
from nmt.run_check.command import as_lines
from nmt.search.translator import Translator
from tests.robustness.model_fields import mutated_fields
from tests.robustness.odd_text import ODD_LINES
from tests.tiny_run import make_run

SETTINGS = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("fuzz") / "run", steps=(10,), best=(10,))


VALID = "run_dir: r\nmodel: {cell: gru, hidden_size: 8}\ntraining:\n  lr: 1e-3\n  max_steps: 5\nplugins: []\n"
PIECES = st.sampled_from(
    list(":{}[]&*!|>'\"#%@`-?,~ \n\t\\") + ["\0", "\u2028", "\u0085", "\ufeff", "<<", "null", "1e999"]
)


@st.composite
def mutated(draw: st.DrawFn, content: bytes, *, most: int = 8) -> bytes:
    """`content` with some bytes changed, put in or taken out, or cut off."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, most))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(("change", "insert", "delete", "cut")))
        if kind == "change" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "delete":
            del data[place : place + draw(st.integers(1, 20))]
        elif draw(st.integers(0, 3)) == 0:
            del data[place:]
    return bytes(data)


def read_config(text: str) -> Config | None:
    """The configuration, None where it is refused as it should be."""
    try:
        raw = read_yaml(text, origin="fuzz.yaml").value
        return validate(raw, origin="fuzz.yaml") if isinstance(raw, dict) else None
    except ConfigError as error:
        first, *rest = str(error).split("\n")
        assert first.startswith("fuzz.yaml")
        assert all(line.startswith("  ") for line in rest)
        return None


@SETTINGS
@given(text=st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=60).map("".join)))
def test_any_text_as_configuration(text: str) -> None:
    read_config(text)
    read_config(VALID + text)


@SETTINGS
@given(content=mutated(VALID.encode()))
def test_mutated_configuration(content: bytes) -> None:
    config = read_config(content.decode("utf-8", "replace"))
    if config is not None:  # what is accepted survives being saved
        raw = upgrade(read_yaml(dump(config), origin="again").value, unmarked=FORMAT, origin="again")
        assert validate(raw, origin="again") == config


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
SECTIONS = st.sampled_from(["model", "data", "training", "decoding", "evaluation", "plugins", "run_dir", "seed"])
KEYS = st.sampled_from(
    ["cell", "cell_options", "encoder_cell", "decoder_cell_options", "hidden_size"]
    + ["train", "tokenizer", "tokenizer_options", "lr", "metrics", "search", "search_options", "beam_size"]
)


@SETTINGS
@given(raw=st.dictionaries(SECTIONS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=4)), max_size=5))
def test_any_values_in_known_keys(raw: dict[str, object]) -> None:
    read_config(yaml.safe_dump(raw, allow_unicode=True))


def damaged(run: Path, name: str, draw: st.DataObject) -> None:
    """Check and load a run of which one file is mutated."""
    path = run / name
    whole = path.read_bytes()
    try:
        path.write_bytes(draw.draw(mutated(whole)))
        try:
            load_model(run)
        except (CheckpointError, ConfigError, DataError) as error:
            assert isinstance(error, ConfigError) or "\n" not in str(error)
        assert all("\n" not in line for line in as_lines(check_run(run)))
    finally:
        path.write_bytes(whole)


@pytest.fixture(scope="module")
def subword_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("fuzz") / "run", steps=(10,), best=(10,), sentencepiece=True)


@settings(SETTINGS, max_examples=200)
@given(seed=st.integers(0, 1 << 32))
def test_mutated_sentencepiece_model(subword_run: Path, seed: int) -> None:
    """A model that is accepted splits and joins any text."""
    folder = subword_run / "tokenizer"
    whole = (folder / "joint.model").read_bytes()
    try:
        (folder / "joint.model").write_bytes(mutated_fields(whole, random.Random(seed)))
        try:
            tokenizer = SentencePieceTokenizer.load(folder, options=SentencePieceOptions())
        except CheckpointError as error:
            assert "\n" not in str(error)
            return
        size = tokenizer.target_size
        for ids in tokenizer.encode_source(ODD_LINES):
            assert all(0 <= i < size for i in ids)
            assert "\n" not in tokenizer.decode_target(ids)
        assert len(tokenizer.target_tokens(range(size))) == size
        tokenizer.decode_target(range(size))
    finally:
        (folder / "joint.model").write_bytes(whole)


WEIGHTS = f"checkpoints/step-10/{run_layout.WEIGHTS}"


@pytest.mark.parametrize("name", [WEIGHTS, "checkpoints/best.json", "tokenizer/source.vocab", "config.yaml"])
@settings(SETTINGS, max_examples=25)
@given(draw=st.data())
def test_mutated_files_of_a_model(run: Path, name: str, draw: st.DataObject) -> None:
    damaged(run, name, draw)


@settings(SETTINGS, max_examples=60)
@given(draw=st.data())
def test_mutated_header_of_the_weights(
    run: Path, tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    path = run / WEIGHTS
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    try:
        path.write_bytes(draw.draw(mutated(whole[:length], most=3)) + whole[length:])
        try:
            load_model(run)
        except CheckpointError as error:
            assert "\n" not in str(error)
    finally:
        path.write_bytes(whole)


@settings(SETTINGS, max_examples=60)
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace"))))
def test_any_bytes_as_input(run: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text").write_bytes(content)
    loaded = load_model(run)
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding)
    try:
        lines = list(read_lines(tmp_path / "text"))
    except DataError as error:
        assert "not UTF-8" in str(error)
        return
    assert len(lines) == content.count(b"\n") + bool(content and not content.endswith(b"\n"))
    found = list(translator.translate(lines))
    assert len(found) == len(lines)
    assert all("\n" not in line and "\r" not in line for line in found)


def test_the_run_is_as_it_was(run: Path, tmp_path: Path) -> None:
    """The mutations above were undone: otherwise they would have tested each other's damage."""
    shutil.copytree(run, tmp_path / "copy")
    load_model(tmp_path / "copy")
    load_saved(run / "config.yaml")
