"""A model as a search runs it: its matrices converted once, not at every step."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.models.base import Seq2Seq
from nmt.ops.matrices.inference import quantize, to_bf16, worth_packing

_LISTS = (nn.ParameterList, nn.ParameterDict)
"""Modules whose parameters belong to the module that has them."""


def inference_copy(model: Seq2Seq, *, bf16: bool = False, int8: bool = False) -> Seq2Seq:
    """`model` with converted matrices; everything else it shares with the original. For inference only.

    `bf16`: all matrices but the embeddings become bf16; run the copy under autocast to bf16, which casts
    their inputs. Those of decoder, readout and softmax, which each step of a search reads, become a Bf16Matrix where
    the CPU has a kernel for it; with `int8` an Int8Matrix. A table that the softmax shares with embeddings is
    converted for the softmax alone. Weights that are not fp32 stay as they are, and so do those of modules that are
    not known to multiply by them and to do nothing else; known are those of this package, cells and torch.nn.Linear.
    """
    if not (bf16 or int8):
        return model
    each_step = {id(weight) for weight in _decoder_matrices(model)}
    tables = {id(table) for table in model.embeddings.parameters()}
    matrices = _matrices(model) - tables
    # deepcopy takes from here what it would copy.
    memo: dict[int, object] = {}
    for parameter in model.parameters():
        if id(parameter) in matrices:
            memo[id(parameter)] = _converted(parameter, each_step=id(parameter) in each_step, int8=int8, bf16=bf16)
        else:
            memo[id(parameter)] = parameter
    copied = copy.deepcopy(model, memo)
    table = _converted(model.embeddings.softmax_table, each_step=True, int8=int8, bf16=bf16)
    copied.embeddings.use_softmax_table(table)
    return copied


def _decoder_matrices(model: Seq2Seq) -> Iterator[nn.Parameter]:
    for part in (model.decoder, model.readout):
        yield from (parameter for parameter in part.parameters() if parameter.dim() == 2)


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
