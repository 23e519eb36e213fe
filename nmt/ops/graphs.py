"""CUDA graphs: work that consists of many small kernels is recorded once for each shape and then replayed."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.ops.recurrence import next_size

logger = logging.getLogger(__name__)

Inputs = Sequence[Tensor | None]
Work = Callable[..., Sequence[Tensor]]
Replay = Callable[[], None]
Record = Callable[[Replay], Replay]
"""Makes a recording of work that returns nothing."""

MOST_RECORDINGS: Final = 4096
"""Maximum number of shapes whose recordings are kept; the least recently used ones are dropped. Batches of 12,000
tokens have about 300 shapes in all, and a model has up to a dozen kinds of loops and passes."""
ROOM: Final = 1.25
"""An arena grows to this multiple of the size needed, so that it seldom grows."""
PLACE: Final = 256
"""Tensors in an arena begin at multiples of this many bytes."""

SOURCE_STEP: Final = 16
"""Sources are padded to a multiple of this many positions, so that there are graphs for few lengths only."""

Session = dict[int, Tensor]
"""The tensors given in a series of runs, empty at its start: tensors that are given again are not copied again."""


class Place(NamedTuple):
    """The position of a tensor in an arena."""

    start: int  # in bytes
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype


class Layout(NamedTuple):
    """Positions of tensors side by side in memory."""

    places: tuple[Place | None, ...]
    bytes: int

    @classmethod
    def of(cls, tensors: Inputs) -> Layout:
        """The layout of memory for such tensors."""
        places, end = list[Place | None](), 0
        for x in tensors:
            if x is None:
                places.append(None)
                continue
            places.append(Place(end, x.shape, torch.empty(x.shape, device="meta").stride(), x.dtype))
            end += -(-x.nbytes // PLACE) * PLACE
        return cls(tuple(places), end)

    def tensors(self, memory: Tensor) -> list[Any]:
        """The tensors in `memory`, bytes that start at a multiple of PLACE; autograd does not see them as views."""
        storage, first, found = memory.untyped_storage(), memory.storage_offset(), list[Any]()
        for place in self.places:
            found.append(None)
            if place is not None:
                empty, start = torch.empty(0, dtype=place.dtype, device=memory.device), first + place.start
                found[-1] = empty.set_(storage, start // place.dtype.itemsize, place.shape, place.strides)
        return found


Pieces = tuple[Layout, ...]
"""The layouts of the tensors that work returns, one for each piece of memory."""


class Recording(NamedTuple):
    """Recorded work."""

    replay: Replay
    inputs: list[Any]  # tensors that it reads
    results: Sequence[tuple[Layout, Tensor]]  # pieces of memory that it writes, and their layouts


def run(
    work: Work,
    inputs: Inputs,
    *,
    key: Hashable = (),
    lasting: int = 0,
    session: Session | None = None,
    recorder: Recorder | None = None,
) -> list[Tensor]:
    """`work(*inputs)`, from a recording if possible.

    `work` must depend only on the tensors' values, shapes and types, and on `key`: it must not read values on the GPU
    from the host, keep tensors, or draw random numbers. All tensors are on one device. The returned tensors are new
    each time. They share one piece of memory, which exists as long as one of them does; the last `lasting` of them
    share another piece. Inputs must not change during a `session`.
    Work that reads memory other than its inputs, such as a model's weights, needs a `recorder` that does not outlive
    this memory. On a CPU, and inside another recording, the work is simply called.
    """
    device = next(x.device for x in inputs if x is not None)
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return list(work(*inputs))
    recorder = recorder or _recorder(device)
    assert recorder is not None
    return recorder.run(work, inputs, key=key, lasting=lasting, session=session)


def filled_up(batch: int) -> int:
    """The number of rows to which `batch` rows are padded: the next of eight sizes per octave.

    Batches with about equal numbers of words have any number of sentences; padded, most have the shape of an earlier
    batch.
    """
    return next_size(batch, an_octave=8)


def new_recorder(device: torch.device) -> Recorder | None:
    """A separate recorder for one user, None if there is nothing to record on this device."""

    def recording() -> Record:
        return functools.partial(record, device=device, pool=torch.cuda.graph_pool_handle())

    return Recorder(recording, device=device) if device.type == "cuda" else None


_recorder = functools.cache(new_recorder)
"""The recorder of a device that work shares whose memory is in its inputs."""


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream for all recordings of a GPU; torch has one stream for all GPUs, and would record nothing on others."""
    return torch.cuda.Stream(device)


def record(work: Replay, *, device: torch.device, pool: Any) -> Replay:
    """Record `work`, which returns nothing, as a CUDA graph.

    Memory that it allocates is free again at its end, for other recordings with the same pool.
    """
    graph, stream = torch.cuda.CUDAGraph(), _stream(device)
    with torch.cuda.device(device):
        try:
            _capture(graph, work, pool=pool, stream=stream)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()  # capturing does not do this by itself, unlike other allocations
            # The first graph is kept until the second exists: torch allows no graph in a pool that lost all its graphs.
            first, graph = graph, torch.cuda.CUDAGraph()
            _capture(graph, work, pool=pool, stream=stream)
            del first
    return graph.replay


