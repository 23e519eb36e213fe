"""Vocabularies: reserved ids, file formats, frequency order, sizes that do not fit a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.data import EOS, PAD, UNK, Vocabulary, check_vocabulary_sizes
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import CheckpointError, DataError


def from_text(folder: Path, text: str) -> Vocabulary:
    path = folder / "v.txt"
    path.write_bytes(text.encode())
    return Vocabulary.from_file(path)


def test_special_ids_come_first_wherever_the_file_has_them(tmp_path: Path) -> None:
    plain = from_text(tmp_path, "the\ncat\n")
    listed = from_text(tmp_path, "<pad>\n<unk>\n<eos>\nthe\ncat\n")
    elsewhere = from_text(tmp_path, "the\n<eos>\ncat\n<unk>")
    assert plain.tokens == listed.tokens == elsewhere.tokens == ("<pad>", "<unk>", "<eos>", "the", "cat")
    assert (PAD, UNK, EOS) == (0, 1, 2)
    assert plain.encode(["cat", "dog", "the"]) == [4, UNK, 3]


def test_text_that_spells_a_special_symbol_is_unknown(tmp_path: Path) -> None:
    assert from_text(tmp_path, "a\n").encode(["<eos>", "<pad>", "<unk>", "a"]) == [UNK, UNK, UNK, 3]


@pytest.mark.parametrize("text", ["the\t12\ncat\t3\n", "the 12\ncat 3\n", "the\r\ncat\r\n\n", "the\n \ncat"])
def test_counts_and_blank_lines_are_ignored(tmp_path: Path, text: str) -> None:
    assert from_text(tmp_path, text).tokens[3:] == ("the", "cat")


def test_odd_characters_are_part_of_tokens(tmp_path: Path) -> None:
    assert from_text(tmp_path, "a\u2028b\nc\u00a0d\n").tokens[3:] == ("a\u2028b", "c\u00a0d")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\na\n", "v.txt, line 3: token 'a' is already on line 1"),
        ("a\nb c\n", "v.txt, line 2: 'b c' is neither a token nor a token and its count"),
        ("a\nb 1 2\n", "v.txt, line 2"),
        ("", "the vocabulary is empty"),
        ("<pad>\n<unk>\n<eos>\n", "the vocabulary is empty"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_text(tmp_path, text)


def test_what_a_vocabulary_of_a_model_begins_with_is_a_token(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("\ufeffdog\ncat\n", encoding="utf-8")
    found = Vocabulary.from_file(tmp_path / "v.txt", within=tmp_path)
    assert found.tokens[3:] == ("\ufeffdog", "cat")


def test_save_and_read_back(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["b", "a\u0085", "ä"])
    vocabulary.save(tmp_path / "saved")
    assert Vocabulary.from_file(tmp_path / "saved").tokens == vocabulary.tokens


_INSIDE = st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n") | st.sampled_from(
    "\r\x0b\x1c\x85\u2028\0\ufeffa"
)
_TOKENS = st.lists(st.text(_INSIDE, min_size=1), unique=True, min_size=1).map(
    lambda tokens: [token for token in tokens if token not in SPECIAL_TOKENS]
)


@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tokens=_TOKENS.filter(bool))
def test_every_token_is_read_as_it_was_saved(tmp_path: Path, tokens: list[str]) -> None:
    """A token is anything between two spaces or tabs of a line."""
    Vocabulary(tokens).save(tmp_path / "saved")
    assert Vocabulary.from_file(tmp_path / "saved").tokens[3:] == tuple(tokens)


@pytest.mark.parametrize(
    "tokens", [["\r"], ["ba\r"], ["ba", "ba\r", "ba\r\r", "\rba"], ["\x1c", "\x85", "\u2028", "\0", "\ufeff"]]
)
def test_odd_tokens_are_read_as_they_were_saved(tmp_path: Path, tokens: list[str]) -> None:
    Vocabulary(tokens).save(tmp_path / "saved")
    assert Vocabulary.from_file(tmp_path / "saved").tokens[3:] == tuple(tokens)


def test_a_saved_vocabulary_with_other_line_ends_is_the_same(tmp_path: Path) -> None:
    Vocabulary(["a", "b"]).save(tmp_path / "saved")
    (tmp_path / "saved").write_bytes((tmp_path / "saved").read_bytes().replace(b"\n", b"\r\n"))
    assert Vocabulary.from_file(tmp_path / "saved").tokens[3:] == ("a", "b")


def test_most_frequent_first_ties_by_code_point() -> None:
    counts = {"b": 2, "a": 2, "c": 5, "d": 1, "<eos>": 9}
    assert Vocabulary.from_counts(counts).tokens[3:] == ("c", "a", "b", "d")
    assert Vocabulary.from_counts(counts, min_count=2).tokens[3:] == ("c", "a", "b")
    assert len(Vocabulary.from_counts(counts, max_size=5)) == 5


def test_repeated_tokens_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="once"):
        Vocabulary(["a", "a"])
    with pytest.raises(ValueError, match="special"):
        Vocabulary(["<eos>"])


def test_sizes_that_do_not_fit_a_checkpoint() -> None:
    check_vocabulary_sizes("runs/a", model=(10, 20), tokenizer=(10, 20))
    with pytest.raises(CheckpointError, match="runs/a: the target vocabulary has 21 entries .* trained with 20"):
        check_vocabulary_sizes("runs/a", model=(10, 20), tokenizer=(10, 21))
