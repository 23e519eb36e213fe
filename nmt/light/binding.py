"""The functions of src/nmt_engine.h, called through ctypes.

Like all that the command nmt-light imports, it does without typing, pathlib and dataclasses: importing them takes
longer than translating a sentence.
"""

from __future__ import annotations

import _thread
import ctypes
import os
from collections import namedtuple
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_size_t, c_void_p

from .errors import ArgumentError, EngineError, StoppedError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Final, NoReturn, TypeAlias

    Options: TypeAlias = Any
    """A named tuple of the options of a search, by the names of `nmt_options` in nmt_engine.h."""

UNK: Final = 1
EOS: Final = 2
SPACE: Final = "▁"
"""Of pieces."""
_ROOM: Final = 5000  # bytes of a message, which may name a long path
_PIECE: Final = 256  # bytes that a session gets at once, so that Python sees a signal soon
_SOON: Final = 4096  # so many bytes, or ids, are translated before anybody would wish to end it
_STRINGS: Final = [c_void_p, POINTER(c_char_p), POINTER(c_size_t), c_size_t, c_void_p, c_char_p, c_size_t]
TEXTS: Final = ("text", "prefix", "forbidden")


class Asked(ctypes.Structure):
    """`nmt_request` of nmt_engine.h."""

    _fields_ = [field for name in TEXTS for field in ((name, c_char_p), (f"{name}_size", c_size_t))]


_FUNCTIONS: Final = {
    "nmt_open": (c_void_p, [POINTER(c_char_p), c_int32, c_char_p, c_char_p, c_size_t]),
    "nmt_close": (None, [c_void_p]),
    "nmt_kernels": (c_char_p, [c_void_p]),
    "nmt_card": (c_void_p, [c_void_p, c_int32, POINTER(c_size_t)]),
    "nmt_free": (None, [c_void_p]),
    "nmt_count": (c_size_t, [c_void_p, c_size_t]),
    "nmt_text": (c_void_p, [c_void_p, c_size_t, c_size_t, POINTER(c_size_t)]),
    "nmt_score": (c_float, [c_void_p, c_size_t, c_size_t]),
    "nmt_lines": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "nmt_flags": (c_int32, [c_void_p, c_size_t]),
    "nmt_parts": (c_size_t, [c_void_p, c_size_t]),
    "nmt_sentences": (c_size_t, [c_void_p, c_size_t]),
    "nmt_source_ids": (POINTER(c_int32), [c_void_p, c_size_t, c_size_t, POINTER(c_size_t)]),
    "nmt_ids": (POINTER(c_int32), [c_void_p, c_size_t, c_size_t, c_size_t, POINTER(c_size_t)]),
    "nmt_log_probs": (POINTER(c_float), [c_void_p, c_size_t, c_size_t, c_size_t]),
    "nmt_entropies": (POINTER(c_float), [c_void_p, c_size_t, c_size_t, c_size_t]),
    "nmt_attention": (POINTER(c_float), [c_void_p, c_size_t, c_size_t, c_size_t]),
    "nmt_alignment": (POINTER(c_int32), [c_void_p, c_size_t, c_size_t, POINTER(c_size_t)]),
    "nmt_unknown": (c_size_t, [c_void_p, c_size_t]),
    "nmt_piece": (c_void_p, [c_void_p, c_int32, c_int32, POINTER(c_size_t)]),
    "nmt_language": (c_int32, [c_void_p, c_int32]),
    "nmt_options_size": (c_size_t, []),
    "nmt_options_begin": (None, [c_void_p, c_void_p]),
    "nmt_option_name": (c_char_p, [c_int32]),
    "nmt_option": (c_double, [c_void_p, c_char_p]),
    "nmt_set_option": (c_int32, [c_void_p, c_char_p, c_double, c_char_p, c_size_t]),
    "nmt_set_stop": (None, [c_void_p, POINTER(c_int32)]),
    "nmt_translate": (c_void_p, _STRINGS),
    "nmt_cut": (c_void_p, _STRINGS),
    "nmt_translate_requests": (c_void_p, [c_void_p, POINTER(Asked), *_STRINGS[3:]]),
    "nmt_score_pairs": (c_void_p, [*_STRINGS[:3], *_STRINGS[1:]]),
    "nmt_translate_ids": (c_void_p, [c_void_p, POINTER(POINTER(c_int32)), *_STRINGS[2:]]),
    "nmt_glossary_open": (c_void_p, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
    "nmt_glossary_close": (None, [c_void_p]),
    "nmt_set_glossary": (None, [c_void_p, c_void_p]),
    "nmt_live_open": (c_void_p, [c_void_p, c_char_p, c_void_p, c_char_p, c_size_t]),
    "nmt_live_feed": (c_void_p, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t), c_char_p, c_size_t]),
    "nmt_live_end": (c_void_p, [c_void_p, POINTER(c_size_t), c_char_p, c_size_t]),
    "nmt_live_tail": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "nmt_live_words": (c_size_t, [c_void_p]),
    "nmt_live_close": (None, [c_void_p]),
}
"""Results and parameters of the functions."""


