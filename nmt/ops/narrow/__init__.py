"""Weights in narrow formats of their own, for inference: what a product with them has in common.

A `NarrowMatrix` stands in for the weight it was made from. Where the CPU has the instructions, its values are laid out
once in the order in which a C kernel reads them, so that products with few rows cost little more than reading them,
and the words with the largest of its products are found in the same pass (`nmt.ops.best`).
"""

from __future__ import annotations

from nmt.ops.narrow.bf16 import Bf16Matrix, to_bf16, worth_packing
from nmt.ops.narrow.matrix import NarrowMatrix, plain_parts, rebuilt_matrix

__all__ = ["Bf16Matrix", "NarrowMatrix", "plain_parts", "rebuilt_matrix", "to_bf16", "worth_packing"]
