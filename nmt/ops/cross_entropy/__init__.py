"""Label-smoothed cross entropy of logits: its definition, and the constants of its closed form.

With s = `label_smoothing` and V words the wanted distribution gives 1 - s to the target and q = s / (V - 1) to each
other word; its own entropy is subtracted, so that a perfect fit costs nothing:

    loss = lse(x) - (1 - s - q) x_target - q sum(x) + (1 - s) ln(1 - s) + s ln(q + 1e-20)
"""

from __future__ import annotations

from nmt.ops.cross_entropy.reference import reference_cross_entropy, smoothing_terms

__all__ = ["reference_cross_entropy", "smoothing_terms"]
