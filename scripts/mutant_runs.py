"""Copies of the tree in which tests run with one bug at a time, and their results."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mutant_list import Mutant, Sources

from nmt.errors import DataError

NOTICED, EXPLAINED, SURVIVED, DOUBTFUL = "noticed", "explained", "survived", "doubtful"
"""The possible verdicts on a mutant; doubtful: the test that noticed it fails without it, too."""

SERVER = Path(__file__).with_name("mutant_server.py")
_LEFT_OUT = shutil.ignore_patterns(".*_cache", ".git", ".hypothesis", ".venv", "__pycache__", "*.egg-info")
_LEFT_OUT_AT_THE_ROOT = ("build", "data", "dist", "runs")
_OPTIONS = ("-q", "-x", "--no-header", "--tb=no", "-rN")
_PASSED, _NO_SUCH_TEST = 0, (4, 5)
"""Exit codes of pytest."""
WIDER_TIMES = 6
"""Time limit of wider tests, as a multiple of the limit of the named tests."""


class Outcome(NamedTuple):
    """The result of pytest."""

    code: int | None
    """None: not in time."""
    failed: list[str]
    """Ids of the tests that failed."""
    last: str
    """Last line of its output."""


class Found(NamedTuple):
    """The verdict on a mutant."""

    verdict: str
    by: str = ""
    """The test that noticed it, or another sign of it."""
    wider: bool = False
    """Whether this was a wider test, not a test named for it."""
    seconds: float = 0.0
    digest: str = ""
    """The digest of the mutant."""


class Copy:
    """A copy of the tree. C kernels that its tests compile are kept in a cache that only the copies use."""

    def __init__(self, sources: Sources, folder: Path, *, cache: Path) -> None:
        """Make the copy in `folder`; older contents of `folder` are deleted."""
        self._root, self._scratch, self._sources, tree = folder / "tree", folder, sources, sources.tree
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tree, self._root, ignore=_ignored(tree))
        compileall.compile_dir(str(self._root / "nmt"), quiet=2)
        shared = tree.parent / "shared"
        environment = {
            "NMT_SHARED": str(shared),
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "NMT_CACHE": str(cache),
            "PYTHONPATH": str(self._root),
            # Otherwise Python could use the compiled form of a file after the file has changed.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            cwd=self._root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the server
        )

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The bug is in the copy while the block runs. DataError if its place is not found."""
        place = self._sources.place(mutant)
        path = self._root / place.file
        before, times = path.read_bytes(), path.stat()
        path.write_bytes(place.changed(before.decode("utf-8")).encode("utf-8"))
        os.utime(path, (0, 0))  # a time that differs from the one in the compiled file
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def wider_tests(self, mutant: Mutant) -> list[str]:
        """The tests of the mutant's package."""
        return mutant.wider_tests(self._root)

    def test(self, arguments: Sequence[str], *, seconds: float, options: Sequence[str] = _OPTIONS) -> Outcome:
        """Run pytest with `arguments` in the copy, for at most `seconds`."""
        memory, output = self._scratch / "pytest_cache", self._scratch / "output"
        shutil.rmtree(memory, ignore_errors=True)
        given = [*options, "-o", f"cache_dir={memory}", f"--basetemp={self._scratch / 'tmp'}", *arguments]
        assert self._server.stdin is not None and self._server.stdout is not None
        try:
            self._server.stdin.write(json.dumps([str(output), seconds, given]) + "\n")
            self._server.stdin.flush()
        except OSError:
            raise _ended() from None
        answer = self._server.stdout.readline()
        if not answer:
            raise _ended()
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return Outcome(json.loads(answer), _failed(memory), lines[-1] if lines else "")

    def close(self) -> None:
        """End everything that runs in the copy."""
        self._server.terminate()
        self._server.communicate()


def _ended() -> DataError:
    return DataError("the process that runs the tests has ended")


def judge(copy: Copy, mutant: Mutant, *, seconds: float, narrow: bool) -> Found:
    """Put the bug into the copy and run the tests named for it, then, if these pass, the wider tests.

    The wider tests do not run with `narrow`, or for bugs that are explained.

    Raises:
        DataError: its place is not found, or there are no such tests.
    """
    started = time.monotonic()
    wider = (copy.wider_tests(mutant), WIDER_TIMES * seconds)
    runs = [(mutant.named_tests, seconds)] if mutant.tests else [wider]
    if mutant.tests and not narrow and mutant.explained is None:
        runs.append(wider)
    with copy.mutated(mutant):
        for number, (arguments, limit) in enumerate(runs):
            outcome = copy.test(arguments, seconds=limit)
            if outcome.code in _NO_SUCH_TEST:
                raise DataError(f"mutant '{mutant.name}': pytest {' '.join(arguments)}: {outcome.last}")
            if outcome.code != _PASSED:
                took = time.monotonic() - started
                return Found(NOTICED, _how(outcome, limit), number > 0, round(took, 1), mutant.digest)
    verdict = SURVIVED if mutant.explained is None else EXPLAINED
    return Found(verdict, seconds=round(time.monotonic() - started, 1), digest=mutant.digest)


def failing(copy: Copy, tests: Sequence[str], *, seconds: float) -> list[str]:
    """The tests of `tests` that fail in a copy without a bug."""
    if not tests:
        return []
    # Without their parameters: pytest does not find all ids that it prints.
    functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))
    outcome = copy.test(functions, seconds=seconds, options=("-q", "--no-header", "--tb=no", "-rN"))
    if outcome.code not in (_PASSED, 1):
        raise DataError(f"the tests that noticed something cannot be run without a bug: {outcome.last}")
    return [test for test in tests if test in outcome.failed]


def _ignored(tree: Path) -> object:
    def ignored(folder: str, names: list[str]) -> set[str]:
        at_root = set(_LEFT_OUT_AT_THE_ROOT) & set(names) if Path(folder) == tree else set()
        return set(_LEFT_OUT(folder, names)) | at_root

    return ignored


def _failed(memory: Path) -> list[str]:
    """Ids of failed tests, as pytest remembers them for its --last-failed."""
    with contextlib.suppress(OSError, ValueError):
        return sorted(json.loads((memory / "v" / "cache" / "lastfailed").read_text(encoding="utf-8")))
    return []


def _how(outcome: Outcome, seconds: float) -> str:
    if outcome.code is None:
        return f"not done in {seconds:.0f} seconds"
    if outcome.failed:
        return outcome.failed[0]
    return f"ended by signal {-outcome.code}" if outcome.code < 0 else outcome.last
