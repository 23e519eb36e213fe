"""The units whose steps need no matrix product, and pairs of them: cases for the tests of their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from nmt.ops import LRN, OLRN, SRU, SSRU, MinGRU, MinLSTM
from nmt.ops.scan import Pair, Scan, ScanUnit

UNITS: Final[dict[str, ScanUnit]] = {
    "lrn": LRN(),
    "lrn tanh": LRN(tanh=True),
    "olrn": OLRN(),
    "olrn tanh": OLRN(tanh=True),
    "sru": SRU(),
    "ssru": SSRU(),
    "min_gru": MinGRU(),
    "min_gru positive": MinGRU(positive=True),
    "min_lstm": MinLSTM(),
    "min_lstm positive": MinLSTM(positive=True),
    "pair lrn tanh": Pair(cell=LRN(tanh=True)),
    "pair olrn": Pair(cell=OLRN()),
    "pair sru": Pair(cell=SRU()),
    "pair min_lstm": Pair(cell=MinLSTM()),
}
"""Without weights."""

Function = Callable[..., tuple[Tensor, ...]]
"""Of x [D, B, T, kH], the state before [D, P, B, H] or None, and the weights [D, H]: what `Scan.whole` returns."""


class Inputs(NamedTuple):
    x: Tensor
    state: Tensor | None
    weights: list[Tensor]

    @property
    def flat(self) -> list[Tensor | None]:
        """As functions take them."""
        return [self.x, self.state, *self.weights]


def inputs(
    unit: ScanUnit,
    *,
    batch: int,
    length: int,
    hidden: int,
    device: torch.device,
    directions: int = 1,
    started: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Inputs:
    """The same on each device."""
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    x = randn(directions, batch, length, unit.inputs * hidden).to(dtype)
    state = randn(directions, unit.states, batch, hidden)
    return Inputs(x, state if started else None, [randn(directions, hidden) for _ in range(unit.vectors_each)])


def whole(kernel: type[Scan], unit: ScanUnit, mask: Tensor | None, *, reverse: bool) -> Function:
    """By its kernel."""

    def run(x: Tensor, state: Tensor | None, *weights: Tensor) -> tuple[Tensor, ...]:
        units = [unit.with_weights([weight[d] for weight in weights]) for d in range(len(x))]
        before = None if state is None else [tuple(one) for one in state]
        return kernel.whole(units, x, before, mask, reverse=reverse)

    return run


def equation(unit: ScanUnit, mask: Tensor | None, *, reverse: bool) -> Function:
    """The same by its equation."""

    def run(x: Tensor, state: Tensor | None, *weights: Tensor) -> tuple[Tensor, ...]:
        results = []
        for d, one in enumerate(x):
            cell = unit.with_weights([weight[d] for weight in weights])
            shape = (unit.states, len(one), one.size(-1) // unit.inputs)
            before = tuple(one.new_zeros(shape) if state is None else state[d])
            results.append(_loop(cell, one, before, mask, reverse=reverse or d == 1))
        outputs, last = zip(*results, strict=True)
        return torch.stack(outputs), torch.stack(last)

    return run


def _loop(
    unit: ScanUnit, x: Tensor, state: Sequence[Tensor], mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    outputs: list[Tensor] = []
    state = tuple(state)
    for t in sorted(range(x.size(1)), reverse=reverse):
        new = unit.equation(x[:, t], state, state)
        if mask is not None:
            live = mask[:, t : t + 1].bool()
            new = tuple(torch.where(live, after, before) for after, before in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs, 1), torch.stack(state)
