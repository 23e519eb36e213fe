"""Which accesses of one launch are ordered: of several programs, and of the threads of one.

Time is counted in barriers. A program knows of a store once a barrier has come after it or, of another program's, an
atomic release after that, an acquire of the same counter here, and a barrier. What a program accesses must be stored
by nobody, or known. So one that stores what another has read is always wrong; no kernel needs that.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tests.ops.triton.memory_check import Launch

NOBODY: Final = -1
ATOMIC: Final = -2
"""Stored by an atomic operation: only other ones may follow."""
LONGEST_WAIT: Final = 1000
"""Turns of all programs without a release among them: they wait for ever."""

Knowledge = defaultdict[int, int]
"""For each program the last of its times whose stores are known."""


class AccessError(AssertionError):
    """A kernel accesses memory that it must not, or not then: what it does and, if not the one that runs, who."""


class Cells(NamedTuple):
    """What a program accesses at once."""

    argument: str
    storage: int
    places: npt.NDArray[np.int64]
    """Addresses, in elements"""


class Shadow:
    """Of the elements of one storage who stored them last, and when."""

    def __init__(self) -> None:
        self.start, self.writer, self.time = 0, np.full(0, NOBODY), np.zeros(0, np.int64)
        self.reads: list[tuple[int, Cells]] = []
        """Of what had not been stored by others."""

    def cover(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where they are in the arrays, which grow if they must."""
        low, high = int(places.min()), int(places.max()) + 1
        if not len(self.writer):
            self.start = low
        before, after = max(0, self.start - low), max(0, high - self.start - len(self.writer))
        if before or after:
            self.start -= before
            self.writer = np.pad(self.writer, (before, after), constant_values=NOBODY)
            self.time = np.pad(self.time, (before, after))
        return places - self.start


def _knowledge() -> Knowledge:
    return defaultdict(lambda: -1)


class Order:
    """The accesses of one launch so far."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        self.grid = grid
        self.shadows: defaultdict[int, Shadow] = defaultdict(Shadow)
        self.now: defaultdict[int, int] = defaultdict(int)
        self.known: defaultdict[int, Knowledge] = defaultdict(_knowledge)
        self.acquired: defaultdict[int, Knowledge] = defaultdict(_knowledge)
        self.released: defaultdict[tuple[int, int], Knowledge] = defaultdict(_knowledge)
        self.turns_since_release = 0

    def load(self, program: int, cells: Cells) -> None:
        shadow = self.shadows[cells.storage]
        if len(shadow.writer):
            i = shadow.cover(cells.places)
            fresh = shadow.writer[i] == NOBODY
            self._check(program, "loads", cells.argument, shadow, i[~fresh])
            cells = cells._replace(places=cells.places[fresh])
        if cells.places.size:
            shadow.reads.append((program, cells))

    def store(self, program: int, cells: Cells, values: npt.NDArray[Any]) -> None:
        shadow = self.shadows[cells.storage]
        i = shadow.cover(cells.places)
        self._check(program, "stores", cells.argument, shadow, i[shadow.writer[i] != NOBODY])
        _check_lanes(cells, values)
        shadow.writer[i], shadow.time[i] = program, self.now[program]

    def atomic(self, program: int, cells: Cells, *, acquire: bool, release: bool) -> None:
        shadow = self.shadows[cells.storage]
        i = shadow.cover(cells.places)
        if (shadow.writer[i] >= 0).any():
            raise AccessError(f"{cells.argument} is updated atomically and also stored without")
        shadow.writer[i] = ATOMIC
        for place in cells.places.tolist():
            counter = self.released[cells.storage, place]
            if release:
                _learn(counter, self.known[program])
            if acquire:
                _learn(self.acquired[program], counter)
        self.turns_since_release = 0 if release else self.turns_since_release + 1

    def barrier(self, program: int) -> None:
        known = self.known[program]
        known[program] = self.now[program]
        self.now[program] += 1
        _learn(known, self.acquired[program])

    def _check(self, program: int, does: str, name: str, shadow: Shadow, i: npt.NDArray[np.int64]) -> None:
        """Elements that have been stored are known."""
        for writer in np.unique(shadow.writer[i]).tolist():
            last = shadow.time[i][shadow.writer[i] == writer].max()
            if writer == ATOMIC:
                raise AccessError(f"{does} {name}, which is updated atomically")
            if last > self.known[program][writer]:
                who = "it has itself" if writer == program else f"{self.name(writer)} has"
                raise AccessError(f"{does} {name} where {who} stored, with no barrier between")

    def end(self) -> None:
        """Nothing was stored by one program after another had read it."""
        for shadow in self.shadows.values():
            for program, cells in shadow.reads if len(shadow.writer) else ():
                i = shadow.cover(cells.places)
                writers = shadow.writer[i]
                others = writers[(writers != NOBODY) & (writers != program)]
                if others.size:
                    who = "an atomic operation" if others[0] == ATOMIC else self.name(int(others[0]))
                    message = f"loads {cells.argument} where {who} stores later"
                    raise AccessError(message, program)

    def name(self, program: int) -> str:
        """Of a program, as it sees itself."""
        return f"program {tuple(int(i) for i in np.unravel_index(program, self.grid))}"


def _learn(knowledge: Knowledge, more: Knowledge) -> None:
    for program, time in more.items():
        knowledge[program] = max(knowledge[program], time)


def _check_lanes(cells: Cells, values: npt.NDArray[Any]) -> None:
    """Lanes of one store that store the same element store the same bits."""
    places = cells.places
    if places.size < 2 or (np.diff(places) > 0).all():
        return
    order = np.argsort(places, kind="stable")
    bits = np.ascontiguousarray(values)[order].view(f"u{values.itemsize}")
    if ((np.diff(places[order]) == 0) & (bits[1:] != bits[:-1])).any():
        raise AccessError(f"lanes of one store give an element of {cells.argument} different values")


def run_in_turns(launch: Launch, run: Callable[[], None]) -> None:
    """`run` for all programs at the same time: each goes on until it finds a counter unchanged, then it is the next."""
    programs = list(launch.programs())
    turns = {program: threading.Semaphore(0) for program in programs}
    running, errors = list(programs), list[tuple[int, Exception]]()

    def next_after(program: int) -> None:
        later = [other for other in running if other > program] or running
        if later:
            turns[later[0]].release()

    def take_turns() -> None:
        program = launch.program
        next_after(program)
        turns[program].acquire()
        launch.begin(program)
        if errors or launch.order.turns_since_release > LONGEST_WAIT * len(programs):
            raise AccessError("programs wait for each other for ever")

    def alone(program: int) -> None:
        turns[program].acquire()
        launch.begin(program)
        try:
            if not errors:
                run()
        except Exception as error:
            errors.append((program, error))
        running.remove(program)
        next_after(program)

    launch.let_others_run = take_turns
    threads = [threading.Thread(target=alone, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    turns[programs[0]].release()
    for thread in threads:
        thread.join()
    if errors:
        launch.program, error = errors[0]
        raise error
