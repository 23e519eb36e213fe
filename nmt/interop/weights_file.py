"""Files of weights (safetensors), read and written completely: damage, also NaN and infinite values, is told from
temporary read errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from nmt.errors import CheckpointError, UnreadableError, printable
from nmt.files import is_out_of_memory, open_model_file, read_file, reason, unreadable, write_file

T = TypeVar("T")

_METADATA = "__metadata__"
_LENGTH = 8
"""Bytes of the length of the header, which come first."""
_LARGEST_HEADER = 100_000_000
"""Bytes, as in safetensors itself."""
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_SHOWN = 3
"""Tensors named in a message; there can be hundreds."""
LONGEST_NAME = 80


class DamagedError(CheckpointError):
    """A file that was read and does not hold what it should."""


def read_weights(file: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU; for files from others see `read_shapes`.

    Raises:
        UnreadableError: it cannot be read at this moment.
        DamagedError: it was read and is not a complete file of weights.
    """
    _read_header(file)  # shows whether reading the rest is useful
    return parse_weights(file, read_file(file))


def parse_weights(file: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a file with this content; raises as `read_weights`."""
    # Not mapped into memory: of a mapped file a failing disk ends the process without a word.
    return parsed(file, lambda: safetensors.torch.load(content))


def read_shapes(file: Path) -> dict[str, Tensor]:
    """The tensors of `read_weights` on the meta device: names and sizes, for which only the header is read.

    A file from others can be of any size, so its weights are read only if they are the expected ones. Raises as
    `read_weights`; damage after the header is not detected.
    """
    header = _read_header(file)
    header.pop(_METADATA, None)

    def shapes() -> dict[str, Tensor]:
        for entry in header.values():
            if entry["dtype"] not in _TYPES:
                raise ValueError(f"of type {entry['dtype']}, which no weights have")
        return {
            name: torch.empty(entry["shape"], dtype=_TYPES[entry["dtype"]], device="meta")
            for name, entry in header.items()
        }

    return parsed(file, shapes)


def read_metadata(file: Path) -> dict[str, str]:
    """The metadata saved with the weights of a file; raises as `read_weights`."""
    found = _read_header(file).get(_METADATA) or {}
    return parsed(file, lambda: {str(key): str(value) for key, value in dict(found).items()})


def _read_header(file: Path) -> dict[str, Any]:
    """The header of a file (https://huggingface.co/docs/safetensors), if its sizes match the file's size."""

    def header() -> dict[str, Any]:
        with open_model_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(_LENGTH), "little")
            if not 2 <= length <= min(_LARGEST_HEADER, size - _LENGTH):
                raise ValueError("it begins with no header")
            found = json.loads(stream.read(length).decode("utf-8"))
        end = max((entry["data_offsets"][1] for name, entry in found.items() if name != _METADATA), default=0)
        if _LENGTH + length + end != size:
            raise ValueError(f"{size:,} bytes, but by its header {_LENGTH + length + end:,}")
        return dict(found)

    return parsed(file, header)


def parsed(file: Path, parse: Callable[[], T]) -> T:
    """The result of `parse` for the content of `file`.

    Raises:
        UnreadableError: a temporary problem, such as a lack of memory, not the file's content.
        DamagedError: any other exception of `parse`.
    """
    try:
        return parse()
    except Exception as error:  # parsers can raise anything for a damaged file
        if is_out_of_memory(error) or isinstance(error, OSError | ImportError | UnreadableError):
            raise unreadable(file, error) from error
        raise DamagedError(f"{file}: damaged file ({printable(reason(error))})") from error


def check_finite(weights: Mapping[str, Tensor], *, file: Path) -> None:
    """Raise DamagedError, which names file, tensors and counts, if a value is NaN or infinite."""
    if wrong := not_finite(weights):
        raise DamagedError(f"{file}: {first_few(wrong)}")


def not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """Each tensor with values that are NaN or infinite, and how many, in words."""
    wrong = []
    for name, weight in sorted(weights.items()):
        # The sum, read off in one pass, is finite only if all are; it can be infinite by itself, so then each is
        # looked at. Types of one byte have no sum.
        small = weight.dtype.itemsize < 2
        if not weight.is_floating_point() or (not small and bool(weight.sum().isfinite())):
            continue
        if count := int((~(weight.float() if small else weight).isfinite()).sum()):
            shown = printable(name[:LONGEST_NAME])
            wrong.append(f"{shown} contains NaN or infinite values ({count:,} of {weight.numel():,})")
    return wrong


def first_few(problems: Sequence[str]) -> str:
    """Some of many problems, and how many more there are."""
    rest = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + rest


def write_weights(file: Path, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Write tensors, with `metadata`, and return the file's content. An OSError names the file.

    The umask decides who may read the file; safetensors' own function would exclude the group.
    """
    content = weights_bytes(weights, metadata=metadata)
    write_file(file, content)
    return content


def weights_bytes(weights: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """The content of a file of weights: the same bytes for the same tensors and metadata, in whatever order.

    safetensors' own function writes metadata in an order that differs from call to call.
    """
    found = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    names = sorted(found, key=lambda name: (-found[name].element_size(), name))  # so that each begins at a multiple
    header: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in names:
        dtype = _NAMES.get(found[name].dtype)
        if dtype is None:
            raise CheckpointError(f"{name}: is {found[name].dtype}, not one of {', '.join(_TYPES)}")
        start, end = end, end + found[name].nbytes
        header[name] = {"dtype": dtype, "shape": list(found[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _LENGTH)
    # Of one element or none, contiguous says nothing about the stride, which a view as bytes needs to be 1.
    flat = (found[name].as_strided((found[name].numel(),), (1,)) for name in names)
    data = (each.view(torch.uint8).numpy().data for each in flat)
    return b"".join([len(text).to_bytes(_LENGTH, "little"), text, *data])
