"""Loading a configuration: every mistake named, overrides, plugins, saved runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from nmt.config import Config, dump, load_config, load_saved
from nmt.config.load import bundled_names
from nmt.errors import ConfigError
from nmt.registry import CELLS

MINIMAL = {"run_dir": "runs/x", "data": {"train": "data/train"}}


@pytest.fixture
def write(tmp_path: Path):
    def to_file(content: dict | str, name: str = "a.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return to_file


def mistakes(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    first, *rest = str(error.value).split("\n")
    assert first == f"{path}:"
    assert error.value.exit_code == 2
    return [re.sub(r"^  (line \d+: |--set: )?", "", line) for line in rest]


def test_defaults_are_filled_in(write):
    config = load_config(write(MINIMAL))
    assert config.model.cell == "lrn"
    assert config.training.batch_tokens == 2048
    assert (config.model.layer_norm, config.model.layer_norm_scale) == (True, 0.5)
    assert config.training.schedule_options["warmup_steps"] == 200
    assert config.model.cell_options == dataclasses.asdict(CELLS.get("lrn").Options())


def test_without_layer_norm_its_scale_is_what_it_was_before_it_had_a_default(write):
    config = load_config(write({**MINIMAL, "model": {"layer_norm": False}}))
    assert config.model.layer_norm_scale == 1.0


def test_all_mistakes_of_a_file_are_reported_in_one_run(write):
    found = mistakes(
        write(
            {
                **MINIMAL,
                "sed": 3,
                "model": {"cell": "atrr", "hiden_size": 3, "dropout": "0.1", "deep_attention": 1, "layer_norm": "no"},
                "training": {"batch_tokens": True, "precision": "bf17", "schedule": "nom", "lr": -1},
                "decoding": {"n_best": 9, "batch_tokens": "many"},
            }
        )
    )
    assert sorted(found) == sorted(
        [
            "model.hiden_size: unknown key. Did you mean 'hidden_size'?",
            "model.deep_attention: 1 is not true or false",
            "model.layer_norm: 'no' is not true or false",
            "model.dropout: '0.1' is not a number; leave out the quotes",
            "training.batch_tokens: True is not an integer",
            "training.lr: -1 must be greater than 0.0",
            "training.precision: 'bf17' is not allowed. Did you mean 'bf16'? Allowed: auto, fp32, bf16, fp16.",
            "sed: unknown key. Did you mean 'seed'?",
            "model.cell: 'atrr' is not a known cell. Did you mean 'atr'? "
            "Allowed: atr, gru, lrn, lstm, min_gru, min_lstm, olrn, rnn, sru, ssru.",
            "training.schedule: 'nom' is not a known schedule. Did you mean 'noam'? "
            "Allowed: budgeted, constant, cosine, epoch, gnmt+, inverse_sqrt, noam, score.",
            "decoding: n_best (9) must not exceed beam_size (4)",
            "decoding.batch_tokens: 'many' is not an integer; 'auto' is allowed too",
        ]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run_dir": None}, "run_dir: None is not text"),
        ({"seed": "4"}, "seed: '4' is not an integer"),
        ({"seed": -1}, "seed: -1 must be at least 0"),
        ({"seed": 1.5}, "seed: 1.5 is not an integer"),
        ({"seed": 2**64}, "seed: 18446744073709551616 must be less than 9223372036854775808"),
        ({"data": {"train": "x", "dev": []}}, "data.dev: [] must not be empty"),
        ({"training": {"schedule": "score"}}, "training.schedule: needs validation data in data.dev"),
        ({"training": {"early_stopping_metric": "bleu"}}, "training.early_stopping_metric: needs validation data"),
        ({"training": {"optimizer_options": {"beta1": 1.0}}}, "training.optimizer_options.beta1: must be 0 or more"),
        ({"training": {"schedule_options": {"min_lr": -1.0}}}, "training.schedule_options.min_lr: must be 0 or more"),
        ({"data": {"tokenizer_options": {"vocab_size": 3}}}, "data.tokenizer_options.vocab_size: 3 leaves no room"),
        ({"model": []}, "model: [] is not a section"),
        ({"model": {"dropout": 1.0}}, "model.dropout: 1.0 must be less than 1"),
        ({"model": {"dropout": True}}, "model.dropout: True is not a number"),
        ({"model": {"dropout": float("nan")}}, "model.dropout: nan"),
        ({"model": {"architecture": "rnnsearch", "encoder_layers": 2}}, "model.encoder_layers: "),
        ({"model": {"hidden_size": 10, "attention_heads": 3}}, "model.attention_heads: "),
        (
            {"model": {"initializer": "xavier"}},
            "model.initializer: 'xavier' is not a known initializer. "
            "Did you mean 'glorot'? Allowed: glorot, normal, normal_unit_scaling, uniform, uniform_unit_scaling.",
        ),
        (
            {"model": {"initializer": "normal", "initializer_options": {"gain": 0.0}}},
            "model.initializer_options.gain: must be greater than 0, not 0.0",
        ),
        (
            {"model": {"initializer": "glorot", "initializer_options": {"gain": 2.0}}},
            "model.initializer_options.gain: unknown key",
        ),
        (
            {"model": {"initializer": "glorot", "init_range": 0.1}},
            "model.init_range: has no effect with the initializer 'glorot', only with: uniform",
        ),
        (
            {"model": {"layer_norm": False, "layer_norm_scale": 0.7}},
            "model.layer_norm_scale: has no effect without model.layer_norm: true",
        ),
        ({"model": {"cell": "lrn", "cell_options": {"gates": "twin"}}}, "model.cell_options.gates: unknown key."),
        (
            {"model": {"cell": "atr", "cell_options": {"gates": "twn"}}},
            "model.cell_options.gates: 'twn' is not allowed. Did you mean 'twin'?",
        ),
        (
            {"model": {"encoder_cell": "gruu"}},
            "model.encoder_cell: 'gruu' is not a known cell. Did you mean 'gru'? Allowed: atr, gru,",
        ),
        ({"model": {"decoder_cell": "olnr"}}, "model.decoder_cell: 'olnr' is not a known cell. Did you mean 'olrn'?"),
        ({"model": {"decoder_cell": ""}}, "model.decoder_cell: '' must not be empty"),
        ({"model": {"encoder_cel": "gru"}}, "model.encoder_cel: unknown key. Did you mean 'encoder_cell'?"),
        (
            {"model": {"encoder_cell": "gru", "encoder_cell_options": {"recurent_init": "orthogonal"}}},
            "model.encoder_cell_options.recurent_init: unknown key. Did you mean 'recurrent_init'?",
        ),
        (
            {"model": {"decoder_cell": "atr", "decoder_cell_options": {"gates": "twn"}}},
            "model.decoder_cell_options.gates: 'twn' is not allowed. Did you mean 'twin'?",
        ),
        (
            {"model": {"cell": "lrn", "encoder_cell_options": {"gates": "twin"}}},
            "model.encoder_cell_options.gates: unknown key.",
        ),
        (
            {"model": {"cell": "lstm", "cell_options": {"forget_bias": float("nan")}}},
            "model.cell_options.forget_bias: nan is not a number",
        ),
        ({"data": {"train": 3}}, "data.train: 3 is not text"),
        ({"data": {"train": "x", "sampling_temperature": 5.0}}, "data.sampling_temperature: needs a list of several"),
        ({"data": {"train": ["x"], "sampling_weights": [1.0]}}, "data.sampling_weights: needs a list of several"),
        (
            {"data": {"train": ["x", "y"], "sampling_weights": [1.0]}},
            "data.sampling_weights: 1 weights for the 2 prefixes of data.train; give one for each",
        ),
        (
            {"data": {"train": ["x", "y"], "sampling_weights": [1.0, 2.0], "sampling_temperature": 2.0}},
            "data.sampling_weights: give either sampling_weights or sampling_temperature, not both",
        ),
        ({"data": {"sampling_weights": [1.0, 0.0]}}, "data.sampling_weights.1: 0.0 must be greater than 0"),
        ({"data": {"sampling_temperature": 0.0}}, "data.sampling_temperature: 0.0 must be greater than 0"),
        ({"data": {"train": "x", "generator": "demo"}}, "data.generator: 'demo' makes its own corpus"),
        ({"data": {"train": "x", "target_language": "en"}}, "data.target_language: 'en' is also the source language"),
        (
            {"data": {"tokenizer_options": {"vocab_sise": 3}}},
            "data.tokenizer_options.vocab_sise: unknown key. Did you mean 'vocab_size'?",
        ),
        (
            {"model": {"tie_embeddings": "all"}, "data": {"tokenizer_options": {"joint": False}}},
            "model.tie_embeddings: 'all' needs data.tokenizer_options.joint: true",
        ),
        ({"training": {"batch_tokens": 3, "batch_sentences": 4}}, "training.batch_sentences: give either"),
        ({"training": {"patience": 3}}, "training.patience: needs validation data"),
        (
            {"training": {"early_stopping_metric": "blue"}},
            "training.early_stopping_metric: 'blue' is not in evaluation.metrics. Did you mean 'bleu'? Allowed: loss",
        ),
        (
            {"evaluation": {"metrics": ["blue"]}},
            "evaluation.metrics: 'blue' is not a known metric. Did you mean 'bleu'?",
        ),
        ({"kernels": "cuda"}, "kernels: 'cuda' is not allowed. Allowed: auto, triton, reference."),
        ({"plugins": "x.py"}, "plugins: 'x.py' is not a list"),
    ],
)
def test_each_mistake_is_named(write, change, message):
    found = mistakes(write({**MINIMAL, **change}))
    assert any(line.startswith(message) for line in found), found


ATR = {"activation": "state", "gates": "coupled", "recurrent_init": "uniform"}
"""Options of ATR that differ from its defaults."""


@pytest.mark.parametrize(
    ("model", "encoder", "decoder"),
    [
        ({}, ("lrn", {"tanh": False}), ("lrn", {"tanh": False})),
        ({"cell": "atr", "cell_options": ATR}, ("atr", ATR), ("atr", ATR)),
        ({"cell": "atr", "cell_options": ATR, "encoder_cell": "lrn"}, ("lrn", {"tanh": False}), ("atr", ATR)),
        ({"cell": "atr", "cell_options": ATR, "encoder_cell": "atr"}, ("atr", ATR), ("atr", ATR)),
        (
            {"cell": "atr", "cell_options": ATR, "decoder_cell_options": {"gates": "twin"}},
            ("atr", ATR),
            ("atr", {**ATR, "gates": "twin"}),
        ),
        (
            {"cell": "atr", "cell_options": ATR, "encoder_cell": "gru", "decoder_cell": "lrn",
             "decoder_cell_options": {"tanh": True}},
            ("gru", dataclasses.asdict(CELLS.get("gru").Options())),
            ("lrn", {"tanh": True}),
        ),
        (
            {"encoder_cell": "atr", "decoder_cell": "atr", "encoder_cell_options": {"gates": "coupled"}},
            ("atr", {**dataclasses.asdict(CELLS.get("atr").Options()), "gates": "coupled"}),
            ("atr", dataclasses.asdict(CELLS.get("atr").Options())),
        ),
    ],
)  # fmt: skip
def test_encoder_and_decoder_have_units_of_their_own(write, model, encoder, decoder):
    config = load_config(write({**MINIMAL, "model": model}))
    assert config.model.unit_of("encoder") == encoder
    assert config.model.unit_of("decoder") == decoder
    assert load_saved(write(dump(config), "saved.yaml")) == config


def test_a_configuration_saved_before_there_were_units_of_two_sides_means_what_it_meant(write):
    config = load_config(write({**MINIMAL, "model": {"cell": "atr", "cell_options": ATR}}))
    saved = yaml.safe_load(dump(config))
    for side in ("encoder", "decoder"):
        del saved["model"][f"{side}_cell"], saved["model"][f"{side}_cell_options"]
    assert load_saved(write(saved, "saved.yaml")) == config


def test_wrong_options_of_the_common_unit_are_named_once(write):
    model = {"cell": "atr", "cell_options": {"gates": "twn"}, "encoder_cell": "atr", "decoder_cell": "gru"}
    assert [line.partition(": ")[0] for line in mistakes(write({**MINIMAL, "model": model}))] == [
        "model.cell_options.gates"
    ]
    model = {"cell": "att", "encoder_cell_options": {"gates": "twin"}}
    assert [line.partition(": ")[0] for line in mistakes(write({**MINIMAL, "model": model}))] == ["model.cell"]


@pytest.mark.parametrize(("seed", "advice"), [("1.5", ""), ("2.0", "; write 2"), ("'3'", "; leave out the quotes")])
def test_how_to_write_an_integer_is_told_only_where_that_is_plain(write, seed, advice):
    shown = seed if seed.startswith("'") else f"{float(seed)}"
    assert mistakes(write(f"run_dir: x\nseed: {seed}\n")) == [f"seed: {shown} is not an integer{advice}"]


def test_a_missing_required_key_is_named(write):
    assert mistakes(write({"seed": 3})) == ["run_dir: missing"]


def test_empty_sections_mean_the_defaults(write):
    assert load_config(write("run_dir: x\nmodel:\ntraining:\n")) == load_config(write("run_dir: x\n"))


def test_numbers_in_scientific_notation_are_numbers(write):
    config = load_config(write("run_dir: x\ntraining: {lr: 5e-4}\ndata: {source_language: no}"))
    assert config.training.lr == 5e-4
    assert config.data.source_language == "no"


def test_overrides_win_and_are_validated(write):
    path = write(MINIMAL)
    config = load_config(path, ["training.lr=3e-4", "model.cell=atr", "model.cell_options.gates=coupled", "seed=7"])
    assert (config.training.lr, config.model.cell, config.seed) == (3e-4, "atr", 7)
    assert config.model.cell_options["gates"] == "coupled"
    assert mistakes(path, "training.lrr=1") == ["training.lrr: unknown key. Did you mean 'lr'?"]
    assert mistakes(path, "training.lr.x=1") == ["training.lr: {'x': 1} is not a number"]
    assert mistakes(path, "seed") == ["--set seed: must be KEY=VALUE, such as training.lr=3e-4"]
    assert load_config(path, ["run_dir=a=b"]).run_dir == "a=b"


def test_an_override_fills_a_section_that_stands_empty(write):
    assert load_config(write("run_dir: x\nmodel:\n"), ["model.cell=gru"]).model.cell == "gru"


def test_an_override_into_a_value_is_an_error(write):
    path = write({**MINIMAL, "seed": 3})
    assert mistakes(path, "seed.x=1") == ["--set seed.x: 'seed' is not a section"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("missing.yaml", ""),
        ("wmt14_gru", " Did you mean 'wmt14_gru.yaml'?"),
        ("demoo", " Did you mean 'demo.yaml'?"),
        ("old/demoo.yaml", " Did you mean 'demo.yaml'?"),
        ("multi30k_lnr.yaml", " Did you mean 'multi30k_lrn.yaml', 'multi30k_olrn.yaml' or 'multi30k_sru.yaml'?"),
    ],
)
def test_a_missing_file_is_a_usage_error_with_the_nearest_names(name, hint):
    with pytest.raises(ConfigError) as error:
        load_config(name)
    shown = f"nmt-train --list shows the {len(bundled_names())} shipped configurations."
    assert str(error.value) == f"{name}: no such file.{hint} {shown}"
    assert error.value.exit_code == 2


def test_an_empty_name_is_a_usage_error():
    with pytest.raises(ConfigError, match="the name of the file is empty"):
        load_config("")


@pytest.mark.parametrize("content", ["", "- a", "text", "3"])
def test_a_file_that_is_no_mapping_is_named(write, content):
    with pytest.raises(ConfigError, match=r"a\.yaml: must be a mapping"):
        load_config(write(content))


def test_a_file_that_is_not_text_is_named(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"b\.yaml, line 1: not UTF-8 .* looks like UTF-16"):
        load_config(path)


def test_an_existing_path_wins_over_a_bundled_name(write, monkeypatch, tmp_path):
    write({"run_dir": "mine"}, "demo.yaml")
    assert load_config("demo.yaml").run_dir == "runs/demo"
    monkeypatch.chdir(tmp_path)
    assert load_config("demo.yaml").run_dir == "mine"


@pytest.mark.parametrize("name", [name for name in bundled_names() if name.startswith("wmt14_")])
def test_configurations_of_published_systems_normalise_as_in_all_versions(name: str) -> None:
    assert load_config(name).data.tokenizer_options["normalization"] == "nmt_nfkc"


@pytest.mark.parametrize("name", bundled_names())
def test_every_shipped_configuration_loads_and_survives_a_round_trip(name, tmp_path):
    config = load_config(name)
    saved = tmp_path / "config.yaml"
    saved.write_text(dump(config))
    assert load_saved(saved) == config
    assert load_config(saved) == config


PLUGIN = """
from dataclasses import dataclass
from nmt.registry import CELLS

