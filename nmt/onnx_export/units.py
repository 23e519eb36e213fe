"""Steps of recurrent units in ONNX nodes: `Unit.equation`, computed with symbols in place of tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import ConfigError
from nmt.interop.engine.program import Instruction
from nmt.onnx_export.graph import Term, op
from nmt.onnx_export.registers import Registers
from nmt.onnx_export.weights import Weights
from nmt.ops.recurrence import State

Operand: TypeAlias = "Symbol | float"


class Symbol:
    """Stands for a tensor [N, W] or a vector [W] in an equation: terms side by side; what is computed makes nodes."""

    dtype = torch.float32

    def __init__(self, terms: Sequence[Term], widths: Sequence[int]) -> None:
        self.terms, self.widths = list(terms), list(widths)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """What PyTorch calls for its functions of symbols."""
        if function not in _FUNCTIONS:
            allowed = ", ".join(sorted(each.__name__ for each in _FUNCTIONS))
            name = getattr(function, "__name__", str(function))
            raise ConfigError(
                f"model.cell: the equation of its unit has {name}, which cannot be exported with ONNX graphs. "
                f"Allowed: {allowed}."
            )
        return _FUNCTIONS[function](*args, **(kwargs or {}))

    @property
    def shape(self) -> torch.Size:
        """Of the columns alone."""
        return torch.Size([sum(self.widths)])

    def size(self, dim: int = -1) -> int:
        """How many columns there are."""
        assert dim in (-1, 1)
        return sum(self.widths)

    def to(self, *_: Any, **__: Any) -> Symbol:
        """Itself: all is fp32."""
        return self

    def whole(self) -> Term:
        """All columns as one term."""
        return self.terms[0] if len(self.terms) == 1 else op("Concat", *self.terms, axis=-1)

    def split(self, widths: Sequence[int], dim: int = -1) -> tuple[Symbol, ...]:
        """Parts of these widths, side by side."""
        assert dim in (-1, 1) and sum(widths) == sum(self.widths)
        ends = sorted({*itertools.accumulate(widths), *itertools.accumulate(self.widths)})
        cut = self._cut(ends)
        places = [0, *(ends.index(end) + 1 for end in itertools.accumulate(widths))]
        return tuple(Symbol(cut.terms[a:b], cut.widths[a:b]) for a, b in itertools.pairwise(places))

    def chunk(self, count: int, dim: int = -1) -> tuple[Symbol, ...]:
        """So many parts of one width, side by side."""
        return self.split([sum(self.widths) // count] * count, dim)

    def __add__(self, other: Operand) -> Symbol:
        return _elementwise("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Symbol:
        return _elementwise("Sub", self, other)

    def __rsub__(self, other: float) -> Symbol:
        return _elementwise("Sub", other, self)

    def __mul__(self, other: Operand) -> Symbol:
        return _elementwise("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Symbol:
        return _elementwise("Div", self, other)

    def __rtruediv__(self, other: float) -> Symbol:
        return _elementwise("Div", other, self)

    def __neg__(self) -> Symbol:
        return _elementwise("Neg", self)

    def __ge__(self, other: Operand) -> Symbol:
        return _elementwise("GreaterOrEqual", self, other)

    def __gt__(self, other: Operand) -> Symbol:
        return _elementwise("Greater", self, other)

    def _cut(self, ends: Sequence[int]) -> Symbol:
        """The same in terms that end at these columns, where its own terms end, too."""
        found, start, begin = list[Term](), 0, 0
        own = iter(zip(self.terms, itertools.accumulate(self.widths), strict=True))
        term, limit = next(own)
        for end in ends:
            if start == limit:
                begin, (term, limit) = limit, next(own)
            found.append(term if (start, end) == (begin, limit) else term.part(start - begin, end - start))
            start = end
        return Symbol(found, [end - start for start, end in itertools.pairwise([0, *ends])])


class Matrix(Symbol):
    """Stands for a recurrent matrix in an equation."""

    def __init__(self, product: Callable[[Term], Term], rows: int) -> None:
        super().__init__([], [rows])
        self.product = product


def stepped(one: Instruction, registers: Registers, weights: Weights) -> None:
    """The nodes of a step of a unit: from its input products and the state before it to the one after it."""
    x, before = one.operands
    assert one.unit is not None and one.out is not None and x is not None and before is not None
    known = list[Symbol]()
    for tensor, number in zip(one.unit.weights, one.tensors, strict=True):
        if tensor.dim() > 1:
            known.append(Matrix(functools.partial(weights.product, number=number, rank=2), len(tensor)))
        else:
            known.append(Symbol([weights.vector(number)], [len(tensor)]))
    inputs, state = (
        [Symbol([registers.read(part)], [one.n]) for part in value.split([one.n] * (value.width // one.n))]
        for value in (x, before)
    )
    given = cast("State", tuple(state))
    unit = one.unit.with_weights(cast("list[Tensor]", known))
    found = unit.equation(cast("Tensor", _beside(inputs)), given, given)
    for part, value in zip(found, one.out.split([one.n] * one.unit.states), strict=True):
        registers.write(value, part.whole())


def _elementwise(kind: str, *operands: Operand) -> Symbol:
    """A node for each of the narrowest terms that the operands have side by side; a number belongs to all of them."""
    symbols = [operand for operand in operands if isinstance(operand, Symbol)]
    ends = sorted({end for symbol in symbols for end in itertools.accumulate(symbol.widths)})
    assert len({symbol.size() for symbol in symbols}) == 1
    cut = [operand._cut(ends) if isinstance(operand, Symbol) else operand for operand in operands]
    widths = next(each.widths for each in cut if isinstance(each, Symbol))
    graph = symbols[0].terms[0].graph
    terms = [
        op(kind, *(each.terms[i] if isinstance(each, Symbol) else graph.number(each) for each in cut))
        for i in range(len(widths))
    ]
    return Symbol(terms, widths)


def _beside(symbols: Sequence[Symbol], dim: int = -1) -> Symbol:
    assert dim in (-1, 1)
    return Symbol([term for each in symbols for term in each.terms], [w for each in symbols for w in each.widths])


def _linear(x: Symbol, matrix: Matrix, bias: Symbol | None = None) -> Symbol:
    product = Symbol([matrix.product(x.whole())], matrix.widths)
    return product if bias is None else product + bias


def _layer_norm(x: Symbol, shape: Sequence[int], weight: Symbol, bias: Symbol, eps: float) -> Symbol:
    terms = [each.whole() for each in (x, weight, bias)]
    return Symbol([op("LayerNormalization", *terms, axis=-1, epsilon=eps)], [sum(x.widths)])


_FUNCTIONS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    torch.sigmoid: functools.partial(_elementwise, "Sigmoid"),
    torch.tanh: functools.partial(_elementwise, "Tanh"),
    torch.relu: functools.partial(_elementwise, "Relu"),
    torch.exp: functools.partial(_elementwise, "Exp"),
    torch.sqrt: functools.partial(_elementwise, "Sqrt"),
    torch.abs: functools.partial(_elementwise, "Abs"),
    torch.maximum: functools.partial(_elementwise, "Max"),
    torch.minimum: functools.partial(_elementwise, "Min"),
    torch.where: functools.partial(_elementwise, "Where"),
    torch.lerp: lambda start, end, weight: start + weight * (end - start),
    torch.addcmul: lambda a, b, c: a + b * c,
    torch.cat: _beside,
    torch.chunk: Symbol.chunk,
    torch.split: Symbol.split,
    F.logsigmoid: lambda x: -_elementwise("Softplus", -x),
    F.softplus: functools.partial(_elementwise, "Softplus"),
    F.silu: lambda x: x * _elementwise("Sigmoid", x),
    F.linear: _linear,
    F.layer_norm: _layer_norm,
}
"""What equations may have besides arithmetic, as nodes."""
