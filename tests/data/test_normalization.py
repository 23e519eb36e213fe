"""What a vocabulary makes of text: the target stays as it is, what cannot be spelled is counted."""

from __future__ import annotations

import dataclasses
import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

import nmt
from nmt.cli import data, export
from nmt.data import SentencePieceTokenizer
from nmt.data.sentencepiece import SentencePieceOptions
from tests.compiled import needed_engine

TEXTS = ["10² m", "او می\u200cرود", "น้ำ", "½ … ™ ŀ", "Ａｂ ﬁ", "a\u00a0b\u202f!", "Cafe", "日本。", "Ⅷ ℃ №"]
"""Text that nmt_nfkc rewrites, and some that it does not."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    folder = tmp_path_factory.mktemp("text")
    for side in ("en", "xx"):
        (folder / f"t.{side}").write_text(
            "".join(f"{text} {i % 5}\n" for i in range(40) for text in TEXTS), encoding="utf-8"
        )
    return [folder / "t.en"], [folder / "t.xx"]


def trained(files: tuple[list[Path], list[Path]], **options: Any) -> SentencePieceTokenizer:
    options = {"vocab_size": 340, **options}
    return SentencePieceTokenizer.train(*files, options=SentencePieceOptions(**options), seed=1)


@pytest.mark.parametrize("options", [{}, {"joint": False}, {"model_type": "unigram"}, {"normalization": "identity"}])
def test_the_target_is_spelled_as_it_is(files: tuple[list[Path], list[Path]], options: dict[str, Any]) -> None:
    tokenizer = trained(files, **options)
    for text in TEXTS:
        assert tokenizer.decode_target(tokenizer.encode_target([text])[0]) == text
    assert list(tokenizer.unspelled("target", TEXTS)) == []


def test_separate_vocabularies_have_a_rule_each(files: tuple[list[Path], list[Path]]) -> None:
    tokenizer = trained(files, joint=False)
    assert tokenizer.decode_source(tokenizer.encode_source(["10² Ａ"])[0]) == "102 A"
    assert [place for place, _ in tokenizer.unspelled("source", TEXTS)] == [0, 1, 2, 3, 4, 5, 8]
    both = trained(files, joint=False, normalization="nmt_nfkc")
    assert both.decode_target(both.encode_target(["10²"])[0]) == "102"
    assert (0, "102 m") in list(both.unspelled("target", TEXTS))


def test_letters_are_composed(files: tuple[list[Path], list[Path]]) -> None:
    """Like NFC, in any order of marks; Hangul stays as it is."""
    model = sentencepiece.SentencePieceProcessor(model_proto=trained(files).models[1])
    for text in ("Ångström", "ậ", "Ǘ", "Ệ", "ш̀ й ё", "हिन्दी क़", "ὰ̓ ᾅ", "が ぱ", "שׁ", "\u212b \u2126"):
        for form in ("NFC", "NFD"):
            wanted = unicodedata.normalize("NFC", text)
            assert model.decode(model.encode(unicodedata.normalize(form, text))) == wanted
    assert model.decode(model.encode("e\u0323\u0302 e\u0302\u0323 ê\u0323 ẹ\u0302")) == "ệ ệ ệ ệ"
    assert model.decode(model.encode("a\tb\u2028c  d")) == "a b c d"


def test_unknown_characters_without_bytes_cannot_be_spelled(files: tuple[list[Path], list[Path]]) -> None:
    tokenizer = trained(files, byte_fallback=False, vocab_size=80)
    assert [place for place, _ in tokenizer.unspelled("target", ["10² m", "Ω 10", "日本。"])] == [1]


def configuration(folder: Path, files: tuple[list[Path], list[Path]], **options: Any) -> dict[str, Any]:
    return {
        "run_dir": str(folder / "run"),
        "model": {"cell": "lrn", "hidden_size": 8, "embedding_size": 8},
        "data": {
            "train": str(files[0][0].with_suffix("")), "source_language": "en", "target_language": "xx",
            "tokenizer_options": {"vocab_size": 340, **options},
        },
        "training": {"max_steps": 1, "batch_tokens": 500},
    }  # fmt: skip


def test_the_start_of_training_and_a_check_count_them(
    files: tuple[list[Path], list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nmt.train(configuration(tmp_path, files, normalization="nmt_nfkc"))
    events = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    (said,) = (event["text"] for event in events if event["event"] == "warning" and "target line" in event["text"])
    assert said.startswith("train: 280 target lines that the vocabulary cannot spell: ")
    assert f"{files[1][0]}, line 1: '10² m 0' becomes '102 m 0'; " in said
    capsys.readouterr()
    prefix = str(files[0][0].with_suffix(""))
    assert data.main(["check", prefix, "--languages", "en", "xx", "--vocabulary", str(tmp_path / "run")]) in (0, 1)
    assert "280 target lines that the vocabulary cannot spell" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run")
    nmt.train(configuration(tmp_path, files))
    assert "cannot spell" not in (tmp_path / "run/train.log").read_text(encoding="utf-8")


def test_a_run_of_an_earlier_version_goes_on_with_its_vocabulary(
    files: tuple[list[Path], list[Path]], tmp_path: Path
) -> None:
    """Whose configuration named no rule, and which was nmt_nfkc."""
    config = configuration(tmp_path, files)
    nmt.train(configuration(tmp_path, files, normalization="nmt_nfkc"))
    run = tmp_path / "run"
    before = (run / "tokenizer/joint.model").read_bytes()
    for saved in run.rglob("config.yaml"):
        text = saved.read_text(encoding="utf-8")
        saved.write_text(text.replace("    normalization: nmt_nfkc\n", ""), encoding="utf-8")
    done = nmt.train({**config, "training": {**config["training"], "max_steps": 2}})
    assert done.step == 2 and (run / "tokenizer/joint.model").read_bytes() == before


def test_the_engine_reads_the_rule_from_the_file(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    needed_engine()
    for options in ({}, {"joint": False}):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        nmt.train(configuration(tmp_path, files, **options))
        file = tmp_path / "run.nmt"
        assert export.main([str(tmp_path / "run"), "-o", str(file), "--precision", "fp32", "--overwrite"]) == 0
        lines = [*TEXTS, "e\u0323\u0302 cafe\u0301", "\u1112\u1161\u11ab"]
        with nmt.load(file) as engine, nmt.load(tmp_path / "run", precision="fp32") as model:
            for one, other in zip(
                engine.translate(lines, details=["tokens"]), model.translate(lines, details=["tokens"]), strict=True
            ):
                assert one.source_pieces == other.source_pieces and one.text == other.text


def test_options_that_exist_stay(files: tuple[list[Path], list[Path]]) -> None:
    usual = SentencePieceOptions()
    assert [usual.rule_of(side) for side in ("source", "target")] == ["nfc", "nfc"]
    apart = dataclasses.replace(usual, joint=False)
    assert [apart.rule_of(side) for side in ("source", "target")] == ["nmt_nfkc", "nfc"]
    assert dataclasses.replace(apart, normalization="nfkc_cf").rule_of("target") == "nfkc_cf"