@CELLS.register("mine")
class Mine:
    @dataclass(frozen=True, kw_only=True)
    class Options:
        depth: int = 2
"""


def test_plugins_register_before_validation_but_never_from_a_saved_run(write, monkeypatch):
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))
    CELLS.names()
    plugin = write(PLUGIN, "mine.py")
    path = write({**MINIMAL, "plugins": [str(plugin)], "model": {"cell": "mine"}})
    with pytest.raises(ConfigError, match=r"a\.yaml: was made with a plugin.*--plugin .*mine\.py") as error:
        load_saved(path)
    assert "\n" not in str(error.value) and "(for the cell 'mine')" in str(error.value)
    other = write("", "other.py")
    with pytest.raises(ConfigError, match=r"--plugin .*mine\.py \("):
        load_saved(path, [str(other)])
    config = load_config(path)
    assert config.model.cell_options == {"depth": 2}
    assert mistakes(path, "model.cell_options.depth=x") == ["model.cell_options.depth: 'x' is not an integer"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("1 +", "SyntaxError"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("from nmt.registry import CELLS\nCELLS.register('gru')(int)", "cell 'gru' is already registered"),
    ],
)
def test_a_plugin_that_fails_is_named(write, source, message):
    plugin = write(source, "broken.py")
    with pytest.raises(ConfigError, match=rf"plugins: .*broken\.py, line \d+: .*{message}"):
        load_config(write({**MINIMAL, "plugins": [str(plugin)]}))


def test_a_plugin_that_fails_is_tried_again(write):
    path = write({**MINIMAL, "plugins": [str(write("1 +", "fails.py"))]})
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"fails\.py, line 1: .*SyntaxError"):
            load_config(path)


def test_plugins_of_the_same_name_are_all_loaded_and_noted(write, monkeypatch, tmp_path):
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))
    CELLS.names()
    for folder, cell in (("one", "first"), ("two", "second")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(PLUGIN.replace("mine", cell))
    plugins = [str(tmp_path / folder / "same.py") for folder in ("one", "two")]
    model = {"encoder_cell": "first", "decoder_cell": "second"}
    config = load_config(write({**MINIMAL, "plugins": plugins[:1], "model": model}), plugins=plugins)
    assert config.plugins == plugins
    assert (config.model.encoder_cell_options, config.model.decoder_cell_options) == ({"depth": 2}, {"depth": 2})


def test_a_missing_plugin_is_named(write):
    with pytest.raises(ConfigError, match=r"plugins: nowhere\.py: no such file"):
        load_config(write({**MINIMAL, "plugins": ["nowhere.py"]}))


def test_what_just_goes_together_is_accepted(write):
    data = {"train": "x", "monolingual": "y", "monolingual_tag": None, "sampling_weights": [2.0, 1.0]}
    config = load_config(write({**MINIMAL, "data": data, "training": {"keep_last": 4, "average_last": 4}}))
    assert config.data.sampling_weights == [2.0, 1.0] and config.training.average_last == 4


def test_the_configuration_is_frozen(write):
    config = load_config(write(MINIMAL))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]
    assert isinstance(config, Config)
