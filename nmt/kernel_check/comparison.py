"""Whether two ways to compute the same differ by more than rounding; both are compared with exact numbers, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.ops.dispatch import Selection, selected

TOLERANCES: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""By type of the products: the largest norm of an error, relative to the norm of the exact result. An error twice as
large as the reference's in the same type is allowed as well. The tests of kernels use the same limits."""
TIMES: Final = 4
"""Number of runs of a check: graphs are recorded in the second run and replayed from then on."""

Run = Callable[[Any, torch.dtype], list[Tensor]]
"""From a network and the type of its weights to results and gradients."""


class DifferenceError(Exception):
    """A kernel does not compute what the reference does."""


def check(network: nn.Module, run: Run, *, exact: nn.Module, storage: torch.dtype, by: Selection) -> None:
    """DifferenceError unless `run` finds in `network` with the selection `by` what it finds without kernels.

    exact: the same network in fp64. storage: the type in which autocast computes; fp32 is without autocast.
    """
    with selected("reference"):
        right = run(exact, torch.float64)
        with autocast(right[0].device, storage):
            plain = run(network, torch.float32)
    for _ in range(TIMES):
        with selected(by.choice, verified=by.verified), autocast(right[0].device, storage):
            ours = run(network, torch.float32)
        compare(ours, right, plain=plain, tolerance=TOLERANCES[storage])


def compare(ours: Sequence[Tensor], right: Sequence[Tensor], *, plain: Sequence[Tensor], tolerance: float) -> None:
    """DifferenceError if one of the tensors is too far from what is right."""
    for index, (found, wanted, other) in enumerate(zip(ours, right, plain, strict=True)):
        if found.shape != wanted.shape:
            raise DifferenceError(f"result {index} has another shape than the reference's")
        allowed = tolerance * wanted.norm().clamp_min(1e-3) + 2 * (other.double() - wanted).norm()
        error = (found.double() - wanted).norm()
        if not error <= allowed:  # so written for NaN
            raise DifferenceError(f"result {index} differs from the reference's by {error:.1e}, {allowed:.1e} allowed")


def with_gradients(results: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """The results and, if gradients are enabled, the gradients of a weighted sum of them at the leaves."""
    if not torch.is_grad_enabled():
        return list(results)
    weights = [random(*result.shape, seed=9, like=result).to(result.dtype) for result in results]
    gradients = torch.autograd.grad(results, list(leaves), weights, materialize_grads=True)
    return [result.detach() for result in (*results, *gradients)]


def random(*shape: int, seed: int, like: Tensor) -> Tensor:
    """The same normal values on each device, fp64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(like.device)


@contextmanager
def autocast(device: torch.device, storage: torch.dtype) -> Iterator[None]:
    """Autocast to `storage`, none for fp32."""
    if storage == torch.float32:
        yield
        return
    with torch.autocast(device.type, storage):
        yield
