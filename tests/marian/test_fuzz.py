"""Damaged files of Marian and OPUS-MT: each is read or refused in one line; nothing else happens, and soon."""

from __future__ import annotations

import io
import os
import random
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sentencepiece

from nmt.errors import CheckpointError
from nmt.marian.arrays import read_weights
from nmt.marian.foreign import Vocabulary, read_vocabulary
from nmt.marian.package import Package, open_package
from nmt.marian.pieces import pieces_of
from nmt.marian.shape import shape_of
from nmt.marian.shortlists import read_lexicon

ODD = (0, 1, 0x7F, 0x80, 0xFF, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 8, 2**64 - 1)


def damaged(content: bytes, chance: random.Random, head: int) -> bytes:
    """The content with some bytes exchanged, most of them at its beginning, or cut off, repeated or extended."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        kind, place = chance.randrange(6), chance.randrange(min(len(data), chance.choice((head, head, len(data)))) or 1)
        if kind == 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            size = chance.choice((1, 2, 4, 8))
            data[place : place + size] = (chance.choice(ODD) % (1 << 8 * size)).to_bytes(size, "little")
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            del data[place : place + chance.randrange(1, 9)]
        elif kind == 4:
            data[place:place] = data[place : place + chance.randrange(1, 65)]
        else:
            data += bytes(chance.randrange(64))
        if not data:
            return b""
    return bytes(data)


def readers(ssru: Path) -> Iterator[tuple[str, bytes, object]]:
    """What reads each kind of file, with a sound one."""
    nowhere, spm = Path("file"), (ssru / "vocab.spm").read_bytes()

    def weights(raw: bytes) -> None:
        found = read_weights(raw, nowhere)
        shape_of(found)

    def vocabulary(raw: bytes) -> None:
        package = Package(Path(), {})
        found = read_vocabulary(Path("vocab.spm"), raw, 600, package, "source")
        try:
            rebuilt = found.rebuilt()
            sentencepiece.SentencePieceProcessor(model_proto=rebuilt)
        except (ValueError, RuntimeError):
            pass

    def listed(raw: bytes) -> None:
        package = Package(Path(), {"source.spm": lambda largest: spm})
        found = read_vocabulary(Path("vocab.yml"), raw, 600, package, "source")
        assert isinstance(found, Vocabulary)

    def lexicon(raw: bytes) -> None:
        read_lexicon(raw, nowhere, source_size=600, target_size=600)

    def zipped(raw: bytes) -> None:
        path = Path(os.environ["FUZZED_ZIP"])
        path.write_bytes(raw)
        package = open_package(path)
        for name in package.files:
            package.read(name)

    yield "bin", (ssru / "model.fp32.bin").read_bytes(), weights
    yield "int8", (ssru / "model.intgemm.alphas.bin").read_bytes(), weights
    yield "npz", (ssru / "model.npz").read_bytes(), weights
    yield "spm", spm, vocabulary
    yield "yml", "".join(f"{piece.text!r}: {i}\n" for i, piece in enumerate(pieces_of(spm))).encode(), listed
    yield "lex", (ssru / "lex.50.6.s2t.bin").read_bytes(), lexicon
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/config.yml", b"models: [x]\n" * 100)
        archive.writestr("a/vocab.spm", spm)
    yield "zip", out.getvalue(), zipped


def fuzz(ssru: Path, *, seconds: float, most: int, seed: int) -> int:
    """Damaged files of all kinds, one after the other, until the time or their number ends; how many there were."""
    chance, done, end = random.Random(seed), 0, time.monotonic() + seconds
    kinds = list(readers(ssru))
    while done < most and time.monotonic() < end:
        name, sound, read = kinds[done % len(kinds)]
        raw = damaged(sound, chance, head=6000)
        begun = time.monotonic()
        try:
            read(raw)  # type: ignore[operator]
        except CheckpointError as error:
            assert "\n" not in str(error), (name, str(error))
        except Exception as error:
            raise AssertionError(f"{name}, number {done}: {error!r}") from error
        assert time.monotonic() - begun < 20, (name, done)
        done += 1
    return done


def test_damaged_files_are_refused_in_one_line(ssru: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZED_ZIP", str(tmp_path / "fuzzed.zip"))
    assert fuzz(ssru, seconds=30, most=700, seed=1) > 100


@pytest.mark.slow
def test_damaged_files_for_ten_minutes(ssru: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZED_ZIP", str(tmp_path / "fuzzed.zip"))
    assert fuzz(ssru, seconds=600, most=10**9, seed=2) > 10_000
