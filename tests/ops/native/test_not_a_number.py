"""A NaN that the kernels of a search read comes out again: no score that looks sound is made of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.matrices import quantize, to_bf16
from nmt.ops.matrices.best_words import Choice, best_native, best_reference, best_words

Best = Callable[[Tensor, Choice], tuple[Tensor, Tensor]]


@pytest.mark.parametrize("best", [best_native, best_reference])
@pytest.mark.parametrize("place", [3, 500, 999])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_row_with_a_nan_has_no_best_word(best: Best, place: int, normalize: bool) -> None:
    logits = torch.randn(2, 1000)
    logits[0, place] = torch.nan
    logits[:, 0] = 10  # of the word that is not allowed, and looked at first
    values, _ = best(logits, Choice(1, normalize=normalize, banned=0))
    assert values[0].isnan().all() and values[1].isfinite().all()


def test_words_that_are_not_allowed_are_no_nan() -> None:
    logits = torch.randn(2, 1000)
    logits[:, 5:] = -torch.inf
    assert best_words(logits, Choice(1, normalize=False)).values.isfinite().all()


@pytest.mark.parametrize("narrow", [quantize, to_bf16])
@pytest.mark.parametrize("rows", [1, 40])
def test_products_with_narrow_matrices(narrow: Callable[[Tensor], Tensor], rows: int) -> None:
    x = torch.randn(rows, 96)
    x[0, 7] = torch.nan
    found = F.linear(x, narrow(torch.randn(80, 96)))
    assert found[0].isnan().all() and found[1:].isfinite().all()
