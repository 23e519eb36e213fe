"""Vocabularies with case marks: through tokenizers, files, searches with constraints, and configurations."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from nmt.data import UNK
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import ConfigError, DataError

THINGS = [(size, thing) for size in ("small", "big") for thing in ("cat", "iPhone")]
LINES = [f"The {size} Dog of NASA saw the {thing} number {i}." for i in range(20) for size, thing in THINGS]
OPTIONS = SentencePieceOptions(vocab_size=360, case="markup")


def make(folder: Path, options: SentencePieceOptions = OPTIONS) -> SentencePieceTokenizer:
    (folder / "t.en").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return SentencePieceTokenizer.train([folder / "t.en"], [folder / "t.en"], options=options, seed=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    return make(tmp_path_factory.mktemp("text"))


def test_capitals_have_the_same_pieces(tokenizer: SentencePieceTokenizer) -> None:
    line = "The small Dog of NASA saw the cat."
    plain, capitals, small = tokenizer.encode_target([line, line.upper(), line.lower()])
    assert tokenizer.target_tokens(capitals) == ["▁", "⇪", *tokenizer.target_tokens(plain)]
    marks = {tokenizer.target_tokens([i])[0]: i for i in range(tokenizer.target_size)}
    assert [i for i in small if i not in (marks["▁"], marks["⇩"])] == plain
    for text in (line, line.upper(), line.lower(), line.title(), "İß ǰ J\u030c iPad ⇪ 漢字", "ＴＨＥ ½"):
        (ids,) = tokenizer.encode_target([text])
        assert tokenizer.decode_target(ids) == tokenizer.source_form(text) and UNK not in ids


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("rule", ["nfc", "nmt_nfkc", "identity"])
def test_texts_come_back_with_any_model(tmp_path: Path, kind: str, rule: str) -> None:
    options = SentencePieceOptions(vocab_size=330, case="markup", model_type=kind, normalization=rule, joint=False)  # type: ignore[arg-type]
    made = make(tmp_path, options)
    for text in ("THE SMALL dog", "É \u00c9 E\u0301 J\u030c", "Ⅷ ⅷ ﬁ", "The Small Dog Saw it", "Ǆ ǅ ǆ"):
        assert made.decode_source(made.encode_source([text])[0]) == made.source_form(text)


def test_it_is_kept_in_files_and_pickles(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = SentencePieceTokenizer.load(tmp_path, options=OPTIONS)
    assert again.fingerprint() == tokenizer.fingerprint()
    line = "A DOG saw NASA"
    for other in (again, pickle.loads(pickle.dumps(tokenizer))):
        assert other.encode_source([line]) == tokenizer.encode_source([line])
    given = SentencePieceOptions(source_model=str(tmp_path / "joint.model"))
    taken = SentencePieceTokenizer.train([], [], options=given, seed=1)  # which knows of its marks by itself
    assert taken.encode_source([line]) == tokenizer.encode_source([line])


def test_spans_are_those_of_the_text_as_it_was_written(tokenizer: SentencePieceTokenizer) -> None:
    for line in ("THE  DOG saw iPads.", "  the cat", "É saw E\u0301 Dog"):
        spans = tokenizer.source_spans(line)
        (ids,) = tokenizer.encode_source([line])
        assert len(spans) == len(ids) and spans == sorted(spans) and spans[-1][1] <= len(line)
    assert "DOG" in [line[slice(*span)].strip() for line in ["THE  DOG"] for span in tokenizer.source_spans(line)]
    (ids,) = tokenizer.encode_target(["THE DOG SAW the cat"])
    text, spans = tokenizer.target_spans(ids)
    assert text == "THE DOG SAW the cat" and len(spans) == len(ids)
    assert "DOG" in [text[slice(*span)].strip() for span in spans]


def test_what_no_vocabulary_can_have_is_refused(tokenizer: SentencePieceTokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="case: .* is not a known way to keep capitals"):
        SentencePieceOptions(case="marks")
    with pytest.raises(ValueError, match="case: is not possible with normalization: nfkc_cf"):
        SentencePieceOptions(case="markup", normalization="nfkc_cf")
    plain = make(tmp_path, SentencePieceOptions(vocab_size=330))
    plain.save(tmp_path)
    with pytest.raises(ConfigError, match="case: markup is for new vocabularies; the given model has no such marks"):
        given = SentencePieceOptions(source_model=str(tmp_path / "joint.model"), case="markup")
        SentencePieceTokenizer.train([], [], options=given, seed=1)
    proto = tokenizer.models[0].replace(b"markup 1\n", b"markup 2\n")
    with pytest.raises(DataError, match="case marks of the kind 'markup 2' are not known"):
        SentencePieceTokenizer(proto, proto, options=OPTIONS)
