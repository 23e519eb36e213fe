"""Fixtures shared by all tests; what needs Multi30k, beside the checkout, skips where it is absent."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nmt.registry

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Intel's library adds up a product in an order that follows from threads and addresses, unless told not to.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
# Without a GPU kernels are tested in Triton's interpreter, which must be chosen before Triton is imported.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so do the programs that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

HANGS = 300
"""Seconds after which what a test waits for will never happen. No test waits for them to pass."""

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("NMT_SHARED", REPOSITORY.parent / "shared"))


def page_of(name: str) -> str:
    """The text of a page (its path in the repository), with each command that is broken by backslashes as one line."""
    return re.sub(r" \\\n\s*", " ", (REPOSITORY / name).read_text(encoding="utf-8"))


Golden = tuple[dict[str, Any], "np.lib.npyio.NpzFile"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="I/N", help="every N-th test, from the I-th, 0 first (scripts/gpu_check)")
    parser.addoption("--behind", metavar="TEST", action="append", help="of these only the tests behind this one")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the C libraries before any test, so that none finds on stderr that its first use compiles one."""
    from nmt.data.sentences import split_sentences  # late: TRITON_INTERPRET is set above
    from nmt.errors import NmtError
    from nmt.interop.engine.opened import compiled_engine
    from nmt.ops import native

    if not hasattr(session.config, "workerinput"):  # before the workers of pytest-xdist start
        for first_use in (native.problem, compiled_engine, lambda: split_sentences("a", "en")):
            with contextlib.suppress(NmtError):  # where there is no compiler, the tests that need one say so
                first_use()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--share"):
        first, step = (int(number) for number in config.getoption("--share").split("/"))
        items[:] = items[first::step]
    for name in config.getoption("--behind") or ():
        names = [item.nodeid for item in items]
        items[:] = items[names.index(name) + 1 :]


def pytest_collection_finish() -> None:
    """The tests themselves and the modules that they import, two million objects, are no garbage: each look at them,
    as every training takes before its first update (`nmt.system.frozen_objects`), costs 0.2 seconds."""
    gc.collect()
    gc.freeze()


@functools.cache
def golden_files() -> dict[str, Path]:
    """Name -> path of all reference files: those of the repository, and the others that lie beside the checkout."""
    folders = (SHARED / "golden", REPOSITORY / "tests/golden")
    return {path.stem: path for folder in folders for path in folder.glob("*.npz")}


def golden_names(prefix: str) -> list[str]:
    """Names of the reference files that start with `prefix`."""
    names = sorted(name for name in golden_files() if name.startswith(prefix))
    assert names, f"tests/golden has no {prefix}*.npz"
    return names


@pytest.fixture(scope="module", autouse=True)
def _plugins_are_gone_after_their_tests() -> Iterator[None]:
    """What plugins have registered in a file of tests is not there in the next one."""
    yield
    for registry in vars(nmt.registry).values():
        if isinstance(registry, nmt.registry.Registry):
            mine = [name for name, member in registry._members.items() if member.__module__.startswith("nmt_plugin_")]
            for name in mine:
                del registry._members[name]


@pytest.fixture(autouse=True)
def _the_environment_is_that_of_before() -> Iterator[None]:
    """A command sets variables, such as the size of caches, for libraries that it imports late. What a later test
    starts shall not find them: with other settings than it has, `quick_python` is not quick."""
    before = dict(os.environ)
    yield
    for name in before.keys() | os.environ.keys():
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """Read a reference file of the original system (tests/golden/README.md): its configuration and its arrays."""

    def read(name: str) -> Golden:
        arrays = np.load(golden_files()[name])
        return json.loads(str(arrays["config"])), arrays

    return read


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder of the Multi30k English-German files."""
    folder = SHARED / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("Multi30k is not here: shared/data/multi30k is missing beside the checkout")
    return folder
