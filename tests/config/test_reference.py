"""The configuration reference is the one the code makes, and every key in it is explained."""

from nmt.config.reference import decoding_markdown, markdown
from tests.conftest import REPOSITORY


def test_the_committed_reference_is_up_to_date():
    assert (REPOSITORY / "docs" / "configuration.md").read_text() == markdown()
    assert (REPOSITORY / "docs" / "decoding_options.md").read_text() == decoding_markdown()


def test_every_key_is_explained():
    rows = [line for line in markdown().split("\n") if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.split(" | ")[2].strip(" |") == ""] == []


def test_only_seeds_are_described_as_seeds():
    rows = [line for line in markdown().split("\n") if line.startswith("| `") and "Seed of" in line]
    assert {row.split("`")[1] for row in rows if row.split(" | ")[2].startswith("Seed of")} == {"seed"}
