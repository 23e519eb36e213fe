"""Drawing subwords: probabilities by hand, published random numbers, and the kernels equal to Python bit by bit."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nmt.ops import native
from nmt.ops.subwords import Alphabet, Drawn, MergeDropout, PathSampling, Splitter, Table, draw, numbers_of

PIECES = ["<eos>", "a", "b", "c", "_", "ab", "bc", "abc", "_a", "_ab", "ca", "<1>"]
"""Three letters, a space, what they are merged to, and two symbols that stay as they are."""
IDS = {piece: i for i, piece in enumerate(PIECES)}
RANKS = {"ab": 0, "bc": 1, "abc": 2, "_a": 3, "_ab": 4, "ca": 1}
SCORES = {"a": -2.0, "b": -2.5, "c": -3.0, "_": -1.0, "ab": -3.2, "bc": -2.0, "abc": -4.0, "_a": -2.2, "_ab": -5.0}


@pytest.fixture(params=["native", "python"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(native, "problem", lambda: "none are wanted")
    elif native.problem():
        pytest.skip(f"no native kernels here: {native.problem()}")


def alphabet() -> Alphabet:
    frozen = np.array([piece.startswith("<") for piece in PIECES], np.uint8)
    characters = [[i] if frozen[i] else [IDS[letter] for letter in piece] for i, piece in enumerate(PIECES)]
    first = np.cumsum([0, *map(len, characters)])
    starts = np.array([piece == "_" for piece in PIECES], np.uint8)
    return Alphabet(first, np.array(list(itertools.chain(*characters)), np.int32), frozen, starts)


def dropout(p: float) -> MergeDropout:
    merges = {
        (IDS[piece[:cut]], IDS[piece[cut:]]): IDS[piece]
        for piece in RANKS
        for cut in range(1, len(piece))
        if piece[:cut] in IDS and piece[cut:] in IDS
    }
    return MergeDropout(alphabet(), Table(merges), np.array([RANKS.get(x, 99) for x in PIECES], np.int32), p=p)


def paths(alpha: float) -> PathSampling:
    tokens = {IDS[piece]: [IDS[letter] for letter in piece] for piece in SCORES}
    return PathSampling(alphabet(), tokens, np.array([SCORES.get(x, 0.0) for x in PIECES]), alpha=alpha)


def drawn(splitter: Splitter, sentences: list[list[str]], *, limit: int = 10**6, first_seed: int = 0) -> Drawn:
    ids = np.array([IDS[piece] for sentence in sentences for piece in sentence], np.uint16)
    seeds = np.arange(first_seed, first_seed + len(sentences)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return draw(splitter, ids, np.array([len(sentence) for sentence in sentences]), seeds, limit=limit)


def texts(found: Drawn) -> Iterator[str]:
    for end, length in zip(np.cumsum(found.lengths), found.lengths, strict=True):
        yield " ".join(PIECES[i] for i in found.ids[end - length : end])


def check_shares(splitter: Splitter, sentence: list[str], wanted: dict[str, float]) -> None:
    """Of many draws each result comes as often as it should, within four standard deviations."""
    number = 4000
    counts = Counter(texts(drawn(splitter, [sentence] * number)))
    assert counts.keys() <= wanted.keys()
    for text, share in wanted.items():
        assert abs(counts[text] - number * share) <= 4 * math.sqrt(number * share * (1 - share)) + 1e-9, text


def test_random_numbers_are_the_published_ones() -> None:
    assert list(itertools.islice(numbers_of(1234567), 3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.usefixtures("_by")
def test_merges_are_left_out_as_often_as_they_should_be() -> None:
    # First `ab` and `bc` can be merged, `ab` is better; then `abc`. Each is left out with 0.3.
    wanted = {"abc <eos>": 0.91 * 0.7, "ab c <eos>": 0.7 * 0.3, "a bc <eos>": 0.3 * 0.7 * 0.3, "a b c <eos>": 0.3**2}
    check_shares(dropout(0.3), ["abc", "<eos>"], wanted)
    check_shares(dropout(0.3), ["a", "bc", "<eos>"], wanted)
    check_shares(dropout(0.0), ["a", "b", "c", "<eos>"], {"abc <eos>": 1.0})
    check_shares(dropout(1.0), ["abc", "<eos>"], {"a b c <eos>": 1.0})


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("alpha", [0.0, 0.4, 3.0])
def test_segmentations_come_in_proportion_to_their_probability(alpha: float) -> None:
    ways = ["_ a b c", "_a b c", "_ab c", "_ ab c", "_ a bc", "_a bc", "_ abc"]
    weights = [math.exp(alpha * sum(SCORES[piece] for piece in way.split())) for way in ways]
    wanted = {f"{way} <eos>": weight / sum(weights) for way, weight in zip(ways, weights, strict=True)}
    check_shares(paths(alpha), ["_", "abc", "<eos>"], wanted)


@pytest.mark.usefixtures("_by")
def test_of_equal_merges_the_leftmost_is_first() -> None:
    splitter = dropout(0.0)
    assert list(texts(drawn(splitter, [["a", "b", "c", "a", "b", "c"]]))) == ["abc abc"]
    # `bc` and `ca` have one rank.
    assert list(texts(drawn(splitter, [["b", "c", "a"], ["c", "a", "a"]]))) == ["bc a", "ca a"]


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("splitter", [dropout(0.0), paths(50.0)], ids=["merges", "paths"])
def test_words_end_at_spaces_and_at_what_is_frozen(splitter: Splitter) -> None:
    sentences = [["_a", "<1>", "b", "c", "_", "<eos>"], [], ["<eos>"], ["a", "_", "_", "c"]]
    assert list(texts(drawn(splitter, sentences))) == ["_a <1> bc _ <eos>", "", "<eos>", "a _ _ c"]


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("splitter", [dropout(1.0), paths(0.0)], ids=["merges", "paths"])
def test_what_would_be_too_long_stays(splitter: Splitter) -> None:
    found = drawn(splitter, [["abc"] * 4, ["ab"], ["<1>"] * 3], limit=4)
    longer = list(texts(found))
    assert longer[0] == "abc abc abc abc" and longer[2] == "<1> <1> <1>" and longer[1] in ("a b", "ab")
    assert found.kept.tolist() == [True, False, False]
    assert found.lengths.tolist() == [len(text.split()) for text in longer]


@pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")
@pytest.mark.parametrize(
    "splitter", [dropout(0.0), dropout(0.1), dropout(0.6), paths(0.0), paths(0.2), paths(2.0)], ids=lambda x: ""
)
def test_the_kernel_equals_python(splitter: Splitter, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    sentences = [[PIECES[i] for i in generator.integers(1, len(PIECES) - 2, length)] for length in range(60)]
    sentences += [[PIECES[i] for i in generator.integers(0, len(PIECES), 9)] for _ in range(100)]
    sentences += [["a", "b", "c"] * 250]  # a word whose probability is far below all floats
    kernel = drawn(splitter, sentences, limit=70, first_seed=2**62)
    assert kernel.kept.any() and not kernel.kept.all()
    monkeypatch.setattr(native, "problem", lambda: "none are wanted")
    for one, other in zip(kernel, drawn(splitter, sentences, limit=70, first_seed=2**62), strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)
    whole = "".join(next(texts(drawn(splitter, sentences[-1:]))).split())
    assert whole == "abc" * 250


@pytest.mark.usefixtures("_by")
def test_what_cannot_be_drawn_from_is_refused() -> None:
    one: Any = np.array([1]), np.array([1], np.uint64)
    for ids in ([len(PIECES)], [-1]):
        with pytest.raises(ValueError, match="the vocabulary has 12 tokens"):
            draw(dropout(0.1), np.array(ids), *one, limit=9)
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="not a probability"):
            dropout(p)
    with pytest.raises(ValueError, match="0 or more"):
        paths(-1.0)


def test_a_table_finds_what_it_was_made_of() -> None:
    pairs = {(a, b): a + b for a in range(40) for b in range(0, 3000, 100)}
    table = Table(pairs)
    assert all(table.find(*pair) == value for pair, value in pairs.items())
    assert table.find(40, 0) == table.find(0, 50) == Table({}).find(0, 0) == -1
    assert len(table.keys) == table.mask + 1 >= 2 * len(pairs)
    assert {int(key): int(value) for key, value in zip(table.keys, table.values, strict=True) if key >= 0} == {
        a << 32 | b: value for (a, b), value in pairs.items()
    }
