"""A SentencePiece model of text with case marks: it takes and gives text as people write it.

The table of forms is in the model's own file, in the field FIELD of the message ModelProto (SentencePiece keeps 200 and
above for extensions): a first line `markup 1`, then a form on each line, in UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.case_marks.marks import MARKS, CaseMarks, lower, usual_forms
from nmt.errors import DataError
from nmt.registry import CASES

FIELD = 201
_KIND = "markup 1"
_SPACE = "\u2581"
_USER_DEFINED = 4


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Numbers and values of the fields of a message; of fixed numbers their bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, number()
            continue
        size = number() if kind == 2 else 8 if kind == 1 else 4
        yield tag >> 3, message[at : at + size]
        at += size


def _symbols(proto: bytes) -> list[str]:
    """The user defined pieces, but the marks."""
    found = []
    for number, value in _fields(proto):
        piece = dict(_fields(value)) if number == 1 and isinstance(value, bytes) else {}
        name = piece.get(1)
        if piece.get(3) == _USER_DEFINED and isinstance(name, bytes) and (text := name.decode()) not in MARKS:
            found.append(text)
    return found


def _spaced(normal: str) -> str:
    """A normalised text with spaces, and without those at its ends."""
    return normal.replace(_SPACE, " ").strip(" ")


@CASES.register("markup")
class MarkedModel:
    """A SentencePieceProcessor that takes and gives text as people write it; all that nmt asks of one."""

    symbols = tuple(MARKS)
    """Pieces that the model must have."""

    def __init__(self, processor: Any, forms: Iterable[str], *, symbols: Iterable[str] = ()) -> None:
        self._processor = processor
        self._marks = CaseMarks(forms, symbols=symbols)

    @classmethod
    def of(cls, processor: Any, proto: bytes) -> Any:
        """The same model with its marks; the processor itself if its file has none.

        Raises DataError for a table of another kind.
        """
        table = next((value for number, value in _fields(proto) if number == FIELD and isinstance(value, bytes)), None)
        if table is None:
            return processor
        kind, *forms = table.decode("utf-8", "replace").split("\n")
        if kind != _KIND:
            raise DataError(f"case marks of the kind {kind!r} are not known. Allowed: {_KIND!r}.")
        return cls(processor, filter(None, forms), symbols=_symbols(proto))

    @classmethod
    def open(cls, path: str) -> Any:
        """The model in a file, which may have marks; DataError as `of`."""
        proto = Path(path).read_bytes()
        return cls.of(sentencepiece.SentencePieceProcessor(model_proto=proto), proto)

    @classmethod
    def learned(
        cls, lines: Callable[[], Iterable[str]], normalizer: Any, *, symbols: Sequence[str]
    ) -> tuple[Iterator[str], bytes]:
        """The text that a model is to be trained on, and what its file must have at its end.

        `lines` gives the text each time that it is called; `normalizer` is a SentencePieceNormalizer.
        """

        def read() -> Iterator[str]:
            return (_spaced(normalizer.normalize(line)) for line in lines())

        forms = usual_forms(read(), symbols=symbols)
        table = "\n".join([_KIND, *forms, ""]).encode()
        marks = CaseMarks(forms, symbols=symbols)
        return (marks.marked(line) for line in read()), _varint(FIELD << 3 | 2) + _varint(len(table)) + table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of an object that is being made by pickle
            raise AttributeError(name)
        return getattr(self._processor, name)

    def __len__(self) -> int:
        return len(self._processor)

    def is_control(self, i: int) -> bool:
        """Whether a piece adds nothing to a text."""
        return self._processor.is_control(i) or self._processor.id_to_piece(i) in self.symbols

    def _read(self, lines: Sequence[str]) -> list[str]:
        return [*map(_spaced, self._processor.normalize(list(lines)))]

    def encode(self, text: Any, return_type: str | None = None, **options: Any) -> Any:
        """As `SentencePieceProcessor.encode`, of a text or a list of them; offsets are those of one text."""
        if return_type is not None:
            line, origins = self._processor.normalize(text, with_offsets=True)
            line = line.replace(_SPACE, " ")
            first = len(line) - len(line.lstrip(" "))
            marked, places = self._marks.marked_places(line.strip(" "))
            found = self._processor.encode(marked, return_type=return_type)
            offsets = [
                (origins[first + places[begin]], origins[first + places[end]]) for begin, end in found["offsets"]
            ]
            return {**found, "offsets": offsets}
        lines = [text] if isinstance(text, str) else text
        ids = self._processor.encode([self._marks.marked(line) for line in self._read(lines)], **options)
        return ids[0] if isinstance(text, str) else ids

    def encode_inside(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of texts that stand inside a line."""
        marked = [self._marks.marked(line, inside=True) for line in self._read(lines)]
        space = self._processor.piece_to_id(_SPACE)
        return [
            ids[1:] if text[:1] in self.symbols and ids[:1] == [space] else ids
            for text, ids in zip(marked, self._processor.encode(marked), strict=True)
        ]

    def decode(self, ids: Any, return_type: str | None = None) -> Any:
        """As `SentencePieceProcessor.decode`."""
        if return_type is not None:
            found = self._processor.decode(ids, return_type=return_type)
            text, places = self._marks.unmarked_places(found["text"])
            return {**found, "text": text, "offsets": [(places[begin], places[end]) for begin, end in found["offsets"]]}
        found = self._processor.decode(ids)
        return self._marks.unmarked(found) if isinstance(found, str) else [*map(self._marks.unmarked, found)]

    def spelled(self, text: str) -> str:
        """A text as the pieces that are no marks spell it."""
        return lower(text)
