"""The k best in a defined order, also among equals."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from nmt.ops import best, native
from nmt.ops.best import Choice, best_of_product, best_words
from nmt.ops.best.native import best_native
from nmt.ops.best.reference import best_reference, log_probabilities, top
from nmt.ops.dispatch import set_kernels


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_is_the_head_of_a_stable_sort(levels: int, k: int) -> None:
    generator = torch.Generator().manual_seed(levels + k)
    scores = torch.randint(0, levels, (40, 20), generator=generator).double()
    scores[3] = -math.inf
    scores[4, 2:] = -math.inf
    values, places = top(scores, k)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(places, expected.indices[:, :k])


@pytest.mark.parametrize("levels", [3, 200, 10**6])
@pytest.mark.parametrize("size", [2560, 2561, 9999])
def test_long_rows(levels: int, size: int) -> None:
    """Long rows are searched block by block; the blocks of equal values are where it could go wrong."""
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(0, levels, (6, size), generator=generator).double()
    scores[1, : size - 3] = -math.inf
    values, places = top(scores, 8)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :8])
    assert torch.equal(places, expected.indices[:, :8])


def test_log_probabilities_are_never_less_than_float32() -> None:
    logits = torch.randn(3, 5)
    assert log_probabilities(logits.bfloat16()).dtype == torch.float32
    assert log_probabilities(logits).dtype == torch.float32
    assert log_probabilities(logits.double()).dtype == torch.float64
    assert torch.allclose(log_probabilities(logits).exp().sum(1), torch.ones(3))


@pytest.mark.skipif(native.problem() is not None, reason=f"no C kernels: {native.problem()}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("parts", "words", "k"), [(1, 1, 1), (1, 500, 1), (5, 7, 10), (5, 3000, 10), (3, 257, 40)])
@pytest.mark.parametrize("normalize", [False, True])
def test_native_is_the_reference(dtype: torch.dtype, parts: int, words: int, k: int, normalize: bool) -> None:
    torch.manual_seed(words + k)
    logits = (3 * torch.randn(6 * parts, words)).to(dtype)
    logits[1::3, : words // 2] = -math.inf
    logits[::4, words // 2 :] = 9.0  # ties, also with what is penalised and banned
    before = torch.randn(6, parts).sort(1, descending=True).values if parts > 1 else None
    if before is not None:
        before[2, 1:] = -math.inf  # empty slots
    options = {"before": before, "normalize": normalize, "penalised": words // 2, "penalty": 1e8}
    banned = words - 1 if words > 1 else None
    values, places = best_native(logits, k, banned=banned, **options)
    expected, expected_places = best_reference(logits.clone(), k, banned=banned, **options)
    assert torch.equal(places, expected_places)
    known = expected > -1e6  # bf16 holds what is penalised coarsely
    assert torch.equal(values > -1e6, known)
    torch.testing.assert_close(values[known], expected[known].float(), rtol=2e-6, atol=2e-6)


@pytest.mark.skipif(native.problem() is not None, reason=f"no C kernels: {native.problem()}")
def test_native_rows_do_not_hang_on_their_companions() -> None:
    logits = torch.randn(40, 999).bfloat16()
    together = best_words(logits, Choice(6, before=torch.zeros(8, 5)))
    alone = best_words(logits[15:20].clone(), Choice(6, before=torch.zeros(1, 5)))
    assert all(torch.equal(whole[3:4], part) for whole, part in zip(together, alone, strict=True))


@pytest.mark.parametrize("kernels", ["auto", "reference"])
def test_of_a_product_in_pieces(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "_CELLS", 20 * 300)
    features, table = torch.randn(55, 16), torch.randn(300, 16)
    choice = Choice(10, before=torch.randn(11, 5), banned=0, penalised=3, penalty=1e8)
    set_kernels(kernels)
    try:
        found, wanted = best_of_product(features, table, choice), best_words(F.linear(features, table), choice)
    finally:
        set_kernels("auto")
    torch.testing.assert_close(found.values, wanted.values)
    assert torch.equal(found.hypotheses, wanted.hypotheses) and torch.equal(found.words, wanted.words)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fewer_words_than_wanted(dtype: torch.dtype) -> None:
    found = best_words(torch.randn(2, 3, dtype=dtype), Choice(5))
    assert found.values.isinf().tolist() == [[False] * 3 + [True] * 2] * 2
    assert sorted(found.words[0, :3].tolist()) == [0, 1, 2]
