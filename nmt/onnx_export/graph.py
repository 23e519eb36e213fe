"""ONNX graphs while they are made: nodes, constants, and arithmetic with what nodes put out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 17
"""The first version of the operators that has LayerNormalization; later versions of ONNX Runtime read it."""
IR_VERSION: Final = 8
CONTRIB: Final = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""

Dimensions = Sequence[str | int]


@dataclass(frozen=True)
class Term:
    """What a node, an input or a constant puts out, in the graph where it is; arithmetic with it makes more nodes."""

    graph: Graph
    name: str

    def __add__(self, other: Term | float) -> Term:
        return op("Add", self, self._term(other))

    def __sub__(self, other: Term | float) -> Term:
        return op("Sub", self, self._term(other))

    def __rsub__(self, other: float) -> Term:
        return op("Sub", self._term(other), self)

    def __mul__(self, other: Term | float) -> Term:
        return op("Mul", self, self._term(other))

    def __truediv__(self, other: Term | float) -> Term:
        return op("Div", self, self._term(other))

    def reshape(self, *sizes: int) -> Term:
        """0 stands for the size that this dimension has, -1 for what is left."""
        return op("Reshape", self, self.graph.integers(*sizes))

    def part(self, start: int, width: int) -> Term:
        """`width` of the columns of the last dimension from `start` on."""
        ends = [self.graph.integers(number) for number in (start, start + width, -1)]
        return op("Slice", self, *ends)

    def transposed(self, *order: int) -> Term:
        """With its dimensions in another order."""
        return op("Transpose", self, perm=list(order))

    def unsqueezed(self, place: int) -> Term:
        """With one more dimension of size 1."""
        return op("Unsqueeze", self, self.graph.integers(place))

    def size(self, dimension: int) -> Term:
        """The size of a dimension, as a vector of one integer."""
        return op("Shape", self, start=dimension, end=dimension + 1)

    def _term(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.graph.number(other)


class Graph:
    """A graph; constants are those of the outermost one, whose names the graphs inside know."""

    def __init__(self, outer: Graph | None = None) -> None:
        """`outer` is the graph with the node that this is the body of."""
        self.root: Graph = self if outer is None else outer.root
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[Any, Term] = {}
        self._stored: list[onnx.TensorProto] = []
        self._numbers: Iterator[int] = itertools.count() if outer is None else outer.root._numbers

    def input(self, name: str | None = None, *, kind: int = TensorProto.FLOAT, shape: Dimensions | None = None) -> Term:
        """A new input; bodies need neither names nor shapes."""
        term = Term(self, name or self._name())
        self.inputs.append(helper.make_tensor_value_info(term.name, kind, shape))
        return term

    def output(
        self, term: Term, name: str | None = None, *, kind: int = TensorProto.FLOAT, shape: Dimensions | None = None
    ) -> None:
        """Put out a term, under a name of its own."""
        name = name or self._name()
        self.nodes.append(helper.make_node("Identity", [term.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def node(
        self, kind: str, inputs: Sequence[Term], *, outputs: int = 1, domain: str = "", **options: Any
    ) -> list[Term]:
        """One more node."""
        found = [Term(self, self._name()) for _ in range(outputs)]
        names = [term.name for term in inputs], [term.name for term in found]
        self.nodes.append(helper.make_node(kind, *names, domain=domain, **options))
        return found

    def constant(self, key: Any, values: NDArray[Any] | None = None) -> Term | None:
        """The constant that was stored under this key, or is now; None where there is none."""
        constants = self.root._constants
        if key not in constants and values is not None:
            constants[key] = Term(self.root, self._name())
            self.root._stored.append(numpy_helper.from_array(np.ascontiguousarray(values), constants[key].name))
        return constants.get(key)

    def stored(self, values: NDArray[Any]) -> Term:
        """A small constant, which is there once."""
        # np.ascontiguousarray makes vectors of scalars
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self.root._constants:
            self.root._constants[key] = Term(self.root, self._name())
            self.root._stored.append(numpy_helper.from_array(values, self.root._constants[key].name))
        return self.root._constants[key]

    def number(self, value: float) -> Term:
        """A scalar of rank 0, as ONNX Runtime in browsers wants it where a scalar is meant."""
        return self.stored(np.array(value, np.float32))

    def integers(self, *values: int) -> Term:
        """A vector of integers."""
        return self.stored(np.array(values, np.int64))

    def integer(self, value: int) -> Term:
        """An integer of rank 0."""
        return self.stored(np.array(value, np.int64))

    def zeros(self, *sizes: Term) -> Term:
        """Zeros of a shape whose sizes are vectors of one integer."""
        shape = op("Concat", *sizes, axis=0)
        return op("ConstantOfShape", shape, value=helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0]))

    def proto(self, name: str) -> onnx.GraphProto:
        """The graph as it is stored."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self._stored)

    def _name(self) -> str:
        return f"v{next(self._numbers)}"


def op(kind: str, first: Term, *others: Term, domain: str = "", **attributes: Any) -> Term:
    """A node with one output, in the innermost of the graphs that its inputs are of.

    So what a loop needs and does not change is computed once, outside of it.
    """
    inputs = [first, *others]
    graph = max((term.graph for term in inputs), key=lambda graph: graph.depth)
    return graph.node(kind, inputs, domain=domain, **attributes)[0]


def model_of(graph: Graph, name: str, *, contrib: bool) -> onnx.ModelProto:
    """A whole model; `contrib` says whether it uses ONNX Runtime's own operators."""
    imports = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(CONTRIB, 1)] if contrib else [])
    model = helper.make_model(graph.proto(name), opset_imports=imports, ir_version=IR_VERSION)
    model.producer_name = "nmt"
    return model
