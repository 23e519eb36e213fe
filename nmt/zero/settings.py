"""Hyper-parameters of the original Zero system as configuration, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.config import Config, component_options
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError, refused
from nmt.registry import CELLS
from nmt.units import SIDES, unit_of
from nmt.zero.hparams import DEFAULTS, HyperParameters
from nmt.zero.names import other_designs

SAME = {
    "dropout": "model.dropout",
    "label_smooth": "training.label_smoothing",
    "max_len": "data.max_length",
    "beam_size": "decoding.beam_size",
    "decode_alpha": "decoding.length_penalty",
    "decode_length": "decoding.max_length_offset",
    "random_seed": "seed",
    "update_cycle": "training.accumulate",
    "lrate": "training.lr",
    "clip_grad_norm": "training.clip_norm",
    "epoches": "training.max_epochs",
    "max_training_steps": "training.max_steps",
    "disp_freq": "training.log_every",
    "eval_freq": "training.validate_every",
    "save_freq": "training.save_every",
    "sample_freq": "training.sample_every",
    "checkpoints": "training.keep_last",
    "best_checkpoints": "training.keep_best",
}
"""Hyper-parameters whose value is that of a key."""
_WITH_THE_MODEL = ("dropout", "label_smooth", "max_len", "beam_size", "decode_alpha", "decode_length")
"""What an exported model says of itself besides its shape."""

_CLAMPED = {"min_lr": "min_lrate", "max_lr": "max_lrate"}
_SCHEDULES: dict[str, tuple[str, dict[str, str]]] = {
    "vanilla": ("constant", {}),
    "noam": ("noam", {"warmup_steps": "warmup_steps"}),
    "gnmt+": (
        "gnmt+",
        {
            "warmup_steps": "warmup_steps",
            "replicas": "nstable",
            "decay_start": "lrdecay_start",
            "decay_end": "lrdecay_end",
        },
    ),
    "epoch": ("epoch", {"decay": "lrate_decay"}),
    "score": ("score", {"decay": "lrate_decay", "patience": "lrate_patience"}),
    "cosine": (
        "cosine",
        {
            "warmup_steps": "warmup_steps",
            "period": "cosine_period",
            "period_factor": "cosine_factor",
            "decay": "lrate_decay",
        },
    ),
}
"""`lrate_strategy`: the schedule and its options, each with the hyper-parameter that gives it."""
_ADAM = {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}

OF_THE_MODEL = (
    *("model_name", "scope_name", "cell", "hidden_size", "embed_size", "caencoder", "layer_norm"),
    *("num_encoder_layer", "num_decoder_layer", "num_heads", "use_deep_att", "dl4mt_redict"),
    *("shared_source_target_embedding", "shared_target_softmax_embedding"),
)
_OTHERS_READ = (
    *("batch_or_token", "batch_size", "token_size", "ema_decay", "initializer", "initializer_gain"),
    *("safe_nan", "gnorm_upper_bound"),
)
FILES = tuple(name for name in DEFAULTS if name.endswith("_file") or name in ("output_dir", "test_output"))
"""Files and directories of Zero's runs, named anew where they are needed."""
_LAYER_NORM_EPSILON = 1e-8
_BEFORE_TRAINING = ("initializer", "initializer_options", "init_range", "layer_norm_scale")
"""Keys of the section `model` that say only how weights start."""


def check_computable(hyper: Mapping[str, Any]) -> None:
    """Raise ConfigError for what changes a model's outputs and is fixed here."""
    if hyper["dtype_epsilon"] != _LAYER_NORM_EPSILON:
        given = hyper["dtype_epsilon"]
        raise ConfigError(f"dtype_epsilon: {given} is not allowed; nmt's layer norm adds {_LAYER_NORM_EPSILON}")


