"""The engine for another processor and for Windows, cross-compiled and run by QEMU and Wine: all translate alike."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from nmt.light.sources import FLAGS, compilations
from tests.conftest import REPOSITORY
from tests.light.engine_driver import DRIVER, ROOT
from tests.light.engine_files import library
from tests.light.subword_models import training_text
from tests.light.test_safety import MODELS, content

FOUND = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
pytestmark = pytest.mark.slow


def zig_for(target: str) -> list[str]:
    zig = shutil.which("zig") or shutil.which("python-zig")
    if zig is None:
        pytest.skip("zig, which compiles for other systems, is not on PATH (PyPI: ziglang)")
    return [zig, "cc", "-target", target]


@pytest.fixture(scope="module")
def cross() -> list[str]:
    return [*zig_for("aarch64-linux-musl"), "-static"]


@pytest.fixture(scope="module")
def objects(cross: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The engine, each source compiled without a warning."""
    folder, made = tmp_path_factory.mktemp("aarch64"), list[str]()
    for one in compilations("aarch64"):
        made.append(str(folder / f"{one.name}.o"))
        command = [*cross, *FLAGS, *one.flags, f"-I{ROOT / 'ops/native'}", "-Wall", "-Wextra", "-Werror"]
        run([*command, "-c", str(ROOT / one.source), "-o", made[-1]])
    return made


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


def emulated(path: Path, *arguments: str) -> str:
    if FOUND is None and platform.machine() not in ("aarch64", "arm64"):
        pytest.skip("qemu-aarch64 is not on PATH (Debian: qemu-user or qemu-user-static)")
    return run([*filter(None, [FOUND]), str(path), *arguments])


def linked(cross: list[str], objects: list[str], source: Path, to: Path) -> Path:
    run(
        [
            *cross,
            "-std=gnu11",
            "-O1",
            f"-I{ROOT / 'light/src'}",
            str(source),
            *objects,
            "-lm",
            "-pthread",
            "-o",
            str(to),
        ]
    )
    return to


def test_every_kernel_runs(cross: list[str], objects: list[str], tmp_path: Path) -> None:
    program = linked(cross, objects, Path(__file__).with_name("kernel_calls.c"), tmp_path / "kernels")
    assert emulated(program) == "2\n"  # NEON and plain C


@pytest.mark.parametrize("name", MODELS)
def test_translations_are_those_of_this_machine(
    name: str, cross: list[str], objects: list[str], tmp_path: Path
) -> None:
    program = linked(cross, objects, DRIVER, tmp_path / "driver")
    files, here = model_and_text(name, tmp_path)
    name_of_neon, *neon = emulated(program, *files, "lines", "1", "1").split("\n")
    name_of_plain, *plain = emulated(program, *files, "lines", "0", "1").split("\n")
    assert (name_of_neon, name_of_plain) == ("neon", "plain")
    assert neon[: len(here)] == plain[: len(here)] == here
    assert len(set(neon)) > 20


def model_and_text(name: str, folder: Path) -> tuple[tuple[str, str], list[str]]:
    """Two files, and how this machine translates the lines of the second one."""
    changes, more = MODELS[name]
    lines = ["".join(chr(0x4E00 + (7 * i + k * k) % 15) for k in range(1 + i % 12)) for i in range(60)]
    lines += training_text(20)
    files = str(folder / "mod\u00e8le.nmt"), str(folder / "text")
    Path(files[0]).write_bytes(content(changes, **more))
    Path(files[1]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    engine = library().open([files[0]])
    here = engine.translate([line.encode() for line in lines], engine.defaults()).texts().decode()
    return files, here.split("\n")[:-1]


@pytest.fixture(scope="module")
def windows_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Linked with the library that scripts/build_light writes."""
    zig, folder = zig_for("x86_64-windows-gnu"), tmp_path_factory.mktemp("windows")
    run([str(REPOSITORY / "scripts/build_light"), "--library", "--target", "windows-x86_64", "-o", str(folder)])
    source, library_file = Path(__file__).with_name("translate_lines.c"), folder / "nmt_engine.dll"
    run([*zig, "-std=c11", "-O1", f"-I{folder}", str(source), str(library_file), "-o", str(folder / "program.exe")])
    return folder / "program.exe"


@pytest.mark.parametrize("name", MODELS)
def test_translations_on_windows_are_those_of_this_machine(name: str, windows_program: Path, tmp_path: Path) -> None:
    if (wine := shutil.which("wine")) is None:
        pytest.skip("wine is not on PATH (Debian: wine64)")
    _, here = model_and_text(name, tmp_path)

    def translated(*arguments: str) -> tuple[int, list[str]]:
        command = [wine, str(windows_program), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
        return done.returncode, done.stdout.split("\n")

    for kernels in ("best", "plain"):
        for threads in ("1", "3"):
            code, (_, *found) = translated("-", "text", kernels, threads)
            assert (code, found[: len(here)]) == (0, here)
    assert translated("none.nmt", "text", "best", "1") == (1, ["none.nmt: No such file or directory", ""])
