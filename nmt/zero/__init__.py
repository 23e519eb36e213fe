"""Models of the original Zero system, converted to model directories and back; docs/from_zero.md describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.zero.weights import cell_from_arrays, conditional_from_arrays, from_arrays, named_gradients, to_arrays

__all__ = ["cell_from_arrays", "conditional_from_arrays", "from_arrays", "named_gradients", "to_arrays"]
__getattr__ = members(__name__, {"weights": __all__})
