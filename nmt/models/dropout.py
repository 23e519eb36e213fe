"""Dropout as a module."""

from __future__ import annotations

from torch import Tensor, nn

from nmt.ops.dropout import dropout


class Dropout(nn.Dropout):
    """torch's dropout, several times faster on a CPU; see `nmt.ops.dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """x [...] in training with values dropped, otherwise x."""
        return dropout(x, self.p) if self.training and self.p > 0 else x
