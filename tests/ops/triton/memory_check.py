"""Triton's interpreter with every access to memory checked, as a GPU would punish what the interpreter forgives.

The interpreter reads and writes raw addresses, one program after the other. Here each pointer carries, in bits that no
address uses, the argument it was made from. An access must lie on an element of that argument's view, and programs of
a launch must not exchange values but in the order of barriers (`tests.ops.triton.memory_order`).

On tensors of the device "meta" nothing is read or written, loads give zeros, and only the programs at the corners of
the grid run: so addresses of any size can be checked.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter
from triton.runtime.jit import mangle_type

from tests.ops.triton.memory_order import AccessError, Cells, Order, run_in_turns

TAG: Final = 48
"""Where the number of the argument begins in a pointer, above all addresses of a process."""
ADDRESS: Final = np.uint64(2**TAG - 1)


class Argument:
    """A tensor that a kernel was given."""

    def __init__(self, name: str, tensor: Tensor, number: int) -> None:
        self.name, self.tensor, self.bytes = name, tensor, tensor.element_size()
        self.address = 2 ** (TAG - 1) if tensor.is_meta else tensor.data_ptr()
        self.storage = 0 if tensor.is_meta else tensor.untyped_storage().data_ptr()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        self.end = self.address + self.bytes * (1 + sum((size - 1) * stride for size, stride in steps))
        self.pointer = np.uint64((number << TAG) + self.address)
        self.axes = _merged_axes(tensor)

    def elements(self, pointers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Which elements these are, counted from the first of the view; raises where one is none of its elements."""
        distance = (pointers - self.pointer).view(np.int64)
        element = distance // self.bytes if self.bytes > 1 else distance
        within = element * self.bytes == distance
        rest = element
        for size, stride in self.axes:
            index, rest = (rest, 0) if stride == 1 else np.divmod(rest, stride)  # type: ignore[assignment]
            within &= (index >= 0) & (index < size)
        within &= rest == 0
        if not within.all():
            wrong = int(distance[~within][0])
            place = f"{wrong} bytes from its start" if wrong % self.bytes else f"element {wrong // self.bytes}"
            shape, strides = tuple(self.tensor.shape), self.tensor.stride()
            raise AccessError(f"{self.name}: {place} is outside of shape {shape} with strides {strides}")
        return element


def _merged_axes(tensor: Tensor) -> list[tuple[int, int]]:
    """(size, stride) from the outermost axis in, one where axes together are like one; none within another's step."""
    axes: list[tuple[int, int]] = []
    by_stride = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    for stride, size in by_stride if tensor.numel() else [(1, 0)]:
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        elif stride and size != 1:
            axes.append((size, stride))
    return axes


class Launch:
    """One launch of a kernel: who accesses what."""

    def __init__(self, kernel: str, grid: tuple[int, ...]) -> None:
        self.kernel, self.grid = kernel, grid
        self.arguments: dict[int, Argument] = {}
        self.order = Order(grid)
        self.program = 0
        self.polled: dict[int, tuple[Any, ...]] = {}
        """For each program what its last atomic operation found."""
        self.let_others_run: Callable[[], None] = lambda: None

    @property
    def virtual(self) -> bool:
        return any(argument.tensor.is_meta for argument in self.arguments.values())

    def hand_over(self, name: str, value: Any) -> Any:
        """As the interpreter takes it."""
        if not isinstance(value, Tensor):
            return interpreter._implicit_cvt(value)
        number = len(self.arguments) + 1
        argument = Argument(name, value, number)
        rest = self.arguments.values()
        if argument.storage and value.numel():
            others = [other for other in rest if other.storage == argument.storage and other.bytes != argument.bytes]
            if any(other.address < argument.end and argument.address < other.end for other in others):
                raise NotImplementedError(f"{name} shares its memory with elements of another size")
        self.arguments[number] = argument
        dtype = tl.str_to_ty(mangle_type(value), None)
        return tl.tensor(interpreter.TensorHandle(np.array([argument.pointer]), dtype), dtype)

    def begin(self, program: int) -> None:
        """From now on it is this program that runs."""
        self.program = program
        index = np.unravel_index(program, self.grid)
        interpreter.interpreter_builder.set_grid_idx(*(int(i) for i in index))

    def access(self, pointers: Any, mask: Any = None) -> tuple[Any, Cells | None]:
        """Plain addresses, and what the active ones of them are; None if there is none."""
        data = pointers.data
        active = data.ravel() if mask is None else data[mask.data]
        if not active.size:
            return data, None
        argument = self.arguments.get(int(active[0] >> np.uint64(TAG)))
        if argument is None:
            raise AccessError("an address that belongs to no argument")
        elements = argument.elements(active)
        if argument.tensor.is_meta:
            return data, None
        first = argument.address // argument.bytes
        return data & ADDRESS, Cells(argument.name, 16 * argument.storage + argument.bytes, first + elements)

    def programs(self) -> Iterator[int]:
        """All, or those at the corners."""
        if not self.virtual:
            yield from range(math.prod(self.grid))
            return
        for corner in itertools.product(*({0, size - 1} for size in self.grid)):
            yield int(np.ravel_multi_index(corner, self.grid))

    def described(self, fault: AccessError) -> AccessError:
        """With the name of the kernel and of the program."""
        what, *program = fault.args
        who = self.order.name(*program or [self.program])
        return AccessError(f"{self.kernel}, {who} of {self.grid}: {what}").with_traceback(fault.__traceback__)


