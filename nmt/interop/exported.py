"""An exported folder: what its weights are stored as, and reading it with all its files checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data.saved_tokenizer import CHECKSUMS
from nmt.errors import CheckpointError, missing, printable
from nmt.files import LARGEST_RECORD, is_file, read_file, read_sums
from nmt.interop import run_layout
from nmt.interop.weights_file import DamagedError, read_metadata
from nmt.light.options import names_of
from nmt.models.base import Seq2Seq
from nmt.models.inference import SOFTMAX, Stored, known_matrices, step_matrices
from nmt.ops.matrices import LARGEST, int8_matrix, quantize_rows

VERSION_KEY: Final = "nmt_export"
VERSION: Final = "1"
"""Version of the format; a file states its version under VERSION_KEY."""
FORMAT_KEY: Final = "stored_as"
"""Key under which a file states which of FORMATS its weights have."""
TOKENIZER_SUMS: Final = f"{run_layout.TOKENIZER}/{CHECKSUMS}"
_NEEDED: Final = (run_layout.CONFIG, run_layout.WEIGHTS, TOKENIZER_SUMS)
Precision = Literal["fp32", "bf16", "int8"]

VALUES: Final = ".int8"
"""Ends the name of the values int8 [M, K] of a matrix, row by row."""
SCALES: Final = ".scales"
"""Suffix of the name of its scales fp32 [M]: row m is values[m] * scales[m]."""


class Format(NamedTuple):
    """What the weights are stored as."""

    precision: Precision
    """What they are for: with int8 the matrices that each step of a search reads are stored as a search takes them."""
    others: torch.dtype
    """Type of all other known matrices and of the embeddings. All else is as in training, such as vectors."""
    words: str
    """In words, for people."""


FORMATS: Final[Mapping[str, Format]] = {
    "fp32": Format("fp32", torch.float32, "fp32"),
    "bf16": Format("bf16", torch.bfloat16, "matrices and embeddings bf16, vectors fp32"),
    "int8": Format("int8", torch.float32, "matrices of decoder and output layer int8, everything else fp32"),
    "int8_bf16": Format(
        "int8", torch.bfloat16, "matrices of decoder and output layer int8, other matrices and embeddings bf16"
    ),
}
"""By the names that `--precision` of nmt-export has for them."""


def packed(model: Seq2Seq, form: Format) -> dict[str, Tensor]:
    """The tensors of a file with the weights of `model`, by name."""
    matrices, others = _parts(model, form)
    found = {name: weight.detach().to(dtype) for name, (weight, dtype) in others.items()}
    for name, weight in matrices.items():
        found[name + VALUES], scales = quantize_rows(weight)
        found[name + SCALES] = scales.squeeze(1)
    return found


def layout(model: Seq2Seq, form: Format) -> dict[str, Tensor]:
    """What `packed` of such a model yields, on the meta device: names, shapes and types.

    On that device, `packed` itself would make PyTorch spend seconds on imports.
    """
    matrices, others = _parts(model, form)
    planned = {name: (weight.shape, dtype) for name, (weight, dtype) in others.items()}
    for name, weight in matrices.items():
        planned[name + VALUES], planned[name + SCALES] = (weight.shape, torch.int8), (weight.shape[:1], torch.float32)
    return {name: torch.empty(shape, dtype=dtype, device="meta") for name, (shape, dtype) in planned.items()}


def _parts(model: Seq2Seq, form: Format) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, torch.dtype]]]:
    """The matrices that are stored in int8, and all other weights with the types they are stored in."""
    matrices, known = _int8_matrices(model, form), dict(known_matrices(model))
    return matrices, {
        name: (weight, form.others if name in known else weight.dtype)
        for name, weight in model.state_dict().items()
        if name not in matrices
    }


def _int8_matrices(model: Seq2Seq, form: Format) -> dict[str, Tensor]:
    if form.precision != "int8":
        return {}
    return {**dict(step_matrices(model)), SOFTMAX: model.embeddings.softmax_table}


def unpacked(tensors: Mapping[str, Tensor], model: Seq2Seq, form: Format) -> tuple[dict[str, Tensor], Stored]:
    """The state dict of `model`, with the values that the tensors stand for, and what a search takes as it is."""
    names = _int8_matrices(model, form)
    matrices = {name: int8_matrix(tensors[name + VALUES], tensors[name + SCALES]) for name in names}
    weights = {}
    for name in model.state_dict():
        weight = matrices[name].dequantize() if name in matrices else tensors[name]
        weights[name] = weight.float() if weight.dtype == torch.bfloat16 else weight
    return weights, Stored(form.precision, matrices)


def on_device(stored: Stored, device: torch.device) -> Stored:
    """The same, read to the CPU, with its matrices on `device`."""
    if device.type == "cpu":
        return stored
    moved = {}
    for name, matrix in stored.matrices.items():
        rows, width = matrix.shape
        moved[name] = int8_matrix(matrix.values[:rows, :width].to(device), matrix.scales.to(device))
    return stored._replace(matrices=moved)


def value_problems(tensors: Mapping[str, Tensor]) -> list[str]:
    """What is wrong with values and scales, whose shapes and types are right."""
    wrong = []
    for name, tensor in tensors.items():
        if name.endswith(VALUES) and tensor.numel() and int(tensor.min()) < -LARGEST:
            wrong.append(f"{name} holds {int(tensor.min())}, below {-LARGEST}")
        elif name.endswith(SCALES) and not bool(((tensor > 0) & tensor.isfinite()).all()):
            wrong.append(f"{name} holds scales that are not positive numbers")
    return wrong


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
