"""Building the kernels: where it fails PyTorch code runs and one line says why; processes may build at once."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nmt.compiling import _content_digest, _elsewhere, _intact
from nmt.compiling import build as compiling
from nmt.errors import say_once
from nmt.ops import GRU, LRN, native
from nmt.ops.dropout import dropout
from nmt.ops.linear_cross_entropy import linear_cross_entropy
from nmt.ops.native import build
from nmt.ops.sequence import sequence
from nmt.ops.unit import UNITS
from tests.compiled import writes
from tests.conftest import HANGS
from tests.ops.units import needs_native
from tests.screen import screen_as_stderr

SUMS = Path(native.__file__).with_name("native.c")
"""The smallest source, which compiles in an instant."""


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Nothing is known of a library when a test begins, nor after it of its own."""
    caches = (native.problem, native._library, native.kernel, say_once, _elsewhere)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and one small source."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "sources", lambda: [SUMS])
    return tmp_path / "cache"


def compiler(path: Path, text: str) -> str:
    """A compiler that says its version and does what the shell script `text` says."""
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 1.0\n{text}\n', encoding="ascii")
    path.chmod(0o755)
    return str(path)


def sums() -> list[float]:
    """What a kernel computes, if there is one."""
    total = torch.empty(2)
    native.kernel("sum_columns", torch.float32)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), total, 2, 2)
    return total.tolist()


