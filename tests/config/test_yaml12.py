"""Scalars, repeated keys and errors of the YAML reader, and a writer that it reads without loss."""

import enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.config.yaml12 import read_yaml, write_yaml
from nmt.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 5e-4),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-2.", -2.0),
        ("no", "no"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("012", 12),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("null", None),
        ("~", None),
        ("'4'", "4"),
        ("[1, 2]", [1, 2]),
        ("{a: {b: no}}", {"a": {"b": "no"}}),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    parsed = read_yaml(text, origin="x").value
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system [echo]", "x.yaml: line 1: tags such as tag:yaml.org"),
        ("a: [1, 2", "x.yaml: line 1"),
        ("a: b: c", "x.yaml: line 1"),
        ("? [1]\n: 2", "a key must be plain text"),
        ("a: \x00", "x.yaml"),
        ("--- 1\n--- 2", "x.yaml: line 2"),
    ],
)
def test_errors_name_the_file_and_the_line(text, message):
    with pytest.raises(ConfigError) as error:
        read_yaml(text, origin="x.yaml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


ODD = [
    *("3e-4", "08", "0o7", "0x1f", "1_000", "1:30", "+1", "-.5", "1.", ".inf", ".nan", "1e5", "-0", "2020-01-01"),
    *(
        "~",
        "null",
        "Null",
        "yes",
        "no",
        "on",
        "TRUE",
        "false",
        "=",
        "<<",
        "",
        " ",
        " a",
        "a ",
        "\t",
        "\n",
        "a\n",
        "\na",
    ),
    *(
        "\r",
        "a\r\nb",
        "\x85",
        "a\x85b",
        "\u2028",
        "a\u2029b",
        "\ufeff",
        "\xa0",
        "\x1b",
        "\x7f",
        "\x80",
        "\ufffe",
        "\uffff",
    ),
    *(
        "-",
        "- a",
        "?",
        ":",
        "a: b",
        "a:",
        "#",
        "a #b",
        "---",
        "...",
        "---\n",
        "%YAML",
        "!a",
        "&a",
        "*a",
        "|",
        ">",
        "@",
        "`",
    ),
    *("{", "[", "]", ",", '"', "'", "''", "\\", "a b " * 60, "x" * 3000, "\U0001f600", "é", "'\n a", "a\n\n b"),
]
TEXT = st.one_of(
    st.sampled_from(ODD),
    st.lists(st.sampled_from(ODD), max_size=4).map("".join),
    st.from_regex(r"[-+]?[0-9_.]{0,4}[eE:xo]?[-+]?[0-9]{0,3}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
LEAF = st.one_of(TEXT, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_text_is_read_as_it_was_written(text):
    written = {"plain": text, text: text, "list": [text, {"in": text}]}
    assert read_yaml(write_yaml(written), origin="x").value == written


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(VALUE)
def test_anything_is_read_as_it_was_written(value):
    again = read_yaml(write_yaml({"key": value}), origin="x").value
    assert repr(again) == repr({"key": value})  # which tells 1 from 1.0 and True


def test_only_what_needs_quotes_has_them():
    written = write_yaml({"a": "no", "b": "runs/first", "c": "3e-4", "d": (1, 2.5e-5), "e": "1_000", "f": None})
    assert written == "a: no\nb: runs/first\nc: '3e-4'\nd:\n- 1\n- 2.5e-05\ne: 1_000\nf: null\n"
    shared = [1]
    assert write_yaml([shared, shared]) == "- - 1\n- - 1\n"


class Unit(enum.Enum):
    GRU = 1


@pytest.mark.parametrize("value", ["a\0b", "\udcff.py", Unit.GRU, b"a", object()])
def test_what_no_document_can_hold(value):
    with pytest.raises(ConfigError, match="cannot be saved in a configuration") as error:
        write_yaml({"key": [value]})
    assert str(error.value).isprintable()


def test_places_and_repeated_keys():
    document = read_yaml("a: 1\nm: {x: 1, x: 2}\nl:\n  - u\n  - {v: 1}\na: 3\n1: 2\n", origin="x.yaml")
    assert document.value == {"a": 1, "m": {"x": 1}, "l": ["u", {"v": 1}], "1": 2}
    assert document.lines == {"a": 1, "m": 2, "m.x": 2, "l": 3, "l.0": 4, "l.1": 5, "l.1.v": 5, "1": 7}
    assert document.repeated == [
        ("m.x", "is given twice, both in line 2; keep one of them"),
        ("a", "is given twice, in lines 1 and 6; keep one of them"),
    ]


def test_an_integer_that_python_does_not_read_is_text():
    assert read_yaml("9" * 5000, origin="x").value == "9" * 5000
