"""Where translations go: standard output, or a file that gets its name when it is complete."""

from __future__ import annotations

import os
import stat

from .errors import EngineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def is_one_file(one: str, other: str) -> bool:
    """Whether two outputs would be one regular file; a pipe, or the null device, may be both."""
    place = os.path.realpath(one)
    return place == os.path.realpath(other) and (os.path.isfile(place) or not os.path.exists(place))


def _is_input(target: str, name: str) -> bool:
    """Whether writing to `target` would change the input `name`; a terminal, or the null device, may be both."""
    if not os.path.exists(target) or not os.path.exists(name):
        return False
    return os.path.samefile(target, name) and not stat.S_ISCHR(os.stat(target).st_mode)


def _unused(target: str) -> str:
    """An unused name beside `target`, of at most 255 bytes; other containers may have processes of the same number."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:50]}-{os.getpid()}-{os.urandom(4).hex()}")


class Output:
    """An output for a `with` block; afterwards a file gets its name or, after an error, stays unchanged.

    Something that is not a regular file, such as a named pipe, is written to directly. UsageError for an input file and
    for a name that ends in .gz.
    """

    def __init__(self, path: str | None, *, read: Sequence[str]) -> None:
        self._path, self._part, self._name = None, None, path or "standard output"
        if path is None:
            self._stream: Any = os.fdopen(os.dup(1), "wb")
            return
        if path.endswith(".gz"):
            raise UsageError(f"{path}: output is not packed; leave out .gz")
        target = os.path.realpath(path)  # a link stays one, to the new file
        for name in read:
            if _is_input(target, name):
                raise UsageError(f"{path}: is also the input; choose another output file")
        if os.path.isdir(target):
            raise EngineError(f"{path}: is a directory; give the name of a file")
        if os.path.exists(target) and not os.path.isfile(target):
            self._stream = open(target, "wb")  # noqa: SIM115  (closed by __exit__)
            return
        self._path = target
        self._part = _unused(target)
        try:
            self._stream = open(self._part, "xb")  # noqa: SIM115  (closed by __exit__)
        except OSError as error:
            raise EngineError(f"{path}: cannot be written ({error.strerror})") from None

    def write(self, block: bytes) -> None:
        """Write, so that a reader has it now."""
        try:
            self._stream.write(block)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise EngineError(f"{self._name}: cannot be written ({error.strerror})") from None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if self._path and self._part and kind is None:
                os.fsync(self._stream.fileno())
                if os.path.exists(self._path):
                    os.chmod(self._part, os.stat(self._path).st_mode & 0o7777)
                os.replace(self._part, self._path)
                self._part = None
        except OSError as error:
            raise EngineError(f"{self._name}: cannot be written ({error.strerror})") from None
        finally:
            if self._part:
                os.unlink(self._part)
            self._close(quiet=kind is not None)

    def _close(self, *, quiet: bool) -> None:
        try:
            self._stream.close()
        except OSError:  # it still holds data that could not be written, which has been reported
            if not quiet:
                raise
