"""How models start: every bundled configuration at full size, and what users are told of a bad start."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.classification.model import FIRST_LABEL, Texts
from nmt.config import load_config
from nmt.config.load import bundled_names
from nmt.doubts import training as doubts
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.tagging.model import Sentences
from tests.tiny_training import events, nmt_train, write_config, write_corpus

VOCABULARY = 1000
LENGTHS = (5, 20, 80)
MOST_SPREAD = 1000.0


def sentences(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    """Random sentences of so many words, the end symbol counted."""
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = torch.randint(3, VOCABULARY, (length - 1,))
        ids[row, length - 1] = 2
    return ids


def start_of(name: str, *overrides: str, lengths: tuple[int, ...] = LENGTHS) -> doubts.Health:
    """The health of a bundled configuration's model at its first batch."""
    config = load_config(name, overrides)
    torch.manual_seed(1)
    model = build_model(config.model, VOCABULARY, VOCABULARY)
    source, target = sentences(lengths), sentences(lengths)
    smoothing, normalization = config.training.label_smoothing, config.training.normalization
    model.loss(source, target, label_smoothing=smoothing, normalization=normalization).backward()
    return doubts.inspect(model, source, target)


def assert_healthy(found: doubts.Health) -> None:
    assert found.grad_norm < doubts.MOST_NORM
    assert max(found.norms.values()) < MOST_SPREAD * min(found.norms.values())
    assert max(found.saturated.values()) <= doubts.MOST_SATURATED
    assert found.problems() == []


FULL_SIZE = [name for name in bundled_names() if name.startswith("wmt14_")]
TAGGERS = ["conll2003_lrn.yaml", "sxu_atr.yaml"]
LANGUAGE_MODELS = [name for name in bundled_names() if name.startswith(("ptb_", "wikitext2_"))]
CLASSIFIERS = [name for name in bundled_names() if name.startswith("snli_")]
OTHERS = (*FULL_SIZE, *TAGGERS, *LANGUAGE_MODELS, *CLASSIFIERS)


@pytest.mark.parametrize("name", [name for name in bundled_names() if name not in OTHERS])
def test_bundled_configurations_start_healthy(name: str) -> None:
    assert_healthy(start_of(name))


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_bundled_language_models_start_healthy(name: str) -> None:
    torch.manual_seed(1)
    model: Any = build_model(load_config(name).model, VOCABULARY, VOCABULARY)
    source, target = sentences(), sentences()
    weights = (target != 0) / (target != 0).sum()
    model.losses(model.run(source).features, target, weights=weights).total.backward()
    assert_healthy(doubts.inspect(model, source, target))


@pytest.mark.parametrize("name", TAGGERS)
def test_bundled_taggers_start_healthy(name: str) -> None:
    config = load_config(name)
    torch.manual_seed(1)
    is_segmentation = config.task == "segmentation"
    model: Any = build_model(config.model, VOCABULARY, 20, *((0, VOCABULARY) if is_segmentation else (VOCABULARY, 0)))
    words, labels = sentences(LENGTHS), sentences(LENGTHS).clamp(max=19)
    labels = torch.where(words != 0, labels.clamp(min=3), 0)
    read = Sentences(words, bigrams=words) if is_segmentation else Sentences(words, words, sentences((5,) * VOCABULARY))
    (model.losses(read, labels).sum() / (labels != 0).sum()).backward()
    found = doubts.inspect(model, read, labels)  # type: ignore[arg-type]
    assert_healthy(found)
    assert "output" in found.norms


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_bundled_classifiers_start_healthy(name: str) -> None:
    torch.manual_seed(1)
    model: Any = build_model(load_config(name).model, VOCABULARY, VOCABULARY)
    texts = Texts(sentences(LENGTHS), sentences(tuple(reversed(LENGTHS))))
    labels = torch.arange(len(LENGTHS)).unsqueeze(1) % 3 + FIRST_LABEL
    F.cross_entropy(model.scores(texts), labels[:, 0] - FIRST_LABEL).backward()
    found = doubts.inspect(model, texts, labels)  # type: ignore[arg-type]
    assert_healthy(found)
    assert set(found.norms) == {"words", "comparison", "attention of comparison", "towers", "output"}


