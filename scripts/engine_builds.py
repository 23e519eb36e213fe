"""Compiles the engine for this machine or, with zig, for others; common part of build_light and build_web."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.compiling import BuildError, find_compiler
from nmt.light.sources import FLAGS, LIBRARIES, Compilation, compilations

ROOT = Path(__file__).resolve().parents[1]
NATIVE = "native"


class Target(NamedTuple):
    """A system that the engine can be compiled for."""

    triple: str
    """its name in zig, with the version of its C library"""
    machine: str
    """its name in `nmt.light.sources`"""
    platform: str
    """the tag of its wheels; on Linux `platform_tag` adds the version of the C library"""
    library: str
    """the file name of the shared library"""


TARGETS = {
    "linux-x86_64": Target("x86_64-linux-gnu.2.17", "x86_64", "linux_x86_64", "libnmt_engine.so"),
    "linux-aarch64": Target("aarch64-linux-gnu.2.17", "aarch64", "linux_aarch64", "libnmt_engine.so"),
    "macos-x86_64": Target("x86_64-macos.11.0", "x86_64", "macosx_11_0_x86_64", "libnmt_engine.dylib"),
    "macos-aarch64": Target("aarch64-macos.11.0", "aarch64", "macosx_11_0_arm64", "libnmt_engine.dylib"),
    "windows-x86_64": Target("x86_64-windows-gnu", "x86_64", "win_amd64", "nmt_engine.dll"),
}
"""By the names that --target accepts."""


def find_zig() -> list[str] | None:
    """The command of zig: ZIG of the environment, else `zig`, else the package ziglang; None if there is none."""
    chosen = os.environ.get("ZIG", "").split()
    if chosen:
        return chosen
    if found := shutil.which("zig"):
        return [found]
    return [sys.executable, "-m", "ziglang"] if importlib.util.find_spec("ziglang") else None


def target_of(name: str) -> Target:
    """The target with this name. BuildError lists the names that are allowed."""
    if name not in TARGETS:
        raise BuildError(f"--target {name}: is not known. Allowed: {', '.join((NATIVE, *TARGETS))}.")
    return TARGETS[name]


def native_target() -> Target:
    """This machine, with its own compiler."""
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return Target(
        "", platform.machine(), tag, "libnmt_engine.dylib" if sys.platform == "darwin" else "libnmt_engine.so"
    )


def built(target: Target, to: Path) -> None:
    """Write the shared library for a target to `to`. The same sources and compiler give the same bytes."""
    command = find_compiler() if not target.triple else [*zig_for(target.triple), "cc", "-target", target.triple]
    system = target.platform.partition("_")[0]
    strip = {"macosx": [], "win": ["-s"]}.get(system, ["-s", "-Wl,--build-id=none"])
    own = [] if system == "win" else ["-fPIC", "-pthread"]
    with tempfile.TemporaryDirectory() as scratch:
        objects = compiled(command, compilations(target.machine), ["-fvisibility=hidden", *own], Path(scratch))
        run([*command, "-shared", *own, *strip, *objects, "-o", str(to), *LIBRARIES])


def zig_for(what: str) -> list[str]:
    """The command of zig; BuildError if there is none."""
    zig = find_zig()
    if zig is None:
        raise BuildError(f"{what}: needs zig: pip install ziglang, or zig on PATH, or ZIG in the environment")
    return zig


def compiled(command: Sequence[str], parts: Sequence[Compilation], flags: Sequence[str], folder: Path) -> list[str]:
    """Compile to objects in `folder`, on all cores. Sources have relative paths: objects contain no local path."""
    outputs = [str(folder / f"{part.name}.o") for part in parts]
    jobs = [
        [*command, *FLAGS, *flags, *part.flags, "-c", f"nmt/{part.source}", "-o", output]
        for part, output in zip(parts, outputs, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(run, jobs):
            pass
    return outputs


def run(command: Sequence[str]) -> None:
    """Run a compiler from the root; BuildError with the first line of its errors if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: cannot be run ({error.strerror})") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["failed"]
        raise BuildError(f"{command[0]}: {lines[0].strip()}")


def platform_tag(target: Target, library: bytes) -> str:
    """The tag of a wheel with this library: on Linux manylinux with the oldest glibc that has all symbols it needs."""
    if not target.platform.startswith("linux_"):
        return target.platform
    machine, oldest = target.platform.removeprefix("linux_"), (2, 17)  # which all installers know
    # The library contains the versions of its symbols as text.
    needed = [(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)]
    if not needed:  # another C library, whose version a wheel cannot state
        return target.platform
    major, minor = max(*needed, oldest)
    tag = f"manylinux_{major}_{minor}_{machine}"
    return f"manylinux2014_{machine}.{tag}" if (major, minor) == (2, 17) else tag
