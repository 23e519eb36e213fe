"""An initializer (plugins.md)."""

from dataclasses import dataclass

from torch import nn

from nmt.cells import Initializer
from nmt.registry import INITIALIZERS


@INITIALIZERS.register("sparse_rows")
class SparseRows(Initializer):
    """Normal, with only so many inputs of each output other than 0 (Martens, ICML 2010)."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        inputs: int = 15
        """How many."""
        gain: float = 0.3
        """Standard deviation."""

    def weight_(self, weight, *, fan_in, fan_out):
        nn.init.normal_(weight, std=self.options.gain)
        if weight.dim() == 2 and fan_in > self.options.inputs:
            share = self.options.inputs / fan_in
            weight.mul_((weight.new_empty(weight.shape).uniform_() < share).to(weight.dtype))
