"""The input forms of recurrent layers: padded, unbatched or packed sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Sequences = Tensor | PackedSequence


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences in the form that cells take, and the conversion back to the form of the input."""

    x: Tensor
    """[B, T, D], 0 at padding"""
    mask: Tensor | None
    """bool [B, T], true where a sequence has a value"""
    batch_first: bool = True
    """Whether the input was [B, T, D]; else it was [T, B, D]."""
    is_batched: bool = True
    """False for one sequence [T, D]."""
    packed: PackedSequence | None = None
    """The packed input, whose sequences are sorted by length."""
    places: Tensor | None = None
    """[N], the indices of its values among the T * B positions of a time-major batch"""

    def restored(self, outputs: Tensor) -> Sequences:
        """Outputs [B, T, W] in the form of the input, 0 at padding."""
        if self.packed is not None and self.places is not None:
            data = outputs.transpose(0, 1).flatten(0, 1).index_select(0, self.places)
            return PackedSequence(data, *self.packed[1:])
        if self.mask is not None:
            outputs = outputs.masked_fill(~self.mask.unsqueeze(-1), 0)
        if not self.is_batched:
            return outputs[0]
        return outputs if self.batch_first else outputs.transpose(0, 1)

    def state_rows(self, state: Tensor) -> Tensor:
        """Convert a state of the input form, [L, B, H] or [L, H], to [L, B, H] in the order of the rows of x."""
        if not self.is_batched:
            return state.unsqueeze(1)
        order = None if self.packed is None else self.packed.sorted_indices
        return state if order is None else state.index_select(1, order)

    def restored_state(self, state: Tensor) -> Tensor:
        """The inverse of `state_rows`."""
        if not self.is_batched:
            return state.squeeze(1)
        order = None if self.packed is None else self.packed.unsorted_indices
        return state if order is None else state.index_select(1, order)


def read_batch(given: Sequences, mask: Tensor | None, *, width: int, batch_first: bool) -> Batch:
    """The sequences `given`, whose values have `width` channels; `mask` has the shape of the input without channels.

    Raises:
        ValueError: shapes do not fit, or there is a mask for a packed sequence.
        TypeError: an argument is not a tensor.
    """
    if isinstance(given, PackedSequence):
        if mask is not None:
            raise ValueError("mask: a packed sequence has its lengths; give one of both")
        _check_width(given.data, width, dimensions=(2,), form="packed data [N, D]")
        return _unpacked(given)
    if not isinstance(given, Tensor):
        raise TypeError(f"input: must be a tensor or a PackedSequence, not {type(given).__name__}")
    form = "[B, T, D] or [T, D]" if batch_first else "[T, B, D] or [T, D]"
    _check_width(given, width, dimensions=(2, 3), form=form)
    is_batched = given.dim() == 3
    if mask is not None:
        mask = _checked_mask(mask, given)
    if not is_batched:
        x, mask = given.unsqueeze(0), None if mask is None else mask.unsqueeze(0)
    elif batch_first:
        x = given
    else:
        x, mask = given.transpose(0, 1), None if mask is None else mask.transpose(0, 1).contiguous()
    if x.size(1) == 0:
        raise ValueError(f"input: {list(given.shape)} has no time step")
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), 0)  # a NaN in padding would reach the gradients of weights
    return Batch(x=x, mask=mask, batch_first=batch_first, is_batched=is_batched)


def _check_width(given: Tensor, width: int, *, dimensions: tuple[int, ...], form: str) -> None:
    if given.dim() not in dimensions or given.size(-1) != width:
        raise ValueError(f"input: {list(given.shape)}, but must be {form} with D = input_size = {width}")


def _checked_mask(mask: Tensor, given: Tensor) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask: must be a tensor, not {type(mask).__name__}")
    if mask.shape != given.shape[:-1]:
        wanted = f"must be {list(given.shape[:-1])}, true at values, for input {list(given.shape)}"
        raise ValueError(f"mask: {list(mask.shape)}, but {wanted}")
    return mask.to(given.device).bool()


def _unpacked(given: PackedSequence) -> Batch:
    """The batch of a packed sequence; rows are in packed order, the longest first."""
    sizes = given.batch_sizes  # on the CPU, [T]: how many sequences have a value at each time step
    length, rows = len(sizes), int(sizes[0])
    has_value = torch.arange(rows) < sizes.unsqueeze(1)  # [T, B]
    places = has_value.flatten().nonzero().squeeze(1).to(given.data.device)
    flat = given.data.new_zeros(length * rows, given.data.size(1)).index_copy(0, places, given.data)
    x = flat.view(length, rows, -1).transpose(0, 1)
    mask = None if bool(has_value.all()) else has_value.t().contiguous().to(given.data.device)
    return Batch(x=x, mask=mask, packed=given, places=places)
