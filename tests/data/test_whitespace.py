"""The whitespace tokenizer: vocabulary files or training text, and subword marks undone on output."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from nmt.data import EOS, PAD, UNK, WhitespaceTokenizer
from nmt.data.whitespace import WhitespaceOptions, split
from nmt.errors import CheckpointError, DataError


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
