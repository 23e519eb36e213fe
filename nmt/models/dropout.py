"""Dropout as a module, and the numbers by which the layers of a model tell their masks apart."""

from __future__ import annotations

from torch import Tensor, nn

from nmt.cells import Cell
from nmt.ops.dropout import layer_dropout


class Dropout(nn.Dropout):
    """torch's dropout, with masks that in training are a function of the place in the batch; see `nmt.ops.dropout`."""

    layer_number: int = 0
    """Number of this layer in its model, see `number_layers`."""

    def forward(self, x: Tensor, *, position: int = 0) -> Tensor:
        """x [B, T, ...] in training with values dropped, otherwise x; or [B, W], the words at one `position`."""
        if not self.training or self.p == 0:
            return x
        return layer_dropout(x, self.p, layer=self.layer_number, position=position)


def number_layers(model: nn.Module) -> None:
    """Give each layer that can drop a number of its own, in the order in which the model lists them.

    Whoever trains does it, once: without numbers all layers of a size have the same masks in one `masked_by`.
    """
    dropping = (module for module in model.modules() if isinstance(module, (Dropout, Cell)))
    for number, module in enumerate(dropping, start=1):
        module.layer_number = number
