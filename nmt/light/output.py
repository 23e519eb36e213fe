"""Where output goes: standard output, or a file that gets its name when it is complete; what is no plain file of the
user's own is written in place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time

from .errors import EngineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

STDOUT: Final = "-"
"""The name of standard output."""
_BLOCK: Final = 1 << 20
DAY: Final = 24 * 60 * 60  # seconds


def temporary_name(path: str, *, prefix: str = ".") -> str:
    """An unused name beside `path` for what gets that name when it is complete.

    What killed processes have left under such names goes first.
    """
    remove_leftovers(path, prefix=prefix)
    folder, name = os.path.split(path)
    # The random part, as other containers may have processes of this number.
    return os.path.join(folder, f"{prefix}{name[:50]}-{os.getpid()}-{os.urandom(4).hex()}")


def remove_leftovers(path: str, *, prefix: str = ".") -> None:
    """Delete what killed processes have left under a `temporary_name` of `path`, if `is_abandoned`."""
    folder, name = os.path.split(path)
    beginning = f"{prefix}{name[:50]}-"
    try:
        names = [name for name in os.listdir(folder or ".") if name.startswith(beginning)]
    except OSError:  # whoever writes there says so
        return
    for name in names:
        process, _, rest = name[len(beginning) :].partition("-")
        is_ours = process.isdecimal() and process.isascii() and len(process) < 8  # no date, such as 20261125
        if is_ours and len(rest) == 8 and not rest.strip("0123456789abcdef"):
            left = os.path.join(folder, name)
            if is_abandoned(left, process=int(process)):
                remove(left)


def is_abandoned(path: str, *, process: int | None = None, age: float = DAY) -> bool:
    """Whether a temporary file or folder is this user's, so many seconds old, and no living process has it.

    It is as old as what was last written in it. A living process is seen by the lock that it holds (`hold`) or, of
    earlier versions and where there are no locks, by its number on this machine.
    """
    try:
        state = os.lstat(path)
        if state.st_uid != os.geteuid() or not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
            return False
        inside = [os.path.join(folder, name) for folder, *names in os.walk(path) for some in names for name in some]
        if time.time() - max(os.lstat(one).st_mtime for one in (path, *inside)) < age:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it goes just now, or cannot be opened
        return False
    is_free = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        is_free = False
    finally:
        os.close(descriptor)
    if process is None or process == os.getpid():  # an earlier process had this number, or it is another thread's
        return process is None or is_free
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def remove(path: str) -> None:
    """Delete a file or folder, as far as that is possible."""
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def hold(descriptor: int) -> None:
    """Lock an open temporary file or folder until it is closed, so that nobody takes it for abandoned."""
    with contextlib.suppress(OSError):  # of a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def descriptor_of(path: str) -> int | None:
    """The open descriptor of this process that a path such as /dev/stdout or /dev/fd/63 names; None for other paths."""
    for _ in range(40):  # links in links
        folder, name = os.path.split(os.path.abspath(path))
        if name.isdigit() and os.path.realpath(folder) in (f"/proc/{os.getpid()}/fd", "/dev/fd"):
            return int(name)
        try:
            path = os.path.join(folder, os.readlink(path))
        except OSError:
            return None
    return None


def is_one_file(one: str, other: str) -> bool:
    """Whether two outputs would be one regular file or one open descriptor, such as standard output; a pipe that has a
    name, or the null device, may be both."""
    own, its = _descriptor(one), _descriptor(other)
    if own is not None and own == its:
        return True
    found, given = _status(one), _status(other)
    if found is None or given is None:
        return os.path.realpath(one) == os.path.realpath(other)
    return os.path.samestat(found, given) and stat.S_ISREG(found.st_mode)


def is_input(target: str, name: str) -> bool:
    """Whether writing to `target` would change the input `name`; a terminal, or the null device, may be both.

    So may what this process has open already, such as a socket for both, unless it is a regular file.
    """
    found, given = _status(target), _status(name)
    if found is None or given is None or not os.path.samestat(found, given):
        return False
    return stat.S_ISREG(found.st_mode) or (_descriptor(target) is None and not stat.S_ISCHR(found.st_mode))


def _descriptor(name: str) -> int | None:
    return 1 if name == STDOUT else descriptor_of(name)


def _status(name: str) -> os.stat_result | None:
    own = _descriptor(name)
    try:
        return os.stat(name if own is None else own)
    except OSError:
        return None


class Written:
    """A file that is being written; every method raises OSError.

    A plain file gets its name by `finish`; until then, and if that is not called, an earlier one stays as it was. It
    keeps mode, owner and group. Where it cannot be replaced, being mounted by itself, in a folder that cannot be
    written to, or of an owner or a group that it would lose, `finish` copies the new content into it. A pipe or a
    device, and what this process has open already (/dev/stdout, /dev/fd/63), is written to as it comes.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)  # a link stays one, to the new file
        self._part: str | None = None
        own = descriptor_of(path)
        self.is_special = own is not None or (os.path.exists(self.path) and not os.path.isfile(self.path))
        if own is not None:
            self.stream: Any = os.fdopen(os.dup(own), "wb")
        elif self.is_special:
            self.stream = open(self.path, "wb")  # noqa: SIM115  (closed by finish or discard)
        else:
            self._begin()

    def _begin(self) -> None:
        try:
            self._part = temporary_name(self.path)
            self.stream = open(self._part, "xb")  # noqa: SIM115
        except OSError as error:
            self._part = None
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            # In the folder for temporary files, for a file that exists and can be written to.
            if not os.access(self.path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path) from None
            import tempfile

            part = temporary_name(os.path.join(tempfile.gettempdir(), os.path.basename(self.path)))
            self.stream = open(part, "xb")  # noqa: SIM115
            self._part = part
        hold(self.stream.fileno())

    def finish(self) -> None:
        """The file is complete."""
        self.stream.flush()
        if self._part is not None:
            os.fsync(self.stream.fileno())
            self.stream.close()
            if not self._replaced():
                with open(self._part, "rb") as source, open(self.path, "r+b") as target:
                    while block := source.read(_BLOCK):
                        target.write(block)
                    target.truncate()
                    target.flush()
                    os.fsync(target.fileno())
                os.unlink(self._part)
            self._part = None
        self.stream.close()

    def _replaced(self) -> bool:
        assert self._part is not None
        try:
            before = os.stat(self.path)
        except FileNotFoundError:
            os.replace(self._part, self.path)
            return True
        try:
            now = os.stat(self._part)
            if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
                os.chown(self._part, before.st_uid, before.st_gid)
            os.chmod(self._part, before.st_mode & 0o7777)
            os.replace(self._part, self.path)
        except OSError:  # another owner, another file system, a file that is mounted by itself
            return False
        return True

    def discard(self) -> None:
        """After an error: nothing but what a pipe or a device has got stays."""
        part, self._part = self._part, None
        if part is not None:
            os.unlink(part)
        self.stream.close()


