"""The weights of a model in ONNX graphs: products, embeddings and vectors, in fp32 or int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import torch.nn.functional as F
from onnx import TensorProto
from torch import Tensor

from nmt.interop.engine.program import Tensors
from nmt.onnx_export.graph import CONTRIB, Graph, Term, op
from nmt.ops.matrices import quantize_rows

OnnxPrecision = Literal["fp32", "int8"]

BLOCK: Final = 64
"""Columns of an int8 matrix that inputs are rounded with one scale for. With larger blocks ONNX Runtime 1.32 sums the
products of an only row in another order than those of several, so that translations depend on the batch."""
_ZERO: Final = 128
"""What stands for 0 in a matrix of numbers without a sign."""


class Weights:
    """The tensors of a lowered model, as constants of a graph and the graphs inside it."""

    def __init__(self, graph: Graph, tensors: Tensors, precision: OnnxPrecision) -> None:
        self._graph, self._tensors, self._precision = graph, tensors, precision

    def vector(self, number: int) -> Term:
        """[K]"""
        return self._constant(number, "vector", lambda tensor: tensor)

    def product(self, a: Term, number: int, *, rank: int) -> Term:
        """The product of a [..., K], of this rank, with the matrix [M, K]: [..., M]."""
        if self._precision == "int8":
            rows, columns = self._tensors.values(number).shape
            sizes = {"K": columns, "N": rows, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
            return op("MatMulNBits", a, *self._int8(number), domain=CONTRIB, **sizes)
        if rank == 2:  # as an embedding has it, so that a table which is both is there once
            return op("Gemm", a, self._matrix(number), transB=1)
        return op("MatMul", a, self._constant(number, "transposed", lambda tensor: tensor.t()))

    def rows(self, tokens: Term, number: int) -> Term:
        """The rows of a table [V, K] for tokens [...]: [..., K]."""
        if self._precision == "fp32":
            return op("Gather", self._matrix(number), tokens)
        values, scales = (op("Gather", table, tokens) for table in self._int8(number))
        exact = (op("Cast", values, to=TensorProto.FLOAT) - float(_ZERO)) * scales.unsqueezed(-1)
        columns = self._tensors.values(number).shape[1]
        joined = op("Reshape", exact, op("Concat", op("Shape", tokens), self._graph.integers(-1), axis=0))
        return joined if columns % BLOCK == 0 else joined.part(0, columns)

    def _matrix(self, number: int) -> Term:
        return self._constant(number, "matrix", lambda tensor: tensor)

    def _int8(self, number: int) -> tuple[Term, Term]:
        """Values [M, blocks, BLOCK] and their scales [M, blocks], those of a row being one."""
        if (known := self._graph.constant((number, "values"))) is None:
            values, scales = quantize_rows(self._tensors.values(number))
            padded = F.pad(values.short() + _ZERO, (0, -values.shape[1] % BLOCK), value=_ZERO)
            blocks = padded.view(len(values), -1, BLOCK).numpy().astype(np.uint8)
            known = self._graph.constant((number, "values"), blocks)
            self._graph.constant((number, "scales"), np.repeat(scales.view(-1, 1).numpy(), blocks.shape[1], 1))
        scale = self._graph.constant((number, "scales"))
        assert known is not None and scale is not None
        return known, scale

    def _constant(self, number: int, form: str, change: Callable[[Tensor], Tensor]) -> Term:
        known = self._graph.constant((number, form))
        known = known or self._graph.constant((number, form), change(self._tensors.values(number)).numpy())
        assert known is not None
        return known
