"""Tokenizers: where tokens stand in a text, and what is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config import Config, DataConfig
from nmt.data import Tokenizer, Vocabulary
from nmt.data.saved_tokenizer import CHECKSUMS, check_checksums, load_tokenizer, save_tokenizer, write_checksums
from nmt.data.tokenizer import moved_spans, word_around, word_spans
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import CheckpointError, DataError
from tests.tiny_run import subwords, words

LINES = ["a longer sentence", "  a\tb   c ", "don't x-y, \u00df \u4eca\u65e5.", "naïve ½ café", ""]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return subwords(tmp_path_factory.mktemp("subwords"))


def test_tokens_of_words_are_where_they_say() -> None:
    tokenizer = words()
    for line in LINES:
        spans = tokenizer.source_spans(line)
        assert [line[slice(*span)] for span in spans] == line.replace("\t", " ").split()
        assert len(spans) == len(tokenizer.encode_source([line])[0])
    ids = [3, 9, 4, 1, 9]  # x t@@ y <unk> t@@
    text, spans = tokenizer.target_spans(ids)
    assert text == tokenizer.decode_target(ids) == "x ty <unk> t"
    assert [text[slice(*span)] for span in spans] == ["x", "t", "y", "<unk>", "t"]


def test_subwords_cover_their_line(pieces: Tokenizer) -> None:
    for line in LINES:
        spans = pieces.source_spans(line)
        assert len(spans) == len(pieces.encode_source([line])[0])
        assert [end for _, end in spans] == sorted(end for _, end in spans)
        assert "".join(line[slice(*span)] for span in spans).split() == line.split()
        ids = pieces.encode_target([line])[0]
        text, spans = pieces.target_spans(ids)
        assert text == pieces.decode_target(ids)
        assert "".join(text[slice(*span)] for span in spans) == text
        assert len(spans) == len(ids)


def test_what_decoding_finds_is_the_same(pieces: Tokenizer) -> None:
    """But for the space before a word, which decoding does not see at its beginning."""
    for tokenizer in (words(), pieces):
        for line in ("a longer sentence", "a b c"):
            found = Tokenizer.source_spans(tokenizer, line)
            known = tokenizer.source_spans(line)
            if tokenizer is not pieces:
                line = tokenizer.decode_source(tokenizer.encode_source([line])[0]).replace("<unk>", "?")
            assert len(found) == len(known)
            if tokenizer is pieces:
                assert [line[slice(*span)].strip() for span in found] == [line[slice(*span)].strip() for span in known]
        ids = tokenizer.encode_target(["x y z"])[0]
        text, spans = Tokenizer.target_spans(tokenizer, ids)
        assert text == tokenizer.decode_target(ids)
        assert [text[slice(*span)].strip() for span in spans] == [
            text[slice(*span)].strip() for span in tokenizer.target_spans(ids)[1]
        ]


def test_spans_of_a_normalised_text_are_those_of_its_words() -> None:
    assert moved_spans([(0, 1), (1, 6), (6, 7)], text="a bcde f", line="A  BCDE  F")[0] == (0, 1)
    line, text = "Ａ  ﬁne", "A fine"
    moved = moved_spans([(0, 1), (1, 6)], text=text, line=line)
    assert [line[slice(*span)].strip() for span in moved] == ["Ａ", "ﬁne"]
    assert moved_spans([(0, 4), (4, 8)], text="abcdefgh", line="a b ") == [(0, 2), (2, 4)]


def test_the_word_around() -> None:
    text = 'see "Foo-Bar", now ...'
    assert word_around(text, (6, 7)) == "Foo-Bar"
    assert word_around(text, (3, 8)) == "Foo-Bar"
    assert word_around(text, (20, 21)) == "..."
    assert word_spans(" a  b") == [(1, 2), (4, 5)]


@pytest.mark.parametrize(
    ("line", "place", "wanted"),
    [("a long@@ er b", 3, "longer"), ("a long@@ er b", 8, "longer"), ("U.S., a", 1, "U.S.,")],
)
def test_a_subword_is_copied_with_its_word(line: str, place: int, wanted: str) -> None:
    assert words().copied_source(line, (place, place + 1), is_unknown=True) == wanted


def test_who_has_unknown_words(pieces: Tokenizer) -> None:
    assert not pieces.has_unknown
    assert not pieces.may_have_unknown(options=pieces.options)  # type: ignore[attr-defined]
    separate = WhitespaceTokenizer(Vocabulary(["a"]), Vocabulary(["b"]), options=WhitespaceOptions())
    assert separate.has_unknown
    assert separate.splits_at_spaces
    assert not pieces.splits_at_spaces


def test_a_model_without_byte_pieces_has_unknown_words(tmp_path: Path) -> None:
    from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer

    (tmp_path / "text").write_text("a b c d ab cd abcd\n" * 50)
    options = SentencePieceOptions(vocab_size=12, byte_fallback=False)
    tokenizer = SentencePieceTokenizer.train([tmp_path / "text"], [tmp_path / "text"], options=options, seed=1)
    assert tokenizer.has_unknown
    assert tokenizer.may_have_unknown(options=options)
    text, spans = tokenizer.target_spans(tokenizer.encode_target(["ab \u0416 cd"])[0])
    assert "\u2047" in text
    assert "".join(text[slice(*span)] for span in spans) == text


CONFIG = Config(run_dir="r", data=DataConfig(tokenizer="whitespace"))


def tokenizer(*words: str) -> WhitespaceTokenizer:
    return WhitespaceTokenizer(Vocabulary(words), Vocabulary([*words, "more"]), options=WhitespaceOptions())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model directory that has nothing but a tokenizer."""
    folder = tmp_path / "model" / "tokenizer"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    save_tokenizer(folder, tokenizer("house", "tree"), CONFIG, name=folder)
    return tmp_path / "model"


