"""Layers, heads and units as a command line names them."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.errors import ConfigError
from nmt.plotting.maps import named, of_heads, sharpest

LAYERS = ["encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0", "decoder.1.self", "decoder.1"]


def test_names_and_their_beginnings():
    for wanted, found in {
        ("decoder.1",): ["decoder.1"],
        ("decoder",): ["decoder.0", "decoder.1"],
        ("encoder",): ["encoder.0.self", "encoder.1.self"],
        ("decoder.0.self",): ["decoder.0.self"],
        ("decoder.1", "decoder"): ["decoder.1", "decoder.0"],
    }.items():
        assert named(wanted, LAYERS, option="--layer") == found
    units = ["encoder.0.forward", "encoder.0.backward", "encoder.10.forward"]
    assert named(["encoder.0"], units, option="--unit") == units[:2]
    assert named(["encoder.1"], ["encoder.10", "encoder.1"], option="--unit") == ["encoder.1"]


def test_unknown_names():
    with pytest.raises(ConfigError) as raised:
        named(["decodr.0"], ["decoder.0"], option="--layer")
    assert str(raised.value) == "--layer: 'decodr.0' is not known. Did you mean 'decoder.0'? Allowed: decoder.0."
    with pytest.raises(ConfigError, match="Allowed: none, because this model reports no attention"):
        named(["x"], [], option="--layer")


def test_the_sharpest_layer_is_of_those_that_attend_to_the_source():
    even, sharp = np.full((1, 2, 2), 0.5), np.eye(2)[None]
    opposite = np.stack([np.eye(2), np.eye(2)[::-1]])
    layers = {"encoder.0.self": sharp, "decoder.0": even, "decoder.1": (sharp + even) / 2, "decoder.2": opposite}
    assert sharpest(layers) == "decoder.1", "the mean of two sharp heads that disagree is even"
    with pytest.raises(ConfigError, match="no layer of this model reports its attention"):
        sharpest({"encoder.0.self": sharp})


def test_heads():
    weights = np.random.default_rng(1).random((3, 4, 5))
    titles, maps = of_heads("decoder.0", weights, "mean")
    assert titles == ["decoder.0, mean of 3 heads"] and np.array_equal(maps[0], weights.mean(0))
    titles, maps = of_heads("decoder.0", weights, "all")
    assert titles == [f"decoder.0, head {n}" for n in (1, 2, 3)] and np.array_equal(maps, weights)
    titles, maps = of_heads("decoder.0", weights, (3, 1))
    assert titles == ["decoder.0, head 3", "decoder.0, head 1"] and np.array_equal(maps, weights[[2, 0]])
    assert of_heads("decoder.0", weights[:1], "mean")[0] == ["decoder.0"]
    for number in (0, 4):
        with pytest.raises(ConfigError, match=f"--heads: decoder.0 has 3 heads; {number} is not one of them"):
            of_heads("decoder.0", weights, (1, number))
