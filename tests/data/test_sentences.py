"""Sentences of a text: hard cases in many languages, real text joined, nothing lost, and the doors."""

from __future__ import annotations

import gzip
import random
import subprocess
import time
from pathlib import Path

import pytest

import nmt
from nmt.corpora import command as data
from tests.compiled import needed_engine
from tests.conftest import SHARED
from tests.quick_python import quick_python

HARD = Path(__file__).with_name("hard_sentences.txt")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    needed_engine()  # skips where there is no C compiler


def hard_cases() -> list[tuple[str, str, list[str]]]:
    """Language, text and its sentences."""
    found = []
    for line in HARD.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            language, text = line.split("\t")
            sentences = [part.strip() for part in text.replace("^", "|").split("|")]
            found.append((language, text.replace("^", "").replace("|", " "), sentences))
    return found


def test_hard_cases() -> None:
    cases = hard_cases()
    wrong = [text for language, text, sentences in cases if nmt.split_sentences(text, language) != sentences]
    assert len(cases) >= 300 and len({language for language, _, _ in cases}) >= 15
    assert wrong == []


def test_each_sentence_alone_is_one_sentence() -> None:
    cases = [(language, sentence) for language, _, sentences in hard_cases() for sentence in sentences]
    wrong = [sentence for language, sentence in cases if nmt.split_sentences(sentence, language) != [sentence]]
    assert len(wrong) <= 0.01 * len(cases), wrong


@pytest.mark.parametrize(
    ("text", "language", "found"),
    [
        (name, code, 0.97)
        for name, code in (
            ("tatoeba_deu_eng/dev.en.gz", "en"), ("tatoeba_deu_eng/dev.de.gz", "de"), ("multi30k/val.en.gz", "en"),
            ("multi30k/val.de.gz", "de"), ("multi30k/val.cs.gz", "cs"),
        )
    ],
)  # fmt: skip
def test_boundaries_of_real_text(text: str, language: str, found: float) -> None:
    """Of lines that end with a mark, joined four by four; and few other places are taken for boundaries."""
    path = SHARED / "data" / text
    if not path.is_file():
        pytest.skip(f"{path}: not there")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        lines = [line for line in map(str.strip, stream) if line.endswith((".", "?", "!", '"', "“"))]
    lines = [line for line in lines if len(nmt.split_sentences(line, language)) == 1]
    lines = lines[:2000]
    right = cut = 0
    for start in range(0, len(lines), 4):
        group = lines[start : start + 4]
        sentences = nmt.split_sentences(" ".join(group), language)
        right += len(set(group) & set(sentences))
        cut += len(sentences)
    assert len(lines) > 900 and right >= found * len(lines) and cut <= 1.01 * len(lines)


def odd_texts(count: int) -> list[str]:
    draw = random.Random(3)
    parts = [
        *(
            ". ",
            ".",
            "! ",
            "?",
            "…",
            "...",
            "。",
            "！",
            " ",
            "\n\n",
            "\n",
            "a",
            "B",
            "Dr",
            "z",
            "5",
            "日",
            "「",
            "」",
            '"',
        ),
        *("»", "(", ")", "<b>", "</b>", "😀", "\u200d", "\x00", "é", "e\u0301", "|", "; ", ", ", "\u3000", "'s", "i"),
        *("م", "؟", "।", "\u00a0", "www.a.b"),
    ]
    return ["".join(draw.choices(parts, k=draw.randrange(1, 40))) for _ in range(count)]


@pytest.mark.parametrize("language", ["en", "de", "zh", "ar", "xx", ""])
def test_nothing_is_lost_changed_or_empty(language: str) -> None:
    for text in odd_texts(3000):
        sentences = nmt.split_sentences(text, language)
        place = 0
        for sentence in sentences:
            begin = text.index(sentence, place)
            assert not text[place:begin].strip() and sentence == sentence.strip() != ""
            assert len(sentences) == 1 or any(letter.isalnum() for letter in sentence)
            place = begin + len(sentence)
        assert not text[place:].strip()


@pytest.mark.parametrize(
    "unit", [".", ". ", "a. ", "a", "A. (", "「。", "x.y", "\n", "\n\na", "! ) ", "“", ' "', "3. ", "<b", "｡）"]
)
def test_time_is_linear(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    started = time.process_time()
    nmt.split_sentences(text, "de")
    assert time.process_time() - started < 10


def test_marks_alone_are_part_of_a_sentence() -> None:
    for text in ('"', ". ! ?", "…", "»", "。", "- - -"):
        assert nmt.split_sentences(text, "en") == [text]
    assert nmt.split_sentences('It is. " ! Then it was. " .', "en") == ['It is. " !', 'Then it was. " .']
    assert nmt.split_sentences(" \n\t", "en") == []


def test_an_empty_line_ends_a_sentence_and_a_line_end_does_not() -> None:
    assert nmt.split_sentences("A heading\n\nA text that\ngoes on. Then.", "en") == [
        "A heading", "A text that\ngoes on.", "Then.",
    ]  # fmt: skip


def test_abbreviations_may_be_given() -> None:
    text = "Siehe Xyz. Das Buch. Und Qq. Er."
    assert len(nmt.split_sentences(text, "de")) == 4
    assert nmt.split_sentences(text, "de", abbreviations=["Xyz.", "Qq"]) == ["Siehe Xyz. Das Buch.", "Und Qq. Er."]
    with pytest.raises(nmt.DataError, match="^abbreviations: 'a b' is not one word"):
        nmt.split_sentences(text, abbreviations=["a b"])


def test_a_language_may_be_given_in_any_form() -> None:
    text = "Am 3. Oktober."
    assert [len(nmt.split_sentences(text, code)) for code in ("de", "de-AT", "de_DE.UTF-8", "en", "", "xx")] == [
        1, 1, 1, 2, 2, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("given", [b"a", None, 3, ["a"]])
def test_what_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match="^text must be a string"):
        nmt.split_sentences(given)  # type: ignore[arg-type]
    with pytest.raises(nmt.DataError, match="half of a surrogate pair"):
        nmt.split_sentences("a \ud800 b")


def test_the_command_writes_a_line_for_each_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words, out = tmp_path / "t.de", tmp_path / "w", tmp_path / "s.de"
    text.write_text("Er kam zu Xy. Das war gut. Ja!\n\n3. Mai\n", encoding="utf-8")
    words.write_text("Xy\n", encoding="utf-8")
    arguments = ["split", "--language", "de", "-i", str(text), "-o", str(out)]
    assert data.main([*arguments, "--abbreviations", str(words), "--numbers"]) == 0
    assert out.read_text(encoding="utf-8") == "1\tEr kam zu Xy. Das war gut.\n1\tJa!\n2\t\n3\t3. Mai\n"
    assert "3 lines, 3 sentences" in capsys.readouterr().err
    assert data.main([*arguments[:-1], str(text)]) == 2
    piped = subprocess.run(
        [*quick_python(), "-m", "nmt.corpora.command", "split"],
        input="Is it? Yes it is. No.",
        capture_output=True,
        text=True,
    )
    assert piped.stdout == "Is it?\nYes it is.\nNo.\n"
