"""The weights of an exported folder: as they are stored for a number format, and as a model has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.models.inference import SOFTMAX, Stored, known_matrices, step_matrices
from nmt.ops.matrices import LARGEST, int8_matrix, quantize_rows

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
    matrices = _step_matrices(model) if form.precision == "int8" else {}
    others, found = dict(known_matrices(model)), {}
    for name, weight in model.state_dict().items():
        if name not in matrices:
            found[name] = weight.detach().to(form.others) if name in others else weight.detach()
    for name, weight in matrices.items():
        found[name + VALUES], scales = quantize_rows(weight)
        found[name + SCALES] = scales.squeeze(1)
    return found


def layout(model: Seq2Seq, form: Format) -> dict[str, Tensor]:
    """What `packed` of such a model yields, on the meta device: names, shapes and types.

    On that device, `packed` itself would make PyTorch spend seconds on imports.
    """
    matrices = _step_matrices(model) if form.precision == "int8" else {}
    others, found = dict(known_matrices(model)), {}
    for name, weight in model.state_dict().items():
        if name not in matrices:
            found[name] = _planned(weight.shape, form.others if name in others else weight.dtype)
    for name, weight in matrices.items():
        found[name + VALUES] = _planned(weight.shape, torch.int8)
        found[name + SCALES] = _planned(weight.shape[:1], torch.float32)
    return found


def _planned(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def unpacked(tensors: Mapping[str, Tensor], model: Seq2Seq, form: Format) -> tuple[dict[str, Tensor], Stored]:
    """The state dict of `model`, with the values that the tensors stand for, and what a search takes as it is."""
    names = _step_matrices(model) if form.precision == "int8" else {}
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


def type_problems(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """Tensors of another type than they must have."""
    both = [(name, expected[name].dtype, found[name].dtype) for name in sorted(expected.keys() & found.keys())]
    return [f"{name} is {_word(is_)} but must be {_word(must)}" for name, must, is_ in both if is_ != must]


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _step_matrices(model: Seq2Seq) -> dict[str, Tensor]:
    return {**dict(step_matrices(model)), SOFTMAX: model.embeddings.softmax_table}
