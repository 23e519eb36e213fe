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
from nmt.config import load_saved
from nmt.corpora import command as data
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import ConfigError
from nmt.exporting import command as export
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


def test_ordinary_text_of_five_languages_is_kept(tmp_path: Path) -> None:
    """The counts stand in docs/configuring.md."""
    rows = [line.split("\t") for line in (Path(__file__).parent / "typography.tsv").read_text("utf-8").splitlines()]
    (tmp_path / "t").write_text("".join(f"{text}\n" for _, text in rows) * 4, encoding="utf-8")
    for rule, counts in (("nmt_nfkc", (6, 6, 8, 7, 5)), ("nfc", (0,) * 5), ("identity", (0,) * 5)):
        tokenizer = trained(([tmp_path / "t"],) * 2, normalization=rule, vocab_size=600)
        for language, count in zip(("fa", "th", "zh", "fr", "ca"), counts, strict=True):
            lines = [text for own, text in rows if own == language]
            found = dict(tokenizer.unspelled("target", lines))
            assert (len(lines), len(found)) == (10, count)
            for place, line in enumerate(lines):
                (ids,) = tokenizer.encode_target([line])
                assert tokenizer.decode_target(ids) == found.get(place, line)


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
    assert "280 target lines that the vocabulary cannot spell" in " ".join(capsys.readouterr().out.split())
    shutil.rmtree(tmp_path / "run")
    nmt.train(configuration(tmp_path, files))
    assert "cannot spell" not in (tmp_path / "run/train.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("names_it", [True, False])
def test_a_run_of_an_earlier_version_goes_on_with_its_own_configuration(
    files: tuple[list[Path], list[Path]], tmp_path: Path, names_it: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Which named no rule; the run has saved what this meant. Another rule is refused."""
    config = configuration(tmp_path, files)
    nmt.train(configuration(tmp_path, files, normalization="nmt_nfkc"))
    run = tmp_path / "run"
    before = (run / "tokenizer/joint.model").read_bytes()
    for saved in run.rglob("config.yaml"):
        text = saved.read_text(encoding="utf-8").replace("format: 3", "format: 2")
        saved.write_text(text if names_it else text.replace("    normalization: nmt_nfkc\n", ""), encoding="utf-8")
    config["training"]["max_steps"] = 2
    other = configuration(tmp_path, files, normalization="nfc")
    with pytest.raises(ConfigError, match="normalization: 'nmt_nfkc' -> 'nfc'"):
        nmt.train(other)
    assert nmt.train(config).step == 2
    assert "resumes with data.tokenizer_options.normalization: nmt_nfkc" in caplog.text
    assert (run / "tokenizer/joint.model").read_bytes() == before
    assert load_saved(run / "config.yaml").data.tokenizer_options["normalization"] == "nmt_nfkc"


def test_no_other_rule_goes_on_where_none_is_named(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    """Nor any without a checkpoint: the vocabulary is made anew."""
    nmt.train(configuration(tmp_path, files, normalization="identity"))
    with pytest.raises(ConfigError, match="normalization: 'identity' -> None"):
        nmt.train(configuration(tmp_path, files))
    shutil.rmtree(tmp_path / "run/checkpoints")
    nmt.train(configuration(tmp_path, files))
    saved = json.loads((tmp_path / "run/tokenizer/tokenizer.json").read_text(encoding="utf-8"))
    assert "normalization" in str(saved) and "identity" not in str(saved)


def test_a_given_model_may_rewrite_any_text(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    """Also ASCII, which the rules of a vocabulary made here keep but for case."""
    (tmp_path / "rule.tsv").write_text("2E 2E 2E\t2026\n")
    sentencepiece.SentencePieceTrainer.train(
        input=str(files[1][0]), model_prefix=str(tmp_path / "own"), vocab_size=340, model_type="bpe",
        normalization_rule_tsv=str(tmp_path / "rule.tsv"), byte_fallback=True,
        pad_id=0, unk_id=1, eos_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    given = trained(files, source_model=str(tmp_path / "own.model"))
    assert list(given.unspelled("target", ["10. m", "10... m"])) == [(1, "10\u2026 m")]
    folded = trained(files, normalization="nmt_nfkc_cf")
    assert list(folded.unspelled("source", ["cafe  5", "Cafe"])) == [(1, "cafe")]


def test_a_check_without_a_vocabulary_tells_what_a_usual_one_would_change(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.en").write_text("one two\nthree  four\nfive six\n", encoding="utf-8")
    (tmp_path / "t.xx").write_text("10\u00b2 \u00bd\ncafe\u0301 x\n\u1112\u1161\u11ab y\n", encoding="utf-8")
    check = ["check", str(tmp_path / "t"), "--languages", "en", "xx"]
    assert data.main(check) == 0
    found = capfd.readouterr()
    assert "1 target line that the" in " ".join(found.out.split())
    assert not found.err  # SentencePiece would tell of its rules there
    assert data.main([*check, "--json"]) == 0
    (line,) = json.loads(capfd.readouterr().out)["spelling"]
    assert f"{tmp_path}/t.xx, line 2: 'cafe\u0301 x' becomes 'caf\u00e9 x'" in line


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
                assert one.source_pieces == other.source_pieces
                # The weights are random, so that words are about equally probable.
                assert one.score == pytest.approx(other.score, rel=1e-3)


def test_options_that_exist_stay(files: tuple[list[Path], list[Path]]) -> None:
    usual = SentencePieceOptions()
    assert [usual.rule_of(side) for side in ("source", "target")] == ["nfc", "nfc"]
    apart = dataclasses.replace(usual, joint=False)
    assert [apart.rule_of(side) for side in ("source", "target")] == ["nmt_nfkc", "nfc"]
    assert dataclasses.replace(apart, normalization="nfkc_cf").rule_of("target") == "nfkc_cf"
