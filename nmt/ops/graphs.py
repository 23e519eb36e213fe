"""CUDA graphs: work that consists of many small kernels is recorded once for each shape, then replayed."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Inputs = Sequence[Tensor | None]
Work = Callable[..., Sequence[Tensor]]

MOST_RECORDINGS: Final = 64
"""Shapes whose recordings are kept, the latest used; each holds a copy of its inputs and outputs."""


class Recording(NamedTuple):
    """Recorded work: it reads `inputs`, writes `outputs`, wherever those lie in memory."""

    replay: Callable[[], None]
    inputs: Inputs
    outputs: Sequence[Tensor]


def run(work: Work, inputs: Inputs, *, key: Hashable = ()) -> list[Tensor]:
    """`work(*inputs)`, from a recording where it can be.

    `work` must depend on nothing but the tensors' values, their shapes and types, and `key`: it must not look at
    values on the GPU, keep tensors, or draw random numbers. All tensors are on one device, and those returned are
    new each time.
    On a CPU, and inside of another recording, it is simply called.
    """
    device = next(x.device for x in inputs if x is not None)
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return list(work(*inputs))
    return _recorder(device).run(work, inputs, key=key)


@functools.cache
def _recorder(device: torch.device) -> Recorder:
    with torch.cuda.device(device):
        pool = torch.cuda.graph_pool_handle()
    return Recorder(functools.partial(record, pool=pool))


def record(work: Work, inputs: Inputs, *, pool: Any) -> Recording:
    """Record `work` as a CUDA graph; nothing is computed. Every kernel in it must have run before."""
    own = [None if x is None else x.clone() for x in inputs]
    graph = torch.cuda.CUDAGraph()
    # Other threads, such as one that pins memory, may go on calling CUDA meanwhile.
    with torch.cuda.device_of(own[0]), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        outputs = list(work(*own))
    return Recording(graph.replay, own, outputs)


class Recorder:
    """Recordings by work, shapes and types. The first time work is only done, which also warms its kernels up."""

    def __init__(self, record: Callable[[Work, Inputs], Recording], *, most: int = MOST_RECORDINGS) -> None:
        self._record, self._most = record, most
        self._known: OrderedDict[Hashable, Recording | str] = OrderedDict()

    def run(self, work: Work, inputs: Inputs, *, key: Hashable = ()) -> list[Tensor]:
        """See `nmt.ops.graphs.run`."""
        full = (key, *(None if x is None else (x.shape, x.dtype) for x in inputs))
        known = self._known.get(full)
        if known == "seen":
            known = self._try_to_record(work, inputs)
        self._keep(full, known or "seen")
        if not isinstance(known, Recording):
            return list(work(*inputs))
        for own, given in zip(known.inputs, inputs, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        known.replay()
        # Copied at once: recordings share their memory, so the next one may write where these lie.
        return [x.clone() for x in known.outputs]

    def _try_to_record(self, work: Work, inputs: Inputs) -> Recording | str:
        try:
            return self._record(work, inputs)
        except RuntimeError as error:
            logger.warning("a CUDA graph could not be recorded, so its kernels are launched one by one: %s", error)
            return "failed"

    def _keep(self, full: Hashable, known: Recording | str) -> None:
        self._known[full] = known
        self._known.move_to_end(full)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
