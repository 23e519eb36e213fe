"""Dropout: the mask is Philox's, reproducible from torch's generator, and as random as it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.models.dropout import Dropout
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.dropout import dropout
from nmt.ops.dropout.native import _masked

needs_native = pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")


def philox(counter: int, seed: int) -> list[int]:
    """Philox4x32-10 as its authors write it, in Python's integers."""
    low, word = 0xFFFFFFFF, [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    key = [seed & low, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * word[0], 0xCD9E8D57 * word[2]
        word = [second >> 32 ^ word[1] ^ key[0], second & low, first >> 32 ^ word[3] ^ key[1], first & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return word


def test_the_oracle_gives_the_published_numbers() -> None:
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [0, 2**63 - 12345])
def test_each_value_has_its_number_of_the_generator(seed: int, dtype: torch.dtype) -> None:
    count, p = 64 * 3 + 29, 0.3
    numbers = [philox(16 * (n // 64) + n % 16, seed)[n % 64 // 16] for n in range(count)]
    wanted = torch.tensor([0.0 if number < round(p * 2**32) else 1 / (1 - p) for number in numbers])
    assert torch.equal(_masked(torch.ones(count, dtype=dtype), seed=seed, p=p), wanted.to(dtype))


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> str:
    if request.param == "native" and native.problem():
        pytest.skip(f"no native kernels here: {native.problem()}")
    return str(request.param)


@pytest.fixture(autouse=True)
def chosen(request: pytest.FixtureRequest) -> object:
    reference = "kernels" in request.fixturenames and request.getfixturevalue("kernels") == "reference"
    with selected("reference" if reference else "auto"):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_mean_and_values(p: float, dtype: torch.dtype, kernels: str) -> None:
    torch.manual_seed(1)
    count = 200_000
    out = dropout(torch.ones(count, dtype=dtype), p)
    assert out.dtype == dtype
    assert out.unique().tolist() == [0.0, torch.tensor(1 / (1 - p), dtype=dtype).item()]
    spread = math.sqrt(p * (1 - p) / count)
    assert abs((out == 0).double().mean().item() - p) < 4 * spread
    assert abs(out.double().mean().item() - 1) < 4 * spread / (1 - p) + 2**-8 * (dtype == torch.bfloat16)


def correlation(x: Tensor, y: Tensor) -> float:
    """In standard deviations of what independent values give."""
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1]) * math.sqrt(len(x))


def test_neighbours_and_calls_are_independent(kernels: str) -> None:
    torch.manual_seed(2)
    ones = torch.ones(256, 512)
    first, second = dropout(ones, 0.5), dropout(ones, 0.5)
    assert abs(correlation(first.flatten(), second.flatten())) < 4
    for step in (1, 2, 4, 16, 48, 64, 512, 1024):
        assert abs(correlation(first.flatten()[step:], first.flatten()[:-step])) < 4, step
    spread = math.sqrt(512) / 2
    for counts in ((first == 0).sum(1), (first[:, :256] == 0).sum(0) * math.sqrt(2)):
        middle = counts.double().mean()
        assert ((counts - middle).abs() < 5 * spread).all()
        assert 0.7 < counts.double().std().item() / spread < 1.3


def test_the_seed_of_torch_decides_and_saved_state_repeats(kernels: str) -> None:
    x = torch.randn(50, 70)
    torch.manual_seed(3)
    first = dropout(x, 0.2)
    state = torch.get_rng_state()
    second = dropout(x, 0.2)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.2), first)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.2), second)
    assert not torch.equal(first, second)


def test_gradient_has_the_mask_of_the_values(kernels: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.rand(7, 33, dtype=dtype).add_(1).t().requires_grad_()  # not contiguous
        upstream = torch.rand(33, 7, dtype=dtype).add_(1)
        out = dropout(x, 0.4)
        out.backward(upstream)
        assert x.grad is not None and x.grad.dtype == dtype
        assert torch.equal(x.grad == 0, out == 0) and (out == 0).any()
        torch.testing.assert_close(out / x, x.grad / upstream, rtol=2**-6, atol=0)


def test_none_and_all(kernels: str) -> None:
    x = torch.randn(5, 5)
    assert torch.equal(dropout(x, 0.0), x)
    assert torch.equal(dropout(x, 1.0), torch.zeros(5, 5))
    assert dropout(x[:0], 0.5).shape == (0, 5)


def test_nan_is_not_hidden(kernels: str) -> None:
    assert dropout(torch.full((100,), math.nan), 0.5).isnan().all()


def test_the_module_is_the_identity_in_evaluation_and_without_dropout() -> None:
    x = torch.randn(4, 6)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert (Dropout(0.5).train()(torch.ones(1000)) == 0).any()


@needs_native
def test_threads_change_nothing() -> None:
    x, threads = torch.randn(300, 301), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = _masked(x, seed=7, p=0.1)
        torch.set_num_threads(2)
        assert torch.equal(_masked(x, seed=7, p=0.1), alone)
    finally:
        torch.set_num_threads(threads)
