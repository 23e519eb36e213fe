"""Reading an exported folder: its weights may have another number format, and all its files are checked."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from nmt.config import Config
from nmt.config.schema import DecodingConfig
from nmt.data.saved_tokenizer import CHECKSUMS
from nmt.errors import CheckpointError, missing, printable
from nmt.files import LARGEST_RECORD, is_file, is_folder, read_file, read_sums
from nmt.interop import run_layout
from nmt.interop.stored_weights import FORMATS, Format
from nmt.interop.weights_file import DamagedError, parse_weights, read_metadata
from nmt.light.options import names_of

VERSION_KEY: Final = "nmt_export"
VERSION: Final = "1"
"""Version of the format; a file states its version under VERSION_KEY."""
FORMAT_KEY: Final = "stored_as"
"""Key under which a file states which of FORMATS its weights have."""
TOKENIZER_SUMS: Final = f"{run_layout.TOKENIZER}/{CHECKSUMS}"
_NEEDED: Final = (run_layout.CONFIG, run_layout.WEIGHTS, TOKENIZER_SUMS)


def decoding_files(decoding: DecodingConfig) -> dict[str, str]:
    """By its key each file that the decoding settings name, as `shortlist`; a language model is no file."""
    return {key: value for key in names_of("file") if (value := getattr(decoding, key)) is not None}


def format_name(directory: Path) -> str | None:
    """Which of FORMATS the exported folder `directory` has; None where it is no exported folder.

    Raises:
        CheckpointError: it was exported by a version that this one does not know.
    """
    file = directory / run_layout.WEIGHTS
    if not is_file(file):
        return None
    metadata = read_metadata(file)
    version = metadata.get(VERSION_KEY)
    if version is None:
        return None
    name = metadata.get(FORMAT_KEY, "")
    if version != VERSION or name not in FORMATS:
        what = f"format {version!r}, weights {name!r}"[:100]
        raise CheckpointError(
            f"{file}: exported by an unknown version of nmt ({printable(what)}); "
            f"this one reads format {VERSION!r}, weights {', '.join(FORMATS)}"
        )
    return name


def check_trainable(directory: Path) -> None:
    """Raise CheckpointError for an exported folder with rounded weights."""
    name = format_name(directory)
    if name not in (None, "fp32"):
        raise CheckpointError(
            f"{directory}: exported in {name}, so its weights are rounded; use the run, or an export in fp32"
        )


def check_no_graphs(directory: Path) -> None:
    """Raise CheckpointError for a folder of ONNX graphs, which also has the checksums of an exported folder."""
    if is_file(directory / run_layout.ENCODER) and is_file(directory / run_layout.STEP):
        raise CheckpointError(
            f"{directory}: exported as ONNX graphs, for programs with ONNX Runtime; give the run or another export"
        )


def is_exported(directory: Path) -> bool:
    """Whether this is an exported folder, however damaged."""
    if is_folder(run_layout.checkpoints_dir(directory)) or directory.parent.name == run_layout.CHECKPOINTS:
        return False
    return is_file(directory / run_layout.SUMS) or format_name(directory) is not None


def check_files(directory: Path) -> dict[str, str]:
    """The checksums of an exported folder, after checking its files; its weights are checked when they are read.

    Raises:
        DamagedError: there are none, or a file is missing or has changed.
    """
    sums = read_checksums(directory)
    for name, digest in sums.items():
        if name != run_layout.WEIGHTS:
            check_file(directory / name, digest)
    return sums


def read_checksums(directory: Path) -> dict[str, str]:
    """Those of an exported folder, by the names of its files; DamagedError where there is no such list."""
    file = directory / run_layout.SUMS
    if not is_file(file):
        raise DamagedError(missing(file, "an exported folder must have it"))
    sums = read_sums(read_file(file, largest=LARGEST_RECORD))
    if sums is None or not sums.keys() >= set(_NEEDED):
        raise DamagedError(f"{file}: not a list of the checksums of {', '.join(_NEEDED)}")
    for name in sums:
        if name not in _NEEDED and (Path(name).name != name or name.startswith(".")):
            raise DamagedError(f"{file}: {printable(name[:100])!r} is not a file of an exported folder")
    return sums


def check_file(file: Path, digest: str) -> bytes:
    """The content of a file of the folder; DamagedError where it is missing or has another checksum."""
    if not is_file(file):
        raise DamagedError(f"{file}: missing, although {run_layout.SUMS} lists it")
    content = read_file(file)
    if hashlib.sha256(content).hexdigest() != digest:
        raise DamagedError(
            f"{file}: changed since it was exported: its SHA-256 differs from the one in {run_layout.SUMS}; export "
            f"again, or set options on the command line"
        )
    return content


def read_stored(file: Path, digest: str) -> dict[str, Tensor]:
    """The tensors of an exported file of weights, whose content has this checksum; raises as `check_file`."""
    return parse_weights(file, check_file(file, digest))


def with_own_files(config: Config, directory: Path) -> Config:
    """The configuration of an exported folder; the files named in decoding are those of the folder."""
    own: dict[str, Any] = {
        key: str(directory / Path(name).name) for key, name in decoding_files(config.decoding).items()
    }
    return dataclasses.replace(config, decoding=dataclasses.replace(config.decoding, **own)) if own else config


def form_of(directory: Path) -> Format | None:
    """What the weights of an exported folder are stored as; None where it is none. Raises as `format_name`."""
    name = format_name(directory)
    return None if name is None else FORMATS[name]
