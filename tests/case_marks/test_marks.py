"""Case marks: what they are, and that every text comes back."""

from __future__ import annotations

import random
import sys
import unicodedata

import pytest

from nmt.case_marks.marks import MARKS, CaseMarks, lower, upper, usual_forms

FORMS = ["I", "iPhone", "Mann", "NASA", "USA"]
ODD = [
    *"aAbBzZÄäßẞİıſςσΣÅÅΩΩǅǆǄⅧⅷⓐⒶᲐაႠⴀᎠꭰ漢字あ¡¿«»“”.,:!?-–_0123456789",
    *("\u0301", "\u030c", "\u0345", "\U00010400", "\U00010428", "\U0001e900", "\xa0", "\u3000"),
    *MARKS,
]
WORDS = [
    "Mann",
    "mann",
    "MANN",
    "NASA",
    "Nasa",
    "iPhone",
    "IPHONE",
    "i",
    "I",
    "the",
    "The",
    "THE",
    "ΛΟΓΟΣ",
    "λόγος",
    "3",
]


@pytest.fixture(scope="module")
def marks() -> CaseMarks:
    return CaseMarks(FORMS, symbols=["<BT>"])


@pytest.mark.parametrize(
    "text, marked",
    [
        ("The Mann saw NASA.", "the mann saw nasa."),
        ("the man", "⇩ the man"),
        ("a mann", "⇩ a⇩ mann"),
        ("THE MAN SAW IT", "⇪ the man saw it"),
        ("The MAN SAW it.", "the⇪ man saw⇬ it."),
        ("The MAN saw", "the⇮ man saw"),
        ("I and I am", "i and i am"),
        ("I AM", "i⇮ am"),
        ("The Man Of Steel saw NASA", "⇫ the man of steel⇬ saw nasa"),
        ("The Man Of An NASA IS", "⇫ the man of an nasa⇬⇮ is"),
        ("My iPhone, an iPad", "my iphone, an⇩ i⇧pad"),
        ("iPhone", "⇩ i⇧phone"),
        ("3 men, 3 Men", "3 men, 3⇧ men"),
        ('("The" the', '("the" the'),
        ('saw ("The")', '⇩ saw ("⇧the")'),
        ("Η ΛΟΓΟΣ ΕΙΣ, λόγος", "⇪ η λογος εις⇬, λόγος"),
        ("STRAßE ẞ straße", "⇮ straße ẞ straße"),
        ("<BT> THE <BT> The", "<BT>⇮ the <BT>⇧ the"),
        ("Press ⇧ and ⇭", "press ⇭0 and ⇭6"),
        ("", ""),
    ],
)
def test_marks(marks: CaseMarks, text: str, marked: str) -> None:
    assert marks.marked(text) == marked
    assert marks.unmarked(marked) == text


def test_every_text_comes_back(marks: CaseMarks) -> None:
    """Of all characters, alone and next to letters, and of many made-up lines."""
    draw = random.Random(1)
    texts = ["".join(draw.choices([*ODD, *" " * 30], k=draw.randrange(14))) for _ in range(3000)]
    texts += [" ".join(draw.choices([*WORDS, "<BT>", "x'Y", "(A)"], k=draw.randrange(9))) for _ in range(3000)]
    cased = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lt")]
    texts += [form for letter in cased for form in (letter, f"A{letter}a", f"{letter}\u0301", f"x {letter}{letter}")]
    for text in (text.strip(" ") for text in texts):
        assert marks.unmarked(marks.marked(text)) == text


def test_any_marked_text_stands_for_a_text_without_marks(marks: CaseMarks) -> None:
    draw = random.Random(2)
    for _ in range(3000):
        text = "".join(draw.choices([*MARKS[:-1] * 3, *"abİ 1", " mann", " nasa"], k=draw.randrange(12)))
        assert not set(marks.unmarked(text)) & set(MARKS)
    assert marks.unmarked("⇭⇭0⇭7 a⇭") == "⇧7 a"


def test_places_lead_from_one_text_to_the_other(marks: CaseMarks) -> None:
    text = "The iPad of MY MANN"
    marked, places = marks.marked_places(text)
    assert [text[places[i]].lower() for i, one in enumerate(marked) if one.isalpha()] == [
        one for one in marked if one.isalpha()
    ]
    assert len(places) == len(marked) + 1 and places == sorted(places)
    again, back = marks.unmarked_places(marked)
    assert again == text and len(back) == len(marked) + 1 and back == sorted(back)
    assert [again[back[i]].lower() for i, one in enumerate(marked) if one.isalpha()] == [
        one for one in marked if one.isalpha()
    ]


def test_what_stands_inside_says_how_it_is_written(marks: CaseMarks) -> None:
    assert marks.marked("Mann", inside=True) == "mann" and marks.marked("The", inside=True) == "⇧ the"


def test_usual_forms_are_those_of_most_places_away_from_the_beginning() -> None:
    lines = [
        "The Mann and the man",
        "Bob and the Mann of NASA",
        "Bob",
        "Bob is",
        "2 The man NASA",
        "Bob saw NASA, the NASA",
        "an iPhone iPhone",
    ]
    assert usual_forms(lines) == ["iPhone", "Mann", "NASA"]
    assert usual_forms([*lines, "a mann the", "a mann"]) == ["iPhone", "NASA"]


def test_letters_lead_back() -> None:
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    assert lower(upper(lower(text))) == lower(text).replace("ς", "σ")
    assert sum(one != other for one, other in zip(text, lower(text), strict=True)) > 1300
