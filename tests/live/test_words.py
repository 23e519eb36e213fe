"""Words of live translation: what counts as one, and which tokens depend on those beside them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.vocabulary import EOS
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.live.words import numbers_of, splitting_of, words_of

TEXT = (
    "The Dog sleeps in Berlin", "the dog SLEEPS", "a cat in BERLIN eats", "The Cat Of The Dog eats", "NATO and the cat",
    "dogs sleep and cats eat in the house", "A house in Berlin", "我喜欢你的狗", "狗在柏林睡觉",
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a SentencePiece tokenizer of TEXT."""
    path = tmp_path_factory.mktemp("words") / "text"
    path.write_text("\n".join(TEXT * 20) + "\n", encoding="utf-8")

    def made(**options: Any) -> SentencePieceTokenizer:
        own = SentencePieceOptions(**{"byte_fallback": False, "vocab_size": 90, **options})
        return SentencePieceTokenizer.train([path], [path], options=own, seed=1)

    return made


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["▁a", "b", "▁c", ",", "▁d"], [0, 0, 1, 1, 2]),
        (["a", "▁b"], [0, 1]),  # cut off inside a word
        (["▁", "ab", "▁", "我", "好吗", "x"], [0, 0, 1, 1, 3, 4]),  # a lone space begins the word behind it
        (["▁我喜", "欢", "。", "▁ab", "c我"], [1, 2, 3, 4, 5]),
        (["▁ab", "⇧", "▁cd", "⇩", "⇧", "▁ef", "g", "⇬", "▁h"], [0, 1, 1, 2, 2, 2, 2, 3, 3]),  # of what follows
        (["▁i", "⇧", "phone", "▁x"], [0, 0, 0, 1]),
        (["we", "are", "words"], [0, 1, 2]),
    ],
)
def test_words_are_counted(names: list[str], numbers: list[int]) -> None:
    """Without spaces each character is one, and a token is there when the last of its words is."""
    assert numbers_of(names) == numbers


def test_the_end_symbol_is_a_word_of_its_own(tokenizer: Any) -> None:
    own = tokenizer()
    source, _ = words_of(own)
    (ids,) = own.encode_source(["the dog 狗在"])
    assert source.numbers(torch.tensor([[*ids, EOS]]))[0].tolist() == [*numbers_of(own.source_tokens(ids)), 4]


def test_parts_of_words_of_a_vocabulary_file_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("ho@@ use dog\n", encoding="utf-8")
    own = WhitespaceTokenizer.train([path], [path], options=WhitespaceOptions(), seed=1)
    (ids,) = own.encode_target(["dog ho@@ use dog"])
    assert words_of(own)[1].numbers(torch.tensor([ids]))[0].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("case", [None, "markup"])
def test_segments_have_the_tokens_of_the_line(tokenizer: Any, case: str | None) -> None:
    """Of words as they are usually written, with capitals anywhere, and with letters that the vocabulary lacks."""
    own = tokenizer(case=case)
    splitting, random_ = splitting_of(own), random.Random(1)
    words = sorted({word for line in TEXT for word in line.split()})
    for _ in range(300):
        line = " ".join(
            random_.choice([str.lower, str.upper, str.title, str])(random_.choice([*words, "☃", "x1", "Ünd-so"]))
            for _ in range(random_.randint(1, 9))
        )
        (ids,) = own.encode_source([line])
        parts = [*splitting.encoded(line)]
        assert [token for part, *_ in parts for token in part] == ids
        assert parts[-1][1] == len(line)
    assert len([*splitting.segments("the dog sleeps in Berlin and", 0)]) == (6 if case is None else 5)


def test_a_tokenizer_whose_pieces_hold_spaces_has_no_segments(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tokenizer()
    names = own.source_tokens(range(own.source_size))
    monkeypatch.setattr(own, "source_tokens", lambda ids: [*names[:-1], "▁the▁dog"])
    splitting_of.cache_clear()
    assert [*splitting_of(own).segments("the dog sleeps", 4)] == [("dog sleeps", 14, False)]
