"""Checksums of encoded text: verified once while a file stays the same, and damage is never trained on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nmt.config import Config, DataConfig
from nmt.data import corpus as corpus_check
from nmt.data.corpus import META, Corpus
from nmt.data.prepare import PreparedData, prepare
from nmt.errors import DataError
from nmt.run_check.check_run import corpora_of

FILES = [f"{side}.{kind}" for side in ("source", "target") for kind in ("ids", "lengths", "offsets")]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for name, pairs in (("train", 30), ("dev", 5)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"w{i} of {language}\n" for i in range(pairs)))
    data = DataConfig(train=str(tmp_path / "train"), dev=str(tmp_path / "dev"), tokenizer="whitespace", workers=1)
    return Config(run_dir=str(tmp_path / "run"), data=data)


def run(config: Config) -> PreparedData:
    return prepare(config, config.run_dir, progress=False)


def flip(path: Path) -> None:
    """Change a byte in the middle, which no size tells."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read through."""
    names: list[str] = []
    crc32 = corpus_check._crc32

    def spy(path: Path, advance: corpus_check.Advance) -> int:
        names.append(f"{path.parent.name.partition('-')[0]}/{path.name}")
        return crc32(path, advance)

    monkeypatch.setattr(corpus_check, "_crc32", spy)
    return names


def test_a_file_is_read_once_while_it_stays(config: Config, read: list[str]) -> None:
    data = run(config)
    assert sorted(read) == sorted(f"{name}/{file}" for name in ("train", "dev") for file in FILES)
    read.clear()
    run(config)
    assert read == []
    ids = data.train.folder / "target.ids"
    os.utime(ids)
    run(config)
    assert read == ["train/target.ids"]
    copy = ids.with_name("copy")
    copy.write_bytes(ids.read_bytes())
    copy.replace(ids)  # the same content in another inode
    run(config)
    assert read == ["train/target.ids"] * 2
    (data.train.folder / corpus_check.VERIFIED).write_text("[" * 100)
    run(config)
    assert len(read) == 8


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", ["train", "dev"])
def test_a_flipped_bit_is_named_and_encoded_again(
    config: Config, capsys: pytest.CaptureFixture[str], name: str, file: str
) -> None:
    data = run(config)
    folder = {"train": data.train, "dev": data.dev[""].corpus}[name].folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    flip(folder / file)
    capsys.readouterr()
    run(config)
    said = capsys.readouterr().err.splitlines()
    assert f"{folder / file}: damaged: its checksum is not the one in {META}; the text is encoded again" in said
    assert (folder / file).read_bytes() == before[file]


def test_a_changed_number_in_the_record_is_noticed(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """How many pairs a prefix has decides what is sampled, and no size of a file tells it."""
    folder = run(config).train.folder
    text = (folder / META).read_text()
    meta = json.loads(text)
    meta["parts"] = [[meta["parts"][0][0] - 1, meta["parts"][0][1]]]
    (folder / META).write_text(json.dumps(meta))
    with pytest.raises(DataError, match="corpus.json has changed since it was written"):
        Corpus(folder)
    run(config)
    assert "the text is encoded again" in capsys.readouterr().err
    assert (folder / META).read_text() == text


def test_a_corpus_of_an_older_version(config: Config, read: list[str]) -> None:
    folder = run(config).train.folder
    meta = json.loads((folder / META).read_text())
    del meta["own_crc32"]
    (folder / META).write_text(json.dumps(meta))
    read.clear()
    assert run(config).train.folder == folder and read == []
    del meta["crc32"]
    (folder / META).write_text(json.dumps(meta))
    assert len(run(config).train) == 30 and read == []
    Corpus(folder).verified(anew=True)
    assert read == []


@pytest.mark.parametrize("sums", [[], {"source.ids": "x"}, {"source.ids": None}])
def test_checksums_that_are_none(config: Config, sums: object) -> None:
    folder = run(config).train.folder
    meta = json.loads((folder / META).read_text())
    del meta["own_crc32"]
    (folder / META).write_text(json.dumps({**meta, "crc32": sums}))
    with pytest.raises(DataError, match=r"corpus.json: damaged"):
        Corpus(folder).verified()


def test_a_cache_that_may_only_be_read(config: Config, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(config).train.folder
    (folder / corpus_check.VERIFIED).unlink()

    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(corpus_check, "replace_text", refuse)
    read.clear()
    for _ in range(2):
        run(config)
    assert len(read) == 12


def test_which_corpora_belong_to_a_run(config: Config, tmp_path: Path) -> None:
    data = run(config)
    dev = data.dev[""].corpus
    assert dev is not None
    run_dir = Path(config.run_dir)
    (run_dir / "cache" / "train-1.partial").mkdir()
    (run_dir / "cache" / "train-1.partial" / META).touch()
    assert corpora_of(config.data, run_dir, keys={}) == [dev.folder, data.train.folder]
    shared = DataConfig(cache_dir=str(run_dir / "cache"))
    keys = {"train": {data.train.key, "0" * 64}, "dev": set[str]()}
    assert corpora_of(shared, tmp_path / "other", keys=keys) == [data.train.folder]
