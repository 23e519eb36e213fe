"""A `python` that has torch and nmt imported already: what a test starts by it is a fork of one process that waits.

`[*quick_python(), "-m", "nmt.cli.translate", ...]` does what `[sys.executable, "-m", ...]` does with two seconds of
CPU time less. Streams, working directory, environment, exit code and relayed signals are those of the command.
`sys.executable` is for tests that need the number of the command's process, its process group or its limits, kill it by
SIGKILL, or look at what it imports.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


@functools.cache
def quick_python() -> tuple[str, ...]:
    """The words that stand for `python` in a command. The first call starts what waits; it ends after us."""
    path = Path(tempfile.mkdtemp(prefix="nmt-tests-")) / "socket"
    ready, told = os.pipe()
    command = [sys.executable, str(FOLDER / "server.py"), str(path), str(told)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(told,))
    os.close(told)
    with open(ready, "rb") as line:
        assert line.read(1), "the process that waits for commands of tests has ended"
    return sys.executable, "-I", "-S", str(FOLDER / "client.py"), str(path)
