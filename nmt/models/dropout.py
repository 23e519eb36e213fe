"""Dropout as a module, and the numbers that make the masks of a model's layers different."""

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


class DropoutWarmup:
    """Dropouts of a model that grow linearly from 0 to their values over its first updates.

    Curriculum dropout (Morerio et al., ICCV 2017), whose curve is an exponential: a model learns most at first without
    dropout, and overfits only later.
    """

    def __init__(self, model: nn.Module, *, steps: int) -> None:
        """`steps`: the update, counted from 0, in which they reach the values that the model has now; 0: at once."""
        self.steps = steps
        self._full = [
            (module, name, float(getattr(module, name)))
            for kind, name in ((nn.Dropout, "p"), (Cell, "recurrent_dropout"), (Cell, "weight_dropout"))
            for module in model.modules()
            if isinstance(module, kind)
        ]

    def at_step(self, step: int) -> None:
        """Set the dropouts of the update after `step` earlier ones."""
        if self.steps:
            share = min(1.0, step / self.steps)
            for module, name, full in self._full:
                setattr(module, name, full * share)


def number_layers(model: nn.Module) -> None:
    """Give each layer with dropout its own number, in the order in which the model lists them.

    Done once before training: without numbers all layers of a size have the same masks in one `masked_by`.
    """
    dropping = (module for module in model.modules() if isinstance(module, (Dropout, Cell)))
    for number, module in enumerate(dropping, start=1):
        module.layer_number = number
