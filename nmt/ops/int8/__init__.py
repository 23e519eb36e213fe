"""Products with matrices in 8-bit integers, for inference: `Int8Matrix`, made by `quantize`, used by `F.linear`.

    y[n, j] = s_n t_j sum_k q[n, k] w[j, k] + b_j,   s_n = max_k |x[n, k]| / 127,   q = round(x / s_n),   w alike

Weights have one scale for each output, activations one for each row, chosen from that row alone, and the sum is
exact: the product of a row does not depend on the other rows.
"""

from __future__ import annotations

from nmt.ops.int8.matrix import Int8Matrix, int8_linear, plain_parts, quantize, rebuilt_matrix
from nmt.ops.int8.product import implementation

__all__ = ["Int8Matrix", "implementation", "int8_linear", "plain_parts", "quantize", "rebuilt_matrix"]
