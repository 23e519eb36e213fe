"""Faults of sentence pairs: what each rule finds and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.corpora.faults import (
    FAULTS,
    HeldOut,
    Inspector,
    Norms,
    NormsOf,
    Pair,
    has_control,
    inspect,
    is_in_script,
    key_of,
    words,
)
from nmt.corpora.repeats import Repeats
from nmt.data.text import FilePair

NORMS = Norms(1.0, ("LATIN", "LATIN"))
GOOD = Pair("A dog swims in the water.", "Ein Hund schwimmt im Wasser.")


def faults(source: str, target: str, norms: Norms = NORMS) -> list[str]:
    return Inspector(norms).faults(Pair(source, target))


def test_a_good_pair_has_none() -> None:
    assert faults(*GOOD) == []


@pytest.mark.parametrize("pair", [("", "ein Hund"), ("a dog", " \t"), ("", "")])
def test_an_empty_side_is_all_that_is_said(pair: tuple[str, str]) -> None:
    assert faults(*pair) == ["empty"]


@pytest.mark.parametrize(
    ("text", "is_so"),
    [("a\tb", True), ("a\x85b", True), ("a\ufffdb", True), ("\ufeffab", True), ("a\ue000", True),
     ("a\u200db", False), ("a\u00adb", False), ("na\u00efve \u2013 \u201cx\u201d", False), ("\u4f60\u597d", False)],
)  # fmt: skip
def test_control_characters(text: str, is_so: bool) -> None:
    assert has_control(text) is is_so


def test_copied_text_but_not_numbers() -> None:
    assert faults("Neue Zürcher Zeitung", "neue  zürcher zeitung") == ["copied"]
    assert faults("3,14 - 42", "3,14 - 42") == []


def test_lengths_are_compared_with_what_is_usual() -> None:
    long = "a sentence of quite some words, far more than the other side has"
    assert faults(long, "kurz") == ["length_ratio"]
    assert faults("kurz", long) == ["length_ratio"]
    assert faults("Yes.", "Das ist so.") == []  # of short ones a larger ratio is ordinary
    # Where the source has usually five characters for one of the target, that is no fault.
    assert faults(long, "x" * (len(long) // 5), Norms(5.0, ("LATIN", "LATIN"))) == []
    assert faults(long, "x" * len(long), Norms(5.0, ("LATIN", "LATIN"))) == ["length_ratio"]


def test_a_side_in_another_script() -> None:
    norms = Norms(1.0, ("LATIN", "CYRILLIC"))
    assert faults("the dog barks", "собака лает", norms) == []
    assert faults("the dog barks", "the dog barked", norms) == ["wrong_script"]
    assert faults("собака лает", "собака спит", norms) == ["wrong_script"]
    assert faults("the PC is new", "ПК PC новый", norms) == []  # some words of another script are ordinary
    assert faults("OK", "OK!", norms) == []
    assert words("東京タワーへ行く") == {"CJK": pytest.approx(8 / 1.5)}
    assert words("мама, Eva") == {"CYRILLIC": 1, "LATIN": 1}
    assert words("मैं हिन्दी बोलता हूँ") == {"DEVANAGARI": 4} and words("می\u200cخواهم") == {"ARABIC": 1}
    assert words("Cafe\u0301 scho\u0308n", usual="LATIN") == {"LATIN": 2}
    assert words("see http://example.com/a-b or a@b.de") == {"LATIN": 2}


def test_a_third_of_the_words_must_be_of_the_usual_script() -> None:
    """Not of the letters; with fewer than three of these there is no saying."""
    norms = Norms(1.0, ("LATIN", "CYRILLIC"))
    assert faults("the red PCs", "красные pcs ok", norms) == []
    assert faults("the red PCs", "красные pcs are ok", norms) == ["wrong_script"]
    assert faults("it is", "USA", norms) == ["wrong_script"]
    assert faults("it is", "US", norms) == []


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("我用Windows和Office。", "CJK"), ("iPhone 15 Pro Max发布", "CJK"), ("从Mozilla下载Firefox。", "CJK"),
        ("WindowsとOfficeを使う", "CJK"), ("请看http://example.com/a/very/long/address", "CJK"),
        ("访问 example.com/abc", "CJK"), ("打开config.json文件", "CJK"), ("发邮件到 first.last@example.org", "CJK"),
        ("Откройте docs/readme.md", "CYRILLIC"),
        ("ฉันใช้ Windows และ Office", "THAI"), ("저는 Google Chrome을 써요", "HANGUL"),
        ("Я использую Google Chrome и Mozilla Firefox", "CYRILLIC"), ("أستخدم Windows", "ARABIC"),
        ("मैं Windows चलाता हूँ", "DEVANAGARI"), ("Χρησιμοποιώ Windows και Office", "GREEK"),
    ],
)  # fmt: skip
def test_names_in_latin_letters_are_ordinary_in_any_script(line: str, script: str) -> None:
    assert is_in_script(line, script)
    english = "He likes to use a computer with many windows"
    assert not is_in_script(english, script) and not is_in_script(f"{english} {line[0]}", script)


@pytest.mark.parametrize(
    ("lines", "script"),
    [
        (["安装Windows 10 Pro。", "iPhone 15 Pro Max发布", "Adobe Photoshop CC教程", "Microsoft Office Home版"], "CJK"),
        (["ติดตั้ง Windows 10 Pro", "สอน Adobe Photoshop CC", "Windows 11"], "THAI"),
        (["Anna Maria heißt Müller", "Die 日本人 sind da.", "12"], "LATIN"),
    ],
)  # fmt: skip
def test_the_usual_script_of_a_text_full_of_names(lines: list[str], script: str) -> None:
    norms = NormsOf()
    for line in lines:
        norms.add(Pair("a line of text", line))
    found = norms.norms()
    assert found.scripts == ("LATIN", script)
    assert all("wrong_script" not in faults("a line of text", line, found) for line in lines[:2])


def test_forms_of_unicode_do_not_hide_duplicates_and_held_out_sentences() -> None:
    composed, apart = "Das Café ist schön.", "Das Cafe\u0301 ist scho\u0308n."
    held_out = HeldOut([Pair("The café is nice.", composed)])
    inspector = Inspector(NORMS, held_out=held_out)
    assert inspector.faults(Pair("A new one.", apart)) == ["held_out"]
    assert inspector.faults(Pair("A new one.", "\uff24\uff41\uff53 cafe\u0301 ist schön.")) == ["held_out"]
    assert key_of(Pair("Old café.", "Altes Café.")) == key_of(Pair("Old cafe\u0301.", "Altes  Cafe\u0301."))
    assert inspector.faults(Pair("Café", "cafe\u0301")) == ["copied"]


def test_duplicates_of_whole_pairs_only(tmp_path: Path) -> None:
    pairs = [
        GOOD,
        GOOD._replace(target="Ein Hund ist im Wasser."),
        GOOD,
        GOOD._replace(source=f"  {GOOD.source}"),
        GOOD._replace(source=GOOD.source.upper()),
        Pair("two dogs", "x zwei Hunde"),
        Pair("two dog", "sx zwei Hunde"),
        Pair("", "leer"),
        Pair("", "leer"),
    ]
    files = FilePair(tmp_path / "text.en", tmp_path / "text.de")
    for path, lines in zip(files, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found: list[int] = []
    inspect(files, each=lambda number, _, faults: found.append(number) if "duplicate" in faults else None)
    assert found == [3, 4]


def test_repeated_keys_among_many() -> None:
    """More keys than are held in memory; of each, all but the first are found."""
    repeats, numbers = Repeats(), [i * i % 70_001 for i in range(300_000)]
    for i, number in enumerate(numbers):
        repeats.add(None if i % 1000 == 7 else number.to_bytes(8, "little"))
    seen: set[int] = set()
    expected = []
    for i, number in enumerate(numbers):
        expected.append(i % 1000 != 7 and number in seen)
        if i % 1000 != 7:
            seen.add(number)
    assert repeats.found().tolist() == expected


def test_held_out_sentences_of_either_side() -> None:
    inspector = Inspector(NORMS, held_out=HeldOut([GOOD, Pair("", "nur hier")]))
    assert inspector.faults(Pair("a dog  swims in THE water.", "Ein anderer deutscher Satz.")) == ["held_out"]
    assert inspector.faults(Pair("Another English sentence.", GOOD.target)) == ["held_out"]
    assert inspector.faults(Pair(GOOD.target, GOOD.source)) == []  # on the other side it is another sentence
    assert inspector.faults(Pair("Unrelated.", "Ohne Bezug.")) == []


def test_what_is_usual_comes_from_the_corpus() -> None:
    counted = NormsOf()
    for pair in (Pair("abcd", "жз"), Pair("abcd PC", "жз PC"), Pair("12", "")):
        counted.add(pair)
    norms = counted.norms()
    assert norms.scripts == ("LATIN", "CYRILLIC")
    assert norms.ratio == pytest.approx(13 / 7)
    assert NormsOf().norms() == Norms(1.0, (None, None))


def test_names_are_in_the_order_of_the_list() -> None:
    found = Inspector(NORMS, held_out=HeldOut([Pair("a\tsame", "x")])).faults(Pair("a\tsame", "A SAME"), is_utf8=False)
    assert found == [name for name in FAULTS if name in found] == ["not_utf8", "copied", "held_out"]
