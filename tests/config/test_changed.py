"""Decoding settings of a model with a user's in their place: what goes together, and what is said of what does not."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config.options import changed_decoding
from nmt.config.schema import DecodingConfig
from nmt.errors import ConfigError

SAVED = DecodingConfig(beam_size=4, n_best=3, length_penalty=0.5)


def test_a_smaller_beam_has_fewer_translations_and_the_rest_stays() -> None:
    found = changed_decoding(SAVED, {"beam_size": 2})
    assert (found.beam_size, found.n_best, found.length_penalty) == (2, 2, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 0}, "beam-size: 0 must be greater than 0"),
        ({"beam_size": "4"}, "beam-size: '4' is not an integer; leave out the quotes"),
        ({"beamsize": 4}, "beamsize: unknown key. Did you mean 'beam_size'?"),
        ({"search": "beem"}, "search: 'beem' is not a known search. Did you mean 'beam'?"),
        ({"precision": "fp8", "batch_tokens": 0}, "precision: 'fp8' is not allowed."),
        ({"precision": "fp8", "batch_tokens": 0}, "batch-tokens: 0 must be greater than 0"),
    ],
)
def test_what_is_not_allowed_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed_decoding(SAVED, changes, option=lambda name: name.replace("_", "-"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_another_search_are_not_those_that_were_saved() -> None:
    saved = DecodingConfig(search="beam", search_options={"width": 3})
    assert changed_decoding(saved, {"search": "greedy", "beam_size": 1}).search_options == {}
    assert changed_decoding(saved, {"beam_size": 2}).search_options == {"width": 3}


def test_without_its_language_model_a_saved_weight_is_gone_too() -> None:
    saved = DecodingConfig(language_model="runs/lm", language_model_weight=0.3)
    found = changed_decoding(saved, {"language_model": None})
    assert (found.language_model, found.language_model_weight) == (None, None)
    assert changed_decoding(saved, {"language_model": "runs/other"}).language_model_weight == 0.3


def test_more_translations_than_the_beam_holds_widen_it_and_that_is_said() -> None:
    said: list[str] = []
    assert changed_decoding(SAVED, {"n_best": 4}, say=said.append).beam_size == 4
    assert not said
    found = changed_decoding(SAVED, {"n_best": 7}, option=lambda name: f"--{name}", say=said.append)
    assert (found.beam_size, found.n_best) == (7, 7)
    assert said == ["--n_best 7 widens the beam from 4 to 7"]
    found = changed_decoding(SAVED, {"n_best": 7, "beam_size": 1})
    assert (found.beam_size, found.chosen_search) == (7, "beam"), "where nobody asks for greedy search by name"
    found = changed_decoding(SAVED, {"n_best": 7, "search": "diverse_beam", "search_options": {"groups": 3}})
    assert (found.beam_size, found.n_best) == (9, 7), "three groups share it"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_best": 2, "beam_size": 1, "search": "greedy"}, "n_best 2: search 'greedy' finds at most 1 per sentence"),
        ({"n_best": 10001}, "n_best 10001: search 'beam' finds at most 10000 per sentence"),
    ],
)
def test_more_translations_than_a_search_ever_finds(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed_decoding(SAVED, changes)
