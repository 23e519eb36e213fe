"""Sentences of a text, by src/split.c: the same for every door."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int32, c_size_t

from .errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

SOURCE: Final = "light/src/split.c"
"""The one C file that it needs, for whatever compiles it alone; its headers lie beside it."""
_FIRST: Final = 64  # sentences for which there is room at once


class Splitter:
    """Splits texts of a language."""

    def __init__(self, library: str | os.PathLike[str], language: str = "", abbreviations: Sequence[str] = ()) -> None:
        """
        Args:
            library: the compiled engine, or `SOURCE` alone.
            language: code such as `de` or `pt-BR`; for one that is not known, words of all known languages count.
            abbreviations: words whose full stop ends no sentence, in addition to the known ones.

        Raises EngineError for a library that cannot be loaded and for an abbreviation with white space in it.
        """
        try:
            self._code: Any = ctypes.CDLL(os.fspath(library))
        except OSError as error:
            raise EngineError(f"{library}: cannot be loaded ({error})") from None
        self._code.nmt_split.restype = self._code.nmt_several.restype = c_size_t
        self._code.nmt_split.argtypes = [c_char_p, c_size_t, c_char_p, c_char_p, POINTER(c_size_t), c_size_t]
        self._code.nmt_several.argtypes = [c_char_p, c_size_t, c_char_p]
        self._code.nmt_splits.restype, self._code.nmt_splits.argtypes = c_int32, [c_double]
        self._code.nmt_is_spaced.restype, self._code.nmt_is_spaced.argtypes = c_int32, [c_char_p]
        for word in abbreviations:
            if word.split() != [word]:
                raise EngineError(f"abbreviations: {word!r} is not one word")
        self._language = language.encode("utf-8", "replace")
        self._more = "\n".join(abbreviations).encode("utf-8", "replace") or None

    def bounds(self, text: str) -> list[tuple[int, int]]:
        """Where each sentence begins and ends, without the white space around it; UnicodeEncodeError for what is no
        text."""
        raw = text.encode("utf-8")
        room = _FIRST
        while True:
            spans = (c_size_t * (2 * room))()
            count = int(self._code.nmt_split(raw, len(raw), self._language, self._more, spans, room))
            if count <= room:
                break
            room = count
        ends = spans[: 2 * count]
        if len(raw) != len(text):
            ends, before, place = [], 0, 0
            for end in spans[: 2 * count]:
                place += len(raw[before:end].decode("utf-8"))
                before = end
                ends.append(place)
        return list(zip(ends[::2], ends[1::2], strict=True))

    def sentences(self, text: str) -> list[str]:
        """The sentences of a text, without the white space around them."""
        return [text[begin:end] for begin, end in self.bounds(text)]

    def several(self, lines: bytes) -> int:
        """How many lines, which line feeds end, have several sentences."""
        return int(self._code.nmt_several(lines, len(lines), self._language))

    def is_spaced(self, language: str) -> bool:
        """Whether a language has spaces between sentences."""
        return bool(self._code.nmt_is_spaced(language.encode("utf-8", "replace")))

    def splits(self, share: float) -> bool:
        """Whether lines are split by default where this share of the training sources has several sentences."""
        return bool(self._code.nmt_splits(share))
