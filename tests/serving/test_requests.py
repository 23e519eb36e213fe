"""Bodies of requests: what is read from them, and the one line that each mistake gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

import nmt
from nmt.light.options import options_of
from nmt.serving.limits import RefusedError, Settings
from nmt.serving.requests import TERMS, TranslateRequest, read_request

SETTINGS = Settings(max_characters=100, max_queue=3, max_beam_size=8, timeout=20)
KEYS = ", ".join(["text", *(option.name for option in options_of("server")), "max_seconds"])


def read(body: Any, content_type: str = "application/json") -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(raw, content_type, SETTINGS)


def refusal(body: Any, content_type: str = "application/json") -> RefusedError:
    with pytest.raises(RefusedError) as raised:
        read(body, content_type)
    assert "\n" not in raised.value.message
    return raised.value


def test_a_string_is_a_sentence_and_wishes_are_those_of_each() -> None:
    assert read({"text": "a b"}).sentences() == [nmt.Request("a b")]
    wanted = read({"text": ["a", ""], "prefix": "x", "required": "y", "forbidden": ["z", "u"], "max_seconds": 3})
    assert wanted.sentences() == [
        nmt.Request(text, prefix="x", required=("y",), forbidden=("z", "u")) for text in ("a", "")
    ]
    assert wanted.options() == {}
    assert wanted.max_seconds == 3


def test_options_are_those_that_were_given() -> None:
    given = {"n_best": 2, "beam_size": 3, "length_penalty": 1, "details": ["tokens"], "replace_unknown": False}
    assert read({"text": "a", **given, "coverage_penalty": None}).options() == given


def test_a_glossary_has_terms_and_none_switches_the_servers_off() -> None:
    assert read({"text": "a", "glossary": {"#a b": "x  y", "c": "="}}).options() == {
        "glossary": {"#a b": "x  y", "c": "="}
    }
    assert read({"text": "a", "glossary": {}}).options() == {"glossary": "none"}


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_its_content_type_is_json(kind: str) -> None:
    assert read({"text": "a"}, kind).text == "a"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_other_content_types_are_refused(kind: str) -> None:
    error = refusal({"text": "a"}, kind)
    assert (error.status, error.message) == (
        415,
        f"Content-Type: {kind!r} is not allowed. Allowed: application/json.",
    )


TEXT = "a string, or a list of one string or more"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: is not JSON: Expecting value (line 1, column 1). Allowed: a JSON object."),
        (b"\xff", "body: is not UTF-8 (byte 0). Allowed: a JSON object in UTF-8."),
        (b'{"text": "a"', "body: is not JSON: Expecting ',' delimiter (line 1, column 13). Allowed: a JSON object."),
        (b'{"text": "a", "text": "b"}', "text: is given twice. Allowed: once."),
        (rb'{"\ud800": 1, "text": "a"}', f"\\ud800: unknown key. Allowed: {KEYS}."),
        (b'{"text": "a", "length_penalty": NaN}', "body: NaN is not JSON. Allowed: a JSON object with the key text."),
        (b'{"text": ' * 100_000, "body: is nested too deeply. Allowed: a JSON object with the key text."),
        (
            b'{"text": "a", "n_best": ' + b"1" * 10_000 + b"}",
            "body: holds a number that is too long. Allowed: a JSON object with the key text.",
        ),
        (
            b'{"text": "a", "x": [' + b"[]," * 200 + b"[]]}",
            "body: holds lists in lists. Allowed: a JSON object with the key text.",
        ),
        (
            b'{"text": [' + b"{}," * 20 + b"{}]}",
            "body: holds objects in objects. Allowed: one JSON object with the key text.",
        ),
        ({"text": "a", "required": [0] * 101}, "required: a list of 101 is too long. Allowed: 100."),
        ({"text": "a", "details": ["tokens"] * 65}, "details: a list of 65 is too long. Allowed: 64."),
        (
            {"text": [[1] * 40]},
            f"text[0]: [{'1, ' * 19}1, ... is not allowed. Allowed: {TEXT}.",
        ),
        ({"text": "a", "k" * 900: 0}, f"{'k' * 40} ... {'k' * 10}: unknown key. Allowed: {KEYS}."),
        (
            b'{"text": "a", "n_best": ' + b"9" * 100 + b"}",
            f"n_best: 9{',999' * 9},99 ... 99,999,999 is not allowed. Allowed: 1 to 8.",
        ),
        ([], "body: [] is not allowed. Allowed: a JSON object with the key text."),
        ("a", 'body: "a" is not allowed. Allowed: a JSON object with the key text.'),
        ({}, f"text: missing. Allowed: {TEXT}."),
        ({"text": None}, f"text: null is not allowed. Allowed: {TEXT}."),
        ({"text": []}, f"text: [] is not allowed. Allowed: {TEXT}."),
        ({"text": ["a", 5]}, f"text[1]: 5 is not allowed. Allowed: {TEXT}."),
        ({"txt": "a"}, f"txt: unknown key. Did you mean 'text'? Allowed: {KEYS}."),
        ({"text": "a", "beam-size": 3}, f"beam-size: unknown key. Did you mean 'beam_size'? Allowed: {KEYS}."),
        ({"text": "a", "\n\x1b": 3}, f"\\n\\x1b: unknown key. Allowed: {KEYS}."),
        (
            {"text": "a", "shortlist": "/etc/passwd"},
            f"shortlist: a request cannot set it; nmt-serve has --shortlist. Allowed: {KEYS}.",
        ),
        ({"text": "a", "threads": 2}, f"threads: a request cannot set it. Allowed: {KEYS}."),
        ({"text": "a", "n_best": True}, "n_best: true is not allowed. Allowed: a whole number from 1."),
        ({"text": "a", "n_best": 2.0}, "n_best: 2.0 is not allowed. Allowed: a whole number from 1."),
        ({"text": "a", "n_best": 9}, "n_best: 9 is not allowed. Allowed: 1 to 8."),
        ({"text": "a", "beam_size": 10**9}, "beam_size: 1,000,000,000 is not allowed. Allowed: 1 to 8."),
        ({"text": "a", "length_penalty": "1"}, 'length_penalty: "1" is not allowed. Allowed: a number from 0 to 10.'),
        ({"text": "a", "length_penalty": -1}, "length_penalty: -1 is not allowed. Allowed: a number from 0 to 10."),
        (
            {"text": "a", "required": ["b", ""]},
            'required[1]: "" is not allowed. Allowed: a string that is not empty, or a list of such strings.',
        ),
        ({"text": "a", "max_seconds": 21}, "max_seconds: 21 is not allowed. Allowed: at most 20."),
        ({"text": "a", "max_seconds": 0}, "max_seconds: 0 is not allowed. Allowed: a number above 0."),
        ({"text": "a", "glossary": "/etc/passwd"}, f'glossary: "/etc/passwd" is not allowed. Allowed: {TERMS[1]}.'),
        ({"text": "a", "glossary": {"b": "c", "d": 5}}, f'glossary: 5 for "d" is not allowed. Allowed: {TERMS[1]}.'),
        ({"text": "a", "glossary": {"b": " "}}, f'glossary: " " for "b" is not allowed. Allowed: {TERMS[1]}.'),
        ({"text": "a", "glossary": {"\t": "b"}}, f'glossary: "b" for "\\t" is not allowed. Allowed: {TERMS[1]}.'),
        (b'{"text": "a", "glossary": {"b": "c", "b": "d"}}', "b: is given twice. Allowed: once."),
        (
            {"text": "a", "glossary": dict.fromkeys(map(str, range(1001)), "x")},
            "glossary: 1,001 terms are too many. Allowed: 1,000.",
        ),
        (
            rb'{"text": "a", "glossary": {"b": "c", "d\ud800": "e"}}',
            'glossary: "d\\ud800": holds half of a surrogate pair, which is not text. Allowed: Unicode text.',
        ),
        ({"text": "a", "glossary": {"b" * 60: "c" * 40}}, "text: 101 characters are too many. Allowed: 100."),
        ({"text": "a" * 101}, "text: 101 characters are too many. Allowed: 100."),
        ({"text": ["a" * 50], "prefix": "b" * 51}, "text: 101 characters are too many. Allowed: 100."),
        ({"text": ["a"] * 4}, "text: 4 sentences are too many. Allowed: 3."),
        (
            {"text": ["a", "\ud800"]},
            "text[1]: holds half of a surrogate pair, which is not text. Allowed: Unicode text.",
        ),
        (
            {"text": "a", "prefix": "\udfff"},
            "prefix: holds half of a surrogate pair, which is not text. Allowed: Unicode text.",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_key_and_what_is_allowed(body: Any, message: str) -> None:
    error = refusal(body)
    assert (error.status, error.message) == (400, message)


def test_all_limits_are_allowed_themselves() -> None:
    read({"text": ["a" * 98, "b", "c"], "n_best": 8, "beam_size": 8, "max_seconds": 20, "length_penalty": 10})


@pytest.mark.parametrize("item", [0, None, []])
@pytest.mark.parametrize("name", ["text", "required", "details"])
def test_of_a_long_list_only_the_first_mistake_is_described(name: str, item: object) -> None:
    with pytest.raises(ValidationError) as raised:
        TranslateRequest.model_validate({"text": "a", name: [item] * 1000})
    assert raised.value.error_count() <= 2  # one for each form that a value may have


def test_a_long_value_is_shown_in_part() -> None:
    assert len(refusal({"text": "a", "n_best": "x" * 5000}).message) < 150
