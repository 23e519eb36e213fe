"""The k best in a defined order, also among equals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nmt.ops import graphs, native
from nmt.ops.matrices import InferenceMatrix, quantize, to_bf16
from nmt.ops.matrices.best_words import (
    Choice,
    best_native,
    best_of_product,
    best_reference,
    best_words,
    first_maximum,
    log_probabilities,
    ordered_top,
    top,
)

both = pytest.mark.parametrize("top", [top, ordered_top])


@both
@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_is_the_head_of_a_stable_sort(levels: int, k: int, top: Any) -> None:
    generator = torch.Generator().manual_seed(levels + k)
    scores = torch.randint(0, levels, (40, 20), generator=generator).double()
    scores[3] = -math.inf
    scores[4, 2:] = -math.inf
    values, places = top(scores, k)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(places, expected.indices[:, :k])


@both
@pytest.mark.parametrize("levels", [3, 200, 10**6])
@pytest.mark.parametrize("size", [2560, 2561, 9999])
def test_long_rows(levels: int, size: int, top: Any) -> None:
    """Long rows are searched block by block; the blocks of equal values are where it could go wrong."""
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(0, levels, (6, size), generator=generator).double()
    scores[1, : size - 3] = -math.inf
    values, places = top(scores, 8)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :8])
    assert torch.equal(places, expected.indices[:, :8])


@both
@pytest.mark.parametrize("levels", [3, 200, 10**6])
@pytest.mark.parametrize(("parts", "width"), [(1, 640), (3, 640), (4, 701), (2, 65), (5, 30)])
def test_of_several_hypotheses(parts: int, width: int, levels: int, top: Any) -> None:
    generator = torch.Generator().manual_seed(levels + width)
    scores = torch.randint(0, levels, (7 * parts, width), generator=generator).double()
    before = torch.randint(0, 4, (7, parts), generator=generator).double()
    before[2, 1:] = -math.inf
    scores[parts : 2 * parts, 2:] = -math.inf
    values, places = top(scores.view(7, -1), 8, before=before)
    expected = (scores.view(7, parts, -1) + before.unsqueeze(2)).flatten(1).sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :8])
    assert torch.equal(places, expected.indices[:, :8])


def test_on_a_gpu_nobody_waits_for_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads a tensor on the host would stop the GPU, and a graph could not record it."""

    def read(*_: Any) -> Any:
        raise AssertionError

    scores, before = torch.randn(4, 3 * 700), torch.randn(4, 3)
    for name in ("__bool__", "item", "tolist", "nonzero", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    ordered_top(scores, 6, before=before)
    first_maximum(scores)


@pytest.mark.gpu
@pytest.mark.parametrize("choice", [Choice(1, banned=0), Choice(8, before=torch.zeros(5, 4), banned=0)])
def test_a_graph_can_record_it(choice: Choice) -> None:
    logits = torch.randint(0, 9, (5 * choice.hypotheses, 5000)).float()
    wanted = best_reference(logits.clone(), choice)
    placed = choice if choice.before is None else choice._replace(before=choice.before.cuda())

    def work(logits: torch.Tensor) -> list[torch.Tensor]:
        return [*best_reference(logits.clone(), placed)]

    for _ in range(3):
        values, places = graphs.run(work, [logits.cuda()])
    torch.testing.assert_close(values.cpu(), wanted[0])
    assert torch.equal(places.cpu(), wanted[1])


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
    banned = words - 1 if words > 1 else None
    choice = Choice(k, before=before, normalize=normalize, banned=banned, penalised=words // 2, penalty=1e8)
    values, places = best_native(logits, choice)
    expected, expected_places = best_reference(logits.clone(), choice)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fewer_words_than_wanted(dtype: torch.dtype) -> None:
    found = best_words(torch.randn(2, 3, dtype=dtype), Choice(5))
    assert found.values.isinf().tolist() == [[False] * 3 + [True] * 2] * 2
    assert sorted(found.words[0, :3].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("words", "k"), [(3, 20), (63, 8), (64, 8), (301, 8), (301, 1)])
def test_of_a_product_whose_rows_are_aligned(words: int, k: int, normalize: bool) -> None:
    """As where no C kernel runs: what fills the rows up is never found, not even where all words are banned."""
    torch.manual_seed(words)
    features, table = torch.randn(6, 5).double(), torch.randn(words, 5).double().requires_grad_()
    before = None if k == 1 else torch.randn(3, 2).double()
    if before is not None:
        before[1] = -math.inf
    choice = Choice(k, before=before, normalize=normalize, banned=words - 1, penalised=2, penalty=1e8)
    found, wanted = best_of_product(features, table, choice), best_words(F.linear(features, table.detach()), choice)
    torch.testing.assert_close(found.values, wanted.values)
    there = wanted.values > -math.inf
    assert torch.equal(found.words[there], wanted.words[there])
    assert torch.equal(found.hypotheses[there], wanted.hypotheses[there])
    assert int(found.words.max()) < words


@pytest.mark.parametrize("make", [quantize, to_bf16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("groups", "parts"), [(1, 1), (1, 5), (3, 5), (40, 1), (300, 5), (400, 1), (50, 13)])
def test_of_a_product_in_one_kernel(
    make: Callable[[torch.Tensor], InferenceMatrix], dtype: torch.dtype, groups: int, parts: int
) -> None:
    """Rows that the threads share by strips and by groups; no row hangs on its companions."""
    torch.manual_seed(groups)
    features, table = torch.randn(groups * parts, 50).to(dtype), make(torch.randn(301, 50))
    if not table.has_kernel():
        pytest.skip(f"this CPU has no kernel for a packed {type(table).__name__}")
    before = torch.randn(groups, parts) if parts > 1 else None
    for k, normalize in ((1, False), (7, True)):
        choice = Choice(k, before=before, normalize=normalize, banned=0, penalised=3, penalty=1e8)
        found, wanted = best_of_product(features, table, choice), best_words(F.linear(features, table), choice)
        assert all(torch.equal(ours, right) for ours, right in zip(found, wanted, strict=True))
        alone = best_of_product(
            features[-parts:], table, choice._replace(before=None if before is None else before[-1:])
        )
        assert all(torch.equal(whole[-1:], part) for whole, part in zip(found, alone, strict=True))
