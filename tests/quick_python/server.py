"""Waits with torch and nmt imported, and becomes the commands that client.py asks for: server.py SOCKET DESCRIPTOR.

Each connection is served by a fork, which makes another one, the command, and tells its number and how it ended.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading

import numpy  # noqa: F401
import pydantic  # noqa: F401
import sacrebleu  # noqa: F401
import sentencepiece  # noqa: F401
import torch  # noqa: F401
import yaml  # noqa: F401

sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))
for late in ("nmt.library.translator", "nmt.training.run"):  # what commands import late; no command itself
    importlib.import_module(late)
del sys.path[0]

READ_AT_START = ("OMP_", "MKL_", "GOMP_", "KMP_", "LD_", "PYTHON", "TRITON_", "MALLOC_", "ONEDNN_", "LRU_", "TORCH")
"""Names of variables that Python, torch and its libraries read once, when they start."""
READ_LATER = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


def settings(environment: dict[str, str]) -> dict[str, str]:
    read = environment.items()
    return {name: value for name, value in read if name.startswith(READ_AT_START) and name not in READ_LATER and value}


def become(call: bytes, streams: list[int]) -> list[str]:
    """Take over what the client has; its arguments, which are run by a Python of its own where this one is another."""
    arguments, folder, environment, umask, ignored, numbers = json.loads(call)
    for number in range(3):
        os.close(number)
    for given, number in zip(streams, numbers, strict=True):
        os.dup2(given, number)
        os.close(given)
    os.chdir(folder)
    os.umask(umask)
    for number in (signal.SIGINT, signal.SIGHUP):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    if (arguments[0].startswith("-") and arguments[0] not in ("-m", "-c")) or settings(environment) != settings(
        dict(os.environ)
    ):
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[1:1] = [folder for folder in environment.get("PYTHONPATH", "").split(":") if folder not in ("", *sys.path)]
    reopen()
    return arguments


def reopen() -> None:
    """Python's own streams, as an interpreter makes them for what is open."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        buffering = 1 if os.isatty(number) else -1
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(number, "r" if not number else "w", buffering, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main() -> list[str]:
    """Serve until the process that has started it is gone. Returns in each command, with its arguments."""
    path, told = sys.argv[1], int(sys.argv[2])
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    os.write(told, b"1")
    os.close(told)
    parent = os.getppid()
    gc.collect()
    gc.freeze()  # what is shared by all forks, which would otherwise look at it when they end
    listening.settimeout(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that serve
    while os.getppid() == parent:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        if not os.fork():
            break
        connection.close()
    else:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))
        os._exit(0)
    listening.close()
    connection.settimeout(None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, *_ = socket.recv_fds(connection, 4, 3)
    call = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    process = os.fork()
    if not process:
        connection.close()
        return become(call, streams)
    for stream in streams:
        os.close(stream)
    connection.sendall(process.to_bytes(4, "big"))
    ended = os.pidfd_open(process)
    if ended not in select.select([ended, connection], [], [])[0]:  # the client was killed
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    try:
        connection.sendall(status.to_bytes(4, "big"))
    finally:
        os._exit(0)


def run(first: str, *rest: str) -> None:
    """What `python first rest...` runs."""
    if first == "-c":
        code, *rest = rest  # type: ignore[assignment]
        sys.argv, sys.path[0] = ["-c", *rest], ""
        exec(compile(code, "<string>", "exec"), sys.modules["__main__"].__dict__)
    elif first == "-m":
        name, *rest = rest  # type: ignore[assignment]
        sys.argv, sys.path[0] = ["-m", *rest], os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [first, *rest], os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


def end(code: int) -> None:
    """End as Python does, but without taking apart, object by object, what is shared with the process that waits.

    Returns where a stream cannot be written: Python says what it says then.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(code)


try:
    run(*main())
except SystemExit as stop:
    if stop.code is None or isinstance(stop.code, int):
        end(stop.code or 0)
    raise
end(0)
