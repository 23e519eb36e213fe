"""Scalars, repeated keys and errors of the YAML reader."""

import pytest

from nmt.config.yaml12 import parse_yaml
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
    parsed = parse_yaml(text, origin="x")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "x.yaml: line 3: key 'a' stands twice, in lines 1 and 3"),
        ("m:\n  c: 1\n  c: 2", "x.yaml: line 3: key 'c' stands twice"),
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
        parse_yaml(text, origin="x.yaml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
