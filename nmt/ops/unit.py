"""A recurrent unit (an equation, weights, options), and the interface of its kernels to the code that runs them.

Letters: D directions, B rows, T time steps, H channels, P tensors of the state, k products of the input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops.matrices import matrix_of_steps
from nmt.ops.native import TYPES, kernel
from nmt.ops.product import row_sums, scale_gradient
from nmt.ops.recurrence import Recurrent, State

U = TypeVar("U", bound="type[Unit]")

UNITS: Final[dict[str, type[Unit]]] = {}
"""All units by name; `register` adds to it. Importing `nmt.ops` registers the units of nmt."""


class Update(NamedTuple):
    """How a memory changes in one time step, element by element: m = input * value + forget * m'.

    All are [..., H]; m is the last tensor of the state: c where there is one, else h.
    """

    value: Tensor  # The written value.
    input: Tensor  # The share of the value that is written.
    forget: Tensor  # The share of the previous memory that is kept.


class GateValues(NamedTuple):
    """The gates of a unit in one time step."""

    named: dict[str, Tensor] = {}  # The gates [..., H], by their names in the unit's equation.
    update: Update | None = None  # None for a unit whose memory does not change in this way.


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit with its weights, as a cell passes it to `nmt.ops.sequence` and to the loops over several cells.

    A subclass is a frozen dataclass whose own fields are the options: words and booleans. Two units without weights
    are equal if they have the same class and the same options.
    """

    name: ClassVar[str]
    """The name under which it is registered."""
    inputs: ClassVar[int]
    """k: its input products are [..., kH]."""
    states: ClassVar[int] = 1
    """P: number of tensors [N, H] of its state, h first."""
    matrices: ClassVar[int] = 0
    """Number of its recurrent matrices."""
    codes: ClassVar[Mapping[str, Mapping[Any, int]]] = {}
    """Numbers of the values of the options that `code` has."""
    native: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.unit.Kernel` in C, for a CPU; None if there is none."""
    triton: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.unit.Kernel` in Triton, for a GPU; None if there is none."""

    weights: tuple[Tensor, ...] = ()
    """For each recurrent matrix its parameters in the order of `flat`; then vectors, such as peepholes."""
    normalized: bool = False
    """Whether layer norm is applied to its recurrent products."""

    @functools.cached_property
    def native_file(self) -> Path:
        """Its C file, which is compiled when it is first used."""
        return Path(__file__).parent / self.name / "native.c"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        """One time step: the new state, [N, H] each, from the input products x [N, kH] and the previous state.

        Products and gates read `seen`, which equals `state` except with recurrent dropout; `state` itself is carried.
        All are in at least fp32.
        """
        raise NotImplementedError

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        """The gates of the time step that `equation` computes from the same x [N, kH] and previous state [N, H]."""
        return GateValues()

    def output(self, h: Tensor) -> Tensor:
        """Its output, [..., H], when its state has this h."""
        return torch.tanh(h) if self.tanh_output else h

    @property
    def tanh_output(self) -> bool:
        """Whether its output is the tanh of h, while h itself is carried without tanh."""
        return False

    @property
    def usual(self) -> bool:
        """Whether its kernels support its options."""
        return True

    @property
    def code(self) -> int:
        """Its options as one number, for kernels and as p of the engine's instruction (docs/engine_format.md)."""
        code = 0
        for name, numbers in self.codes.items():
            code += numbers[getattr(self, name)]
        return code

    @property
    def recurrents(self) -> list[Recurrent]:
        """The parameters of its matrices."""
        size = 4 if self.normalized else 2
        return [Recurrent(*self.weights[i : i + size]) for i in range(0, size * self.matrices, size)]

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """The weights that do not belong to a matrix."""
        return self.weights[(4 if self.normalized else 2) * self.matrices :]

    @property
    def design(self) -> Unit:
        """The same unit without weights, which can be compared and used as a key."""
        return replace(self, weights=())

    @property
    def words(self) -> str:
        """The design in one line: its name, the names of boolean options that are true, and the words of the others."""
        own = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "weights"]
        chosen = [name if value is True else value for name, value in own if value is not False]
        return " ".join([self.name, *chosen])

    def with_weights(self, weights: Sequence[Tensor]) -> Any:
        """The same unit with other weights."""
        return replace(self, weights=tuple(weights))


def register(name: str) -> Callable[[U], U]:
    """Decorator that registers a unit under `name`; each name can be registered only once."""

    def add(unit: U) -> U:
        if name in UNITS:
            raise ConfigError(f"unit '{name}' is already registered by {UNITS[name]!r}")
        unit.name = name
        UNITS[name] = unit
        return unit

    return add


