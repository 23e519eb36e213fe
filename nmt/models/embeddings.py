"""The embedding tables of source, target and softmax; some may be shared."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.cells import as_initializer
from nmt.errors import ConfigError

Tying = Literal["none", "target_softmax", "all"]


class Embeddings(nn.Module):
    """Tables [V, E] and the vector [E] that is added to both source and target embeddings.

    A table that is shared is registered once: `target` is None where it is the source's, `softmax`
    where it is the target's. `target_table` and `softmax_table` are what to use.
    """

    def __init__(self, source_vocab_size: int, target_vocab_size: int, *, size: int, tie: Tying) -> None:
        super().__init__()
        if tie == "all" and source_vocab_size != target_vocab_size:
            raise ConfigError(
                f"model.tie_embeddings: 'all' needs one vocabulary for both languages, "
                f"but they have {source_vocab_size} and {target_vocab_size} entries"
            )
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.source = nn.Parameter(torch.empty(source_vocab_size, size))
        self.target = None if tie == "all" else nn.Parameter(torch.empty(target_vocab_size, size))
        self.softmax = nn.Parameter(torch.empty(target_vocab_size, size)) if tie == "none" else None
        self.bias = nn.Parameter(torch.empty(size))

    def reset_parameters(self, init_range: float) -> None:
        """Everything by the initializer, the bias too; to Zero a table goes from width V to E, the bias from E to E."""
        for parameter in self.parameters():
            as_initializer(init_range).weight_(parameter, fan_in=parameter.size(0), fan_out=parameter.size(-1))

    @property
    def target_table(self) -> Tensor:
        """[V_target, E]"""
        return self.source if self.target is None else self.target

    @property
    def softmax_table(self) -> Tensor:
        """[V_target, E]"""
        return self.target_table if self.softmax is None else self.softmax

    def use_softmax_table(self, table: Tensor) -> None:
        """Compare features with this table [V_target, E] from now on, whatever the embeddings share."""
        self._parameters.pop("softmax", None)
        self.softmax = table  # type: ignore[assignment]

    def embed_source(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., E]"""
        return F.embedding(ids, self.source) + self.bias

    def embed_target(self, ids: Tensor) -> Tensor:
        """ids [...] -> [..., E]"""
        return F.embedding(ids, self.target_table) + self.bias

    def zeros(self, rows: int) -> Tensor:
        """What the decoder reads before the first word [rows, E]."""
        return self.bias.new_zeros(rows, self.bias.numel())

    def logits(self, features: Tensor) -> Tensor:
        """features [..., E] -> [..., V_target]"""
        return F.linear(features, self.softmax_table)
