"""A model as a search runs it: its matrices converted once, not at every step."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.ops.matrices import Int8Matrix, quantize, to_bf16, worth_packing

if TYPE_CHECKING:
    from nmt.models.base import Seq2Seq


SOFTMAX: Final = "embeddings.softmax"
"""What the table of the softmax is called among the matrices of a step, whatever it is shared with."""


class Stored(NamedTuple):
    """How the weights of a model were stored that comes from an exported folder; see `nmt.interop.export`."""

    precision: Literal["fp32", "bf16", "int8"]
    """The number format that they are for."""
    matrices: Mapping[str, Int8Matrix]
    """With int8: the matrices that each step of a search reads, by name, in the form for a search. The model's own
    parameters hold the values that they represent."""


_LISTS = (nn.ParameterList, nn.ParameterDict)
"""Modules whose parameters belong to the module that has them."""


def inference_copy(model: Seq2Seq, *, bf16: bool = False, int8: bool = False) -> Seq2Seq:
    """`model` with converted matrices; everything else is shared with the original. For inference only.

    `bf16`: all matrices but the embeddings become bf16; run the copy under autocast to bf16, which casts
    their inputs. Those of decoder, readout and softmax, which each step of a search reads, become a Bf16Matrix where
    the CPU has a kernel for it; with `int8` an Int8Matrix, that of the exported folder where the model comes from one.
    A table that the softmax shares with embeddings is converted for the softmax alone. Weights that are not fp32 stay
    as they are, and so do those of modules that are not known to multiply by them and to do nothing else; known are
    those of this package, cells and torch.nn.Linear.
    """
    table = model.embeddings.softmax_table
    if not (bf16 or int8) and table is model.embeddings.softmax_table:  # not made anew for each step, with its bias
        return model
    each_step = {id(weight): name for name, weight in step_matrices(model)}
    tables = {id(table) for table in model.embeddings.parameters()}
    matrices = _matrices(model) - tables
    stored = {} if model.stored is None or not int8 else model.stored.matrices
    # deepcopy takes from here what it would copy.
    memo: dict[int, object] = {id(model.stored): model.stored}
    for parameter in model.parameters():
        if id(parameter) not in matrices:
            memo[id(parameter)] = parameter
        elif (name := each_step.get(id(parameter), "")) in stored:
            memo[id(parameter)] = stored[name]
        else:
            memo[id(parameter)] = _converted(parameter, each_step=name != "", int8=int8, bf16=bf16)
    copied = copy.deepcopy(model, memo)
    converted = stored[SOFTMAX] if SOFTMAX in stored else _converted(table, each_step=True, int8=int8, bf16=bf16)
    copied.embeddings.use_softmax_table(converted)
    return copied


def step_matrices(model: Seq2Seq) -> Iterator[tuple[str, nn.Parameter]]:
    """Names and weights of all known matrices that each step of a search reads, but the table of the softmax.

    Of an architecture whose encoder is as much work as all steps together also those of its encoder.
    """
    parts = ("encoder.", "decoder.", "readout.") if model.int8_encoder else ("decoder.", "readout.")
    for name, parameter in known_matrices(model):
        if name.startswith(parts) and parameter.dim() == 2:
            yield name, parameter


def known_matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Names and weights of the matrices that can be converted, see `inference_copy`, and of the tables."""
    known = _matrices(model)
    yield from ((name, parameter) for name, parameter in model.named_parameters() if id(parameter) in known)


def _matrices(model: nn.Module) -> set[int]:
    """The ids of the parameters of which it is known that their modules multiply by them and do nothing else."""
    known, others = set[int](), set[int]()
    for module in model.modules():
        if isinstance(module, _LISTS):
            continue
        ours = type(module).__module__.partition(".")[0] == "nmt" or isinstance(module, Cell)
        # A subclass of torch's Linear may look at its weight in its own way, as that of MultiheadAttention does.
        group = known if ours or type(module) is nn.Linear else others
        for part in (module, *(child for child in module.children() if isinstance(child, _LISTS))):
            group.update(id(parameter) for parameter in part.parameters(recurse=False) if parameter.dim() > 1)
    return known - others


def _converted(weight: Tensor, *, each_step: bool, int8: bool, bf16: bool) -> Tensor:
    if weight.dtype != torch.float32:
        return weight
    if int8 and each_step:
        return quantize(weight)
    if bf16 and each_step and worth_packing(weight.device):
        return to_bf16(weight)
    return nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False) if bf16 else weight
