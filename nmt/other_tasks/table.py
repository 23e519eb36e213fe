"""The table of embeddings of models that read one vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import as_initializer


class Table(nn.Module):
    """Embeddings [V, E]."""

    def __init__(self, entries: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(entries, size))

    def reset_parameters(self, init_range: Any) -> None:
        """All by the initializer."""
        as_initializer(init_range).weight_(self.weight, fan_in=len(self.weight), fan_out=self.weight.size(1))

    def forward(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., E]"""
        return F.embedding(ids, self.weight)