def _capture(graph: torch.cuda.CUDAGraph, work: Replay, *, pool: Any, stream: torch.cuda.Stream) -> None:
    """Capture like `torch.cuda.graph`, but without first freeing all memory in the allocator's cache: this is too slow
    when hundreds of shapes are recorded during a training."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        # Meanwhile other threads, such as a thread that pins memory, may call CUDA.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    current.wait_stream(stream)


class Recorder:
    """Recordings by work, shapes and types. The first time, work is only executed, which also warms its kernels up.

    All recordings read their inputs from one arena and write their results to another: a run copies its inputs to the
    first, replays, and returns a copy of the second. So all recordings together need no more memory than the largest.
    """

    def __init__(self, recording: Callable[[], Record], *, device: torch.device, most: int = MOST_RECORDINGS) -> None:
        """`recording` returns a function that makes recordings, all in the same memory; each call of `recording` is for
        new memory. At most `most` shapes are kept; the least recently used ones are dropped."""
        self._recording, self._most, self._device = recording, most, device
        self._record = recording()
        self._known: OrderedDict[Hashable, Recording | Pieces | None] = OrderedDict()
        """For each shape its recording; `Pieces` if the work has been done only once; None if it cannot be recorded."""
        self._inputs = self._results = _bytes(0, device)
        self._latest: tuple[Recording, int] | None = None
        """The recording whose inputs are in the arena, and their session."""

    def run(
        self, work: Work, inputs: Inputs, *, key: Hashable = (), lasting: int = 0, session: Session | None = None
    ) -> list[Tensor]:
        """See `nmt.ops.graphs.run`."""
        full = (key, *(None if x is None else (x.shape, x.dtype) for x in inputs))
        new = full not in self._known
        known = self._known.get(full)
        if known is not None and not isinstance(known, Recording):
            known = self._try_to_record(work, inputs, known)
        results = list[Tensor]()
        if known is None:
            results = list(work(*inputs))
            count = len(results) - lasting
            known = tuple(map(Layout.of, (results[:count], results[count:]))) if new else None
        self._known[full] = known
        self._known.move_to_end(full)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        if not isinstance(known, Recording):
            return results
        self._give(known, inputs, session)
        known.replay()
        # Copied at once, because the next recording overwrites this memory.
        return [x for layout, piece in known.results for x in layout.tensors(piece.clone())]

    def _give(self, known: Recording, inputs: Inputs, session: Session | None) -> None:
        """Copy the inputs to the memory that the recording reads, except those still there from the latest run."""
        same = self._latest is not None and self._latest[0] is known and self._latest[1] == id(session)
        there = session if same and session is not None else {}
        wanted = [i for i, x in enumerate(inputs) if x is not None and there.get(i) is not x]
        copy_all([known.inputs[i] for i in wanted], [inputs[i] for i in wanted])
        self._latest = known, id(session)
        if session is not None:
            session.clear()
            session.update((i, x) for i, x in enumerate(inputs) if x is not None)

    def _try_to_record(self, work: Work, inputs: Inputs, results: Pieces) -> Recording | None:
        given, sizes = Layout.of(inputs), [layout.bytes for layout in results]
        self._latest = None
        try:
            with torch.inference_mode(False):  # otherwise only inference could write to this memory later
                self._make_room(given.bytes, sum(sizes))
                own, pieces = given.tensors(self._inputs), self._results[: sum(sizes)].split(sizes)
                found = [pair for pair in zip(results, pieces, strict=True) if pair[0].places]
                places = [x for layout, piece in found for x in layout.tensors(piece)]
            # Older contents may not fit the other inputs, such as indices into a longer table.
            copy_all([x for x in own if x is not None], [x for x in inputs if x is not None])
            return Recording(self._record(lambda: copy_all(places, work(*own))), own, found)
        except RuntimeError as error:
            logger.warning("a CUDA graph could not be recorded, so its kernels are launched one by one: %s", error)
            self._record = self._recording()  # the memory may have belonged to this graph only
            return None

    def _make_room(self, inputs: int, results: int) -> None:
        """Make room for this many bytes of each. If an arena must grow, existing recordings are made again."""
        if inputs <= len(self._inputs) and results <= len(self._results):
            return
        for full, known in self._known.items():
            if isinstance(known, Recording):
                self._known[full] = tuple(layout for layout, _ in known.results)
        self._record = self._recording()  # the memory of recordings that are gone is no more
        sizes = [max(int(ROOM * inputs), len(self._inputs)), max(int(ROOM * results), len(self._results))]
        self._inputs = self._results = _bytes(0, self._device)
        self._inputs, self._results = (_bytes(size, self._device) for size in sizes)


def _bytes(count: int, device: torch.device) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, device=device)


def copy_all(places: Sequence[Tensor], given: Sequence[Any]) -> None:
    """Copy each of `given` to its place, with one launch for all that are alike."""
    alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for place, x in zip(places, given, strict=True):
        if x.is_contiguous() and x.numel():
            for row, tensor in zip(alike.setdefault(x.dtype, ([], [])), (place, x), strict=True):
                row.append(tensor)
        else:
            place.copy_(x)
    for many in alike.values():
        torch._foreach_copy_(*many)
