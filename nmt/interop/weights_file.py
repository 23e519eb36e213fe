"""Files of weights (safetensors): read and written whole, and damage told apart from a moment without access."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

from nmt.errors import CheckpointError, UnreadableError, printable
from nmt.files import is_out_of_memory, read_file, reason, unreadable, write_file

T = TypeVar("T")


class DamagedError(CheckpointError):
    """A file that was read and does not hold what it should."""


def read_weights(file: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU.

    Raises:
        UnreadableError: it cannot be read at this moment.
        DamagedError: it was read and is no whole file of weights.
    """
    return parse_weights(file, read_file(file))


def parse_weights(file: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a file with this content; raises as `read_weights`."""
    # Not mapped into memory: of a mapped file a failing disk ends the process without a word.
    return parsed(file, lambda: safetensors.torch.load(content))


def read_metadata(file: Path) -> dict[str, str]:
    """What was saved beside the weights of a file; raises as `read_weights`."""

    def metadata() -> dict[str, str]:
        with safe_open(file, framework="pt") as reader:
            return dict(reader.metadata() or {})

    read_file(file)
    return parsed(file, metadata)


def parsed(file: Path, parse: Callable[[], T]) -> T:
    """What `parse` makes of the content of `file`.

    Raises:
        UnreadableError: not for what the file holds, but for want of memory or something else of the moment.
        DamagedError: anything else that `parse` raises.
    """
    try:
        return parse()
    except Exception as error:  # parsers raise whatever they meet in a damaged file
        if is_out_of_memory(error) or isinstance(error, OSError | ImportError | UnreadableError):
            raise unreadable(file, error) from error
        raise DamagedError(f"{file}: damaged file ({printable(reason(error))})") from error


def write_weights(file: Path, weights: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Write tensors, with `metadata`, and return the file's content. An OSError names the file.

    The file gets the rights that the umask leaves it, which safetensors' own function denies to the group.
    """
    contiguous = {name: weight.detach().contiguous() for name, weight in weights.items()}
    content = safetensors.torch.save(contiguous, metadata=dict(metadata) if metadata else None)
    write_file(file, content)
    return content