class NotCopied:
    """What holds memory of the engine: a copy would use it after it was given back."""

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise ArgumentError(f"a {name} cannot be copied or pickled; open the file again where it is used")


class Stop(NotCopied):
    """Ends a call of `translate` in another thread: give it as `stop`, and `set` it."""

    def __init__(self) -> None:
        self.flag = c_int32(0)

    @property
    def is_set(self) -> bool:
        """Whether it has been set."""
        return bool(self.flag.value)

    def set(self) -> None:
        """The call ends before its next step, and raises StoppedError."""
        self.flag.value = 1

    def check(self) -> None:
        """Raise StoppedError if it has been set."""
        if self.is_set:
            raise StoppedError("stopped")


class Library(NotCopied):
    """The compiled engine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Load the shared library `path`; EngineError if it cannot be."""
        try:
            code = ctypes.CDLL(os.fspath(path))
            for name, (result, parameters) in _FUNCTIONS.items():
                if name.startswith("nmt_live") and not hasattr(code, name):  # compiled without
                    continue
                function = getattr(code, name)
                function.restype, function.argtypes = result, parameters
        except TypeError as error:
            raise ArgumentError(f"library: {error}") from None
        except (AttributeError, OSError, ValueError) as error:
            said = f"{path}: the engine cannot be loaded ({error})"
            raise EngineError(_line(said.encode("utf-8", "replace"))) from None
        self.code: Any = code
        self.names: list[str] = []
        """Options of a search, `nmt_options` of nmt_engine.h."""
        while (option := code.nmt_option_name(len(self.names))) is not None:
            self.names.append(option.decode())
        self.options: Any = namedtuple("Options", [*self.names, "glossary"], defaults=[None])  # type: ignore[misc]

    def open(self, files: Sequence[str | os.PathLike[str]], *, kernels: str | None = None) -> Model:
        """One file, or several as an ensemble; EngineError names what cannot be used."""
        try:
            names = [os.fsencode(file) for file in files]
        except TypeError:
            raise ArgumentError("path must be the name of a file, or a list of names") from None
        except UnicodeEncodeError as error:
            raise EngineError(f"{_line(error.object.encode('utf-8', 'replace'))}: not the name of a file") from None
        if not isinstance(kernels, str | None):
            raise ArgumentError(f"kernels must be a name, not {type(kernels).__name__}")
        for name in names:
            if b"\0" in name:  # where C would take the name to end
                raise EngineError(f"{_line(name)}: a byte 0 cannot be part of a path")
        problem = ctypes.create_string_buffer(_ROOM)
        chosen = None if kernels is None else kernels.replace("\0", "?").encode("utf-8", "replace")
        handle = self.code.nmt_open((c_char_p * len(names))(*names), len(names), chosen, problem, _ROOM)
        if not handle:
            raise EngineError(_line(problem.value))
        return Model(self, handle)


class _Open(NotCopied):
    """A model of the library, closed when no call in any thread uses it any more."""

    def __init__(self, code: Any, handle: int) -> None:
        self.code, self.handle = code, handle

    def __del__(self) -> None:
        self.code.nmt_close(self.handle)


class Glossary(NotCopied):
    """Terms that are translated in one way, for calls of the model that it was made by."""

    def __init__(self, used: _Open, lines: bytes) -> None:
        """Use `Model.glossary`."""
        problem = ctypes.create_string_buffer(_ROOM)
        self.model = used
        self.handle = used.code.nmt_glossary_open(used.handle, lines, len(lines), problem, _ROOM)
        if not self.handle:
            raise EngineError(_line(problem.value))

    def __del__(self) -> None:
        self.model.code.nmt_glossary_close(self.handle)


