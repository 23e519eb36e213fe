"""Text with labels: schemes, columns, segmented text, vocabularies, unknown words, vectors."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.data.corpus import flat
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import CheckpointError, DataError
from nmt.other_tasks.vectors import read_vectors
from nmt.tagging.labels import (
    SCHEMES,
    Columns,
    Span,
    begins,
    found_scheme,
    labelled,
    labels_of,
    misplaced,
    read_columns,
    spans,
    with_labels,
    word_spans,
    words_of,
)
from nmt.tagging.tokenizers import (
    TaggedCharacters,
    TaggedCharactersOptions,
    TaggedCorpus,
    TaggedWords,
    TaggedWordsOptions,
)
from tests.tagging.texts import write_columns

SPANS = [Span("PER", 0, 2), Span("LOC", 3, 4), Span("LOC", 4, 6)]
LABELS = {
    "iob1": "I-PER I-PER O I-LOC B-LOC I-LOC",
    "iob2": "B-PER I-PER O B-LOC B-LOC I-LOC",
    "bioes": "B-PER E-PER O S-LOC B-LOC E-LOC",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_say_the_same_spans(scheme: Any) -> None:
    labels = LABELS[scheme].split()
    assert spans(labels) == SPANS and labelled(SPANS, length=6, scheme=scheme) == labels
    assert found_scheme([["O"], labels]) == scheme and misplaced(labels, scheme) is None
    for other in set(SCHEMES) - {scheme}:
        assert misplaced(labels, other) is not None


def test_any_sequence_of_labels_has_spans_that_every_scheme_can_write() -> None:
    generator = random.Random(1)
    known = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("A", "B"))]
    for _ in range(300):
        labels = [generator.choice(known) for _ in range(generator.randint(0, 8))]
        found = spans(labels)
        assert sum(span.end - span.first for span in found) == sum(label != "O" for label in labels)
        for scheme in SCHEMES:
            assert spans(labelled(found, length=len(labels), scheme=scheme)) == found


def test_spans_are_those_of_seqeval() -> None:
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling", reason="seqeval is not installed")
    generator = random.Random(2)
    known = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("A", "B"))]
    for _ in range(500):
        labels = [generator.choice(known) for _ in range(generator.randint(1, 9))]
        expected = sequence_labeling.get_entities(labels)
        assert [(kind, first, end - 1) for kind, first, end in spans(labels)] == expected


def write(folder: Path, text: str) -> Path:
    file = folder / "text.conll"
    file.write_text(text, encoding="utf-8")
    return file


def test_columns_are_read_and_written(tmp_path: Path) -> None:
    start = "-DOCSTART- -X- O O\n"
    text = f"{start}\nEU NNP I-NP I-ORG\nsays VBZ I-VP O\n\n\nBonn NNP I-NP I-LOC\n{start}hm . . O\n"
    file = write(tmp_path, text)
    found = list(read_columns(file, Columns()))
    assert [(sentence.words, sentence.labels, sentence.first) for sentence in found] == [
        (["EU", "says"], ["I-ORG", "O"], 3),
        (["Bonn"], ["I-LOC"], 7),
        (["hm"], ["O"], 9),
    ]
    assert "".join(f"{line}\n" for line in with_labels(file, Columns(), (one.labels for one in found))) == text
    other = iter([["O", "I-X"], ["O"], ["I-Y"]])
    changed = list(with_labels(file, Columns(), other))
    assert changed[3] == "says VBZ I-VP I-X" and changed[8] == "hm . . I-Y" and changed[0].startswith("-DOCSTART-")
    tabs = write(tmp_path, "O\ta b\tx\n")
    assert next(read_columns(tabs, Columns(word=3, label=1))).words == ["x"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a X O\nb O\n", 2, "2 columns, but line 1 has 3"),
        ("a\n", 1, "1 column, but words must be in column 2"),
        ("x a B-\n", 1, "'B-' is not a label"),
        ("x a O\nx a K-LOC\n", 2, "'K-LOC' is not a label"),
        ("x\ta b\tO\n", 1, "'a b' is not a word"),
        ("x\t\tO\n", 1, "'' is not a word"),
    ],
)
def test_malformed_columns_are_named(tmp_path: Path, text: str, line: int, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(DataError) as error:
        list(read_columns(file, Columns(word=2)))
    assert str(error.value).startswith(f"{file}, line {line}: {said}") and "\n" not in str(error.value)


def test_a_label_that_the_scheme_has_not_there_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "-DOCSTART- O\n\na B-LOC\nb I-LOC\n\nc O\nd I-PER\n")
    options = TaggedWordsOptions(scheme="iob2")
    with pytest.raises(DataError, match=r"text.conll, line 7: I-PER is wrong here in IOB2, which has B-PER"):
        TaggedWords.train([], [file], options=options, seed=1)


SPACES = "\t \x0b\x0c\r\x1c\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000"


def test_words_are_what_white_space_separates() -> None:
    for space in SPACES.replace("\x1c", ""):
        assert words_of(f"{space}上海{space}{space}推{space}") == ["上海", "推"]
    assert words_of("a\x1cb\u200bc") == ["a\x1cb\u200bc"]  # not White_Space
    assert labels_of(["上海市", "推", "广州"]) == ["B", "M", "E", "S", "B", "E"]


def test_any_labels_are_words_and_those_of_words_are_these() -> None:
    generator = random.Random(4)
    for _ in range(300):
        words = ["x" * generator.randint(1, 5) for _ in range(generator.randint(0, 6))]
        found = word_spans(labels_of(words))
        assert [span.end - span.first for span in found] == list(map(len, words))
        assert [span.first for span in found] == begins(words)
        labels = [generator.choice("BMES") for _ in range(generator.randint(0, 8))]
        whole = word_spans(labels, begin=[0] * bool(labels))
        assert sum(span.end - span.first for span in whole) == len(labels)
        assert all(a.end == b.first for a, b in zip(whole, whole[1:], strict=False))
    assert word_spans(list("MMMM"), begin=[2]) == [Span("", 0, 2), Span("", 2, 4)]


@pytest.fixture
def tokenizer(tmp_path: Path) -> TaggedWords:
    write_columns(tmp_path)
    return TaggedWords.train([], [tmp_path / "train.conll"], options=TaggedWordsOptions(), seed=1)


def test_words_are_normalized_and_labels_complete(tokenizer: TaggedWords) -> None:
    assert tokenizer.scheme == "iob1"
    (ids,) = tokenizer.encode_source(["Anna ANNA 2024 Zork"])
    assert ids[0] == ids[1] and ids[3] == UNK
    assert tokenizer.source_tokens(ids) == ["anna", "anna", "0000", "<unk>"]
    kinds = {label[2:] for label in tokenizer.labels.tokens[4:]}
    assert set(tokenizer.labels.tokens[3:]) == {"O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in kinds)}
    assert tokenizer.written(["B-PER", "E-PER", "S-PER", "O"]) == ["I-PER", "I-PER", "B-PER", "O"]
    exact = TaggedWordsOptions(lowercase=False, zero_digits=False)
    assert exact.normalized(["A1"]) == ["A1"]


@pytest.mark.parametrize("bigrams", [None, False, True])
def test_tokenizers_load_back_equal(tmp_path: Path, tokenizer: TaggedWords, bigrams: bool | None) -> None:
    kind: Any = TaggedWords
    made: Any = tokenizer
    if bigrams is not None:
        (tmp_path / "text.txt").write_text("上海 推 \u2019\n上海 \u200b推\n", encoding="utf-8")
        kind, options = TaggedCharacters, TaggedCharactersOptions(bigrams=bigrams)
        made = kind.train([], [tmp_path / "text.txt"], options=options, seed=1)
    (tmp_path / "saved").mkdir()
    made.save(tmp_path / "saved")
    again = kind.load(tmp_path / "saved", options=made.options)
    assert again.fingerprint() == made.fingerprint() == pickle.loads(pickle.dumps(made)).fingerprint()
    assert again.further_sizes == made.further_sizes
    if kind is TaggedWords:
        (tmp_path / "saved/scheme.txt").write_text("other\n")
        with pytest.raises(CheckpointError, match=r"scheme.txt: not a scheme of labels. Allowed: iob1, iob2, bioes"):
            kind.load(tmp_path / "saved", options=made.options)


def test_bigrams_are_those_with_the_next_character(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ab a\nab a\n")
    options = TaggedCharactersOptions(bigrams=True)
    made = TaggedCharacters.train([], [tmp_path / "text.txt"], options=options, seed=1)
    features = made.features([list("abab"), [], list("a")])
    assert made.further is not None and features.bigrams is not None
    ab, ba = made.further.id("ab"), made.further.id("ba")
    assert features.bigrams.ids.tolist() == [ab, ba, ab, EOS, EOS] and UNK not in (ab, ba)
    assert features.bigrams.lengths.tolist() == features.lengths.tolist() == [4, 0, 1]


def test_words_are_spelled_and_very_long_ones_from_both_ends(tokenizer: TaggedWords) -> None:
    features = tokenizer.features([["Anna", "cat", "Anna"], ["a" * 100 + "c" * 40]])
    assert features.forms is not None and features.letters is not None
    assert features.forms.ids.tolist() == [1, 2, 1, 3]
    assert features.letters.lengths.tolist() == [0, 4, 3, 64]
    anna = tokenizer.further.encode("Anna")
    assert features.letters.row(1).tolist() == anna
    ends = [tokenizer.further.id("a")] * 32 + [tokenizer.further.id("c")] * 32
    assert features.letters.row(3).tolist() == ends


def test_words_seen_once_are_unknown_at_places_that_follow_from_seed_and_epoch(tokenizer: TaggedWords) -> None:
    words = [[f"w{i}" for i in range(n, n + 20)] + ["the"] * 5 for n in range(0, 2000, 20)]
    kinds = [token for sentence in words for token in sentence]
    own = {word: i for i, word in enumerate(dict.fromkeys(kinds), start=3)}
    features = tokenizer.features(words)
    ids = flat([own[word] for word in sentence] for sentence in words)
    corpus = TaggedCorpus(type(features)(ids), ids)
    rows = np.arange(100)

    def drawn(epoch: int, *, share: float = 0.25, seed: int = 7, rows: Any = rows) -> Any:
        return corpus.with_unknown(rows, share=share, seed=seed, epoch=epoch) == UNK

    first = drawn(1)
    assert abs(first[:, :20].mean() - 0.25) < 0.04 and not first[:, 20:].any()
    assert (drawn(1) == first).all() and (drawn(1, rows=rows[40:50]) == first[40:50]).all()
    assert (drawn(2) != first).any() and (drawn(1, seed=8) != first).any()
    assert not drawn(1, share=0.0).any() and drawn(1, share=1.0)[:, :20].all()
    assert (corpus.padded_source(rows) != UNK).all()


def test_vectors_are_read_by_exact_spelling_before_lower_case(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("the 1 2\nThe 3 4\nrome 5 6\n. . . 7 8\nthe 9 9\nother 0 0 \n", encoding="utf-8")
    found = read_vectors(file, ["<pad>", "The", "Rome", "the", "missing"], size=2)
    assert found.ids.tolist() == [1, 2, 3] and found.values.tolist() == [[3, 4], [5, 6], [1, 2]]
    said = found.describe("F", words=4)
    assert said == "vectors: 3 of 4 words (75.0%) have one of the 6 vectors in F, 1 line of words that had one"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("the 1 2 3", "3 numbers after the word, but model.embedding_size is 2"),
        ("other 1", "1 number after the word, but model.embedding_size is 2"),
        ("rome 1 x", "'x' is not a number"),
        ("rome nan 1", "a number that is not finite"),
        ("", "0 numbers after the word"),
    ],
)
def test_damaged_vectors_are_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(f"the 1 2\n{line}\n")
    with pytest.raises(DataError) as error:
        read_vectors(file, ["the", "rome"], size=2)
    assert str(error.value).startswith(f"{file}, line 2: {said}")
