"""Dropout: masks are functions of their places, the same from all implementations, and as random as they should be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from nmt.models.parts import Dropout
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.dropout import (
    Draw,
    Masks,
    among,
    batch_key,
    current,
    dropout,
    layer_dropout,
    masked_by,
    random_numbers,
    threshold,
)

needs_native = pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")

KEY, LAYER, FIRST = 2**63 - 12345, 2**32 - 7, 2**31 - 6


def philox(counter: list[int], key: int) -> list[int]:
    """Philox4x32-10 as its authors write it, in Python's integers."""
    low, word, keys = 0xFFFFFFFF, counter, [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * word[0], 0xCD9E8D57 * word[2]
        word = [second >> 32 ^ word[1] ^ keys[0], second & low, first >> 32 ^ word[3] ^ keys[1], first & low]
        keys = [(keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low]
    return word


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ([0] * 4, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_oracle_gives_the_published_numbers(counter: list[int], key: int, wanted: list[int]) -> None:
    assert philox(counter, key) == wanted


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "native" and native.problem():
        pytest.skip(f"no native kernels here: {native.problem()}")
    with selected("reference" if request.param == "reference" else "auto"):
        yield str(request.param)


def number(*, sentence: int, position: int, channel: int, layer: int = LAYER, key: int = KEY) -> int:
    """What decides about a value."""
    counter = 16 * (channel // 64) + channel % 16
    return philox([counter, position, sentence, layer], key)[channel % 64 // 16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_each_value_has_the_number_of_its_place(kernels: str, dtype: torch.dtype) -> None:
    sentences, length, width, p = 3, 4, 64 + 21, 0.3
    x = torch.ones(sentences, length, width, dtype=dtype)
    found = dropout(x, p, draw=Masks(KEY, FIRST).draw(x, layer=LAYER))
    places = itertools.product(range(sentences), range(length), range(width))
    numbers = [number(sentence=FIRST + b, position=t, channel=c) for b, t, c in places]
    wanted = torch.tensor([0.0 if number < round(p * 2**32) else 1 / (1 - p) for number in numbers], dtype=dtype)
    assert torch.equal(found.flatten(), wanted)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 16, 63, 64, 130])
def test_implementations_agree_bit_for_bit(width: int, dtype: torch.dtype) -> None:
    x, draw = torch.randn(501, width, dtype=dtype), Draw(batch_key(1, 2, 3), 5, torch.randint(2**63 - 1, (501,)))
    found = []
    for choice in ("auto", "reference"):
        with selected(choice):
            leaf = x.clone().requires_grad_()
            out = dropout(leaf, 0.3, draw=draw)
            found.append([out.detach(), *torch.autograd.grad(out, leaf, x.flip(0))])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_the_probability_is_exact_to_a_number_of_the_generator() -> None:
    assert [threshold(p) for p in (0.25, 0.3, 2**-32, 1e-12, 1 - 1e-12)] == [2**30, 1288490189, 1, 0, 2**32 - 1]
    x, draw = torch.ones(1, 64), Draw(3, 1)
    numbers = random_numbers(draw, x)
    chosen = int(numbers[0, 7])
    for p, kept in ((chosen / 2**32, True), ((chosen + 1) / 2**32, False)):
        with selected("reference"):
            assert bool(dropout(x, p, draw=draw)[0, 7]) is kept
        if native.problem() is None:
            assert bool(dropout(x, p, draw=draw)[0, 7]) is kept


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
    return float(torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]) * math.sqrt(x.numel())


def test_channels_words_sentences_layers_and_batches_are_independent() -> None:
    """Neighbours, and what differs in one bit or in a word's other half only."""
    ones = torch.ones(96, 24, 128)

    def mask(*, layer: int = 1, seed: int = 1, epoch: int = 1, batch: int = 0, position: int = 0) -> Tensor:
        masks = Masks(batch_key(seed, epoch, batch))
        return dropout(ones, 0.5, draw=masks.draw(ones, layer=layer, position=position))

    first = mask()
    pairs = {f"channel +{step}": (first[..., step:], first[..., :-step]) for step in (1, 2, 15, 16, 32, 48, 64)}
    pairs |= {f"word +{step}": (first[:, step:], first[:, :-step]) for step in (1, 2, 8)}
    pairs |= {f"sentence +{step}": (first[step:], first[:-step]) for step in (1, 2, 64)}
    pairs["word and sentence"] = (first[:24, :24], first[:24, :24].transpose(0, 1))
    pairs |= {f"layer {layer}": (first, mask(layer=layer)) for layer in (0, 2, 3, 2**31)}
    pairs |= {f"batch {batch}": (first, mask(batch=batch)) for batch in (1, 2, 1024)}
    pairs |= {"epoch": (first, mask(epoch=2)), "seed": (first, mask(seed=2)), "epoch, batch": (first, mask(epoch=0))}
    for name, (one, other) in pairs.items():
        off = ~torch.eye(24, dtype=torch.bool) if name == "word and sentence" else ...
        assert abs(correlation(one[off], other[off])) < 4.5, name
    assert torch.equal(mask(position=3)[:, :-3], first[:, 3:])
    spread = math.sqrt(first.size(-1)) / 2
    counts = (first == 0).sum(-1).double()
    assert ((counts - counts.mean()).abs() < 5.5 * spread).all()
    assert 0.9 < counts.std().item() / spread < 1.1


def test_keys_of_batches_differ() -> None:
    keys = {batch_key(*place) for place in itertools.product((1, 2, 12), (1, 2, 11), range(200))}
    assert len(keys) == 9 * 200 and all(0 <= key < 2**63 for key in keys)
    assert batch_key(1, 23, 4) != batch_key(12, 3, 4)


def test_masks_do_not_depend_on_how_a_batch_is_shared_or_padded(kernels: str) -> None:
    x, key = torch.randn(7, 9, 70), batch_key(1, 1, 5)
    with masked_by(Masks(key)):
        whole, states = layer_dropout(x, 0.4, layer=3), layer_dropout(x[:, 0], 0.4, layer=4)
    for first, end, length in ((0, 3, 9), (3, 4, 6), (4, 7, 1)):
        with masked_by(Masks(key, first)):
            part = layer_dropout(x[first:end, :length], 0.4, layer=3)
            assert torch.equal(part, whole[first:end, :length])
            assert torch.equal(layer_dropout(x[first:end, 0], 0.4, layer=4), states[first:end])
            for t in range(length):
                assert torch.equal(layer_dropout(x[first:end, t], 0.4, layer=3, position=t), part[:, t])
            words = torch.tensor([0, length - 1, length * (end - first) - 1])
            with among(words, length=length):
                assert torch.equal(layer_dropout(x[first:end, :length].flatten(0, 1)[words], 0.4, layer=3),
                                   part.flatten(0, 1)[words])  # fmt: skip
    assert current() is None


def test_passes_that_are_made_together_have_masks_of_their_own(kernels: str) -> None:
    """In the first pass those of a single one; each mask follows from its place in the batch, not from its part."""
    x, key, length = torch.randn(7, 5, 70), batch_key(1, 1, 5), 5
    words = torch.tensor([0, 4, 7, 19])
    for first, end in ((0, 7), (2, 6)):
        part, size = x[first:end], end - first
        alone = []
        for number in range(3):
            with masked_by(Masks(key, first + number * 2**24)):
                alone.append(layer_dropout(part, 0.4, layer=3))
        assert not torch.equal(alone[0] == 0, alone[1] == 0) and not torch.equal(alone[1] == 0, alone[2] == 0)
        with masked_by(Masks(key, first, together=size)):
            found = layer_dropout(part.repeat(3, 1, 1), 0.4, layer=3)
            assert torch.equal(found, torch.cat(alone))
            assert torch.equal(layer_dropout(part[:, 2].repeat(3, 1), 0.4, layer=3, position=2), found[:, 2])
            some = torch.cat([words + number * size * length for number in range(3)])
            with among(some, length=length):
                wanted = found.flatten(0, 1)[some]
                assert torch.equal(layer_dropout(part.repeat(3, 1, 1).flatten(0, 1)[some], 0.4, layer=3), wanted)


def test_masks_end_with_their_block() -> None:
    x, masks = torch.ones(2, 300), Masks(1)
    words = torch.tensor([0])
    with among(words, length=2):
        assert current() is None
    with pytest.raises(ZeroDivisionError), masked_by(masks), among(words, length=2):
        assert current() == masks._replace(words=words, length=2)
        raise ZeroDivisionError
    assert current() is None
    assert not torch.equal(layer_dropout(x, 0.5, layer=1), layer_dropout(x, 0.5, layer=1))


def test_more_axes_are_channels(kernels: str) -> None:
    x = torch.randn(2, 3, 4, 5)
    with masked_by(Masks(7)):
        wanted = layer_dropout(x.flatten(2), 0.5, layer=1)
        assert torch.equal(layer_dropout(x, 0.5, layer=1).flatten(2), wanted)
        assert layer_dropout(x[:, 0, 0, 0], 0.5, layer=1).shape == (2,)


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
    assert abs(correlation((first == 0).float(), (second == 0).float())) < 4


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
    with masked_by(Masks(1)):
        assert layer_dropout(x[:0], 0.5, layer=1).shape == (0, 5)


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
        alone = dropout(x, 0.1, draw=Draw(7))
        torch.set_num_threads(2)
        assert torch.equal(dropout(x, 0.1, draw=Draw(7)), alone)
    finally:
        torch.set_num_threads(threads)
