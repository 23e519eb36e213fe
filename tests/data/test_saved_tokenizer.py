"""The tokenizer directory: checksums of its files, and a look at what was written before anything relies on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config import Config, DataConfig
from nmt.data import Vocabulary, WhitespaceTokenizer, load_tokenizer, save_tokenizer
from nmt.data.saved_tokenizer import CHECKSUMS, check_checksums, write_checksums
from nmt.data.whitespace import WhitespaceOptions
from nmt.errors import CheckpointError, DataError

CONFIG = Config(run_dir="r", data=DataConfig(tokenizer="whitespace"))


def tokenizer(*words: str) -> WhitespaceTokenizer:
    return WhitespaceTokenizer(Vocabulary(words), Vocabulary([*words, "more"]), options=WhitespaceOptions())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory that has nothing but a tokenizer."""
    folder = tmp_path / "model" / "tokenizer"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    save_tokenizer(folder, tokenizer("house", "tree"), CONFIG, name=folder)
    return tmp_path / "model"


def test_what_was_saved_is_loaded(model: Path) -> None:
    assert load_tokenizer(model, CONFIG).fingerprint() == tokenizer("house", "tree").fingerprint()
    sums = json.loads((model / "tokenizer" / CHECKSUMS).read_text())["sha256"]
    assert sorted(sums) == ["source.vocab", "target.vocab", "tokenizer.json"]
    (model / "tokenizer" / "notes.txt").write_text("of somebody")
    load_tokenizer(model, CONFIG)


@pytest.mark.parametrize("name", ["source.vocab", "target.vocab", "tokenizer.json"])
def test_a_changed_letter_is_noticed(model: Path, name: str) -> None:
    path = model / "tokenizer" / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        load_tokenizer(model, CONFIG)
    assert str(error.value).startswith(f"{path}: changed since it was saved") and "\n" not in str(error.value)


def test_without_checksums_it_loads(model: Path) -> None:
    (model / "tokenizer" / CHECKSUMS).unlink()
    (model / "tokenizer" / "source.vocab").write_text("another\none\n")
    assert load_tokenizer(model, CONFIG).source_size == 5


def test_a_missing_file_is_named(model: Path) -> None:
    (model / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer: tokenizer.json is missing"):
        load_tokenizer(model, CONFIG)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b'{"sha256": []}', b'{"sha256": {"a": 1}}', b"[" * 100_000, b'{"sha256": null}'],
)
def test_checksums_that_are_none(model: Path, content: bytes) -> None:
    (model / "tokenizer" / CHECKSUMS).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{CHECKSUMS}: not a list of checksums"):
        load_tokenizer(model, CONFIG)


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "a\nb"])
def test_no_name_leads_out_of_the_folder(model: Path, name: str) -> None:
    (model / "secret").write_text("x")
    (model / "tokenizer" / CHECKSUMS).write_text(json.dumps({"sha256": {name: "0"}}))
    with pytest.raises(CheckpointError, match="is missing") as error:
        load_tokenizer(model, CONFIG)
    assert "\n" not in str(error.value)


def test_files_in_folders_count(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_text("1")
    write_checksums(tmp_path)
    check_checksums(tmp_path)
    (tmp_path / "sub" / "file").write_text("2")
    with pytest.raises(CheckpointError, match="sub/file: changed"):
        check_checksums(tmp_path)


def _other_token(folder: Path) -> None:
    (folder / "source.vocab").write_text("<pad>\n<unk>\n<eos>\nhousE\ntree\n")


def _fewer(folder: Path) -> None:
    (folder / "target.vocab").write_text("<pad>\n<unk>\n<eos>\nhouse\n")


def _twice(folder: Path) -> None:
    (folder / "source.vocab").write_text("a\na\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_other_token, "final: this tokenizer would not load back equal once it is saved: token 3 of its source"),
        (_fewer, "its target vocabulary of 6 tokens would have 4"),
        (_twice, "would not load again once it is saved: .*final/source.vocab, line 2: token 'a' is already on line 1"),
    ],
)
def test_what_does_not_load_back_equal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], said: str
) -> None:
    save = WhitespaceTokenizer.save

    def lossy(self: WhitespaceTokenizer, folder: Path) -> None:
        save(self, folder)
        damage(folder)

    monkeypatch.setattr(WhitespaceTokenizer, "save", lossy)
    with pytest.raises(DataError, match=said):
        save_tokenizer(tmp_path, tokenizer("house", "tree"), CONFIG, name=Path("final"))