class Session(NotCopied):
    """Live translation of text that grows: what has been returned never changes. It belongs to one thread at a time."""

    def __init__(self, used: _Open, how: str, given: Any) -> None:
        """Use `Translator.live`."""
        self._problem, self._size = ctypes.create_string_buffer(_ROOM), c_size_t(0)
        self._model, self._code, self._uttered = used, used.code, ""
        chosen = how.replace("\0", "?").encode("utf-8", "replace")
        self._handle = self._code.nmt_live_open(used.handle, chosen, given, self._problem, _ROOM)
        if not self._handle:
            raise EngineError(_line(self._problem.value))

    def feed(self, text: str) -> str:
        """More source text, in pieces of any size; the translation's next stable text, often none.

        A word is read when it is complete: when white space follows. Raises EngineError after `end`.
        """
        if not isinstance(text, str):
            raise ArgumentError(f"text must be a string, not {type(text).__name__}")
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError:
            raise EngineError("text holds half of a surrogate pair, which is not text") from None
        pieces = (raw[start : start + _PIECE] for start in range(0, max(1, len(raw)), _PIECE))
        return b"".join([self._called("nmt_live_feed", piece, len(piece)) for piece in pieces]).decode(
            "utf-8", "replace"
        )

    def revise(self, text: str, *, final: bool = False) -> str:
        """All of what is being said, for speech recognisers, which send it again and again: its words are read when
        others follow, or all if it is `final`, behind which another text begins. EngineError if it does not begin
        with what has been read."""
        words = f"{text} " if final else text[: 1 + max((i for i, one in enumerate(text) if one.isspace()), default=-1)]
        if not words.startswith(self._uttered):
            raise EngineError(f"text does not begin with what has been read of it, {shown(self._uttered)}")
        more, self._uttered = words[len(self._uttered) :], "" if final else words
        return self.feed(more)

    @property
    def open_words(self) -> int:
        """Words of the sentence at hand."""
        return int(self._code.nmt_live_words(self._handle)) if self._handle else 0

    def end(self) -> str:
        """The rest of the translation; the session is closed."""
        found = self._called("nmt_live_end").decode("utf-8", "replace")
        self.close()
        return found

    @property
    def tail(self) -> str:
        """What may follow what has been returned, but may still change; policies without such text have none."""
        address = self._code.nmt_live_tail(self._handle, ctypes.byref(self._size)) if self._handle else None
        return ctypes.string_at(address, self._size.value).decode("utf-8", "replace") if address else ""

    def _called(self, name: str, *given: Any) -> bytes:
        if not self._handle:
            raise EngineError("this session has ended")
        size = ctypes.byref(self._size)
        address = getattr(self._code, name)(self._handle, *given, size, self._problem, _ROOM)
        if not address:
            raise EngineError(_line(self._problem.value))
        return ctypes.string_at(address, self._size.value)

    def close(self) -> None:
        """Give the memory back."""
        handle, self._handle = self._handle, None
        self._code.nmt_live_close(handle)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Model(NotCopied):
    """An open model; every call is safe from several threads at once, and raises EngineError once it is closed."""

    def __init__(self, library: Library, handle: int) -> None:
        """Use `Library.open`."""
        self._library, self.code = library, library.code
        self._open: _Open | None = _Open(library.code, handle)
        self._last: tuple[Options, Any] = (None, None)

    def _used(self) -> _Open:
        used = self._open
        if used is None:
            raise EngineError("the model is closed")
        return used

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._open is not None

    @property
    def kernels(self) -> str:
        """The name of the instruction set that it computes with."""
        used = self._used()
        return str(self.code.nmt_kernels(used.handle).decode())

    def card(self, number: int) -> bytes:
        """The card of the file with this number, from 0, a JSON object; empty if there is none."""
        size, used = c_size_t(0), self._used()
        address = self.code.nmt_card(used.handle, number, ctypes.byref(size))
        return ctypes.string_at(address, size.value) if address else b""

    def defaults(self) -> Options:
        """The settings of the (first) file."""
        used, given = self._used(), ctypes.create_string_buffer(self.code.nmt_options_size())
        self.code.nmt_options_begin(used.handle, given)
        found = (self.code.nmt_option(given, name.encode()) for name in self._library.names)
        values: list[Any] = [int(value) if value == int(value) else value for value in found]
        return self._library.options(*values)

    def _given(self, options: Options) -> Any:
        """The options as C has them; those of the last call are kept, as setting them takes a tenth of a short line."""
        last, given = self._last
        if options != last:
            given = ctypes.create_string_buffer(self.code.nmt_options_size())
            problem = ctypes.create_string_buffer(_ROOM)
            for option, value in zip(self._library.names, options[:-1], strict=True):
                if not self.code.nmt_set_option(given, option.encode(), value, problem, _ROOM):
                    raise EngineError(_line(problem.value))
            if options.glossary is not None:
                self.code.nmt_set_glossary(given, options.glossary.handle)
            self._last = options, given
        return given

    def piece(self, number: int, *, target: bool) -> str:
        """The piece of a token."""
        size, used = c_size_t(0), self._used()
        address = self.code.nmt_piece(used.handle, target, number, ctypes.byref(size))
        return ctypes.string_at(address, size.value).decode("utf-8", "replace") if address else ""

    def languages(self) -> dict[str, int]:
        """The source tokens that say into which language is translated, by the codes of the languages."""
        ids: list[int] = []
        while number := self.code.nmt_language(self._used().handle, len(ids)):
            ids.append(number)
        return {self.piece(number, target=False).lstrip(SPACE)[2:-2]: number for number in ids}

    def translate(
        self,
        lines: Sequence[bytes],
        options: Options,
        *,
        wishes: Sequence[tuple[bytes, bytes]] | None = None,
        stop: Stop | None = None,
        only_cut: bool = False,
    ) -> Results:
        """Lines in UTF-8; EngineError for options that are not allowed. `wishes`: of each line its prefix, and
        forbidden phrases as they are spelled, one a line. `only_cut`: only cut into parts."""
        if wishes is not None and not only_cut:
            asked = (Asked * len(lines))()
            for one, line, own in zip(asked, lines, wishes, strict=True):
                for name, value in zip(TEXTS, (line, *own), strict=True):
                    setattr(one, name, value)
                    setattr(one, f"{name}_size", len(value))
            return self.results("nmt_translate_requests", asked, None, options, stop)
        items = (c_char_p * len(lines))(*lines)
        return self.results("nmt_cut" if only_cut else "nmt_translate", items, [*map(len, lines)], options, stop)

    def glossary(self, lines: bytes) -> Glossary:
        """Terms and their translations, as `nmt_glossary_open` of nmt_engine.h reads them, for the options of calls."""
        return Glossary(self._used(), lines)

    def live(self, how: str, options: Options | None) -> Session:
        """A session of live translation, by a policy as `nmt_live_open` of nmt_engine.h reads it."""
        if not hasattr(self._used().code, "nmt_live_open"):
            raise EngineError("this engine was compiled without live translation")
        return Session(self._used(), how, None if options is None else self._given(options))

    def score(self, sources: Sequence[bytes], targets: Sequence[bytes], options: Options) -> Results:
        """How probable the targets are, in UTF-8, one for each source."""
        items, others = ((c_char_p * len(side))(*side) for side in (sources, targets))
        sizes = (c_size_t * len(targets))(*map(len, targets))
        return self.results("nmt_score_pairs", items, [*map(len, sources)], options, None, others, sizes)

    def close(self) -> None:
        """Give the memory back, once calls under way have ended."""
        self._open = None

    def results(
        self, name: str, items: Any, sizes: list[int] | None, options: Options, stop: Stop | None = None, *more: Any
    ) -> Results:
        """What the function `name` of nmt_engine.h makes of an array of `items`, whose sizes it may want."""
        count, given = len(items), self._given(options)
        size = sum(sizes if sizes is not None else (one.text_size for one in items))
        stop = Stop() if stop is None and size > _SOON else stop
        if stop is not None:
            given = ctypes.create_string_buffer(given.raw, len(given))  # that of other calls has no flag
            self.code.nmt_set_stop(given, ctypes.byref(stop.flag))
        problem = ctypes.create_string_buffer(_ROOM)
        call, used = getattr(self.code, name), self._used()
        lengths = () if sizes is None else ((c_size_t * count)(*sizes),)
        arguments = (used.handle, items, *lengths, *more, count, given, problem, _ROOM)
        handle = call(*arguments) if size <= _SOON or stop is None else _beside(call, arguments, stop)
        if not handle:
            if stop is not None:
                stop.check()
            raise EngineError(_line(problem.value))
        return Results(self, handle, count)


