"""The log of the server on standard error: each line has its time, its level and its request; as text, or as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, TextIO

from nmt.errors import printable
from nmt.serving import PROGRAM

FORMATS: Final = ("text", "json")
LONGEST_ID: Final = 128
"""Characters of a request's id that a client chooses."""

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request in whose course something is logged."""


def id_of(given: bytes | None) -> str:
    """The id of a request: what its header says, if that is short and visible ASCII, otherwise a new one."""
    if given is not None and 0 < len(given) <= LONGEST_ID and all(0x21 <= byte <= 0x7E for byte in given):
        return given.decode("ascii")
    return f"{random.getrandbits(64):016x}"


class Lines(logging.Formatter):
    """A record as text: each of its lines, tracebacks included, has all that a line needs, and no control characters.

    A record that has `fields` (a dict) is one of them in JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._second, self._stamp = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        """One line for each line of text, or one object."""
        second = int(record.created)
        if second != self._second:
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        stamp = f"{self._stamp}.{int(1000 * (record.created - second)):03d}Z"
        name, message = request_id.get(), record.getMessage().rstrip()
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        if self._as_json:
            found = {"time": stamp, "level": record.levelname, "request_id": name, "message": message}
            found |= getattr(record, "fields", {})
            return json.dumps(found | ({"traceback": trace} if trace else {}))
        head = f"{stamp} {record.levelname} {name or '-'} "
        if message.isprintable() and not trace:
            return head + message
        return "\n".join(head + printable(line) for line in [*message.split("\n"), *trace.split("\n")] if line)


class _Printed(io.TextIOBase):
    """Standard error as long as there is a log: what is printed becomes a record.

    By what begins with its name the command ends; as text that is the same line as of other commands.
    """

    def __init__(self, stream: TextIO, lines: Lines, *, as_json: bool) -> None:
        super().__init__()
        self._stream, self._lines, self._as_json, self._begun = stream, lines, as_json, ""

    def write(self, text: str) -> int:
        self._begun += text
        if self._begun.endswith("\n"):
            message, self._begun = self._begun.strip(), ""
            is_end = message.startswith((f"{PROGRAM}: ", "Traceback "))
            level = logging.ERROR if is_end else logging.INFO
            record = logging.LogRecord("stderr", level, "", 0, message, None, None)
            if message:
                self._stream.write((message if is_end and not self._as_json else self._lines.format(record)) + "\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


@contextlib.contextmanager
def logged(*, as_json: bool, is_quiet: bool) -> Iterator[None]:
    """Until the end of the `with` block, write warnings of all packages, and the log of the server, to standard error,
    and what else is printed there in the same form."""

    def log_exception(raised: Any) -> None:
        """What a thread ends by, and what Python cannot raise where it happens."""
        logging.getLogger("nmt.serving.errors").error("an error that nothing handles", exc_info=raised.exc_value)

    stream, hooks, lines = sys.stderr, (threading.excepthook, sys.unraisablehook), Lines(as_json=as_json)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)
    logging.getLogger("nmt.serving.status").setLevel(logging.INFO)
    logging.getLogger("nmt.serving.access").setLevel(logging.WARNING if is_quiet else logging.INFO)
    threading.excepthook = sys.unraisablehook = log_exception
    sys.stderr = _Printed(stream, lines, as_json=as_json)
    try:
        yield
    finally:
        sys.stderr, (threading.excepthook, sys.unraisablehook) = stream, hooks
        logging.captureWarnings(False)
