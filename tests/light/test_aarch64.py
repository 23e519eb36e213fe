"""The engine for another processor, cross-compiled and run by an emulator: NEON, plain C and this machine agree."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from nmt.light.sources import FLAGS, compilations
from tests.light.engine_driver import DRIVER, ROOT
from tests.light.engine_files import library
from tests.light.subword_models import training_text
from tests.light.test_safety import MODELS, content

FOUND = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cross() -> list[str]:
    zig = shutil.which("zig") or shutil.which("python-zig")
    if zig is None:
        pytest.skip("zig, which compiles for aarch64, is not on PATH (PyPI: ziglang)")
    return [zig, "cc", "-target", "aarch64-linux-musl", "-static"]


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
    changes, more = MODELS[name]
    lines = ["".join(chr(0x4E00 + (7 * i + k * k) % 15) for k in range(1 + i % 12)) for i in range(60)] + training_text(
        20
    )
    (tmp_path / "model.nmt").write_bytes(content(changes, **more))
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = str(tmp_path / "model.nmt"), str(tmp_path / "text")
    name_of_neon, *neon = emulated(program, *files, "lines", "1", "1").split("\n")
    name_of_plain, *plain = emulated(program, *files, "lines", "0", "1").split("\n")
    assert (name_of_neon, name_of_plain) == ("neon", "plain")
    engine = library().open([os.fspath(tmp_path / "model.nmt")])
    here = engine.translate([line.encode() for line in lines], engine.defaults()).texts().decode()
    assert neon[: len(lines)] == plain[: len(lines)] == here.split("\n")[:-1]
    assert len(set(neon)) > 20
