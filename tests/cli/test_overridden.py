"""Decoding options of a command line in the place of those that were saved with the model."""

from __future__ import annotations

import dataclasses

import pytest

from nmt.cli.arguments import overridden, worded
from nmt.cli.translate import build_parser
from nmt.config.schema import DecodingConfig
from nmt.errors import SettingError
from nmt.search.base import build_search

SAVED = DecodingConfig(beam_size=4, n_best=3, length_penalty=0.5)


def given(*arguments: str) -> DecodingConfig:
    return overridden(SAVED, build_parser().parse_args(["model", *arguments]))


def test_a_beam_smaller_than_the_saved_number_of_translations_gives_as_many_as_it_has() -> None:
    assert given("--beam-size", "2").n_best == 2
    assert given("--beam-size", "3").n_best == 3
    assert given("--beam-size", "4", "--n-best", "1").n_best == 1


def test_what_is_not_given_stays() -> None:
    assert given() == SAVED
    assert given("--length-penalty", "1").length_penalty == 1.0


def test_the_weight_goes_with_the_language_model_that_it_was_for() -> None:
    saved = dataclasses.replace(SAVED, language_model="lm", language_model_weight=0.3)
    parser = build_parser()
    none, other = (
        overridden(saved, parser.parse_args(["model", *arguments]))
        for arguments in (["--language-model", "none"], ["--language-model", "other"])
    )
    assert (none.language_model, none.language_model_weight) == (None, None)
    assert (other.language_model, other.language_model_weight) == ("other", 0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-length", "9", "--max-length-offset", "8"], "--min-length: 9 must not exceed 8, which max_length"),
        (["--max-length-offset", "2"], "decoding.min_length: 3 must not exceed 2, which max_length_offset"),
        (["--search", "sample"], "decoding.coverage_penalty: 'sample' has none"),
        (["--search", "sample", "--coverage-penalty", "2"], "--coverage-penalty: 'sample' has none"),
        (["--search-option", "topp=1"], "--search-option topp: unknown key"),
    ],
)
def test_a_mistake_names_the_option_that_was_given_or_the_key_that_was_saved(options: list[str], message: str) -> None:
    saved = dataclasses.replace(SAVED, min_length=3, coverage_penalty=0.0 if "topp=1" in options else 1.0)
    arguments = build_parser().parse_args(["model", *options])
    with pytest.raises(SettingError) as caught:
        build_search(overridden(saved, arguments))
    assert message in worded(caught.value, arguments)
