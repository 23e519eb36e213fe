"""Libraries that are kept: used without a compiler, and made again when anything that they are made from is another."""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt.compiling import BuildError, Recipe, _content_digest, _elsewhere, build, library, made_from_and_by, processor
from nmt.errors import ConfigError
from nmt.interop.engine.opened import compiled_engine
from nmt.light.output import hold
from tests.compiled import writes
from tests.conftest import HANGS


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a `cc` that only seems to compile on PATH but for what the shell has."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    write_compiler(tmp_path / "bin/cc")
    return tmp_path / "cache"


def write_compiler(path: Path, *, first: str = "") -> None:
    """Make one that runs `first`; the file beside it has a line for each time that it was run."""
    path.write_text(f'#!/bin/sh\necho run >> "$0.runs"\n{first}\n{writes(f"what {path.name} makes")}', encoding="utf-8")
    path.chmod(0o755)


def exchange(path: Path, content: bytes) -> None:
    """Put another file in the place of a library, which this process may have loaded."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o700)


def runs(path: Path) -> int:
    """How often a compiler was run."""
    log = path.with_name(f"{path.name}.runs")
    return log.read_text(encoding="ascii").count("run") if log.exists() else 0


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "a.c").write_text("int a;\n", encoding="ascii")
    return Recipe([tmp_path / "a.c"], [["-O1", "-c", str(tmp_path / "a.c")]], ["-s"])


def test_a_library_that_is_kept_needs_no_run_of_the_compiler(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    path = library(recipe)
    assert runs(tmp_path / "bin/cc") == 2 and path.read_bytes().endswith(b"what cc makes\n")
    assert library(recipe) == path and runs(tmp_path / "bin/cc") == 2
    os.utime(recipe.files[0], ns=(1, 1))  # as after another installation of the same
    assert library(recipe) == path and runs(tmp_path / "bin/cc") == 2
    assert list(cache.iterdir()) == [path]


def test_without_a_compiler_what_is_kept_is_used(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    path = library(recipe)
    (tmp_path / "bin/cc").unlink()
    assert library(recipe) == path
    with pytest.raises(BuildError, match="^there is no C compiler"):
        library(recipe._replace(facts="another processor"))
    exchange(path, path.read_bytes()[:-1])
    with pytest.raises(BuildError, match="^there is no C compiler"):
        library(recipe)


def test_a_compiler_that_is_asked_for_must_be_there(
    cache: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(recipe)
    monkeypatch.setenv("CC", "gone -O2")
    with pytest.raises(BuildError, match="^gone cannot be run$"):
        library(recipe)


@pytest.mark.parametrize("end", [None, b"what cc make", b"what cc makeS\n", b"what cc makes\n\n"])
def test_a_damaged_library_is_made_again(cache: Path, recipe: Recipe, tmp_path: Path, end: bytes | None) -> None:
    path = library(recipe)
    content, state = path.read_bytes(), path.stat()
    exchange(path, b"" if end is None else content.replace(b"what cc makes\n", end))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert library(recipe) == path and path.read_bytes() == content and runs(tmp_path / "bin/cc") == 4


def _of_another_machine(content: bytes) -> bytes:
    return content[:18] + b"\xf7" + content[19:]


def _cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _no_library(content: bytes) -> bytes:
    return b"nonsense"


UNUSABLE = [_of_another_machine, _cut_short, _no_library]


def spoiled(path: Path, spoil: Callable[[bytes], bytes]) -> Path:
    """Put in the place of a library one that is whole by its name, but cannot be loaded."""
    exchange(path, spoil(path.read_bytes()))
    name = f"{made_from_and_by(path)}-{_content_digest(path)}.so"
    return path.rename(path.with_name(name))


@pytest.mark.parametrize("spoil", UNUSABLE)
def test_a_library_that_cannot_be_loaded_here_stays_and_another_is_made_beside_it(
    cache: Path, recipe: Recipe, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    right = library(recipe)
    other = spoiled(right, spoil)
    assert library(recipe) == right and runs(tmp_path / "bin/cc") == 4
    assert library(recipe) == right and runs(tmp_path / "bin/cc") == 4
    assert set(cache.iterdir()) == {right, other}
    right.unlink()
    (tmp_path / "bin/cc").unlink()
    with pytest.raises(
        BuildError, match=rf"^there is no C compiler .*; {other} is kept, but cannot be loaded here \(.+\)$"
    ):
        library(recipe)


def test_what_cannot_be_loaded_though_it_is_new_is_not_compiled_at_every_start(
    cache: Path, recipe: Recipe, tmp_path: Path
) -> None:
    write_compiler(tmp_path / "bin/cc", first='while [ $# -gt 0 ]; do [ "$1" = -o ] && echo no > "$2"; shift; done')
    for _ in range(2):
        with pytest.raises(BuildError, match=r"^.+/cache/.+ was compiled here, but cannot be loaded \(.+\); set CC to"):
            library(recipe)
    (refused,) = cache.iterdir()
    assert runs(tmp_path / "bin/cc") == 2
    refused.unlink()
    write_compiler(tmp_path / "bin/cc")
    assert library(recipe).suffix == ".so" and runs(tmp_path / "bin/cc") == 4


def test_a_cache_that_cannot_be_written_to_is_used_and_named(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library(recipe)
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0)
    assert library(recipe) == path
    with pytest.raises(
        BuildError, match=f"^{cache}: cannot be written to, to keep libraries; set NMT_CACHE to another"
    ):
        library(recipe._replace(facts="another processor"))
    assert runs(tmp_path / "bin/cc") == 2


COMPILE = """
import pathlib, sys
from nmt.compiling import Recipe, library
source = pathlib.Path(sys.argv[1])
print(library(Recipe([source], [["-O1", "-c", str(source)]], ["-s"])))
"""


def compiling(recipe: Recipe, start_new_session: bool = False) -> subprocess.Popen[str]:
    """Another process that wants the library."""
    command = [sys.executable, "-c", COMPILE, str(recipe.files[0])]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=start_new_session
    )


def wait_for(path: Path) -> None:
    end = time.monotonic() + HANGS
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists()


def test_of_processes_that_want_the_same_one_compiles_it(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    write_compiler(tmp_path / "bin/cc", first=f"while ! [ -e {tmp_path}/go ]; do :; done")
    first = compiling(recipe)
    wait_for(tmp_path / "bin/cc.runs")
    others = [compiling(recipe) for _ in range(2)]
    for other in others:
        assert other.stderr is not None
        assert other.stderr.readline() == f"another process compiles C kernels into {cache}; waiting for it\n"
    (tmp_path / "go").touch()
    assert len({process.communicate(timeout=HANGS)[0] for process in (first, *others)}) == 1
    assert runs(tmp_path / "bin/cc") == 2


def test_a_process_that_has_been_stopped_is_not_waited_for_without_end(
    cache: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(build, "_LONGEST_WAIT", 0.2)
    lock = os.open(cache, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert library(recipe).parent == cache
    os.close(lock)


def test_what_killed_processes_have_left_is_deleted_but_not_what_is_used_or_new(
    cache: Path, recipe: Recipe, tmp_path: Path
) -> None:
    write_compiler(tmp_path / "bin/cc", first=f"while ! [ -e {tmp_path}/go ]; do :; done")
    killed = compiling(recipe, start_new_session=True)
    wait_for(tmp_path / "bin/cc.runs")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(list(cache.glob("building-*"))) == 1
    (tmp_path / "go").touch()
    for name in (
        "building-old",
        "building-new",
        "building-used",
    ):  # as of earlier versions
        (cache / name).mkdir()
        if name != "building-new":
            os.utime(cache / name, (1, 1))
    used = os.open(cache / "building-used", os.O_RDONLY)
    hold(used)
    path = library(recipe)
    os.close(used)
    assert set(cache.iterdir()) == {path, cache / "building-new", cache / "building-used"}


def test_whatever_it_is_made_from_makes_another(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    found = [library(recipe)]
    (*jobs, last) = recipe.jobs
    for other in (
        recipe._replace(jobs=[*jobs, [*last, "-O2"]]),
        recipe._replace(link=["-g"]),
        recipe._replace(extra=("int b;\n", ["-c"])),
        recipe._replace(extra=("int c;\n", ["-c"])),
        recipe._replace(facts="another processor"),
        recipe._replace(files=[*recipe.files, tmp_path / "bin/cc"]),
    ):
        found.append(library(other))
    state = recipe.files[0].stat()
    recipe.files[0].write_text("int b;\n", encoding="ascii")  # as long, and as old
    os.utime(recipe.files[0], ns=(state.st_atime_ns, state.st_mtime_ns))
    found.append(library(recipe))
    assert len(set(found)) == len(found) == len(list(cache.iterdir()))


def test_another_compiler_makes_another(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gcc", "wrapper"):
        write_compiler(tmp_path / "bin" / name)
    found = [library(recipe)]
    for command in ("cc -g", "gcc", "wrapper gcc"):
        monkeypatch.setenv("CC", command)
        found.append(library(recipe))
    os.utime(tmp_path / "bin/gcc", ns=(1, 1))  # a later version, behind the wrapper
    found.append(library(recipe))
    (tmp_path / "bin/other").write_bytes((tmp_path / "bin/gcc").read_bytes() + b"\n")
    (tmp_path / "bin/other").chmod(0o755)
    (tmp_path / "bin/gcc").unlink()
    (tmp_path / "bin/gcc").symlink_to("other")
    found.append(library(recipe))
    assert len(set(found)) == len(found) == len(list(cache.iterdir()))
    assert library(recipe) == found[-1]


def test_a_source_that_cannot_be_read_is_named(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    recipe.files[0].unlink()
    with pytest.raises(BuildError, match=rf"^{recipe.files[0]}: No such file or directory$"):
        library(recipe)


def test_the_engine_is_kept_too(cache: Path, tmp_path: Path) -> None:
    path = compiled_engine.__wrapped__()
    made = runs(tmp_path / "bin/cc")
    assert path.parent == cache and made > 10
    assert compiled_engine.__wrapped__() == path and runs(tmp_path / "bin/cc") == made
    (tmp_path / "bin/cc").unlink()
    assert compiled_engine.__wrapped__() == path
    exchange(path, path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="the engine, which is written in C, cannot be compiled here: there is no C"):
        compiled_engine.__wrapped__()


def test_a_start_with_a_kept_engine_imports_nothing_that_compiles(cache: Path) -> None:
    compiled_engine.__wrapped__()
    program = (
        "import sys; from nmt.interop.engine.opened import compiled_engine; compiled_engine(); "
        "print([name for name in ('subprocess', 'tempfile', 'concurrent.futures') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_one_more_source_is_compiled_too(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    library(recipe._replace(extra=("int b;\n", ["-c"])))
    assert runs(tmp_path / "bin/cc") == 3


def test_a_byte_that_moves_to_the_next_source_makes_another(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    both = recipe._replace(files=[tmp_path / "a.c", tmp_path / "b.c"])
    found = set()
    for first, second in (("int a;\n\n", "int b;\n"), ("int a;\n", "\nint b;\n")):
        (tmp_path / "a.c").write_text(first, encoding="ascii")
        (tmp_path / "b.c").write_text(second, encoding="ascii")
        found.add(library(both))
    assert len(found) == 2


def test_what_was_checked_with_one_compiler_is_not_known_of_another(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for options in ("", " -g", " -g"):
        monkeypatch.setenv("CC", f"cc{options}")
        names.append(made_from_and_by(library(recipe)))
    assert names[0] != names[1] == names[2]


def test_the_error_of_a_source_is_told_rather_than_what_the_linker_lacks(
    cache: Path, recipe: Recipe, tmp_path: Path
) -> None:
    script = (
        '#!/bin/sh\ncase "$*" in *" -c "*) echo "error: wrong source" >&2;; *) echo "error: no object" >&2;; esac\n'
    )
    (tmp_path / "bin/cc").write_text(f"{script}exit 1\n", encoding="ascii")
    with pytest.raises(BuildError, match="error: wrong source$"):
        library(recipe)


def test_libraries_are_made_without_a_standard_error_or_a_temporary_directory(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    assert library(recipe).parent == cache


def test_the_place_that_the_environment_names(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert library(recipe).parent == cache
    monkeypatch.delenv("NMT_CACHE")
    assert library(recipe).parent == tmp_path / "xdg/nmt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert library(recipe).parent == tmp_path / "home/.cache/nmt"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory in place of the system's for temporary files, and nothing known of another place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    _elsewhere.cache_clear()
    yield tmp_path / "temporary"
    _elsewhere.cache_clear()


def test_a_directory_that_others_can_exchange_further_up_is_not_used_unless_it_is_sticky(
    cache: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    (tmp_path / "shared/inner").mkdir(parents=True)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "shared/inner/cache"))
    (tmp_path / "shared").chmod(0o1777)
    assert library(recipe).parent == tmp_path / "shared/inner/cache"
    (tmp_path / "shared").chmod(0o777)
    assert library(recipe).parent == elsewhere / f"nmt-{os.geteuid()}"


def test_the_other_place_is_for_one_process_where_others_can_write_to_it(
    cache: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    ends: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", lambda end, *given, **named: ends.append(lambda: end(*given, **named)))
    for place in (cache, elsewhere / f"nmt-{os.geteuid()}"):
        place.mkdir()
        place.chmod(0o777)
    path = library(recipe)
    assert path.parent.parent == elsewhere and path.parent.name.startswith("nmt-kernels-")
    (end,) = ends
    end()
    assert [place.name for place in elsewhere.iterdir()] == [f"nmt-{os.geteuid()}"]


def test_a_library_that_another_user_has_written_is_made_again(cache: Path, recipe: Recipe, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    path = library(recipe)
    os.chown(path, 4711, -1)
    assert library(recipe) == path and path.stat().st_uid == 0 and runs(tmp_path / "bin/cc") == 4


def test_processors_differ_in_their_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/cpuinfo names them; the speed at this moment makes no difference, nor does the number of cores."""
    monkeypatch.setattr("nmt.compiling.Path", lambda name: tmp_path / "cpuinfo")
    found = []
    for flags, speed in (("avx2", 1000), ("avx2", 2000), ("avx2 avx512f", 1000)):
        core = f"model name\t: A processor\ncpu MHz\t: {speed}\nflags\t: {flags}\n\n"
        (tmp_path / "cpuinfo").write_text(core * (speed // 1000), encoding="ascii")
        found.append(processor())
    assert found[0] == found[1] != found[2]
