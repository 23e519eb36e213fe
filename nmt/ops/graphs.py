"""CUDA graphs: work that consists of many small kernels is recorded once for each shape, then replayed."""

from __future__ import annotations

import functools
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from nmt.ops.sizes import next_size

logger = logging.getLogger(__name__)

Inputs = Sequence[Tensor | None]
Work = Callable[..., Sequence[Tensor]]

MOST_RECORDINGS: Final = 1024
"""Shapes whose recordings are kept, the latest used."""
MEMORY_SHARE: Final = 1 / 8
"""Of the memory of a GPU, what inputs and results of the recordings of one recorder may take. Those of one key share
the memory of like inputs, all of them that of what is neither; but results stay where they are from one replay to the
next, and a training has hundreds of shapes."""

SOURCE_STEP: Final = 16
"""Sources are filled up to a multiple of so many positions, so that few lengths have graphs of their own."""

Session = dict[int, Tensor]
"""What has been given in one row of runs, empty at its start: tensors given again are not copied again."""


class Recording(NamedTuple):
    """Recorded work: it reads `inputs`, writes `outputs`, wherever those lie in memory."""

    replay: Callable[[], None]
    inputs: Inputs
    outputs: Sequence[Tensor]


def run(
    work: Work,
    inputs: Inputs,
    *,
    key: Hashable = (),
    out: Sequence[Tensor] | None = None,
    session: Session | None = None,
    recorder: Recorder | None = None,
) -> list[Tensor]:
    """`work(*inputs)`, from a recording where it can be.

    `work` must depend on nothing but the tensors' values, their shapes and types, and `key`: it must not look at
    values on the GPU, keep tensors, or draw random numbers. All tensors are on one device, and those returned are
    new each time or, where it is given, `out`. Inputs must not change as long as a `session` lasts, nor may others
    run the same work meanwhile.
    Work that reads other memory than that of its inputs, such as a model's, has a `recorder` that lives no longer.
    On a CPU, and inside of another recording, it is simply called.
    """
    device = next(x.device for x in inputs if x is not None)
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return _handed_over(work(*inputs), out, copy=False)
    return (recorder or _recorder(device)).run(work, inputs, key=key, out=out, session=session)


def _handed_over(results: Sequence[Tensor], out: Sequence[Tensor] | None, *, copy: bool) -> list[Tensor]:
    if out is None:
        return [x.clone() for x in results] if copy else list(results)
    for place, result in zip(out, results, strict=True):
        place.copy_(result)
    return list(out)


def filled_up(batch: int) -> int:
    """How many rows `batch` rows should become: the next of eight sizes an octave.

    Batches of about as many words each have any number of sentences; filled up, most are like an earlier one.
    """
    return next_size(batch, an_octave=8)


def new_recorder(device: torch.device) -> Recorder | None:
    """A recorder of its own for one user, None where there is nothing to record."""
    return _new_recorder(device) if device.type == "cuda" else None


@functools.cache
def _recorder(device: torch.device) -> Recorder:
    return _new_recorder(device)


def _new_recorder(device: torch.device) -> Recorder:
    with torch.cuda.device(device):
        pool = torch.cuda.graph_pool_handle()
    most_bytes = int(torch.cuda.get_device_properties(device).total_memory * MEMORY_SHARE)
    return Recorder(functools.partial(record, pool=pool), most_bytes=most_bytes)


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """On which all recordings of a GPU are made; torch has one for all GPUs, and would record nothing on the others."""
    return torch.cuda.Stream(device)


