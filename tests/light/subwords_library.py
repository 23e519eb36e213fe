"""The C of nmt/light/src/subwords.c compiled for tests, and called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.compiling import BuildError, find_compiler

SOURCE = Path(__file__).resolve().parents[2] / "nmt/light/src"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")

Ids = ctypes.POINTER(ctypes.c_int32)
Text = ctypes.POINTER(ctypes.c_char)

_C = ctypes.CDLL(None)
_C.free.argtypes, _C.free.restype = (ctypes.c_void_p,), None


def compiler() -> list[str]:
    """The command of the C compiler; skips where there is none."""
    try:
        return find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


def compiled(to: Path, *arguments: str) -> Path:
    """The sources of the subwords, and what else the arguments name, compiled to `to` without a warning."""
    sources = [str(SOURCE / name) for name in ("subwords.c", "case.c", "split.c", "words.c")]
    command = [*compiler(), *WARNINGS, f"-I{SOURCE}", "-o", str(to), *sources, *arguments, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return to


def skip_without(folder: Path, *arguments: str) -> None:
    """Skips where the compiler or the linker does not take these arguments, or what they make does not run."""
    (folder / "empty.c").write_text("#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n")
    command = [*compiler(), "-o", str(folder / "empty"), str(folder / "empty.c"), *arguments]
    for step in (command, [str(folder / "empty")]):
        if subprocess.run(step, capture_output=True, check=False).returncode:
            pytest.skip(f"the compiler does not take {' '.join(arguments)}")


class Library:
    """The functions of subwords.h in a shared library."""

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        size, length = ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)
        model, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in (
            ("open", model, (text, size, ctypes.POINTER(text))),
            ("close", None, (model,)),
            ("size", ctypes.c_int32, (model,)),
            ("encode", ctypes.c_int64, (model, text, size, ctypes.POINTER(Ids), length)),
            (
                "encode_word",
                ctypes.c_int64,
                (model, text, size, ctypes.c_bool, ctypes.c_char_p, ctypes.POINTER(Ids), length),
            ),
            ("spelled", ctypes.c_int64, (model, text, size, ctypes.POINTER(Text), length)),
            ("decode", ctypes.c_int64, (model, Ids, ctypes.c_int64, ctypes.POINTER(Text), length)),
            ("encode_spans", ctypes.c_int64, (model, text, size, *2 * (ctypes.POINTER(Ids), length))),
            ("decode_ends", ctypes.c_int64, (model, Ids, ctypes.c_int64, ctypes.POINTER(Text), length, length)),
            ("piece", Text, (model, ctypes.c_int32, length)),
        ):
            function = getattr(self.c, f"subwords_{name}")
            function.restype, function.argtypes = result, arguments

    def open(self, proto: bytes) -> Model:
        """The model; ValueError with the library's line where it refuses it."""
        return Model(self.c, proto)


class Model:
    """An opened model, whose results grow with what is asked and are copied to Python."""

    def __init__(self, c: ctypes.CDLL, proto: bytes) -> None:
        self._c, self._proto = c, proto
        problem = ctypes.c_char_p()
        self._model = c.subwords_open(proto, len(proto), ctypes.byref(problem))
        if not self._model:
            assert problem.value
            raise ValueError(problem.value.decode())
        assert problem.value is None

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._c.subwords_close(self._model)

    def __len__(self) -> int:
        return int(self._c.subwords_size(self._model))

    def encode(self, text: bytes, *, inside: bool = False) -> list[int]:
        """Of a line, or of a text that stands `inside` one."""
        ids, room = Ids(), ctypes.c_size_t()
        result = ctypes.byref(ids), ctypes.byref(room)
        if inside:
            count = self._c.subwords_encode_word(self._model, text, len(text), True, bytes(8), *result)
        else:
            count = self._c.subwords_encode(self._model, text, len(text), *result)
        assert 0 <= count <= room.value
        found = ids[:count] if count else []
        _C.free(ids)
        return found

    def spans(self, text: bytes) -> list[tuple[int, int]]:
        """Where in a text its ids are, in bytes."""
        ids, room, spans, span_room = Ids(), ctypes.c_size_t(), Ids(), ctypes.c_size_t()
        own = (ctypes.byref(one) for one in (ids, room, spans, span_room))
        count = self._c.subwords_encode_spans(self._model, text, len(text), *own)
        assert 0 <= count <= min(room.value, span_room.value)
        found = spans[: 2 * count] if count else []
        _C.free(ids)
        _C.free(spans)
        return list(zip(found[::2], found[1::2], strict=True))

    def ends(self, ids: Sequence[int]) -> list[int]:
        """Where in their text ids end, in bytes."""
        text, room = Text(), ctypes.c_size_t()
        given, ends = (ctypes.c_int32 * len(ids))(*ids), (ctypes.c_size_t * (len(ids) + 1))()
        self._c.subwords_decode_ends(self._model, given, len(ids), ctypes.byref(text), ctypes.byref(room), ends)
        _C.free(text)
        return ends[: len(ids)]

    def decode(self, ids: Sequence[int]) -> bytes:
        return self._text(self._c.subwords_decode, (ctypes.c_int32 * len(ids))(*ids), len(ids))

    def spelled(self, text: bytes) -> bytes:
        return self._text(self._c.subwords_spelled, text, len(text))

    def _text(self, function: Any, *arguments: Any) -> bytes:
        text, room = Text(), ctypes.c_size_t()
        size = function(self._model, *arguments, ctypes.byref(text), ctypes.byref(room))
        assert 0 <= size <= room.value
        found = ctypes.string_at(text, size) if size else b""
        _C.free(text)
        return found

    def piece(self, i: int) -> str | None:
        size = ctypes.c_size_t()
        text = self._c.subwords_piece(self._model, i, ctypes.byref(size))
        return ctypes.string_at(text, size.value).decode() if text else None
