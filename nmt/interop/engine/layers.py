"""Lowering of embedding tables, linear maps and norms, and the refusal of modules that are not known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt.errors import ConfigError
from nmt.interop.engine.program import Activation, Op, Program, Value
from nmt.models.blocks import EPSILON as BLOCK_EPSILON
from nmt.models.blocks import BlockNorm
from nmt.models.parts import LayerNorm, Linear
from nmt.ops.recurrence import EPSILON
from nmt.plugin_errors import PREFIX
from nmt.registry import Registry


def check_class(module: nn.Module, *known: type) -> None:
    """Raise ConfigError unless a module is exactly of one of the `known` classes: subclasses may compute something
    else."""
    if type(module) not in known:
        raise unknown(module, *known)


def unknown(
    module: nn.Module, *known: type, key: str = "architecture", registry: Registry[Any] | None = None
) -> Exception:
    """The ConfigError for a module of none of the `known` classes, which are called as the user calls them.

    `key` is that of the section `model`, and `registry` has what it names.
    """
    names = [each.__name__ for each in known]
    if registry is not None:
        names = [name for name in registry.names() if registry.get(name) in known]
    kind = type(module)
    place = "" if kind.__module__.partition(".")[0] == "nmt" else f" of {kind.__module__.removeprefix(PREFIX)}"
    allowed = ", ".join(sorted(names))
    return ConfigError(f"model.{key}: the engine does not know the class {kind.__name__}{place}. Allowed: {allowed}.")


def embed(program: Program, table: Tensor, bias: Tensor, *, factor: float, out: Value | None = None) -> Value:
    """factor * (table[token] + bias), of zeros at the start of a target sentence."""
    out = out or program.new(table.shape[1])
    tensors = [program.tensors.matrix([table]), program.tensors.vector([bias])]
    program.emit(Op.EMBED, out, tensors=tensors, f=float(torch.tensor(factor, dtype=torch.float32)))
    return out


def linear(
    program: Program,
    module: Linear,
    *inputs: Value,
    out: Value | None = None,
    activation: Activation = Activation.NONE,
) -> Value:
    """A linear map of its inputs; without layer norm they are one input, side by side."""
    check_class(module, Linear)
    if not module.norms:
        (a,) = inputs
        return program.linear(a, [module.weights[0]], [module.bias], out=out, activation=activation)
    out = out or program.new(len(module.weights[0]))
    bias = module.bias
    for place, (a, weight, norm) in enumerate(zip(inputs, module.weights, module.norms, strict=True)):
        product = program.linear(a, [weight], out=None if place else out)
        layer_norm(program, norm, product, plus=None if place else bias)
        if place:
            program.add(out, product)
    if activation == Activation.TANH:
        program.emit(Op.TANH, out, out)
    else:
        assert activation == Activation.NONE
    return out


def layer_norm(program: Program, module: nn.Module, a: Value, *, plus: Tensor | None = None) -> None:
    """Layer norm of `a` in its place, plus a vector."""
    check_class(module, LayerNorm)
    assert isinstance(module, LayerNorm)
    offset: Tensor = module.offset
    if plus is not None:
        program.tensors.use(offset, plus)
        offset = (offset + plus).detach()
    program.norm(a, module.scale, offset, epsilon=EPSILON, out=a)


def block_norm(program: Program, module: BlockNorm, a: Value) -> Value:
    """The norm of a part of a transformer's block."""
    check_class(module, BlockNorm)
    return program.norm(a, module.scale, module.offset, epsilon=BLOCK_EPSILON)