_current: Launch
"""The launch that runs: the interpreter has only one at a time, too."""


def _run(executor: Any, *arguments: Any, **options: Any) -> None:
    """What `GridExecutor.__call__` does, with arguments used where they are."""
    global _current
    names = inspect.getfullargspec(executor.fn).args
    given = inspect.getcallargs(executor.fn, *arguments, **{k: v for k, v in options.items() if k in names})
    grid = executor.grid(given) if callable(executor.grid) else executor.grid
    launch = _current = Launch(executor.fn.__name__, (*grid, *[1] * (3 - len(grid))))
    given = {k: v if k in executor.constexprs else launch.hand_over(k, v) for k, v in given.items()}
    interpreter._patch_lang(executor.fn)
    interpreter.interpreter_builder.set_grid_dim(*launch.grid)
    try:
        if given.get("PERSISTENT") and not launch.virtual:
            run_in_turns(launch, lambda: executor.fn(**given))
        else:
            for program in launch.programs():
                launch.begin(program)
                executor.fn(**given)
        launch.order.end()
    except Exception as error:
        fault = _cause(error)
        if fault is None:
            raise
        raise launch.described(fault) from None


def _cause(error: BaseException | None) -> AccessError | None:
    """The fault that the interpreter's own errors were made of."""
    while error is not None and not isinstance(error, AccessError):
        error = error.__cause__
    return error


def install() -> None:
    """From now on the interpreter checks."""
    builder = type(interpreter.interpreter_builder)
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas, barrier = builder.create_atomic_rmw, builder.create_atomic_cas, builder.create_barrier

    def checked_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        addresses, cells = _current.access(pointers, mask)
        if cells is not None:
            _current.order.load(_current.program, cells)
        elif _current.virtual:
            mask = interpreter.TensorHandle(np.zeros_like(mask.data), tl.int1)
        return load(self, interpreter.TensorHandle(addresses, pointers.dtype), mask, other, *rest)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        addresses, cells = _current.access(pointers, mask)
        if cells is None:
            return None
        _current.order.store(_current.program, cells, np.broadcast_to(value.data, mask.data.shape)[mask.data])
        return store(self, interpreter.TensorHandle(addresses, pointers.dtype), value, mask, *rest)

    def checked_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        addresses, cells = _current.access(pointers, mask)
        pointers = interpreter.TensorHandle(addresses, pointers.dtype)
        return _atomic(cells, sem, lambda: rmw(self, operation, pointers, value, mask, sem, scope))

    def checked_cas(self: Any, pointers: Any, compared: Any, value: Any, sem: Any, scope: Any) -> Any:
        addresses, cells = _current.access(pointers)
        pointers = interpreter.TensorHandle(addresses, pointers.dtype)
        return _atomic(cells, sem, lambda: cas(self, pointers, compared, value, sem, scope))

    def checked_barrier(self: Any) -> Any:
        _current.order.barrier(_current.program)
        return barrier(self)

    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = checked_rmw, checked_cas
    builder.create_barrier = checked_barrier
    interpreter.GridExecutor.__call__ = _run


def _atomic(cells: Cells | None, sem: Any, operation: Callable[[], Any]) -> Any:
    launch = _current
    assert not launch.virtual, "no kernel needs atomic operations on tensors without memory"
    if cells is None:
        return operation()
    program, words = launch.program, sem.name.lower()
    launch.order.atomic(program, cells, acquire="acquire" in words, release="release" in words)
    result = operation()
    found = (*cells.places.tolist(), *result.data.ravel().tolist())
    if launch.polled.get(program) == found:
        launch.let_others_run()
    launch.polled[program] = found
    return result
