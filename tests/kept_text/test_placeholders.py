"""Placeholders survive, whatever the model: each as often as in its line, in 1,000 lines of all sorts."""

from __future__ import annotations

import dataclasses
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.errors import DataError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.kept_text.lines import broken_placeholders, count_placeholders, find_placeholders, keep
from nmt.search.shortlist import Shortlist
from nmt.search.translator import Translator
from nmt.search.values import DETAILS, Request, Translation
from tests.tiny_run import make_run

PLACEHOLDERS = [
    "{name}",
    "{}",
    "{0:>10}",
    "{{ user.name }}",
    "${total}",
    "%{count}",
    "<b>",
    "</b>",
    "<br/>",
    "<a href='http://x.org'>",
    "</a>",
    '<img src="a.png" />',
    "http://example.com/a_(b)?x=1&y=2#z",
    "https://x.org/{id}/edit",
    "www.example.org",
    "first.last+tag@mail.example.org",
    "ftp://files.example.org/x.gz",
    "<ns:tag attr>",
    '<a title="1 > 0" href="x">',
    "<img alt='x>y'>",
    '<a onclick="if(a>b){f()}">',
    "<!-- a > b -->",
    "<![CDATA[ a < b ]]>",
    "<?php 1 > 0 ?>",
    "<!DOCTYPE html>",
    "&nbsp;",
    "&amp;",
    "&#160;",
    "&#xA0;",
    "&quot;",
    "&eacute;",
    "%s",
    "%1$s",
    "%d",
    "%(name)s",
    "%.2f",
    "%%",
    "{% if a > b %}",
    "{% endif %}",
    "{{#each x}}",
    "{{/each}}",
    "{# note #}",
    "<input disabled>",
    "<a b=1 {{ c }}>",
]
WORDS = [
    "a",
    "b",
    "c",
    "longer",
    "sentence",
    "of",
    "ax",
    "longyer",
    "unknown",
    "\u00df",
    "don't",
    "x-y",
    "3",
    "\u4eca\u65e5",
]
GLUE = ["", " ", " ", "  ", ", ", ". ", " (", ") ", '"', "-", "! ", ": ", "/", "\u3002"]