@pytest.mark.parametrize("unit", ["atr", "gru", "lrn", "lstm", "olrn", "sru"])
def test_attention_has_its_part_of_the_first_gradient(unit: str) -> None:
    """With the default `init_range` it is a quarter of that, and attention takes off late: docs/distillation.md."""
    found = start_of(f"multi30k_{unit}.yaml")
    assert found.norms["attention of decoder layer 1"] > 0.01 * found.grad_norm


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL_SIZE)
def test_bundled_configurations_of_full_size_start_healthy(name: str) -> None:
    assert_healthy(start_of(name))


@pytest.mark.parametrize("name", ["wmt14_atr.yaml", "wmt14_lstm.yaml"])
def test_bundled_configurations_of_full_depth_start_healthy(name: str) -> None:
    """At an eighth of the width, the unit that explodes without layer norm and the one that explodes with it."""
    assert_healthy(start_of(name, "model.hidden_size=128", "model.embedding_size=128"))


def test_the_parts_are_all_there() -> None:
    found = start_of(
        "wmt14_lstm.yaml", *(f"model.{key}=16" for key in ("hidden_size", "embedding_size")), lengths=(3, 5)
    )
    layers = {f"{side} layer {number}" for side in ("encoder", "decoder") for number in range(1, 7)}
    others = {"attention of decoder layer 1", "readout"}
    assert set(found.norms) == layers | others | {"source table", "target table", "initial states"}
    assert set(found.saturated) == layers | others


def deep(**settings: object) -> list[str]:
    values = {"cell": "atr", "hidden_size": 64, "embedding_size": 64, "encoder_layers": 6, "decoder_layers": 6}
    return [f"model.{key}={value}" for key, value in {**values, **settings}.items()]


def test_a_deep_model_without_layer_norm_is_named_as_saturated() -> None:
    found = start_of("multi30k_atr.yaml", *deep(init_range=0.32, tie_embeddings="none"), lengths=(20,))
    (problem,) = found.problems()
    assert "saturated" in problem and "readout 100%" in problem and "model.layer_norm: true" in problem


@pytest.mark.parametrize("large", [4.6e22, math.inf, math.nan])
def test_an_exploded_start_names_the_largest_parts(large: float) -> None:
    norms = {"source table": 1.0, "encoder layer 1": large, "readout": 2.0}
    (problem,) = doubts.Health(large, norms, {}).problems()
    assert f"is {large:.3g}" in problem and f"encoder layer 1 {large:.3g}, readout 2" in problem


def test_saturation_counts_the_values_of_tanh_and_sigmoid() -> None:
    """Against the readout computed by hand, and gates that are open whatever the input."""
    config = load_config("multi30k_gru.yaml", deep(cell="gru", init_range=0.5, encoder_layers=1, decoder_layers=1))
    torch.manual_seed(1)
    model = build_model(config.model, VOCABULARY, VOCABULARY).eval()
    source, target = sentences(), sentences()
    features = features_of(model, source, target)
    expected = float((features.abs() > doubts.SATURATED).double().mean())
    assert doubts.saturation(model, source, target)["readout"] == pytest.approx(expected, abs=1e-3)
    assert 0.01 < expected < 0.99
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("decoder.layers") and name.endswith("recurrent_bias"):
                parameter.fill_(100.0)  # both gates, two of three values of the unit
    assert doubts.saturation(model, source, target)["decoder layer 1"] >= 2 / 3


def features_of(model: Seq2Seq, source: Tensor, target: Tensor) -> Tensor:
    words = (target != 0).flatten().nonzero().squeeze(1)
    with torch.no_grad():
        return model.word_features(source, target, words=words, tight=False)


def test_looking_changes_nothing() -> None:
    config = load_config("multi30k_lrn.yaml", deep(cell="lrn", encoder_layers=1, decoder_layers=1))
    torch.manual_seed(1)
    model = build_model(config.model, VOCABULARY, VOCABULARY).train()
    source, target = sentences(), sentences()
    state, methods = torch.get_rng_state(), [vars(module).keys() for module in model.modules()]
    doubts.saturation(model, source, target)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert [vars(module).keys() for module in model.modules()] == methods


def test_training_reports_the_start_with_the_norm_before_clipping(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path, training={"max_steps": 2, "clip_norm": 1e-3, "log_every": 1})) == 0
    run = tmp_path / "run"
    (start,) = events(run, kinds=("health",))
    first = events(run, kinds=("train",))[0]
    assert start["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5)
    assert math.sqrt(sum(norm**2 for norm in start["norms"].values())) == pytest.approx(start["grad_norm"], rel=1e-5)
    assert "start: gradient norm" in (run / "train.log").read_text()
