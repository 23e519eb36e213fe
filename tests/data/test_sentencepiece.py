"""SentencePiece: what is learned, given or refused, and what is drawn anew in each epoch."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from nmt.data import EOS, PAD, UNK
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer, bpe_dropout, kind_of, unigram_sampling
from nmt.data.text import read_lines
from nmt.errors import CheckpointError, ConfigError, DataError
from nmt.ops.subwords import Splitter, draw

SMALL = SentencePieceOptions(vocab_size=340)
ENGLISH = [f"the {size} {animal} sees a {animal} number {i}" for i, (size, animal) in enumerate(
    [(size, animal) for size in ("small", "big", "old") for animal in ("cat", "dog", "horse", "bird")] * 4
)]  # fmt: skip
GERMAN = [line.replace("the", "das").replace("small", "kleine").replace("horse", "Pferd") + " ß" for line in ENGLISH]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    folder = tmp_path_factory.mktemp("text")
    (folder / "t.en").write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    (folder / "t.de.gz").write_bytes(gzip.compress(("\n".join(GERMAN) + "\n").encode()))
    return [folder / "t.en"], [folder / "t.de.gz"]


@pytest.fixture(scope="module")
def joint(text: tuple[list[Path], list[Path]]) -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(*text, options=SMALL, seed=1)


def test_joint_model_serves_both_sides(joint: SentencePieceTokenizer) -> None:
    assert joint.source_size == joint.target_size == 340
    assert joint.encode_source(["the dog"]) == joint.encode_target(["the dog"])
    assert joint.source_tokens([PAD, UNK, EOS]) == ["<pad>", "<unk>", "<eos>"]
    assert joint.source_tokens(joint.encode_source(["the dog"])[0]) == ["▁the", "▁dog"]
    assert joint.encode_source([]) == []


@pytest.mark.parametrize(
    "line", ["das kleine Pferd", "emoji 😀🏳️‍🌈 漢字", "<eos> </s> <pad>", "nul \x00 in", "", "C++ %"]
)
def test_text_survives_encoding_and_decoding(joint: SentencePieceTokenizer, line: str) -> None:
    ids = joint.encode_target([line])[0]
    assert UNK not in ids and PAD not in ids and EOS not in ids
    assert joint.decode_target(ids) == joint.decode_source(ids) == line


def test_without_byte_fallback_unknown_characters_are_unk(text: tuple[list[Path], list[Path]]) -> None:
    options = replace(SMALL, byte_fallback=False, vocab_size=80)
    assert UNK in SentencePieceTokenizer.train(*text, options=options, seed=1).encode_source(["漢"])[0]


def test_decoding_skips_padding_and_stays_on_one_line(joint: SentencePieceTokenizer) -> None:
    ids = joint.encode_target(["the dog"])[0]
    assert joint.decode_target([*ids, EOS, PAD, PAD]) == "the dog"
    newline = joint.target_tokens(range(joint.target_size)).index("<0x0A>")
    assert joint.decode_target([*ids, newline, *ids]) == "the dog  the dog"
    carriage_return = joint.target_tokens(range(joint.target_size)).index("<0x0D>")
    assert joint.decode_target([*ids, carriage_return, *ids]) == "the dog  the dog"


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_training_twice_gives_the_same_model(text: tuple[list[Path], list[Path]], model_type: str) -> None:
    options = replace(SMALL, model_type=model_type)
    first, second = (SentencePieceTokenizer.train(*text, options=options, seed=1) for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
    other = SentencePieceTokenizer.train(*text, options=replace(options, vocab_size=330), seed=1)
    assert other.fingerprint() != first.fingerprint()


def test_separate_models(text: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    options = replace(SMALL, joint=False, vocab_size=320)
    tokenizer = SentencePieceTokenizer.train(*text, options=options, seed=1)
    names = [tokenizer.source_tokens(range(320)), tokenizer.target_tokens(range(320))]
    assert "ß" in names[1] and "ß" not in names[0]
    tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.model", "target.model"]
    assert SentencePieceTokenizer.load(tmp_path, options=options).fingerprint() == tokenizer.fingerprint()


def test_save_load_and_pickle(joint: SentencePieceTokenizer, tmp_path: Path) -> None:
    joint.save(tmp_path)
    loaded = SentencePieceTokenizer.load(tmp_path, options=SMALL)
    pickled = pickle.loads(pickle.dumps(joint))
    for other in (loaded, pickled):
        assert other.fingerprint() == joint.fingerprint()
        assert other.encode_target(GERMAN) == joint.encode_target(GERMAN)


def test_a_damaged_saved_model_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"joint\.model: cannot read"):
        SentencePieceTokenizer.load(tmp_path, options=SMALL)
    for garbage in (b"", b"garbage"):
        (tmp_path / "joint.model").write_bytes(garbage)
        with pytest.raises(CheckpointError, match=r"joint\.model: not a SentencePiece model"):
            SentencePieceTokenizer.load(tmp_path, options=SMALL)


def test_given_models_are_used_instead_of_training(joint: SentencePieceTokenizer, tmp_path: Path) -> None:
    joint.save(tmp_path)
    model = str(tmp_path / "joint.model")
    options = replace(SMALL, source_model=model, vocab_size=8000)
    given = SentencePieceTokenizer.train([], [], options=options, seed=1)
    assert given.fingerprint() == joint.fingerprint()
    assert SentencePieceTokenizer.planned_sizes(options=options) == (340, 340)
    assert SentencePieceTokenizer.inputs([Path("a")], [Path("b")], options=options) == [Path(model)]
    assert SentencePieceTokenizer.inputs([Path("a")], [Path("b")], options=SMALL) == [Path("a"), Path("b")]
    assert SentencePieceTokenizer.planned_sizes(options=SMALL) == (340, 340)


def test_one_side_given_and_the_other_trained(
    joint: SentencePieceTokenizer, text: tuple[list[Path], list[Path]], tmp_path: Path
) -> None:
    joint.save(tmp_path)
    options = SentencePieceOptions(joint=False, target_model=str(tmp_path / "joint.model"), vocab_size=310)
    tokenizer = SentencePieceTokenizer.train(*text, options=options, seed=1)
    assert (tokenizer.source_size, tokenizer.target_size) == (310, 340)


def test_given_model_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH), model_writer=model, vocab_size=36, minloglevel=2
    )
    (tmp_path / "other.model").write_bytes(model.getvalue())
    options = replace(SMALL, source_model=str(tmp_path / "other.model"))
    with pytest.raises(DataError, match=r"other\.model: the model has pad_id=-1 unk_id=0 eos_id=2, nmt needs pad_id=0"):
        SentencePieceTokenizer.train([], [], options=options, seed=1)


def test_vocabulary_too_large_for_bpe_names_key_and_limit(text: tuple[list[Path], list[Path]]) -> None:
    with pytest.raises(
        ConfigError, match=r"^data\.tokenizer_options\.vocab_size: 8000 is too large .* largest possible value is \d+$"
    ) as e:
        SentencePieceTokenizer.train(*text, options=SentencePieceOptions(), seed=1)
    largest = int(str(e.value).rsplit(" ", 1)[1])
    assert SentencePieceTokenizer.train(*text, options=SentencePieceOptions(vocab_size=largest), seed=1)


def test_vocabulary_too_small_names_key_and_minimum(text: tuple[list[Path], list[Path]]) -> None:
    with pytest.raises(ConfigError, match=r"vocab_size: 200 is too small .* need at least (\d+);") as e:
        SentencePieceTokenizer.train(*text, options=SentencePieceOptions(vocab_size=200), seed=1)
    smallest = int(str(e.value).split("at least ")[1].split(";")[0])
    assert SentencePieceTokenizer.train(*text, options=SentencePieceOptions(vocab_size=smallest), seed=1)


def test_unigram_shrinks_to_what_the_text_gives(text: tuple[list[Path], list[Path]]) -> None:
    options = SentencePieceOptions(model_type="unigram", vocab_size=8000)
    assert 260 < SentencePieceTokenizer.train(*text, options=options, seed=1).source_size < 8000


def test_text_of_empty_lines_only(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_text("\n\n")
    with pytest.raises(DataError, match="only empty lines"):
        SentencePieceTokenizer.train([tmp_path / "t.en"], [tmp_path / "t.en"], options=SMALL, seed=1)


def test_odd_line_separators_do_not_split_training_lines(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_bytes(("abc\u0085def\x00\n" * 20).encode())
    options = SentencePieceOptions(vocab_size=276, normalization="identity")
    tokenizer = SentencePieceTokenizer.train([tmp_path / "t.en"], [], options=options, seed=1)
    assert any("\u0085" in token for token in tokenizer.source_tokens(range(276)))


def test_normalization_is_a_choice(text: tuple[list[Path], list[Path]], joint: SentencePieceTokenizer) -> None:
    assert joint.decode_source(joint.encode_source(["ﬁne ½ u\u0308"])[0]) == "ﬁne ½ ü"
    nfkc = SentencePieceTokenizer.train(*text, options=replace(SMALL, normalization="nmt_nfkc"), seed=1)
    assert nfkc.decode_source(nfkc.encode_source(["ﬁne ½"])[0]) == "fine 1⁄2"
    identity = SentencePieceTokenizer.train(*text, options=replace(SMALL, normalization="identity"), seed=1)
    assert identity.decode_source(identity.encode_source(["ﬁne ½"])[0]) == "ﬁne ½"


@pytest.mark.parametrize(
    "wrong", [{"vocab_size": 3}, {"character_coverage": 0.0}, {"sample_size": 0}, {"target_model": "x.model"}]
)
def test_impossible_options(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SentencePieceOptions(**wrong)  # type: ignore[arg-type]


def test_long_lines_are_learned_from(tmp_path: Path) -> None:
    """SentencePiece by itself leaves out lines of more than 4192 bytes, without a word."""
    (tmp_path / "t.en").write_text("abc " * 3000 + "\n")
    options = SentencePieceOptions(vocab_size=263)
    tokenizer = SentencePieceTokenizer.train([tmp_path / "t.en"], [tmp_path / "t.en"], options=options, seed=1)
    assert {"a", "b", "c"} <= set(tokenizer.target_tokens(range(tokenizer.target_size)))


def test_a_model_whose_pieces_are_no_text_is_refused(joint: SentencePieceTokenizer, tmp_path: Path) -> None:
    joint.save(tmp_path)
    whole = (tmp_path / "joint.model").read_bytes()
    place = joint.source_tokens(range(joint.source_size)).index("▁dog")
    (tmp_path / "joint.model").write_bytes(whole.replace("▁dog".encode(), b"\xff\xfe\xfddog"))
    with pytest.raises(CheckpointError, match=f"joint.model: not a SentencePiece model: piece {place} is not UTF-8"):
        SentencePieceTokenizer.load(tmp_path, options=SMALL)


def test_a_saved_model_is_a_file_of_its_folder_and_of_bounded_size(
    joint: SentencePieceTokenizer, tmp_path: Path
) -> None:
    joint.save(tmp_path)
    model = tmp_path / "model" / "joint.model"
    model.parent.mkdir()
    model.symlink_to(tmp_path / "joint.model")
    with pytest.raises(CheckpointError, match="it is a link to .* which is not followed"):
        SentencePieceTokenizer.load(model.parent, options=SMALL)
    given = replace(SMALL, source_model=str(model))  # a file that the user names may lie anywhere
    assert SentencePieceTokenizer.train([], [], options=given, seed=1).fingerprint() == joint.fingerprint()
    model.unlink()
    os.mkfifo(model)
    for reason in ("is not a regular file", "larger than 64 MiB"):
        with pytest.raises(CheckpointError, match=reason):
            SentencePieceTokenizer.load(model.parent, options=SMALL)
        with pytest.raises(DataError, match=reason):
            SentencePieceTokenizer.train([], [], options=given, seed=1)
        model.unlink()
        with model.open("wb") as stream:
            stream.truncate(1 << 40)


def test_sides_are_sampled_from_as_their_options_say(joint: SentencePieceTokenizer) -> None:
    def sampled(**options: float) -> list[bool]:
        joint.options = replace(SMALL, **options)
        return [splitter is not None for splitter in joint.sampling()[:2]]

    before = joint.options
    try:
        assert sampled() == [False, False]
        assert sampled(bpe_dropout=0.1) == [True, True]
        assert sampled(source_bpe_dropout=0.1) == [True, False]
        assert sampled(bpe_dropout=0.1, source_bpe_dropout=0.0) == [False, True]
    finally:
        joint.options = before


@pytest.mark.parametrize(
    ("line", "word"),
    [("zebra quux " * 5500, "▁zebra"), ("ab" * 40_000 + " zebra" * 9000, "▁zebra"), ("斑馬" * 9000, "斑馬")],
)
@pytest.mark.parametrize("sample_size", [None, 100_000])
def test_lines_too_long_for_sentencepiece_are_learned_from_in_parts(
    tmp_path: Path, line: str, word: str, sample_size: int | None
) -> None:
    """SentencePiece itself leaves out lines of more bytes than it has been told."""
    assert len(line.encode()) > 1 << 15
    (tmp_path / "text").write_text("the cat sees a dog\n" * 300 + line + "\n", encoding="utf-8")
    options = replace(SMALL, vocab_size=300, sample_size=sample_size)
    model = SentencePieceTokenizer.train([tmp_path / "text"], [], options=options, seed=1)
    assert any(word in token for token in model.source_tokens(model.encode_source([line[-300:]])[0]))
    assert "▁the" in model.source_tokens(model.encode_source(["the cat"])[0])


def test_a_long_line_is_learned_from_as_its_words_are(tmp_path: Path) -> None:
    """It is cut between words, of which none is lost or made of two."""
    words = [f"w{i % 50}x{i % 7}" for i in range(20_000)]
    pieces = []
    for name, text in (("one", " ".join(words)), ("many", "\n".join(words))):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
        options = replace(SMALL, vocab_size=300)
        model = SentencePieceTokenizer.train([tmp_path / name], [], options=options, seed=1)
        pieces.append(model.source_tokens(range(model.source_size)))
    assert pieces[0] == pieces[1]


Model = sentencepiece.SentencePieceProcessor

LINES = [f"the {size}ness of <tag> number {i}, {i} and {i}; rum {size}er" for i in range(90) for size in ("old", "big")]
HARD = ["", "  ", "the <tag><tag> oldness", "漢字 oldness", "ÅÖ🏳️‍🌈 big", "a  b\u00a0c", "<s>the</s>"]
HARD += ["bigbigbignesser" * 9]


def train(**options: Any) -> Model:
    written = io.BytesIO()
    settings: dict[str, Any] = {
        "model_type": "bpe", "vocab_size": 360, "byte_fallback": True, "pad_id": 0, "unk_id": 1, "eos_id": 2,
        "bos_id": -1, "minloglevel": 2, "hard_vocab_limit": False, "num_threads": 1, "sentence_iterator": iter(LINES),
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(model_writer=written, **settings | options)
    return Model(model_proto=written.getvalue())


def drawn(splitter: Splitter, sentences: list[list[int]], *, first_seed: int = 0) -> list[list[int]]:
    seeds = np.arange(first_seed, first_seed + len(sentences)).astype(np.uint64) << np.uint64(20)
    ids = np.array([i for sentence in sentences for i in sentence], np.int64)
    found = draw(splitter, ids, np.array([len(sentence) for sentence in sentences]), seeds, limit=10**6)
    return [part.tolist() for part in np.split(found.ids, np.cumsum(found.lengths)[:-1])]


VARIANTS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "unknown": {"byte_fallback": False, "vocab_size": 90},
    "defined": {"user_defined_symbols": ["<tag>", "umber"]},
    "few characters": {"character_coverage": 0.98},
    "across words": {"split_by_whitespace": False},
    "spaces behind": {"treat_whitespace_as_suffix": True},
    "spaces kept": {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_dropout_it_is_what_sentencepiece_does(variant: str) -> None:
    model = train(**VARIANTS[variant])
    usual = model.encode([*LINES, *HARD])
    assert drawn(bpe_dropout(model, 0.0, key="k"), usual) == usual


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_text_stays_what_it_is(variant: str, model_type: str) -> None:
    model = train(**VARIANTS[variant], model_type=model_type)
    make: Callable[..., Splitter] = bpe_dropout if model_type == "bpe" else unigram_sampling
    usual = model.encode([*LINES, *HARD])
    several = [drawn(make(model, 0.3, key="k"), usual, first_seed=seed) for seed in (0, 10**6)]
    for sentences in several:
        assert [model.decode(ids) for ids in sentences] == [model.decode(ids) for ids in usual]
        assert sum(map(len, sentences)) > 1.005 * sum(map(len, usual))
    assert several[0] != several[1]
    if variant == "defined":
        for own in (model.piece_to_id("<tag>"), model.piece_to_id("umber")):  # letters of the latter are pieces, too
            assert sum(ids.count(own) for ids in usual) > 100
            assert [ids.count(own) for ids in several[0]] == [ids.count(own) for ids in usual]


def test_a_large_alpha_gives_the_best_segmentation() -> None:
    model = train(model_type="unigram")
    usual = model.encode(LINES)
    same = [a == b for a, b in zip(drawn(unigram_sampling(model, 20.0, key="k"), usual), usual, strict=True)]
    assert np.mean(same) > 0.9  # some have two that are nearly as good


@pytest.mark.parametrize("language", ["en", "de"])
def test_without_dropout_it_is_what_sentencepiece_does_on_multi30k(multi30k: Path, language: str) -> None:
    lines = list(islice(read_lines(multi30k / f"train.{language}.gz"), 6000))
    model = train(sentence_iterator=iter(lines[:3000]), vocab_size=2000)
    usual = model.encode(lines, num_threads=1)
    assert drawn(bpe_dropout(model, 0.0, key="k"), usual) == usual
    longer = sum(map(len, drawn(bpe_dropout(model, 0.1, key="k"), usual))) / sum(map(len, usual))
    assert 1.1 < longer < 1.4


class _WithUnused:
    """A model with a piece that is marked as unused."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def is_unused(self, i: int) -> bool:
        return i == 300


def test_models_that_cannot_be_sampled_from_are_refused() -> None:
    kinds = {kind: train(model_type=kind, vocab_size=90, byte_fallback=False) for kind in ("bpe", "unigram", "char")}
    assert {kind: kind_of(model) for kind, model in kinds.items()} == {"bpe": "bpe", "unigram": "unigram", "char": None}
    for make, wrong in ((bpe_dropout, "unigram"), (bpe_dropout, "char"), (unigram_sampling, "bpe")):
        with pytest.raises(ConfigError, match="the.key: needs a .* model, which this SentencePiece model is not"):
            make(kinds[wrong], 0.1, key="the.key")
    with pytest.raises(ConfigError, match="the.key: the SentencePiece model has pieces marked as unused"):
        bpe_dropout(_WithUnused(train()), 0.1, key="the.key")  # type: ignore[arg-type]
