"""Lowering of the embedding tables."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.interop.engine.layers import check_class
from nmt.interop.engine.program import Op, Program, Value
from nmt.models.base import Seq2Seq
from nmt.models.embeddings import Embeddings


def check_embeddings(model: Seq2Seq) -> None:
    """Raise ConfigError for tables of a class that is not known."""
    check_class(model.embeddings, Embeddings)


def embed(program: Program, table: Tensor, bias: Tensor, *, factor: float, out: Value | None = None) -> Value:
    """factor * (table[token] + bias), of zeros at the start of a target sentence."""
    out = out or program.new(table.shape[1])
    tensors = [program.tensors.matrix([table]), program.tensors.vector([bias])]
    program.emit(Op.EMBED, out, tensors=tensors, f=float(torch.tensor(factor, dtype=torch.float32)))
    return out
