"""Vocabularies, and words that are separated by spaces."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.data import EOS, PAD, UNK, Vocabulary
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer, split
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


@pytest.fixture
def text(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    (tmp_path / "t.en").write_text("the cat and the dog\nthe bir@@ d\n", encoding="utf-8")
    (tmp_path / "t.de").write_text("die Katze und der Hund\nder Vog@@ el\n", encoding="utf-8")
    return [tmp_path / "t.en"], [tmp_path / "t.de"]


def train(text: tuple[list[Path], list[Path]], **options: object) -> WhitespaceTokenizer:
    return WhitespaceTokenizer.train(*text, options=WhitespaceOptions(**options), seed=1)  # type: ignore[arg-type]


def test_vocabulary_from_the_training_text(text: tuple[list[Path], list[Path]]) -> None:
    tokenizer = train(text)
    assert tokenizer.source_tokens(range(tokenizer.source_size)) == [
        "<pad>", "<unk>", "<eos>", "the", "and", "bir@@", "cat", "d", "dog",
    ]  # fmt: skip
    assert tokenizer.encode_source(["the  cat sat ", ""]) == [[3, 6, UNK], []]
    assert train(text, max_size=5).source_size == 5
    assert train(text, min_count=2).target_tokens(range(4)) == ["<pad>", "<unk>", "<eos>", "der"]
    assert train(text, joint=True).source_size == 3 + 6 + 7


def test_vocabulary_files(text: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    (tmp_path / "v.en").write_text("the\t2\ncat\t1\n")
    (tmp_path / "v.de").write_text("<pad>\n<unk>\n<eos>\nder\n")
    files = {"source_vocab": str(tmp_path / "v.en"), "target_vocab": str(tmp_path / "v.de")}
    tokenizer = train(([], []), **files)
    assert tokenizer.encode_source(["cat the dog"]) == [[4, 3, UNK]]
    assert tokenizer.encode_target(["der Hund"]) == [[3, UNK]]
    options = WhitespaceOptions(**files)
    assert WhitespaceTokenizer.planned_sizes(options=options) == (5, 4)
    assert WhitespaceTokenizer.planned_sizes(options=WhitespaceOptions()) is None
    assert WhitespaceTokenizer.inputs(*text, options=options) == [tmp_path / "v.en", tmp_path / "v.de"]
    half = WhitespaceOptions(source_vocab=files["source_vocab"])
    assert WhitespaceTokenizer.inputs(*text, options=half) == [tmp_path / "v.en", *text[1]]
    with pytest.raises(DataError, match="missing.en: no such file"):
        train(text, source_vocab=str(tmp_path / "missing.en"))


@pytest.mark.parametrize(
    ("tokens", "joined"),
    [
        (["der", "Vog@@", "el"], "der Vogel"),
        (["a@@", "b@@", "c"], "abc"),
        (["cut", "off@@"], "cut off"),
        (["@@", "x"], "x"),
        (["mail@@home", "x@@y"], "mail@@home x@@y"),
        ([], ""),
    ],
)
def test_subword_marks_are_undone(tmp_path: Path, tokens: list[str], joined: str) -> None:
    (tmp_path / "v").write_text("\n".join(tokens) or "none")
    tokenizer = train(([], []), source_vocab=str(tmp_path / "v"), joint=True)
    ids = tokenizer.encode_target([" ".join(tokens)])[0]
    assert tokenizer.decode_target([*ids, EOS, PAD]) == tokenizer.decode_source(ids) == joined


def test_other_separators(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("Vog￭\nel\nx@@")
    path = str(tmp_path / "v")
    assert train(([], []), source_vocab=path, joint=True, separator="￭").decode_target([3, 4, 5]) == "Vogel x@@"
    assert train(([], []), source_vocab=path, joint=True, separator="").decode_target([5, 3, 4]) == "x@@ Vog￭ el"


def test_a_line_is_joined_as_a_translation_is(text: tuple[list[Path], list[Path]]) -> None:
    tokenizer = train(text, joint=True)
    lines = ["Vo@@ gel  f@@ liegt", "ohne  Marke", "", "am En@@", "@@", "mitten@@drin ist keine"]
    joined = ["Vogel fliegt", "ohne  Marke", "", "am En", "", "mitten@@drin ist keine"]
    assert [tokenizer.joined_target(line) for line in lines] == joined
    assert train(text, joint=True, separator="").joined_target("Vo@@ gel") == "Vo@@ gel"
    assert train(text, joint=True, separator="￭").joined_target("Vo￭ gel@@ x") == "Vogel@@ x"


def test_only_spaces_and_tabs_split() -> None:
    assert split(" a\tb  c\u00a0d\u2028e\u0085f ") == ["a", "b", "c\u00a0d\u2028e\u0085f"]


def test_unknown_words_and_special_names(text: tuple[list[Path], list[Path]]) -> None:
    tokenizer = train(text)
    assert tokenizer.encode_source(["<eos> <pad> the"]) == [[UNK, UNK, 3]]
    assert tokenizer.decode_target([UNK]) == "<unk>"


@pytest.mark.parametrize("joint", [False, True])
def test_save_load_and_pickle(text: tuple[list[Path], list[Path]], tmp_path: Path, joint: bool) -> None:
    tokenizer = train(text, joint=joint)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tokenizer.save(folder)
    loaded = WhitespaceTokenizer.load(folder, options=WhitespaceOptions(joint=joint, source_vocab="gone.txt"))
    assert loaded.fingerprint() == tokenizer.fingerprint() == pickle.loads(pickle.dumps(tokenizer)).fingerprint()
    assert loaded.encode_target(["die Katze"]) == tokenizer.encode_target(["die Katze"])
    (folder / ("joint.vocab" if joint else "target.vocab")).unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        WhitespaceTokenizer.load(folder, options=WhitespaceOptions(joint=joint))


@pytest.mark.parametrize("joint", [False, True])
def test_odd_characters_inside_tokens_are_saved(tmp_path: Path, joint: bool) -> None:
    lines = ["ba ba\r \r x", " \r x ", "a\x1cb \x85 \u2028 \0 \ufeff\u00a0 \x0b\x0c", "ba\r\r y"]
    (tmp_path / "t").write_bytes("".join(f"{line}\n" for line in lines).encode())
    tokenizer = train(([tmp_path / "t"], [tmp_path / "t"]), joint=joint)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    loaded = WhitespaceTokenizer.load(tmp_path / "tokenizer", options=WhitespaceOptions(joint=joint))
    assert loaded.fingerprint() == tokenizer.fingerprint()
    ids = loaded.encode_source(lines)
    assert ids == tokenizer.encode_source(lines) and UNK not in sum(ids, [])
    # Training starts from this model with its saved vocabularies named as files.
    given = tmp_path / "tokenizer" / ("joint.vocab" if joint else "source.vocab")
    assert train(([], []), source_vocab=str(given), joint=True).source_tokens(range(9)) == loaded.source_tokens(
        range(9)
    )


@pytest.mark.parametrize("wrong", [{"min_count": 0}, {"max_size": 3}, {"joint": True, "target_vocab": "x"}])
def test_impossible_options(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        WhitespaceOptions(**wrong)  # type: ignore[arg-type]