def flat(*matrices: Recurrent) -> tuple[Tensor, ...]:
    """The parameters of all matrices in one tuple: for each its matrix, bias and, with layer norm, scale and offset."""
    return tuple(part for matrix in matrices for part in matrix if part is not None)


class Sizes(NamedTuple):
    """The sizes of one batch of sequences."""

    length: int  # T
    batch: int  # B
    hidden: int  # H
    dtype: torch.dtype  # type of the recurrent products
    device: torch.device

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialised tensor, in the type of the products unless `dtype` is given."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class States(NamedTuple):
    """States of n time steps."""

    parts: Tensor  # fp32 [P, n, B, H], h first
    operand: Tensor  # [n, B, H]: h again in the type of the products; for fp32 it may be the same memory

    @classmethod
    def empty(cls, parts: int, length: int, sizes: Sizes) -> States:
        """Uninitialised memory for `length` states."""
        wide = sizes.empty(parts, length, sizes.batch, sizes.hidden, dtype=torch.float32)
        same = sizes.dtype == torch.float32
        return cls(wide, wide[0] if same else sizes.empty(length, sizes.batch, sizes.hidden))

    def at(self, start: int, end: int) -> States:
        """The states of the time steps from `start` to before `end`."""
        return States(self.parts[:, start:end], self.operand[start:end])

    def put(self, t: int, state: Tensor) -> None:
        """Set the state of time step t to [P, B, H]."""
        self.parts[:, t].copy_(state)
        if self.operand.data_ptr() != self.parts.data_ptr():
            self.operand[t].copy_(state[0])


class Step(NamedTuple):
    """A time step of all rows."""

    t: int
    x: Tensor  # [B, 1, kH], the input
    before: States
    after: States
    mask: Tensor | None  # [B, 1]; rows keep their state where it is 0


def steps_of(x: Sequence[Tensor], before: States, after: States, mask: Sequence[Tensor | None]) -> list[Step]:
    """All time steps; splitting the tensors once is faster than slicing them in each step."""
    early, late = ([*map(States, part.parts.split(1, 1), part.operand.split(1))] for part in (before, after))
    return [Step(t, *parts) for t, parts in enumerate(zip(x, early, late, mask, strict=True))]


class Kernel:
    """A unit over one batch of sequences: some time steps forward, then the same steps backward.

    Subclasses implement one step; the loops over time (`nmt.ops.loop`) call them. Besides the states there are two
    groups of tensors [T, B, width * H] in the type of the products: `saved`, which the forward pass writes and the
    backward pass reads, and `written`, which the backward pass writes and the gradients of the weights read.
    """

    recorded: ClassVar[bool] = False
    """Whether loops over it become CUDA graphs, one for each shape."""
    saved_widths: ClassVar[tuple[int, ...]] = ()
    """First those of the product of each matrix, then those of the operands of the second matrix and the following."""
    written_widths: ClassVar[tuple[int, ...]] = ()
    """First those of the gradients of the products, see `sums`."""
    norm_widths: ClassVar[tuple[tuple[int, ...], ...]] = ()
    """For each matrix the parts of its product that are normalised with layer norm, as multiples of H."""

    def __init__(self, unit: Unit, sizes: Sizes, *, saved: Sequence[Tensor] | None = None) -> None:
        """`saved`: the tensors that a forward pass has saved; None allocates them."""
        self.unit, self.sizes = unit, sizes
        self.matrices = [
            matrix_of_steps(recurrent.weight, sizes.dtype, steps=sizes.length) for recurrent in unit.recurrents
        ]
        self.parameters = [
            [None if part is None else part.detach().float().contiguous() for part in recurrent[1:]]
            for recurrent in unit.recurrents
        ]
        """For each matrix its bias, scale and offset, fp32; the last two are None without layer norm."""
        self.saved = self._room(self.saved_widths) if saved is None else tuple(saved)

    def _room(self, widths: Sequence[int]) -> tuple[Tensor, ...]:
        length, batch, hidden = self.sizes[:3]
        return tuple(self.sizes.empty(length, batch, width * hidden) for width in widths)

    @functools.cached_property
    def written(self) -> tuple[Tensor, ...]:
        """The tensors that the backward pass writes, with widths `written_widths`."""
        return self._room(self.written_widths)

    @classmethod
    def problem(cls, unit: Unit, *, dtype: torch.dtype, hidden: int) -> str | None:
        """Why it cannot run `unit` with products of this type and `hidden` channels, in few words; None if it can."""
        return None

    @classmethod
    def whole(
        cls, units: Sequence[Unit], x: Tensor, state: Sequence[State] | None, mask: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, Tensor] | None:
        """All steps of all sequences at once, with autograd; None if steps have to be run one by one.

        x [D, B, T, kH]; one unit for each direction, all of one design; state: the initial state of each direction,
        tensors [B, H], or None for zeros; mask [B, T] or None, rows keep their state where it is 0. A single direction
        runs as `reverse` says; of two directions the first runs forward and the second backward. Returns h after each
        step [D, B, T, H] in input order, and the last computed state, fp32 [D, P, B, H].
        """
        return None

    @property
    def deferrable(self) -> bool:
        """Whether all its work is done by C kernels for bf16, which can run later; see `nmt.ops.native.in_one_team`."""
        in_c = not self.recorded and all(matrix.packed for matrix in self.matrices)
        return in_c and self.sizes.dtype == torch.bfloat16

    def forward(self, step: Step) -> None:
        """Write the state after the step."""
        raise NotImplementedError

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor | None:
        """The gradient of `forward`; writes dx [B, 1, kH].

        `gradient` fp32 [P, B, H] is the gradient of the state after the step. Two terms are added to its part for h:
        `pending` [B, H], returned by the call for the following time step, and d_output [B, 1, H]. Afterwards
        `gradient` holds the gradient of the state before the step, except for a product [B, H], which may be returned
        instead and which the next call adds.
        """
        raise NotImplementedError

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        """The gradients [T, B, kH] of each product after layer norm; without it those of the product alone."""
        return self.written

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        """The gradients of all weights, in their order, from the states before all T steps and dx [T, B, kH]."""
        gradients, operands = list[Tensor](), [before.operand, *self.saved[len(self.matrices) :]]
        for i, (matrix, operand, d_sum) in enumerate(zip(self.matrices, operands, self.sums(dx), strict=True)):
            d_bias = row_sums(d_sum)
            gradients += [matrix.weight_gradient(self.written[i].flatten(0, 1), operand.flatten(0, 1)), d_bias]
            if self.unit.normalized:
                widths = [k * self.sizes.hidden for k in self.norm_widths[i]]
                gradients += [scale_gradient(self.saved[i], d_sum, widths), d_bias.clone()]
        return gradients


