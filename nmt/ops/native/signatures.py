"""The parameters of the C kernels, read from their sources: `API void NAME(name)(parameters, i64 threads)`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import torch

from nmt.compiling import BuildError

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_KERNEL: Final = re.compile(r"\bAPI\s+void\s+NAME\((\w+)\)\s*\(([^)]*)\)\s*\{")

_SCAN: Final = Path(__file__).with_name("scan.h")
"""Declares the kernels of the C files that include it, under names chosen by these files."""
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

    text: str
    """its text in the source"""
    letter: str
    """p, i or f"""
    target: str
    """its type without the pointer, such as `float`"""
    optional: bool = False
    """whether it is a pointer that may be null"""

    def dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        """The tensor types that a pointer accepts in the version of the kernel for `dtype`; empty: any type."""
        return (dtype,) if self.target == "T" else _DTYPES.get(self.target, ())


Signatures = dict[str, tuple[Parameter, ...]]
"""Parameters by the name of the kernel, without the last one, the number of threads."""


def read_signatures(source: Path) -> Signatures:
    """The signatures of all kernels of a C file.

    Raises:
        BuildError: it cannot be read, or has a kernel that cannot be called.
    """
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
        prefix = _PREFIX.search(text)
        if prefix:
            text += _UNIT.sub(rf"NAME({prefix[1]}\1)", _SCAN.read_text(encoding="utf-8"))
        text = _COMMENT.sub("", text)
    except OSError as error:
        raise BuildError(f"{source}: {error.strerror}") from None
    return {name: _parameters(f"{source}: {name}", listed) for name, listed in _KERNEL.findall(text)}


def _parameters(place: str, listed: str) -> tuple[Parameter, ...]:
    parameters = [_parameter(place, " ".join(text.split())) for text in listed.split(",")]
    if parameters[-1].text != "i64 threads":
        raise BuildError(f"{place}: the last parameter must be 'i64 threads'")
    return tuple(parameters[:-1])


def _parameter(place: str, text: str) -> Parameter:
    found = re.fullmatch(r"(?:const )?(\w+) ?(\*?) ?(?:restrict )?(OPTIONAL )?\w+", text)
    target, pointer, optional = found.groups() if found else ("", "", None)
    if target in ("T", "char", *_DTYPES) and pointer:
        return Parameter(text, "p", target, optional is not None)
    if target in ("i64", "float") and not pointer and not optional:
        return Parameter(text, target[0], target)
    raise BuildError(f"{place}: '{text}' is no pointer to T, char, {', '.join(_DTYPES)}, and no i64 or float")
