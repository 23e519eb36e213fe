"""Texts with labels: columns and JSON, what is left out, what is malformed, and the corpus of ids."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.classification.records import Layout, encode, read_records
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import DataError

LABELS = ["yes", "no"]


def layout(
    form: Any = "tsv", texts: Any = ("a", "b"), label: Any = "label", *, header: bool = True, **more: Any
) -> Layout:
    joined = [[own] if isinstance(own, str | int) else own for own in texts]
    return Layout(form=form, texts=joined, label=label, header=header, **more)


def read(file: Path, chosen: Layout) -> Any:
    return read_records([file], chosen, labels=LABELS, no_label="-")


def write(folder: Path, text: str, name: str = "text.tsv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    rows = "label\tid\ta\tb\nyes\t1\tone \u2028text\t\n\nno\t2\tA\"\tb b\n-\t3\tx\ty\n \t\nyes\t4\t\t'c\n"
    found = read(write(tmp_path, rows), layout())
    assert found.unlabelled == 1 and found.blank == 2
    assert [record.texts for record in found.records] == [("one \u2028text", ""), ('A"', "b b"), ("", "'c")]
    assert [(record.label, record.line) for record in found.records] == [("yes", 2), ("no", 4), ("yes", 7)]
    body = rows.partition("\n")[2]
    numbered = layout(texts=(3, -1), label=1, header=False)
    again = read(write(tmp_path, body), numbered)
    assert [record.texts for record in again.records] == [record.texts for record in found.records]
    one = read(write(tmp_path, rows), layout(texts=("b",), lowercase=True))
    assert [record.texts for record in one.records] == [("",), ("b b",), ("'c",)]


def test_csv_with_quotes_and_several_lines(tmp_path: Path) -> None:
    rows = [
        '"yes","Wall St., again","one ""two"" three\\nfour"',
        "",
        'no,plain 5" text,"first',
        'second, third"',
        '-,"x","y"',
        '"yes","","last"',
    ]
    file = write(tmp_path, "\n".join(rows) + "\n", "text.csv")
    chosen = layout("csv", texts=[(2, 3)], label=1, header=False, escaped=True)
    found = read(file, chosen)
    assert [record.texts for record in found.records] == [
        ('Wall St., again one "two" three four',),
        ('plain 5" text first second, third',),
        (" last",),
    ]
    assert [(record.line, record.lines) for record in found.records] == [(1, 1), (3, 2), (6, 1)]
    assert (found.unlabelled, found.blank) == (1, 1)
    apart = read(file, layout("csv", texts=(2, -1), label=1, header=False)).records
    assert apart[0].texts == ("Wall St., again", r'one "two" three\nfour')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('yes,a\nno,"b\nc\n', "line 2: a quotation mark is opened here and never closed"),
        ('yes,a\nno,"b" c\n', "line 2: not CSV (',' expected after '\"')"),
        ("yes,a\n\nno,b,c\n", "line 3: 3 columns, but line 1 has 2"),
        ("yes,a\nno\n", "line 2: 1 column, and no column 2"),
        ('yes,"a\nb"\nmaybe,b\n', "line 3: 'maybe' is not a label"),
    ],
)
def test_malformed_csv_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text, "text.csv")
    with pytest.raises(DataError, match=re.escape(f"{file}, {said}")):
        read(file, layout("csv", texts=(2,), label=1, header=False))


def test_json_lines_packed(tmp_path: Path) -> None:
    rows = [{"a": "One\nmore", "b": "x", "label": "yes", "n": [1]}, {"a": "", "b": "\u00e9", "label": "-"}]
    file = tmp_path / "text.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.write("\n".join(map(json.dumps, rows)) + "\n\n")
    found = read(file, layout("json", header=False, lowercase=True))
    assert [record.texts for record in found.records] == [("one more", "x")]
    assert found.unlabelled == 1 and found.blank == 1


def test_labels_of_json_may_be_whole_numbers(tmp_path: Path) -> None:
    file = write(tmp_path, '{"a": "x", "label": 0}\n{"a": "y", "label": -1}\n')
    found = read_records([file], layout("json", texts=("a",)), labels=["0", "1"], no_label="-1")
    assert [record.label for record in found.records] == ["0"] and found.unlabelled == 1


def test_parses_are_read_as_their_words() -> None:
    text = layout(parses=True).text("( ( A ( man ) ) ( runs . ) )")
    assert text == "A man runs ."


@pytest.mark.parametrize(
    ("rows", "chosen", "said"),
    [
        ("label\ta\nyes\tx\n", layout(), "line 1: no column is named 'b'; the columns are 'label', 'a'"),
        ("label\ta\tb\nyes\tx\n", layout(), "line 2: 2 columns, and no column 'b'"),
        ("label\ta\tb\nyes\tx\ty\tz\n", layout(), "line 2: 4 columns, but line 1 has 3"),
        ("label\ta\tb\nmaybe\tx\ty\n", layout(), "line 2: 'maybe' is not a label. Allowed: yes, no, or - for none."),
        ("yes\tx\n", layout(texts=(2, 3), label=1, header=False), "line 1: 2 columns, and no column 3"),
        ("{", layout("json"), "line 1: not JSON (Expecting property name"),
        ("[1]", layout("json"), "line 1: not a JSON object"),
        ("\n[" + "[" * 100_000, layout("json"), "line 2: not JSON (too deep, or a number of thousands of"),
        ('{"a": ' + "1" * 5000 + "}", layout("json"), "line 1: not JSON (too deep, or a number of thousands of"),
        ("label\ta\tb\ta\nyes\tx\ty\tz\n", layout(), "line 1: 2 columns are named 'a'; choose one by its number"),
        ('{"a": "x", "label": "yes"}', layout("json"), "line 1: no key 'b'; the keys are 'a', 'label'"),
        ('{"a": "x", "b": null, "label": "yes"}', layout("json"), "line 1: 'b' is None. Allowed: text, or a whole"),
        ('{"a": "x", "b": "y", "label": true}', layout("json"), "line 1: 'label' is True. Allowed: text, or a whole"),
        ('{"a": "x\\ud800", "b": "y", "label": "yes"}', layout("json"), "line 1: 'a' is not text: it has half of a"),
        ('{"a": "x", "b": "y", "label": "YES"}', layout("json"), "line 1: 'YES' is not a label. Allowed: yes, no"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, rows: str, chosen: Layout, said: str) -> None:
    file = write(tmp_path, rows)
    with pytest.raises(DataError) as error:
        read(file, chosen)
    assert str(error.value).startswith(f"{file}, {said}")


def test_a_corpus_has_the_end_of_each_text(tmp_path: Path) -> None:
    file = write(tmp_path, "x y z\n")
    options = WhitespaceOptions(joint=True)
    tokenizer = WhitespaceTokenizer.train([], [file], options=options, seed=1)
    corpus = encode([("x y", ""), ("", "z ? x")], [1, 2], tokenizer)
    assert corpus.source_lengths.tolist() == [3, 1] and corpus.target_lengths.tolist() == [1, 4]
    assert corpus.texts[1].padded(np.array([0, 1])).tolist() == [[2, 0, 0, 0], [5, 1, 3, 2]]
    assert corpus.padded_target(np.array([1, 0])).tolist() == [[2], [1]]
    assert corpus.tokens == 5 and corpus.unknown == 1
    lengths, labels = corpus.lengths(np.array([1]))
    assert (lengths.tolist(), labels.tolist()) == ([5], [1])
    assert corpus.key != encode([("x y", ""), ("", "z ? x")], [1, 1], tokenizer).key
    assert encode([("x",)], [1], tokenizer).target_lengths.tolist() == [0]
