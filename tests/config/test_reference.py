"""The configuration reference is the one the code makes, and every key in it is explained."""

import re

from nmt.config.reference import decoding_markdown, markdown
from tests.conftest import REPOSITORY


def test_the_committed_reference_is_up_to_date():
    assert (REPOSITORY / "docs" / "configuration.md").read_text() == markdown()
    assert (REPOSITORY / "docs" / "decoding_options.md").read_text() == decoding_markdown()


def keys() -> list[tuple[str, str]]:
    """Each key of the page, with its meaning."""
    lines = [line for line in markdown().split("\n") if line.startswith("- `")]
    found = [re.fullmatch(r"- ((?:`\w+(?:=[^`]*)?`\*?(?:, )?)+)(?: \(.*?\))?: (.*)", line) for line in lines]
    assert None not in found
    return [(key, match[2]) for match in found if match for key in re.findall(r"`(\w+)", match[1])]


def test_every_key_is_explained():
    assert len(keys()) > 200
    assert [key for key, meaning in keys() if not meaning.strip()] == []


def test_only_seeds_are_described_as_seeds():
    assert {key for key, meaning in keys() if meaning.startswith("Seed of")} == {"seed"}
