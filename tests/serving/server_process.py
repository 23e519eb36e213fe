"""A server in a process of its own, on a free port."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from tests.conftest import HANGS, REPOSITORY
from tests.quick_python import quick_python

COMMAND: Final = (sys.executable, "-m", "nmt.serving.command")
STARTS_WITHIN: Final = 120  # seconds; C kernels may have to be compiled


class ServerProcess:
    """What was started, where it listens, and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.base = ""
        """Where it listens, once it is ready."""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, pattern: str) -> str:
        """The first group of a line that it says."""
        while True:
            line = self._lines.get(timeout=STARTS_WITHIN)
            assert line is not None, self.said
            if found := re.search(pattern, line):
                return found[1]

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit code; `said` is whole then."""
        code = self.process.wait(HANGS)
        self._reader.join(10)
        return code


@contextlib.contextmanager
def started(
    *arguments: str,
    ready: bool = True,
    environment: dict[str, str] | None = None,
    nohup: bool = False,
    command: Sequence[str] | None = None,
) -> Iterator[ServerProcess]:
    """`nmt-serve`, or another `command`, with these arguments on a free port; under nohup only if that is asked for.

    Whoever looks at the process itself by its number gives COMMAND.
    """
    process = subprocess.Popen(
        [*(command or (*quick_python(), *COMMAND[1:])), "--port", "0", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL),
    )
    server = ServerProcess(process)
    try:
        if ready:
            server.base = server.wait_for(r"serving .* on (http://\S+)$")
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        server._reader.join(10)
        assert process.stderr is not None
        process.stderr.close()