def _no_compiler(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("CC", raising=False)
    patch.setenv("PATH", "")


def _blank_cc(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", " ")
    patch.setenv("PATH", "")


def _unknown_compiler(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", "nonexistent -O2")


def _a_file_for_a_directory(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("", encoding="ascii")
    patch.setenv("NMT_CACHE", str(folder / "file" / "nmt"))


def _no_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError

    for name in ("NMT_CACHE", "XDG_CACHE_HOME"):
        patch.delenv(name, raising=False)
    patch.setattr(Path, "home", home)


def _full_disk(folder: Path, patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device", str(folder))

    patch.setenv("CC", compiler(folder / "cc", writes("code")))
    patch.setattr(os, "replace", refuse)


def _error(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", compiler(folder / "cc", "echo note: >&2; echo 'a.c:1: error: no such thing' >&2; exit 1"))


def _odd_letters(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", compiler(folder / "cc", "printf 'error: \\377' >&2; exit 1"))


def _killed(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", compiler(folder / "cc", "kill -9 $$"))


def _too_slow(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", compiler(folder / "cc", "exec sleep 60"))
    patch.setattr(compiling, "_TIMEOUT", 0.1)


def _nothing_written(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", compiler(folder / "cc", "exit 0"))


def _no_library(folder: Path, patch: pytest.MonkeyPatch) -> None:
    text = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done'
    patch.setenv("CC", compiler(folder / "cc", text))


REASONS: list[tuple[Callable[[Path, pytest.MonkeyPatch], None], str]] = [
    (_no_compiler, r"there is no C compiler \(cc, gcc, clang, or CC in the environment\)$"),
    (_blank_cc, "there is no C compiler"),
    (_unknown_compiler, "nonexistent cannot be run$"),
    (_a_file_for_a_directory, "file/nmt: Not a directory; set NMT_CACHE to another place$"),
    (_no_home, "there is no home directory to keep them in; set NMT_CACHE$"),
    (_full_disk, ": No space left on device$"),
    (_error, "cc: a.c:1: error: no such thing$"),
    (_odd_letters, "cc: error: \ufffd$"),
    (_killed, "cc: failed$"),
    (_too_slow, "cc took more than 0.1 seconds$"),
    (_nothing_written, "kernels.so: No such file or directory$"),
    (_no_library, r"was compiled here, but cannot be loaded \(.+\); set CC"),
]


def everything() -> list[Tensor]:
    """Results and gradients of operations that have kernels: two that call them and two that choose by themselves."""
    generator = torch.Generator().manual_seed(1)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    x, weights = tensor(2, 3, 12), (tensor(8, 4), tensor(8), tensor(4, 4), tensor(4))
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    pairs = sequence(GRU(weights=weights), x, None, mask), sequence(LRN(), x, None, mask, reverse=True)
    outputs = [part for outputs, last in pairs for part in (outputs, *last)]
    loss, *_ = linear_cross_entropy(
        outputs[0].flatten(0, 1), weights[2], targets=torch.tensor([0, 1, 2, 3, 0, 1]), weights=torch.tensor(0.5)
    )
    leaves = [x, *weights]
    return [*outputs, loss, *torch.autograd.grad(loss + sum(part.sum() for part in outputs), leaves)]


@pytest.mark.parametrize(("spoil", "reason"), REASONS, ids=[spoil.__name__.strip("_") for spoil, _ in REASONS])
def test_without_kernels_pytorch_computes_the_same_and_says_why_once(
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = everything()
    for cached in (native.problem, native._library, native.kernel):
        cached.cache_clear()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    spoil(tmp_path, monkeypatch)
    caplog.clear()
    for ours, right in zip(everything(), wanted, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-5, atol=1e-6)
    assert (dropout(torch.ones(100), 0.5) == 0).any()
    assert len(caplog.messages) == 1
    said, _, why = caplog.messages[0].partition(": ")
    assert said == "the slower PyTorch code runs on this CPU, not the compiled kernels"
    assert re.search(reason, why), why
    assert "\n" not in why
    assert not list((tmp_path / "cache").glob("building-*"))


@needs_native
def test_a_compiler_without_openmp_builds_kernels_of_one_thread(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'case "$*" in *-fopenmp*) echo "error: no OpenMP" >&2; exit 1;; esac; exec cc "$@"'
    monkeypatch.setenv("CC", compiler(tmp_path / "mycc", text))
    assert native.problem() is None
    assert sums() == [4.0, 6.0]


@needs_native
def test_a_library_is_built_once_and_again_when_it_is_damaged(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build.library([SUMS], openmp=False)
    content, written = path.read_bytes(), path.stat().st_mtime_ns
    assert build.library([SUMS], openmp=False) == path and path.stat().st_mtime_ns == written
    path.unlink()  # it is loaded
    path.write_bytes(content[:-1])
    again = build.library([SUMS], openmp=False)
    assert again.stem.endswith(f"-{_content_digest(again)}") and ctypes.CDLL(str(again))
    monkeypatch.setattr(build, "processor", lambda: "another machine that shares the home directory")
    other = build.library([SUMS], openmp=False)
    assert other != again and again.exists()
    assert sorted(cache.glob("*")) == sorted({path, again, other})


BUILD = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("build", sys.argv[1])
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)
print("ready", flush=True)
sys.stdin.readline()
print(build.library([pathlib.Path(sys.argv[2])], openmp=False))
"""


@needs_native
def test_a_unit_whose_kernels_cannot_be_compiled_any_more_runs_in_pytorch(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a machine with a compiler has kept the common kernels, and others without one share the directory."""
    assert native.problem() is None
    for cached in (native.problem, native._library):
        cached.cache_clear()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    x, unit = torch.randn(2, 3, 3 * 4), UNITS["lrn"](weights=())
    caplog.clear()
    assert sequence(unit, x)[0].shape == (2, 3, 4)
    (said,) = caplog.messages
    assert re.fullmatch(r"lrn: there is no C compiler .*, slower PyTorch code runs\.", said)


@needs_native
def test_compiling_is_said_in_one_line(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sums() == [4.0, 6.0]
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"compiling C kernels for this CPU, once: 3 files, kept in {cache}"
    native._library.cache_clear()
    native.kernel.cache_clear()
    assert sums() == [4.0, 6.0]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("cache")
def test_a_terminal_shows_how_far_compiling_has_come_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_as_stderr(monkeypatch)
    assert sums() == [4.0, 6.0]
    text = screen.text()
    assert "compiling C kernels for this CPU, once: 0 of 3" in text
    assert text.split("\r")[-1].strip() == "" and "\n" not in text


def test_a_library_is_built_anew_when_a_source_has_changed(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "native.c"
    source.write_text(SUMS.read_text(encoding="utf-8"), encoding="utf-8")
    first = build.library([source], openmp=False)
    source.write_text(SUMS.read_text(encoding="utf-8") + "/* changed */\n", encoding="utf-8")
    assert build.library([source], openmp=False) != first
    assert len(list(cache.glob("*.so"))) == 2


@needs_native
def test_processes_that_build_at_once_get_one_whole_library(cache: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(build.__file__), str(SUMS)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=HANGS)[0].strip() for process in processes]
    assert not any(process.returncode for process in processes)
    assert all(_intact(Path(path)) for path in printed)
    assert {path.name for path in cache.iterdir()} == {Path(path).name for path in printed}
    assert native.problem() is None and sums() == [4.0, 6.0]


def _anybody_may_write(cache: Path) -> None:
    cache.chmod(0o777)


def _the_group_may_write(cache: Path) -> None:
    cache.chmod(0o775)


def _of_somebody_else(cache: Path) -> None:
    os.chown(cache, 4711, -1)


def _can_be_exchanged(cache: Path) -> None:
    cache.parent.chmod(0o777)


def _link_of_somebody_else(cache: Path) -> None:
    cache.rename(cache.with_name("elsewhere"))
    cache.symlink_to("elsewhere")
    os.lchown(cache, 4711, -1)


PLANTED = [_anybody_may_write, _the_group_may_write, _can_be_exchanged, _of_somebody_else, _link_of_somebody_else]


@pytest.mark.parametrize("plant", PLANTED, ids=[plant.__name__.strip("_") for plant in PLANTED])
def test_kernels_that_somebody_else_can_have_put_there_are_not_loaded(
    plant: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", writes("code")))
    if "else" in plant.__name__ and os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    cache = tmp_path / "shared" / "cache"
    monkeypatch.setenv("NMT_CACHE", str(cache))
    theirs = build.library([SUMS], openmp=False)
    assert theirs.parent == cache and cache.stat().st_mode & 0o777 == 0o700
    plant(cache)
    ours = build.library([SUMS], openmp=False)
    assert ours.parent == tmp_path / "tmp" / f"nmt-{os.geteuid()}" and ours.name == theirs.name
    assert ours.parent.stat().st_mode & 0o777 == 0o700
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(f"kernels: {cache} ")
    assert build.library([SUMS], openmp=False) == ours and len(caplog.messages) == 1


def test_where_all_places_are_planted_kernels_are_made_for_one_process(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", writes("code")))
    cache.mkdir(mode=0o700)
    cache.chmod(0o777)
    (tmp_path / f"nmt-{os.geteuid()}").symlink_to(cache)
    ours = build.library([SUMS], openmp=False)
    assert ours.parent.parent == tmp_path and ours.parent.name.startswith("nmt-kernels-")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_library_that_others_can_write_to_is_made_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", writes("code")))
    path = build.library([SUMS], openmp=False)
    path.chmod(mode)
    assert build.library([SUMS], openmp=False) == path
    assert path.stat().st_mode & 0o777 == 0o700
    moved = path.with_name("moved.so")
    path.rename(moved)
    path.symlink_to(moved)
    assert build.library([SUMS], openmp=False) == path and not path.is_symlink()


def test_a_cache_of_ours_behind_a_link_of_ours_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", writes("code")))
    (tmp_path / "large").mkdir(mode=0o755)
    cache.symlink_to(tmp_path / "large")
    path = build.library([SUMS], openmp=False)
    assert path.parent == cache and list((tmp_path / "large").iterdir())


COMPILERS = [name for name in ("gcc", "clang", "aarch64-linux-gnu-gcc") if shutil.which(name)]
TARGETS = ["-fopenmp", "-Wno-unknown-pragmas"]
if platform.machine() == "x86_64":
    processors = ["x86-64", "cascadelake", "sapphirerapids -mno-amx-int8 -mno-amx-bf16"]
    TARGETS = ["-Wno-unknown-pragmas", *(f"-fopenmp -march={name}" for name in processors)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_has_a_warning_for_any_processor(compiler: str, target: str) -> None:
    if "aarch64" in compiler and "-march" in target:
        pytest.skip("not for its processors")
    strict = [compiler, "-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *target.split()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = ([*strict, *job] for job in build.compilations(build.sources()))
        done = pool.map(lambda job: subprocess.run(job, capture_output=True, text=True, check=False), jobs)
        assert [result.stderr for result in done if result.returncode] == []
