"""BLEU of languages without spaces: the language chooses how words are found, in every command."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import nmt
from nmt.data.matching import are_unspaced
from nmt.errors import say_once
from nmt.evaluating import command as evaluate
from nmt.evaluation import build_metric
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.ranking import command as rank

TEXTS = {
    "zh": ["我用Windows和Office。", "会议在今天举行。", "他喜欢喝茶。"],
    "ja": ["日本の先生です。", "今日は会議があります。", "お茶が好きです。"],
    "th": ["เขาชอบดื่มชา", "วันนี้มีประชุม", "ฉันใช้คอมพิวเตอร์"],
    "km": ["គាត់ចូលចិត្តផឹកតែ", "ថ្ងៃនេះមានប្រជុំ", "ខ្ញុំប្រើកុំព្យូទ័រ"],
    "my": ["သူ လက်ဖက်ရည်ကြိုက်တယ်", "ဒီနေ့အစည်းအဝေးရှိတယ်", "ငါကွန်ပျူတာသုံးတယ်"],
    "ko": ["저는 학생입니다.", "오늘 회의가 있습니다.", "차를 좋아합니다."],
}


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    say_once.cache_clear()


@pytest.mark.parametrize(
    ("codes", "names"),
    [
        (("zh", "zh-CN", "zh_Hans", "ZHO", "cmn", "yue-HK"), ("zh",)),
        (("ja", "ja-JP", "jpn"), ("ja-mecab", "char")),
        (("ko", "kor", "ko_KR.UTF-8"), ("ko-mecab", "char")),
        (("th", "tha", "lo", "km", "khm", "my", "mya", "bo"), ("char",)),
        (("de", "en-US", "", None, "xx", "zha", "sr@latin"), ("13a",)),
    ],
)
def test_the_tokenizer_of_a_language(codes: tuple[str | None, ...], names: tuple[str, ...]) -> None:
    assert {bleu_tokenizer(code) for code in codes} <= set(names)


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_compared_with_itself_has_100(language: str) -> None:
    lines = TEXTS[language]
    assert build_metric("bleu", language=language).compute(lines, [lines]).score == pytest.approx(100)
    found = nmt.evaluate(lines, [lines], metrics=["bleu"], language_pair=f"en-{language}", confidence=True)
    assert found["bleu"] == pytest.approx(100) and "tok:13a" not in found.scores["bleu"].signature
    assert nmt.evaluate(lines, [lines], metrics=["bleu"], language=language)["bleu"] == pytest.approx(100)
    other = nmt.evaluate(lines, [lines], metrics=["bleu"], language=language, tokenize="13a")
    assert "tok:13a" in other.scores["bleu"].signature, "who names a tokenizer gets it"


def test_a_text_without_spaces_in_an_unknown_language_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for language in ("zh", "ja", "th", "km", "my"):
        assert are_unspaced(TEXTS[language])
        say_once.cache_clear()
        caplog.clear()
        for _ in range(2):
            nmt.evaluate(TEXTS[language], [TEXTS[language]], metrics=["bleu"])
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "hardly any spaces" in caplog.text and "-l" in caplog.text
    caplog.clear()
    say_once.cache_clear()
    split = ["我 每天 学习 中文 。", "他 喜欢 喝 茶 。"]
    for lines in (["Ein Mann liest 日本 .", "Zwei Hunde ."], TEXTS["ko"], ["123 ?"], split):
        nmt.evaluate(lines, [lines], metrics=["bleu"])
    nmt.evaluate(TEXTS["zh"], [TEXTS["zh"]], metrics=["bleu"], tokenize="13a")
    assert caplog.records == []


@pytest.mark.parametrize("name", ["bleu_tok_lc", "bleu_moses_lc"])
def test_metrics_that_find_words_by_spaces_alone_say_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    if name == "bleu_moses_lc":
        pytest.importorskip("sacremoses")
    say_once.cache_clear()
    nmt.evaluate(["A man reads."], [["A man reads."]], metrics=[name], language_pair="en-de")
    assert caplog.records == []
    nmt.evaluate(TEXTS["zh"], [TEXTS["zh"]], metrics=[name], language_pair="en-zh")
    assert f"{name}: the references have hardly any spaces" in caplog.text


def test_commands_take_the_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text, lists = tmp_path / "t", tmp_path / "list"
    text.write_text("".join(line + "\n" for line in TEXTS["zh"]), encoding="utf-8")
    for options in (["-l", "en-zh"], ["-l", "zh-Hant-zh-CN"], ["-l", "EN-ZH"], ["--language", "zh-CN"]):
        assert evaluate.main(["--hyp", str(text), "--ref", str(text), "--metrics", "bleu", "--json", *options]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["score"] == pytest.approx(100) and "tok:zh" in found["signature"]
    assert evaluate.main(["--hyp", str(text), "--ref", str(text), "-l", "zh"]) == 2
    assert "-l: 'zh' is not a language pair" in capsys.readouterr().err
    entries = [
        f"{i} ||| {line} ||| a= {a} ||| 0\n" for i, line in enumerate(TEXTS["zh"]) for line, a in ((line, 1), ("茶", 2))
    ]
    lists.write_text("".join(entries), encoding="utf-8")
    assert rank.main([str(lists), "--tune", "--ref", str(text), "--language", "zh"]) == 0
    said = capsys.readouterr().err
    assert "bleu 100.00" in said and "hardly any spaces" not in said
    assert rank.main([str(lists), "--tune", "--ref", str(text)]) == 0
    assert "hardly any spaces" in capsys.readouterr().err + caplog.text
