"""Marian's binary shortlists (`lex.50.50.s2t.bin`): for each source id, target ids that may translate it.

The layout is that of browsermt/marian-dev's src/data/shortlist.h. A sentence may use the ids below `frequent`, those
of its source ids and of </s> and then, from `frequent` on, as many as make their number a multiple of 8.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.errors import CheckpointError
from nmt.files import replacing

MULTIPLE = 8
"""The number of target ids of a batch is a multiple of this."""
_MAGIC = 0xF11A48D5013417F5
_HEADER = struct.Struct("<6Q")
_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Lexicon:
    """The target ids of each source id."""

    frequent: int
    """Target ids below this are allowed in each sentence."""
    best: int
    """The largest number of ids of a source id, as its maker was told."""
    starts: np.ndarray
    """The beginning of each source id's part of `words`, uint64 [V_source + 1]"""
    words: np.ndarray
    """Target ids, uint32"""

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(self.starts.tobytes() + self.words.tobytes() + b"%d" % self.frequent).hexdigest()

    def of(self, i: int) -> np.ndarray:
        """The target ids of a source id."""
        return self.words[int(self.starts[i]) : int(self.starts[i + 1])]

    def allowed(self, source: Sequence[int]) -> list[int]:
        """The target ids, ascending, that a sentence with these source ids, </s> among them, may use."""
        ids = set(range(self.frequent))
        for i in source:
            ids.update(self.of(i).tolist())
        more = (i for i in itertools.count(self.frequent) if i not in ids)
        while len(ids) % MULTIPLE:
            ids.add(next(more))
        return sorted(ids)


def read_lexicon(content: bytes, path: Path, *, source_size: int, target_size: int) -> Lexicon:
    """A shortlist for vocabularies of these sizes; `path` is the file's name in messages.

    Raises CheckpointError, naming the file, for one that is damaged or was made for other vocabularies.
    """
    try:
        return _lexicon(content, source_size=source_size, target_size=target_size)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _lexicon(content: bytes, *, source_size: int, target_size: int) -> Lexicon:
    if len(content) < _HEADER.size or content[:8] != struct.pack("<Q", _MAGIC):
        raise ValueError("not a binary shortlist of Marian, which begins with its own number")
    _, checksum, frequent, best, offsets, count = _HEADER.unpack_from(content)
    if _HEADER.size + 8 * offsets + 4 * count != len(content):
        raise ValueError(f"{len(content):,} bytes are no shortlist of {offsets:,} places and {count:,} ids")
    if offsets != source_size + 1:
        raise ValueError(f"made for a source vocabulary of {offsets - 1:,} pieces, and the model has {source_size:,}")
    if checksum != _checksum(content[16:]):
        raise ValueError("damaged: its checksum is another")
    starts = np.frombuffer(content, "<u8", offsets, _HEADER.size)
    words = np.frombuffer(content, "<u4", count, _HEADER.size + 8 * offsets)
    if int(starts[0]) or int(starts[-1]) != count or (starts[1:] < starts[:-1]).any():
        raise ValueError("damaged: the lists of its source ids do not follow each other")
    largest = max(frequent - 1, int(words.max(initial=0)))
    if largest >= target_size:
        raise ValueError(f"has the target id {largest:,}, and the model's vocabulary has {target_size:,} pieces")
    return Lexicon(frequent, best, starts, words)


def write_lexicon(path: Path, lexicon: Lexicon) -> None:
    """Write a shortlist as Marian's; raises OSError."""
    counts = lexicon.frequent, lexicon.best, len(lexicon.starts), len(lexicon.words)
    body = struct.pack("<4Q", *counts) + lexicon.starts.astype("<u8").tobytes() + lexicon.words.astype("<u4").tobytes()
    with replacing(path) as stream:
        stream.write(struct.pack("<2Q", _MAGIC, _checksum(body)) + body)


def _checksum(body: bytes) -> int:
    """boost::hash_combine over the 64-bit words of what follows the checksum; a half word at the end is left out."""
    seed = 0
    for word in np.frombuffer(body, "<u8", len(body) // 8).tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _WORD
    return seed