def _beside(call: Callable[..., Any], arguments: Sequence[Any], stop: Stop) -> Any:
    """Call C in another thread, so that Python sees a signal at once; what its handler raises ends the call."""
    found: list[Any] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            found.append(call(*arguments))
        finally:
            ended.release()

    _thread.start_new_thread(run, ())
    try:
        ended.acquire()
    except BaseException:
        stop.set()
        ended.acquire()
        raise
    return found[0]


def _line(problem: bytes) -> str:
    """The engine's message, on one line whatever the name of the file."""
    text = problem.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class Results(NotCopied):
    """The results of some lines; `line`, `i` and `part` count from 0."""

    def __init__(self, model: Model, handle: int, count: int) -> None:
        """Use `Model.translate`."""
        self._model, self._handle, self.count = model, handle, count
        self._code = model.code

    def texts(self) -> bytes:
        """The best translations, each ended by a line feed."""
        size = c_size_t(0)
        return ctypes.string_at(self._code.nmt_lines(self._handle, ctypes.byref(size)), size.value)

    def translations(self, line: int) -> int:
        """How many translations a line has."""
        return int(self._code.nmt_count(self._handle, line))

    def text(self, line: int, i: int) -> str:
        """The i-th best translation."""
        size = c_size_t(0)
        address = self._code.nmt_text(self._handle, line, i, ctypes.byref(size))
        return ctypes.string_at(address, size.value).decode("utf-8", "replace")

    def score(self, line: int, i: int) -> float:
        """Its score."""
        return float(self._code.nmt_score(self._handle, line, i))

    def notes(self, line: int) -> list[str]:
        """What is to be noted about a line, in the words of `nmt-translate --format jsonl`."""
        flags = self._code.nmt_flags(self._handle, line)
        notes = {
            "split": self._code.nmt_parts(self._handle, line) > self._code.nmt_sentences(self._handle, line),
            "several_sentences": flags & 4,
            "capitals": flags & 8,
            "no_finite_translation": flags & 2,
            "length_limit": flags & 1,
        }
        return [name for name, is_so in notes.items() if is_so]

    def sources(self, line: int) -> list[list[int]]:
        """Of each part in which a line was translated the tokens of the source, the end symbol counted; none if it is
        empty."""
        size, found = c_size_t(0), []
        for part in range(self._code.nmt_parts(self._handle, line)):
            ids = self._code.nmt_source_ids(self._handle, line, part, ctypes.byref(size))
            found.append(ids[: size.value])
        return found

    def ids(self, line: int, i: int, part: int) -> list[int]:
        """Tokens of a translation, the end symbol counted where it has one."""
        size = c_size_t(0)
        return self._code.nmt_ids(self._handle, line, i, part, ctypes.byref(size))[: size.value]

    def log_probs(self, line: int, i: int, part: int) -> list[float]:
        """The log-probability of each token."""
        count = len(self.ids(line, i, part))
        return self._code.nmt_log_probs(self._handle, line, i, part)[:count]

    def entropies(self, line: int, i: int, part: int) -> list[float]:
        """The entropy of the distribution of each token, where it was asked for."""
        return self._code.nmt_entropies(self._handle, line, i, part)[: len(self.ids(line, i, part))]

    def attention(self, line: int, i: int, part: int) -> list[list[float]]:
        """[tokens of the translation][tokens of the source], where it was asked for."""
        width, count = len(self.sources(line)[part]), len(self.ids(line, i, part))
        found = self._code.nmt_attention(self._handle, line, i, part)
        return [found[row * width : (row + 1) * width] for row in range(count)]

    def alignment(self, line: int, i: int) -> tuple[tuple[int, int], ...]:
        """Pairs of a word of the line and one of a translation, where they were asked for."""
        size = c_size_t(0)
        pairs = self._code.nmt_alignment(self._handle, line, i, ctypes.byref(size))
        return tuple((pairs[2 * k], pairs[2 * k + 1]) for k in range(size.value))

    def unknown(self, line: int) -> int:
        """Tokens of the source that are not in the vocabulary, placeholders not counted."""
        return int(self._code.nmt_unknown(self._handle, line))

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        handle, self._handle = self._handle, 0
        if handle:
            self._code.nmt_free(handle)

    def __del__(self) -> None:
        self.close()