def record(work: Work, inputs: Inputs, *, pool: Any) -> Recording:
    """Record `work` on these tensors as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    one = next(x for x in inputs if x is not None)
    with torch.cuda.device_of(one):
        work(*inputs)  # a kernel that is compiled for just these layouts is loaded now: recording could not do it
        try:
            outputs = _captured(graph, work, inputs, pool=pool, stream=_stream(one.device))
        except torch.OutOfMemoryError:  # a graph cannot take what lies unused in the allocator's cache
            torch.cuda.empty_cache()
            graph = torch.cuda.CUDAGraph()
            outputs = _captured(graph, work, inputs, pool=pool, stream=_stream(one.device))
    return Recording(graph.replay, inputs, outputs)


def _captured(
    graph: torch.cuda.CUDAGraph, work: Work, inputs: Inputs, *, pool: Any, stream: torch.cuda.Stream
) -> list[Tensor]:
    """Where the graph, which is made now, will write what `work` returns.

    As `torch.cuda.graph` does it, but that all the memory in the allocator's cache is not given back first: that is
    too slow for recording hundreds of shapes in the middle of a training.
    """
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        # Other threads, such as one that pins memory, may go on calling CUDA meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            outputs = list(work(*inputs))
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return outputs


class Recorder:
    """Recordings by work, shapes and types. The first time work is only done, which also warms its kernels up.

    Recordings of one key share their inputs' memory: only one of them runs at a time.
    """

    def __init__(
        self,
        record: Callable[[Work, Inputs], Recording],
        *,
        most: int = MOST_RECORDINGS,
        most_bytes: float = math.inf,
    ) -> None:
        """`most` shapes are kept; fewer, but the latest, if inputs and results would take more than `most_bytes`."""
        self._record, self._most, self._most_bytes = record, most, most_bytes
        self._known: OrderedDict[Hashable, Recording | str] = OrderedDict()
        self._places: WeakValueDictionary[Hashable, Tensor] = WeakValueDictionary()

    def run(
        self,
        work: Work,
        inputs: Inputs,
        *,
        key: Hashable = (),
        out: Sequence[Tensor] | None = None,
        session: Session | None = None,
    ) -> list[Tensor]:
        """See `nmt.ops.graphs.run`."""
        full = (key, *(None if x is None else (x.shape, x.dtype) for x in inputs))
        known = self._known.get(full)
        new = known == "seen"
        if new:
            known = self._try_to_record(work, inputs, key)
        self._keep(full, known or "seen")
        if new:
            self._forget_the_oldest()
        if not isinstance(known, Recording):
            return _handed_over(work(*inputs), out, copy=False)
        session = {} if session is None else session
        for own, given in zip(known.inputs, inputs, strict=True):
            if own is not None and given is not None and session.get(id(own)) is not given:
                own.copy_(given)
                session[id(own)] = given
        known.replay()
        # Copied at once: recordings share their memory, so the next one may write where these lie.
        return _handed_over(known.outputs, out, copy=True)

    def _try_to_record(self, work: Work, inputs: Inputs, key: Hashable) -> Recording | str:
        try:
            return self._record(work, [self._place(i, x, key) for i, x in enumerate(inputs)])
        except RuntimeError as error:
            logger.warning("a CUDA graph could not be recorded, so its kernels are launched one by one: %s", error)
            return "failed"

    def _place(self, index: int, x: Tensor | None, key: Hashable) -> Tensor | None:
        """Where recordings of this key find their input `index` if it is like x; x is there now.

        What lay there before may not fit the other inputs, as indices of a longer table, and recording does the work.
        """
        if x is None:
            return None
        like = (key, index, x.shape, x.dtype)
        place = self._places.get(like)
        if place is None:
            with torch.inference_mode(False):  # else only inference could write there ever after
                place = self._places[like] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return place.copy_(x)

    def _keep(self, full: Hashable, known: Recording | str) -> None:
        self._known[full] = known
        self._known.move_to_end(full)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def _forget_the_oldest(self) -> None:
        """Until there is room for all others."""
        while self._bytes() > self._most_bytes:
            oldest = next(full for full, known in self._known.items() if isinstance(known, Recording))
            if oldest == next(reversed(self._known)):
                return
            del self._known[oldest]

    def _bytes(self) -> int:
        recordings = [known for known in self._known.values() if isinstance(known, Recording)]
        tensors = [x for recording in recordings for x in (*recording.inputs, *recording.outputs) if x is not None]
        return sum({id(x): x.nbytes for x in tensors}.values())
