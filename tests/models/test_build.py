"""Models from configurations: initialisation, checks, parameter counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from nmt.cells import Cell
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError
from nmt.models import DeepNMT, RNNSearch, build_model, parameters_by_part
from nmt.registry import CELLS, MODELS
from tests.models.parameters import count_parameters

PUBLISHED = {"gru": 206, "lstm": 254, "atr": 122, "sru": 170, "lrn": 143, "olrn": 164}


def deep(cell: str, **settings: Any) -> ModelConfig:
    sizes = {"hidden_size": 1024, "embedding_size": 1024, "encoder_layers": 6, "decoder_layers": 6}
    return ModelConfig(architecture="deepnmt", cell=cell, **{**sizes, "layer_norm": False, **settings})


def test_counts_equal_those_of_the_original(golden: Any) -> None:
    rows = golden("parameter_counts")[0]["rows"]
    assert len(rows) == 12
    for row in rows:
        count = count_parameters(deep(row["cell"], layer_norm=row["layer_norm"]), 27_000, 28_700)
        assert count - 1024 * 55_700 == row["non_embedding_parameters"], row["cell"]


@pytest.mark.parametrize(("cell", "millions"), PUBLISHED.items())
def test_counts_are_the_published_ones(cell: str, millions: int) -> None:
    assert count_parameters(deep(cell), 27_850, 27_850) / 1e6 == pytest.approx(millions, abs=0.6)


def test_counts_are_those_of_the_model_that_is_built() -> None:
    config = ModelConfig(hidden_size=8, embedding_size=6, tie_embeddings="all")
    model = build_model(config, 20, 20)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(config, 20, 20) == total == sum(parameters_by_part(model).values())
    assert list(parameters_by_part(model)) == ["embeddings", "encoder", "initial_states", "decoder", "readout"]
    assert parameters_by_part(model)["embeddings"] == 20 * 6 + 6


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch"])
@pytest.mark.parametrize("cell", ["gru", "lstm", "sru"])
def test_parameters_start_as_the_original_starts_them(architecture: str, cell: str) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        architecture=architecture,
        cell=cell,
        hidden_size=32,
        embedding_size=24,
        layer_norm=True,
        layer_norm_scale=1.0,
        init_range=0.3,
    )
    for name, parameter in build_model(config, 50, 60).named_parameters():
        kind = name.rpartition(".")[2].rpartition("_")[2]
        if kind in ("scale", "offset") or (kind == "bias" and name != "embeddings.bias"):
            assert (parameter == (kind == "scale")).all(), name
        else:
            assert 0.2 < parameter.abs().max() <= 0.3, name
            assert abs(parameter.mean()) < 0.1, name


@pytest.mark.parametrize("cell", ["atr", "gru", "lrn", "lstm", "olrn", "rnn"])
def test_all_scales_of_layer_norms_start_from_the_one_configured(cell: str) -> None:
    config = ModelConfig(cell=cell, hidden_size=8, embedding_size=6, layer_norm=True, layer_norm_scale=0.5)
    scales = [name for name, weight in build_model(config, 9, 9).named_parameters() if (weight == 0.5).all()]
    plain = build_model(dataclasses.replace(config, layer_norm_scale=1.0), 9, 9)
    assert scales == [name for name, weight in plain.named_parameters() if (weight == 1.0).all()]
    assert any("cell.input_scale" in name or "rnn.input_scale" in name for name in scales)


def test_the_seed_makes_the_model() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        model = build_model(ModelConfig(hidden_size=8, embedding_size=8), 9, 9)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_options_reach_the_units() -> None:
    config = ModelConfig(cell="atr", cell_options={"activation": "output"}, hidden_size=8, embedding_size=8)
    model = build_model(config, 9, 9)
    units = [module for module in model.modules() if hasattr(module, "recurrent_weight")]
    assert units and all(unit.options.activation == "output" for unit in units)
    outputs = model.encoder.layers[0](torch.randn(2, 3, 8) * 50, torch.ones(2, 3, dtype=torch.bool)).outputs
    assert outputs.abs().max() <= 1


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch"])
def test_encoder_and_decoder_are_built_of_their_own_units(architecture: str) -> None:
    layers = {} if architecture == "rnnsearch" else {"encoder_layers": 2, "decoder_layers": 3}
    units = {"cell": "sru", "encoder_cell": "lstm", "decoder_cell": "atr", "decoder_cell_options": {"gates": "coupled"}}
    model = build_model(
        ModelConfig(architecture=architecture, hidden_size=8, embedding_size=6, **units, **layers, layer_norm=True),
        *(9, 9),
    )
    for part, name in ((model.encoder, "lstm"), (model.decoder, "atr")):
        cells = [module for module in part.modules() if isinstance(module, Cell)]
        assert cells and {type(cell) for cell in cells} == {CELLS.get(name)}
        assert all(cell.layer_norm and cell.hidden_size == 8 for cell in cells)
        assert all(getattr(cell.options, "gates", "coupled") == "coupled" for cell in cells)


def test_the_units_in_words() -> None:
    assert ModelConfig(cell="atr", encoder_cell="atr").describe_units() == "atr"
    assert ModelConfig(cell="atr", encoder_cell="gru").describe_units() == "encoder gru, decoder atr"
    options = ModelConfig(cell="lrn", cell_options={"tanh": False}, decoder_cell_options={"tanh": True})
    assert options.describe_units() == "encoder lrn (tanh: False), decoder lrn (tanh: True)"


def test_what_does_not_fit_together_is_told_with_its_key() -> None:
    assert DeepNMT.check(ModelConfig(hidden_size=12, attention_heads=4)) == []
    (problem,) = DeepNMT.check(ModelConfig(hidden_size=12, attention_heads=5))
    assert problem == ("attention_heads", "5 must divide hidden_size (12)")
    assert RNNSearch.check(ModelConfig(architecture="rnnsearch")) == []
    wrong = RNNSearch.check(ModelConfig(architecture="rnnsearch", encoder_layers=2, deep_output=False))
    assert [key for key, _ in wrong] == ["encoder_layers", "deep_output"]
    assert wrong[0][1] == "2 is not possible, 'rnnsearch' has encoder_layers: 1"


def test_recurrent_dropout_reaches_all_cells_and_a_unit_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for architecture in ("deepnmt", "rnnsearch"):
        config = ModelConfig(
            architecture=architecture, cell="sru", recurrent_dropout=0.3, hidden_size=8, embedding_size=8
        )
        cells = [module for module in build_model(config, 9, 9).modules() if isinstance(module, Cell)]
        assert len(cells) == 5 and all(cell.recurrent_dropout == 0.3 for cell in cells)
    monkeypatch.setattr(CELLS, "_members", {**CELLS._members, "mine": Cell})
    problem = ("recurrent_dropout", "the unit 'mine' has none: it does not define dropped_step")
    for name in MODELS.names():
        model = MODELS.get(name)
        has_one_unit = name in ("classifier", "language_model", "tagger")
        own = {"cell": "mine"} if has_one_unit else {"cell": "gru", "decoder_cell": "mine"}
        assert model.check(ModelConfig(**own, recurrent_dropout=0.1)) == [problem]
        assert model.check(ModelConfig(cell="gru", decoder_cell="mine")) == []
        assert model.check(ModelConfig(cell="unknown", recurrent_dropout=0.1)) == []


def test_one_table_for_two_vocabularies_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tie_embeddings: 'all' needs one vocabulary .* 9 and 10 entries"):
        build_model(ModelConfig(tie_embeddings="all", hidden_size=4, embedding_size=4), 9, 10)


def test_an_unknown_architecture_or_unit_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'deepnmt'"):
        build_model(ModelConfig(architecture="depnmt"), 9, 9)
    with pytest.raises(ConfigError, match="Did you mean 'olrn'"):
        build_model(ModelConfig(cell="olnr"), 9, 9)


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch"])
@pytest.mark.parametrize("context_aware", [False, True])
def test_the_encoder_may_have_its_own_width(architecture: str, context_aware: bool) -> None:
    sizes = {"hidden_size": 8, "embedding_size": 6, "context_aware_encoder": context_aware}
    model = build_model(ModelConfig(architecture=architecture, cell="lrn", encoder_hidden_size=5, **sizes), 9, 9)
    memory, _, initial = model.encode(torch.tensor([[3, 2]]))
    outputs = 5 if context_aware else 2 * 5
    assert memory.shape == (1, 2, outputs if architecture == "rnnsearch" else 8)
    assert initial[0].h.shape == (1, 8)
    assert {cell.hidden_size for cell in model.encoder.modules() if isinstance(cell, Cell)} == {5}
