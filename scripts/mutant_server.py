"""Runs pytest in children of a process that has imported PyTorch and other packages already, because imports take long.

    python mutant_server.py

Each line of standard input is a JSON list: a file for the output, seconds, and the arguments of pytest. The answer is
a line with the exit code, negative for a signal, null if the tests did not end in time. Each child has its own session,
which ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

# Nothing from the tree, because each child imports it with another bug, and nothing that starts threads.
import numpy
import pytest
import safetensors.torch
import sentencepiece
import torch.utils.data
from pydantic import dataclasses
from sacrebleu.metrics import bleu, chrf, ter

__all__ = ["bleu", "chrf", "dataclasses", "numpy", "safetensors", "sentencepiece", "ter", "torch"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_POLL = 0.02


def main() -> None:
    """Serve until standard input ends."""
    sys.path.insert(0, os.getcwd())  # as `python -m pytest` does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # runs the code that ends the child's session
    for line in sys.stdin:
        output, seconds, arguments = json.loads(line)
        sys.stdout.write(json.dumps(_run(output, float(seconds), arguments)) + "\n")
        sys.stdout.flush()


def _run(output: str, seconds: float, arguments: Sequence[str]) -> int | None:
    child = os.fork()
    if child == 0:
        _work(output, arguments)
    deadline, status = time.monotonic() + seconds, None
    try:
        while status is None and time.monotonic() < deadline:
            done, found = os.waitpid(child, os.WNOHANG)
            if done:
                status = found
            else:
                time.sleep(_POLL)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def _work(output: str, arguments: Sequence[str]) -> NoReturn:
    """The child: everything it prints goes to the file."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    code = 3  # of pytest: an internal error
    try:
        code = int(pytest.main(list(arguments)))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
