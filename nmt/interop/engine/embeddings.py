"""Lowering of the embedding tables."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.interop.engine.program import Op, Program, Value


def embed(program: Program, table: Tensor, bias: Tensor, *, factor: float, out: Value | None = None) -> Value:
    """factor * (table[token] + bias), of zeros at the start of a target sentence."""
    out = out or program.new(table.shape[1])
    tensors = [program.tensors.matrix([table]), program.tensors.vector([bias])]
    program.emit(Op.EMBED, out, tensors=tensors, f=float(torch.tensor(factor, dtype=torch.float32)))
    return out
