"""Programs of C that are linked with the whole engine, compiled as a test needs them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import nmt
from nmt.light.sources import FLAGS, LIBRARIES, Compilation, compilations
from tests.light.subwords_library import compiler

ROOT = Path(nmt.__file__).parent
DRIVER = Path(__file__).with_name("damage_engine.c")
SANITIZED = ("-g1", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert not done.returncode, f"{' '.join(command)}\n{done.stderr[-3000:]}"


def is_table(one: Compilation) -> bool:
    """Whether it is the kernels of one instruction set, which take long to compile."""
    return one.source.endswith("kernels_table.c")


def engine_objects(
    folder: Path,
    *flags: str,
    command: Sequence[str] = (),
    kernels: Sequence[str] | None = None,
) -> list[str]:
    """What the linker needs of the engine, with the kernels in plain C in place of those of every instruction set.

    Args:
        command: the compiler, if not the usual one.
        kernels: flags of the kernels instead.
    """
    objects, aliases = list[str](), list[str]()
    for one in compilations(platform.machine()):
        if is_table(one) and one.name != "kernels_plain":
            aliases.append(f"-Wl,--defsym,{one.name}=kernels_plain")
            continue
        objects.append(str(folder / f"{one.name}.o"))
        own = kernels if kernels is not None and is_table(one) else flags
        compiled = [*(command or compiler()), *FLAGS, *own, *one.flags, f"-I{ROOT / 'ops/native'}"]
        _run([*compiled, "-c", str(ROOT / one.source), "-o", objects[-1]])
    return [*objects, *aliases]


def linked(path: Path, source: Path, objects: Sequence[str], *flags: str, command: Sequence[str] = ()) -> Path:
    """A source and the objects of the engine as the program `path`."""
    compiled = [*(command or compiler()), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'light/src'}", *flags]
    _run([*compiled, str(source), *objects, "-pthread", *LIBRARIES, "-o", str(path)])
    return path


def driver(folder: Path, *flags: str, kernels: Sequence[str] | None = None, link: Sequence[str] = ()) -> Path:
    """damage_engine.c and the engine, with plain kernels only; see `engine_objects`."""
    objects = engine_objects(folder, *flags, kernels=kernels)
    return linked(folder / "driver", DRIVER, [*objects, *link], *flags)


def run_driver(path: Path, folder: Path, model: bytes, text: bytes, *, what: str, rounds: int, seed: int = 1) -> int:
    """What it prints; fails with what a sanitizer reports."""
    (folder / "model.nmt").write_bytes(model)
    (folder / "text").write_bytes(text)
    command = [str(path), str(folder / "model.nmt"), str(folder / "text"), what, str(rounds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-4000:]}"
    return int(done.stdout)