def sections(hyper: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that all hyper-parameters `hyper` mean, except what the variables decide: unchecked YAML.

    Without `data.dev` there is no validation, so that what follows from its scores is left out.
    """
    found: dict[str, Any] = {"model": {}, "data": {"too_long": "truncate"}, "training": {}, "decoding": {}}
    for name, key in SAME.items():
        _set(found, key, hyper[name])
    found["decoding"]["search"] = "beam"  # also for a beam of one, which is greedy search by itself
    training = found["training"]
    training["normalization"] = "batch"
    if hyper["batch_or_token"] == "batch":
        training["batch_sentences"] = hyper["batch_size"]
    else:
        training["batch_tokens"] = hyper["token_size"]
    training["optimizer"] = "adam_tf"
    training["optimizer_options"] = {ours: hyper[theirs] for ours, theirs in _ADAM.items()}
    training["ema_decay"] = max(hyper["ema_decay"], 0.0)
    if hyper["safe_nan"]:
        training["skip_norm"] = hyper["gnorm_upper_bound"]
    found["model"] |= _initializer(hyper["initializer"], gain=hyper["initializer_gain"])
    training["schedule"] = "constant"
    if not _follows_scores(hyper):
        schedule, options = _schedule(hyper)
        training["schedule"] = schedule
        training["schedule_options"] = {ours: hyper[name] for ours, name in {**options, **_CLAMPED}.items()}
    return found


def left_out(hyper: HyperParameters) -> list[str]:
    """Hyper-parameters that were given another value than Zero's default and that nothing here follows."""
    complete = hyper.complete
    schedule = () if _follows_scores(complete) else ("lrate_strategy", *_schedule(complete)[1].values())
    read = {*SAME, *_CLAMPED.values(), *_ADAM.values(), *OF_THE_MODEL, *_OTHERS_READ, *FILES, *schedule}
    return [name for name, value in hyper.given.items() if name not in read and value != DEFAULTS[name]]


def hyper_parameters(config: Config, *, scope: str) -> dict[str, Any]:
    """What Zero must be told to build the model of `config`, and to search as it does; see `check_exportable`."""
    model = config.model
    found: dict[str, Any] = {
        "model_name": model.architecture,
        "scope_name": scope,
        "cell": unit_of(model, "encoder").name,
        "hidden_size": model.hidden_size,
        "embed_size": model.embedding_size,
        "num_encoder_layer": model.encoder_layers,
        "num_decoder_layer": model.decoder_layers,
        "num_heads": model.attention_heads,
        "caencoder": model.context_aware_encoder,
        "layer_norm": model.layer_norm,
        "use_deep_att": model.deep_attention,
        "dl4mt_redict": model.deep_output,
        "shared_source_target_embedding": model.tie_embeddings == "all",
        "shared_target_softmax_embedding": model.tie_embeddings != "none",
    }
    raw = dataclasses.asdict(config)
    for name in _WITH_THE_MODEL:
        value: Any = raw
        for part in SAME[name].split("."):
            value = value[part]
        found[name] = value
    return found


def check_units(config: ModelConfig) -> None:
    """Raise ConfigError naming each key by which a recurrent unit of `config` is not one of Zero's.

    Zero has one unit for both sides and no options; how weights start makes no difference to those that are there.
    """
    units = [unit_of(config, side) for side in SIDES]
    if units[0].name != units[1].name:
        named = f"encoder_cell {units[0].name!r}, decoder_cell {units[1].name!r}"
        raise ConfigError(f"Zero cannot compute this model: model: {named}; it has one cell")
    default = dataclasses.asdict(component_options(CELLS.get(units[0].name), {}))
    problems = []
    for side, unit in zip(SIDES, units, strict=True):
        section = f"{side}_cell_options" if getattr(config, f"{side}_cell_options") else "cell_options"
        problems += [
            f"model.{section}.{name}: {unit.options[name]!r}; it has only {default[name]!r}"
            for name in other_designs(unit.options, default)
        ]
    _refuse(problems)


def check_exportable(config: ModelConfig, again: ModelConfig) -> None:
    """Raise ConfigError naming each key of `config`, units apart, that Zero has no counterpart for.

    `again` is the section that Zero's hyper-parameters for `config` lead back to: what differs in it cannot be
    expressed in Zero.
    """
    problems = []
    for name in (field.name for field in dataclasses.fields(config)):
        ours, theirs = getattr(config, name), getattr(again, name)
        aside = name in _BEFORE_TRAINING or name.endswith("dropout") or "cell" in name
        if ours != theirs and not aside and (name != "encoder_hidden_size" or ours != config.hidden_size):
            problems.append(f"model.{name}: {ours!r}; it has only {theirs!r}")
    _refuse(problems)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        unique = dict.fromkeys(problems)
        raise ConfigError("\n".join(["Zero cannot compute this model:", *(f"  {problem}" for problem in unique)]))


def _initializer(name: str, *, gain: float) -> dict[str, Any]:
    """Keys of the section `model`; as in Zero any name that it does not know means Glorot's, which has no gain."""
    if name == "uniform":
        return {"initializer": name, "init_range": gain}
    if name in ("normal", "normal_unit_scaling", "uniform_unit_scaling"):
        return {"initializer": name, "initializer_options": {"gain": gain}}
    return {"initializer": "glorot"}


def _schedule(hyper: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    name = hyper["lrate_strategy"].lower()
    if name not in _SCHEDULES:
        raise ConfigError(refused("lrate_strategy", name, tuple(_SCHEDULES), problem="is unknown"))
    return _SCHEDULES[name]


def _follows_scores(hyper: Mapping[str, Any]) -> bool:
    return _schedule(hyper)[0] == "score"


def _set(sections: dict[str, Any], key: str, value: Any) -> None:
    *path, name = key.split(".")
    for part in path:
        sections = sections[part]
    sections[name] = value