def constructed(count: int, *, seed: int) -> list[str]:
    """Lines of words, marks and placeholders in any order; some of placeholders alone, some long."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        size = chance.choice([1, 2, 3, 5, 8]) if number % 100 else 50
        share = chance.choice([0.1, 0.3, 0.6, 1.0])
        own = chance.sample(PLACEHOLDERS, 3) if number % 3 else PLACEHOLDERS  # equal ones, too
        parts = [chance.choice(own if chance.random() < share else WORDS) + chance.choice(GLUE) for _ in range(size)]
        parts.insert(chance.randrange(size), chance.choice(PLACEHOLDERS))
        lines.append("".join(parts))
    return lines


@pytest.fixture(scope="module", params=["words", "subwords"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """An untrained model, whose attention is random."""
    run = tmp_path_factory.mktemp("runs") / "run"
    return load_model(make_run(run, steps=(10,), best=(10,), sentencepiece=request.param == "subwords"))


def translator(loaded: LoadedModel, **changes: Any) -> Translator:
    settings = {"precision": "fp32", "placeholders": True, "batch_tokens": 4000, **changes}
    return Translator(loaded.model, loaded.tokenizer, dataclasses.replace(loaded.config.decoding, **settings))


def check(lines: Sequence[str], found: Sequence[Translation]) -> None:
    for line, translation in zip(lines, found, strict=True):
        wanted = count_placeholders(line)
        for hypothesis in translation.hypotheses:
            assert count_placeholders(hypothesis.text) == wanted, (line, hypothesis.text)
            assert "\n" not in hypothesis.text
            assert not any("\ue000" <= letter <= "\uf8ff" for letter in hypothesis.text)
            alignment = hypothesis.alignment
            assert alignment is not None
            assert all(s < len(line.split()) and t < len(hypothesis.text.split()) for s, t in alignment)
            assert [t for _, t in alignment] == list(range(len(hypothesis.text.split())))


def test_all_survive_in_a_thousand_lines(loaded: LoadedModel) -> None:
    lines = constructed(1000, seed=1)
    assert sum(map(bool, map(count_placeholders, lines))) > 950  # in others it is a part of a word
    lines += ["{name}", "{a}{a} {a}", "<b></b>", " {x}. ", "{x}{x}{x}\r{x}", "say '{x}'s'", "{{{x}}} {", "<<b>a>"]
    check(lines, translator(loaded, beam_size=1).translate_window(lines, details=("alignment",)))


@pytest.mark.parametrize("longest", [None, 3, 1])
def test_all_survive_in_n_best_lists_and_lines_in_parts(loaded: LoadedModel, longest: int | None) -> None:
    lines = constructed(40, seed=2)
    found = translator(loaded, n_best=3, split_long=longest).translate_window(lines, details=("alignment",))
    assert any(len(translation.hypotheses) == 3 for translation in found)
    check(lines, found)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("Hello {name}, {0:>3} {{ x }} ${y} #{z} %{n}.", ["{name}", "{0:>3}", "{{ x }}", "${y}", "#{z}", "%{n}"]),
        ("<b>bold</b> a < b and c > d <3 <br/>", ["<b>", "</b>", "<br/>"]),
        (
            "http://x.org/a_(b)?q=1. (www.x.org) HTTPS://X.ORG/, xhttp://y",
            ["http://x.org/a_(b)?q=1", "www.x.org", "HTTPS://X.ORG/"],
        ),
        ("mail a.b+c@x-y.org. Or @me, a@b", ["a.b+c@x-y.org"]),
        ("{ not one } {} <unk> 5 % {a b}", ["{}"]),
        ("3 < 5 and 6 > 4, <3, a<b, a<b and c>d, x<y && y>z, 1<2>3, < b>", []),
        ("100 % sure, 50 % discount, 100%sure, 100%-ige, 5 %-ige, 20%. 10%, my%20file", []),
        (
            "%s %1$s%2$d %-10s|%05.1f %+d %#x %*d %lu %(a.b)s %@ %% 5%d.",
            ["%s", "%1$s", "%2$d", "%-10s", "%05.1f", "%+d", "%#x", "%*d", "%lu", "%(a.b)s", "%@", "%%", "%d"],
        ),
        (
            '<a title="1 > 0"><a b=\'"\' c><a b="c"d=e/f?g=h><a {% if x %}y{% endif %}><a {...z}>',
            ['<a title="1 > 0">', "<a b='\"' c>", '<a b="c"d=e/f?g=h>', "<a {% if x %}y{% endif %}>", "<a {...z}>"],
        ),
        (
            "<a title=\"x> <b> <a 'x'> <!-- <!DOCTYPE a 'b>'> <![CDATA[ <? <% x > y %>",
            ["<b>", "<!DOCTYPE a 'b>'>", "<% x > y %>"],
        ),
        (
            "<john@x.org> <https://x.org/a> \u8bf7\u770bhttp://x.org/a\u3002 \u898b\u308bwww.x.jp\u3092 \ubcf4\uc138\uc694http://x.kr\uc5d0\uc11c",
            ["john@x.org", "https://x.org/a", "http://x.org/a", "www.x.jp", "http://x.kr"],
        ),
        (
            "\u53d1a@b.com\uff0cc@d.org\u3002http://\u4f8b\u3048.jp\u3092 http://x.org/stra\u00dfe",
            ["a@b.com", "c@d.org", "http://\u4f8b\u3048.jp", "http://x.org/stra\u00dfe"],
        ),
        ("http://x.org/{{ a b }}/c.", ["http://x.org/{{ a b }}/c"]),
        ("AT&T, a & b; &x &nbsp &#; &#xG; &lt;b&gt;", ["&lt;", "&gt;"]),
        (  # names alone as attributes, directly after a word, where it is no comparison
            'A<q lang="de" hidden>b</q>c<td nowrap>d</td>\u672c<input disabled>e<br clear>f<i and g>h',
            ['<q lang="de" hidden>', "</q>", "<td nowrap>", "</td>", "<input disabled>", "<br clear>"],
        ),
    ],
)
def test_what_a_placeholder_is(line: str, wanted: list[str]) -> None:
    assert list(count_placeholders(line).elements()) == wanted


def test_words_that_touch_are_kept_together() -> None:
    line = "<b>{name}%s</b> and <i>http://x.org{{ y }}<br/></i>"
    found = [line[slice(*found.span)] for found in find_placeholders(line)]
    assert found == ["<b>", "{name}%s", "</b>", "<i>", "http://x.org{{ y }}", "<br/>", "</i>"]


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "{{",
        "<a ",
        "http://",
        "a@",
        "www.",
        "a.b-",
        "(",
        "<a href='",
        "http://x.y/(",
        "<!--",
        "<![CDATA[",
        "<?",
        "{%",
        '<a b="',
        "<a b='\" ",
        '<a b="c" ',
        "<a b c='<a d=\"'",
        "<a b='<c d=\"' e=\"' ",
        "&a",
        "%",
        "<a {",
        "<b></c>",
        "\u4e00http://",
        "www.\u65e5",
    ],
)
def test_time_to_find_them_is_linear(unit: str) -> None:
    line = unit * (60_000 // len(unit))
    started = time.process_time()
    find_placeholders(line)
    keep(line, placeholders=True, glossary=None)
    assert time.process_time() - started < 2
    text = broken_placeholders(line)
    assert not count_placeholders(text + " {x}") - Counter(["{x}"])


def test_what_the_model_makes_up_is_broken() -> None:
    text = "{x} <b> http://x.org www.x.org WWW.x.org a@x.org wwww.wwww.x.org"
    assert count_placeholders(text)
    assert not count_placeholders(broken_placeholders(text))


def test_lines_without_words_stay_and_others_change_nothing(loaded: LoadedModel) -> None:
    lines = ["{a} <b>, {a}!", "a b c", "", "  ", "www.x.org"]
    found = translator(loaded).translate_window(lines, details=("alignment", "tokens"))
    assert [found[0].best, found[4].best] == [lines[0], lines[4]]
    assert found[0].hypotheses[0].alignment == ((0, 0), (1, 1), (2, 2))
    assert found[0].hypotheses[0].tokens == ()
    assert found[0].source_tokens == 0
    usual = translator(loaded, placeholders=False).translate_window(lines[1:4])
    assert [line.best for line in found[1:4]] == [line.best for line in usual]
    assert translator(loaded, placeholders=False).translate_window(["{a}"])[0].source_tokens > 0


def test_what_stands_for_a_placeholder_is_no_unknown_word(loaded: LoadedModel) -> None:
    (found,) = translator(loaded).translate_window(["a {name} b"], details=("tokens",))
    assert found.unknown == 0
    assert found.source_pieces is not None
    assert found.source_pieces.count("<unk>") == 1


def test_not_together_with_a_prefix(loaded: LoadedModel) -> None:
    with pytest.raises(DataError, match=r"^FILE, line 3: prefix: not allowed together with '\{n\}'"):
        translator(loaded).translate_window([Request(text="a {n}", prefix="x", where="FILE, line 3")])
    assert translator(loaded).translate_window([Request(text="a b", prefix="x")])[0].best.startswith("x")


def test_with_a_shortlist_an_ensemble_and_all_details(loaded: LoadedModel, tmp_path: Path) -> None:
    model, tokenizer = loaded.model, loaded.tokenizer
    size = tokenizer.target_size
    starts = torch.zeros(tokenizer.source_size + 1, dtype=torch.int64)
    frequent = torch.arange(3, size, 2, dtype=torch.int32)
    shortlist = Shortlist(frequent=frequent, partners=frequent[:0], starts=starts, target_size=size)
    (tmp_path / "list").write_bytes(shortlist.save_bytes(tokenizer))
    changes = {"placeholders": True, "shortlist": str(tmp_path / "list"), "precision": "fp32", "n_best": 2}
    decoding = dataclasses.replace(loaded.config.decoding, **changes)
    lines = constructed(7, seed=3)[1:]
    found = Translator(model, tokenizer, decoding, others=[model]).translate_window(lines, details=DETAILS)
    check(lines, found)


def well_formed(chance: random.Random, depth: int = 0) -> str:
    """Words, placeholders and marks with pairs of tags around some of them, and around these."""
    parts = []
    for _ in range(chance.choice([1, 1, 2, 3, 4])):
        kind = chance.random()
        if kind < 0.35 and depth < 4:
            tag, inside = chance.choice(["b", "i", "a", "ns:x", "span"]), well_formed(chance, depth + 1)
            attributes = chance.choice(["", "", ' href="a>b"', " title='</b>'"])
            parts.append(f"<{tag}{attributes}>{'' if chance.random() < 0.1 else inside}</{tag}>")
        elif kind < 0.42:
            parts.append(f"{{% if x > 1 %}}{well_formed(chance, depth + 1)}{{% endif %}}")
        else:
            parts.append(chance.choice([*WORDS, "{x}", "%s", "http://x.org/", "<br/>", "<!-- > -->", "&nbsp;", "."]))
        parts.append(chance.choice(["", " ", " ", ", "]))
    return "".join(parts).strip() or "a"


TAGS = re.compile(r"""<(/?)([a-z:]+)(?: (?:"[^"]*"|'[^']*'|[^"'<>])*)?(?<!/)>|\{% (end)?(if)[^%]*%\}""")


def is_well_formed(text: str) -> bool:
    open_tags: list[str] = []
    for match in TAGS.finditer(re.sub("<!--.*?-->", "", text)):
        if not (match[1] or match[3]):
            open_tags.append(match[2] or match[4])
        elif not open_tags or open_tags.pop() != (match[2] or match[4]):
            return False
    return not open_tags


@pytest.mark.parametrize(
    "changes", [{"beam_size": 1}, {"n_best": 3, "split_long": 4}, {"split": "sentences", "split_long": 2}]
)
def test_what_is_well_formed_stays_so(loaded: LoadedModel, changes: dict[str, Any]) -> None:
    """Also where the attention crosses, which random weights do, and where pairs are cut into parts."""
    chance = random.Random(5)
    lines = [well_formed(chance) for _ in range(100 if changes == {"beam_size": 1} else 30)]
    lines = [line for line in lines if count_placeholders(line)]
    lines += [
        "<b>a b c.</b>{x}",
        "a b {x}<b>c</b> d.",
        "a b http://x.de/<b>c.</b>",
        "{x}<b></b>",
        "w<b>or</b>d",
        "<b>" * 500 + "a" + "</b>" * 500,
    ]
    assert all(map(is_well_formed, lines))
    found = translator(loaded, **changes).translate_window(lines, details=("alignment",))
    check(lines, found)
    assert [
        line for line, one in zip(lines, found, strict=True) if not all(is_well_formed(h.text) for h in one.hypotheses)
    ] == []
