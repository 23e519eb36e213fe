"""The C kernels' sources: what they declare, and their compilation, once, with the machine's own compiler.

Each source is compiled once for each version of its kernels, see simd.h. The library also has the functions that call
kernels, one for each list of parameter kinds. It depends only on the C library: tensors are passed as addresses, and
threads come from the OpenMP runtime that torch has loaded.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from nmt import compiling
from nmt.compiling import BuildError, Recipe, processor

_HERE: Final = Path(__file__).parent

_MATH: Final = ("-fno-math-errno", "-fno-trapping-math")
_FLAGS: Final = ("-std=gnu11", "-O2", "-fvect-cost-model", "-fPIC", "-fvisibility=hidden", *_MATH)
_TARGETS: Final = {
    **dict.fromkeys(("x86_64", "AMD64"), ["-march=native"]),
    **dict.fromkeys(("arm64", "aarch64"), ["-mcpu=native"]),
}

VERSIONS = {
    "f32": ("-DTYPE=f32", "-DFIRST_VERSION"),
    "bf16": ("-DTYPE=bf16", "-DIN_TEAM"),
}
"""The versions of each kernel, by the last part of their names; see simd.h."""


def sources() -> list[Path]:
    """The C files, which are in the folders of their operations."""
    return sorted(_HERE.parent.glob("*/*.c"))


def common() -> list[Path]:
    """Those that are not a unit's own, which is compiled when the unit is used; the engine has other loops for it."""
    return [source for source in sources() if b"UNIT" not in source.read_bytes()]


def library(kernels: Sequence[Path], *, openmp: bool) -> Path:
    """Path of the library compiled from C files: that of a wheel, or a kept one, or one that is made now.

    Raises BuildError where there is none, and no compiler, or compiling fails.
    """
    made = recipe(kernels, _TARGETS.get(platform.machine(), ()), openmp=openmp)
    found = compiling.prebuilt("kernels", kernels) if openmp else None
    return found or compiling.library(made._replace(facts=processor()))


def recipe(kernels: Sequence[Path], processor: Sequence[str], *, openmp: bool) -> Recipe:
    """How they are compiled with flags for a processor."""
    flags = [*_FLAGS, *processor]
    own = [*flags, *(["-fopenmp"] if openmp else [])]
    folders = {_HERE, *(source.parent for source in kernels)}
    headers = sorted(path for folder in folders for path in folder.glob("*.h"))
    jobs = [[*own, *job] for job in compilations(kernels)]
    extra = _callers(kernels), [*own, *_flags("f32"), "-c"]
    # Linked without -fopenmp, so that the OpenMP runtime stays unresolved: loading the library resolves it to torch's.
    return Recipe([*headers, *kernels], jobs, flags, extra)


def compilations(kernels: Sequence[Path]) -> list[list[str]]:
    """The arguments of the compiler for each object, without its flags and the output path."""
    return [[*_flags(version), "-c", str(source)] for source in kernels for version in VERSIONS]


def _flags(version: str) -> list[str]:
    return [f"-I{_HERE}", *VERSIONS[version], f"-DVERSION={version}"]


# The parameters of the kernels are read from their sources: `API void NAME(name)(parameters, i64 threads)`.
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_KERNEL: Final = re.compile(r"\bAPI\s+void\s+NAME\((\w+)\)\s*\(([^)]*)\)\s*\{")

# scan.h declares the kernels of the C files that include it, under names chosen by these files.
_PREFIX: Final = re.compile(r"#define UNIT\(name\) NAME\((\w+)##name\)")
_UNIT: Final = re.compile(r"\bUNIT\((\w+)\)")

_DTYPES: Final = {
    "float": (torch.float32,),
    "bf16": (torch.bfloat16,),
    "uint8_t": (torch.bool, torch.uint8),
    "int8_t": (torch.int8,),
    "int32_t": (torch.int32,),
    "i64": (torch.int64,),
}


class Parameter(NamedTuple):
    """One parameter of a kernel, which is a pointer, an i64 or a float."""

    text: str  # its text in the source
    letter: str  # p, i or f
    target: str  # its type without the pointer, such as `float`
    optional: bool = False  # whether it is a pointer that may be null

    def dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        """The tensor types that a pointer accepts in the version of the kernel for `dtype`; empty: any type."""
        return (dtype,) if self.target == "T" else _DTYPES.get(self.target, ())


def read_signatures(source: Path) -> dict[str, tuple[Parameter, ...]]:
    """The parameters of all kernels of a C file, without the last one, the number of threads.

    Raises:
        BuildError: it cannot be read, or has a kernel that cannot be called.
    """
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
        if prefix := _PREFIX.search(text):
            text += _UNIT.sub(rf"NAME({prefix[1]}\1)", (_HERE / "scan.h").read_text(encoding="utf-8"))
        text = _COMMENT.sub("", text)
    except OSError as error:
        raise BuildError(f"{source}: {error.strerror}") from None
    signatures = {}
    for name, listed in _KERNEL.findall(text):
        *parameters, last = [" ".join(text.split()) for text in listed.split(",")]
        if last != "i64 threads":
            raise BuildError(f"{source}: {name}: the last parameter must be 'i64 threads'")
        signatures[name] = tuple(_parameter(f"{source}: {name}", text) for text in parameters)
    return signatures


def _callers(kernels: Sequence[Path]) -> str:
    """C functions, one for each kind of kernel, which call kernels of this kind."""
    text = '#include "call.h"\n'
    for kind in sorted({shape(one) for path in kernels for one in read_signatures(path).values()}):
        types = ", ".join({"p": "void *", "i": "i64", "f": "float"}[letter] for letter in kind)
        values = ", ".join(f"a[{place}].{letter}" for place, letter in enumerate(kind))
        text += f"API void call_{kind}(kernel_function f, const slot *a) {{ ((void (*)({types}))f)({values}); }}\n"
    return text


def shape(parameters: tuple[Parameter, ...]) -> str:
    """The kind of a kernel: the letters of its parameters, with that of the number of threads."""
    return "".join(parameter.letter for parameter in parameters) + "i"


def _parameter(place: str, text: str) -> Parameter:
    found = re.fullmatch(r"(?:const )?(\w+) ?(\*?) ?(?:restrict )?(OPTIONAL )?\w+", text)
    target, pointer, optional = found.groups() if found else ("", "", None)
    if target in ("T", "char", *_DTYPES) and pointer:
        return Parameter(text, "p", target, optional is not None)
    if target in ("i64", "float") and not pointer and not optional:
        return Parameter(text, target[0], target)
    raise BuildError(f"{place}: '{text}' is no pointer to T, char, {', '.join(_DTYPES)}, and no i64 or float")
