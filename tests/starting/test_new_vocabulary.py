"""Training that starts from a model with another vocabulary."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import load_saved
from nmt.data import Tokenizer, Vocabulary
from nmt.data.saved_tokenizer import load_tokenizer
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.starting.model import origin_of
from tests.starting.test_start import weights
from tests.tiny_training import nmt_train, write_config, write_corpus

STILL = {"lr": 1e-30, "max_steps": 1}
TABLES = {
    "none": {"embeddings.source": "source", "embeddings.target": "target", "embeddings.softmax": "target"},
    "target_softmax": {"embeddings.source": "source", "embeddings.target": "target"},
    "all": {"embeddings.source": "source"},
}


def subwords(size: int, *, joint: bool) -> dict[str, Any]:
    options = {"vocab_size": size, "joint": joint, "byte_fallback": False}
    return {"tokenizer": "sentencepiece", "tokenizer_options": options}


def write_other_text(folder: Path) -> None:
    """Training text in which the words have other endings, and a letter that the model has never seen."""
    for language in ("en", "de"):
        path = folder / f"train.{language}"
        text = path.read_text(encoding="utf-8").replace("a ", "amon ").replace("b", "bž")
        path.write_text(text, encoding="utf-8")


def names_of(run: Path, side: str) -> list[str]:
    tokenizer = load_tokenizer(run, load_saved(run / "config.yaml"))
    names = tokenizer.source_tokens if side == "source" else tokenizer.target_tokens
    return names(range(tokenizer.source_size if side == "source" else tokenizer.target_size))


@pytest.mark.parametrize(("joint", "tie"), [(True, "all"), (True, "none"), (False, "target_softmax")])
def test_rows_of_shared_pieces_are_taken_over_and_others_are_means(tmp_path: Path, joint: bool, tie: str) -> None:
    write_corpus(tmp_path)
    model = {"tie_embeddings": tie}
    assert nmt_train(write_config(tmp_path, data=subwords(60, joint=joint), model=model)) == 0
    (tmp_path / "run").rename(tmp_path / "teacher")
    write_other_text(tmp_path)
    start = {**STILL, "init_from": str(tmp_path / "teacher" / "checkpoints" / "step-12"), "new_vocabulary": True}
    path = write_config(tmp_path, data=subwords(72, joint=joint), model=model, training=start)
    assert nmt_train(path) == 0
    theirs, ours = weights(tmp_path / "teacher", 12), weights(tmp_path / "run", 1)
    assert theirs.keys() == ours.keys()
    counts: dict[str, list[int]] = {}
    for name in theirs:
        if name not in TABLES[tie]:
            assert torch.equal(theirs[name], ours[name]), "all but the tables are as they were"
            continue
        side = TABLES[tie][name]
        old, new = names_of(tmp_path / "teacher", side), names_of(tmp_path / "run", side)
        assert old != new and (theirs[name].size(0), ours[name].size(0)) == (len(old), len(new))
        shared = [piece for piece in new if piece in old]
        for piece in shared:
            assert torch.equal(ours[name][new.index(piece)], theirs[name][old.index(piece)])
        rows = [ours[name][i] for i, piece in enumerate(new) if piece not in old and "ž" not in piece]
        assert any(not (theirs[name] == row).all(1).any() for row in rows), "some are spelled by several pieces"
        low, high = theirs[name].min(0).values - 1e-6, theirs[name].max(0).values + 1e-6
        assert all(((low <= row) & (row <= high)).all() for row in rows), "means lie between the rows"
        drawn = new.count("ž")
        counts[side] = [len(shared), len(new), len(new) - len(shared) - drawn, drawn]
        assert drawn == 1
    lines = [
        "{} of {} rows taken over, {} the mean of their old pieces, {} drawn anew".format(*own)
        for own in counts.values()
    ]
    named = (
        lines[0]
        if len(set(lines)) == 1
        else "; ".join(f"{side} {line}" for side, line in zip(counts, lines, strict=True))
    )
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert f"checkpoints/step-12 with another vocabulary: {named}\n" in log

    shutil.rmtree(tmp_path / "teacher")
    assert nmt_train(path, "--set", "training.max_steps=2") == 0, "resumed"
    assert "resuming" in (tmp_path / "run" / "train.log").read_text(encoding="utf-8")


def trained(folder: Path, text: str, **options: Any) -> Tokenizer:
    (folder / "text").write_text(text, encoding="utf-8")
    given = SentencePieceOptions(**{"byte_fallback": False, **options})
    return SentencePieceTokenizer.train([folder / "text"], [folder / "text"], options=given, seed=1)


def test_the_text_of_a_piece_is_split_by_the_old_vocabulary(tmp_path: Path) -> None:
    """`▁` is kept where a piece begins a word, and left out where it continues one."""
    old = trained(tmp_path, "ab cb\nab ab cb\nxa bx\n", vocab_size=13)
    new = trained(tmp_path, "abcb xabcb xabcb abcb ž\n" * 3, vocab_size=20, symbols=["<BT>"])
    names, own = old.source_tokens(range(old.source_size)), new.source_tokens(range(new.source_size))
    for side in ("source", "target"):
        origin = origin_of(side, old, new)
        found = {piece: [names[i] for i in ids] for piece, ids in zip(own, origin.pieces, strict=True)}
        assert found["<pad>"] == ["<pad>"] and found["<unk>"] == ["<unk>"] and found["<eos>"] == ["<eos>"]
        assert found["ž"] == [] and found["<BT>"] == [], "not known"
        assert found["▁abcb"] == ["▁ab", "cb"] or found["▁abcb"] == ["▁ab", "c", "b"]
        inner = next(piece for piece in own if len(piece) > 2 and "▁" not in piece and "<" not in piece)
        assert "".join(found[inner]) == inner, "without the mark of a word's beginning"
        assert origin.taken == sum(piece in names for piece in own)


def test_bytes_have_no_pieces_and_words_have_the_row_of_the_same_word(tmp_path: Path) -> None:
    old = trained(tmp_path, "ab cb\nab ab cb <0x41>\n" * 3, vocab_size=17)  # which could spell the names of bytes
    new = trained(tmp_path, "ab cb\nab ab cb\n", vocab_size=268, byte_fallback=True)
    pieces = dict(zip(new.source_tokens(range(new.source_size)), origin_of("source", old, new).pieces, strict=True))
    assert pieces["<0x41>"] == [] and pieces["a"] == [old.source_symbol("a")]
    words = WhitespaceTokenizer(Vocabulary(["ab", "z"]), Vocabulary(["cb"]), options=WhitespaceOptions())
    assert origin_of("source", old, words).pieces[3] == [old.source_symbol("▁ab")]
    assert origin_of("source", words, old).pieces[old.source_symbol("▁ab") or 0] == [3]
    assert origin_of("target", words, old).pieces[old.source_symbol("▁ab") or 0] == []


def test_another_kind_of_tokenizer_and_its_own_options(tmp_path: Path) -> None:
    """The options of the old one that still have a meaning are taken over; what is given holds."""
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path, data={"tokenizer_options": {"min_count": 2}})) == 0
    (tmp_path / "run").rename(tmp_path / "teacher")
    start = {**STILL, "init_from": str(tmp_path / "teacher"), "new_vocabulary": True}
    kept = {"tokenizer_options": {"max_size": 20}}
    for data, expected in ((kept, {"min_count": 2, "max_size": 20}), (subwords(60, joint=True), {"vocab_size": 60})):
        assert nmt_train(write_config(tmp_path, data=data, training=start), "--overwrite") == 0
        options = load_saved(tmp_path / "run" / "config.yaml").data.tokenizer_options
        assert expected.items() <= options.items()
        assert nmt_train(write_config(tmp_path, data=data, training={**start, "max_steps": 2})) == 0, "resumed"


@pytest.mark.parametrize(
    ("training", "data", "message"),
    [
        ({}, {"tokenizer_options": {"min_count": 2}}, "; training.new_vocabulary: true allows another vocabulary"),
        ({}, {"tokenizer_options": {"source_vocab": "words"}}, "with training.new_vocabulary: true the vocabulary"),
        ({"new_vocabulary": True, "init_from": None}, {}, "training.new_vocabulary: needs training.init_from"),
        ({"new_vocabulary": 1}, {}, "training.new_vocabulary: "),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    training: dict[str, Any],
    data: dict[str, Any],
    message: str,
) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path)) == 0
    (tmp_path / "run").rename(tmp_path / "teacher")
    (tmp_path / "words").write_text("ba\nbe\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    path = write_config(tmp_path, data=data, training={"init_from": str(tmp_path / "teacher"), **training})
    assert nmt_train(path) == 2
    assert message in capsys.readouterr().err


def test_files_of_another_vocabulary_are_used(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path)) == 0
    (tmp_path / "run").rename(tmp_path / "teacher")
    for name, words in (("s", "ba\nbe\n"), ("t", "ab\neb\nxx\n")):
        (tmp_path / name).write_text(words, encoding="utf-8")
    files = {"source_vocab": str(tmp_path / "s"), "target_vocab": str(tmp_path / "t")}
    start = {**STILL, "init_from": str(tmp_path / "teacher"), "new_vocabulary": True}
    assert nmt_train(write_config(tmp_path, data={"tokenizer_options": files}, training=start)) == 0
    assert names_of(tmp_path / "run", "source")[3:] == ["ba", "be"]
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert "source 5 of 5 rows taken over, 0 the mean of their old pieces, 0 drawn anew; target 5 of 6 rows" in log
    old = names_of(tmp_path / "teacher", "target")
    theirs, ours = weights(tmp_path / "teacher", 12), weights(tmp_path / "run", 1)
    assert torch.equal(ours["embeddings.target"][4], theirs["embeddings.target"][old.index("eb")])