class CKernel(Kernel):
    """A unit whose steps are C functions between products."""

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        if not self.unit.normalized:
            return self.written[: len(self.matrices)]
        return dx.split([sum(widths) * self.sizes.hidden for widths in self.norm_widths], -1)

    @classmethod
    def problem(cls, unit: Unit, *, dtype: torch.dtype, hidden: int) -> str | None:
        if unit.normalized and not cls.norm_widths:
            return "there is no C kernel with layer norm"
        return None if dtype in TYPES else f"there is no C kernel for {str(dtype).removeprefix('torch.')}"

    def add_backward(self, matrix: int, d_product: Tensor, *, to: Tensor) -> None:
        """Add the gradient of the state through one of the products [B, kH] to `to` [B, H] fp32."""
        product = self.matrices[matrix]
        if product.packed or d_product.dtype == torch.float32:
            product.backward(d_product, out=to, added=to)
            return
        gradient = torch.empty(to.shape, dtype=d_product.dtype)
        product.backward(d_product, out=gradient)
        kernel("add_rows", gradient.dtype)(gradient, gradient.stride(0), to, *to.shape)


class OneProductKernel(CKernel):
    """A unit with one product per step, which it saves; the backward pass writes the product's gradient and, if the
    input has another one, that after layer norm."""

    def __init__(self, unit: Unit, sizes: Sizes, *, saved: Sequence[Tensor] | None = None) -> None:
        super().__init__(unit, sizes, saved=saved)
        self._code = unit.code

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        (_, batch, hidden, dtype, _) = self.sizes
        self.matrices[0].forward(before.operand[0], out=self.saved[0][t])
        states = before.parts, before.parts.stride(0), after.parts, after.parts.stride(0), after.operand, hidden
        kernel(f"{self.unit.name}_forward", dtype, source=self.unit.native_file)(
            *(*rows_of(x), self.saved[0][t], *self.parameters[0], *rows_of(mask), *states, batch, hidden),
            self._code,
        )

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        t, x, before, after, mask = step
        (written, *others), (_, batch, hidden, dtype, _) = (tensor[t] for tensor in self.written), self.sizes
        states = before.parts, before.parts.stride(0), after.parts, after.parts.stride(0), hidden
        kernel(f"{self.unit.name}_backward", dtype, source=self.unit.native_file)(
            *(*rows_of(x), self.saved[0][t], *self.parameters[0], *rows_of(mask), *states, *rows_of(d_output)),
            *(gradient, *rows_of(dx), written, others[0] if others and self.unit.normalized else None),
            *(batch, hidden, self._code),
        )
        self.add_backward(0, written, to=gradient[0])


def rows_of(x: Tensor | None) -> tuple[Tensor | None, int]:
    """An optional tensor [B, 1, ...] and its row stride, as kernels take them."""
    return x, 0 if x is None else x.stride(0)
