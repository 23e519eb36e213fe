"""Decoding settings of a model with a user's in their place: what goes together, and what is said of what does not."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config.changed import changed_decoding
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