class Output:
    """An output for a `with` block; afterwards a file gets its name or, after an error, stays unchanged (`Written`).

    UsageError for an input file and for a name that ends in .gz.
    """

    def __init__(self, path: str | None, *, read: Sequence[str]) -> None:
        self._name = path or "standard output"
        self._file: Written | None = None
        for name in read:
            if is_input(path or STDOUT, name):
                raise UsageError(f"{self._name}: is also the input; choose another output file")
        if path is None:
            self._stream: Any = os.fdopen(os.dup(1), "wb")
            return
        if path.endswith(".gz"):
            raise UsageError(f"{path}: output is not packed; leave out .gz")
        if os.path.isdir(path):
            raise EngineError(f"{path}: is a directory; give the name of a file")
        try:
            self._file = Written(path)
        except OSError as error:
            raise EngineError(f"{path}: cannot be written ({error.strerror})") from None
        self._stream = self._file.stream

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
            if kind is None and self._file is not None:
                self._file.finish()
                self._file = None
        except OSError as error:
            raise EngineError(f"{self._name}: cannot be written ({error.strerror})") from None
        finally:
            try:
                if self._file is not None:
                    self._file.discard()
                self._stream.close()
            except OSError:  # it still holds data that could not be written, which has been reported
                if kind is None:
                    raise