def test_what_was_saved_is_loaded(model: Path) -> None:
    assert load_tokenizer(model, CONFIG).fingerprint() == tokenizer("house", "tree").fingerprint()
    sums = json.loads((model / "tokenizer" / CHECKSUMS).read_text())["sha256"]
    assert sorted(sums) == ["source.vocab", "target.vocab", "tokenizer.json"]
    (model / "tokenizer" / "notes.txt").write_text("of somebody")
    load_tokenizer(model, CONFIG)


@pytest.mark.parametrize("name", ["source.vocab", "target.vocab", "tokenizer.json"])
def test_a_changed_letter_is_noticed(model: Path, name: str) -> None:
    path = model / "tokenizer" / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        load_tokenizer(model, CONFIG)
    assert str(error.value).startswith(f"{path}: changed since it was saved") and "\n" not in str(error.value)


def test_without_checksums_it_loads(model: Path) -> None:
    (model / "tokenizer" / CHECKSUMS).unlink()
    (model / "tokenizer" / "source.vocab").write_text("another\none\n")
    assert load_tokenizer(model, CONFIG).source_size == 5


def test_a_missing_file_is_named(model: Path) -> None:
    (model / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer: tokenizer.json is missing"):
        load_tokenizer(model, CONFIG)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b'{"sha256": []}', b'{"sha256": {"a": 1}}', b"[" * 100_000, b'{"sha256": null}'],
)
def test_checksums_that_are_none(model: Path, content: bytes) -> None:
    (model / "tokenizer" / CHECKSUMS).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{CHECKSUMS}: not a list of checksums"):
        load_tokenizer(model, CONFIG)


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "a\nb"])
def test_no_name_leads_out_of_the_folder(model: Path, name: str) -> None:
    (model / "secret").write_text("x")
    (model / "tokenizer" / CHECKSUMS).write_text(json.dumps({"sha256": {name: "0"}}))
    with pytest.raises(CheckpointError, match="is missing") as error:
        load_tokenizer(model, CONFIG)
    assert "\n" not in str(error.value)


def test_files_in_folders_count(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_text("1")
    write_checksums(tmp_path)
    check_checksums(tmp_path)
    (tmp_path / "sub" / "file").write_text("2")
    with pytest.raises(CheckpointError, match="sub/file: changed"):
        check_checksums(tmp_path)


def _other_token(folder: Path) -> None:
    (folder / "source.vocab").write_text("<pad>\n<unk>\n<eos>\nhousE\ntree\n")


def _fewer(folder: Path) -> None:
    (folder / "target.vocab").write_text("<pad>\n<unk>\n<eos>\nhouse\n")


def _twice(folder: Path) -> None:
    (folder / "source.vocab").write_text("a\na\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_other_token, "final: this tokenizer would not load back equal once it is saved: token 3 of its source"),
        (_fewer, "its target vocabulary of 6 tokens would have 4"),
        (_twice, "would not load again once it is saved: .*final/source.vocab, line 2: token 'a' is already on line 1"),
    ],
)
def test_what_does_not_load_back_equal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], said: str
) -> None:
    save = WhitespaceTokenizer.save

    def lossy(self: WhitespaceTokenizer, folder: Path) -> None:
        save(self, folder)
        damage(folder)

    monkeypatch.setattr(WhitespaceTokenizer, "save", lossy)
    with pytest.raises(DataError, match=said):
        save_tokenizer(tmp_path, tokenizer("house", "tree"), CONFIG, name=Path("final"))
