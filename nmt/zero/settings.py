"""Zero's hyper-parameters: their files and defaults, and the settings that they are here."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.config import Config, component_options
from nmt.config.schema import SIDES, ModelConfig
from nmt.errors import ConfigError, near_miss, refused
from nmt.files import open_regular
from nmt.registry import CELLS
from nmt.zero.weights import other_designs

PARAM_JSON = "param.json"
"""Zero's file next to its checkpoints: one line of JSON with all hyper-parameters."""
_LARGEST = 1 << 20
"""Bytes of a file of hyper-parameters."""

DEFAULTS: dict[str, Any] = {
    # embeddings and search
    "shared_source_target_embedding": False,
    "shared_target_softmax_embedding": True,
    "decode_length": 50,
    "beam_size": 4,
    "decode_alpha": 0.6,
    "enable_noise_beam_search": False,
    "beam_search_temperature": 1.0,
    "top_beams": 1,
    "search_mode": "cache",
    # learning rate
    "nstable": 4,
    "lrdecay_start": 600000,
    "lrdecay_end": 1200000,
    "warmup_steps": 400,
    "lrate_strategy": "gnmt+",
    "lrate_decay": 0.5,
    "lrate_patience": 1,
    "cosine_period": 5000,
    "cosine_factor": 1,
    "estop_patience": 100,
    # model
    "initializer": "uniform",
    "initializer_gain": 0.08,
    "hidden_size": 1000,
    "embed_size": 620,
    "dropout": 0.1,
    "relu_dropout": 0.1,
    "residual_dropout": 0.1,
    "attention_dropout": 0.1,
    "label_smooth": 0.1,
    "model_name": "rnnsearch",
    "scope_name": "rnnsearch",
    "cell": "atr",
    "caencoder": True,
    "layer_norm": False,
    "swap_memory": True,
    "num_encoder_layer": 6,
    "num_decoder_layer": 6,
    "num_heads": 8,
    "use_deep_att": False,
    "dl4mt_redict": True,
    # Transformers
    "filter_size": 2048,
    "max_relative_position": 16,
    "deep_transformer_init": False,
    "aan_mask": True,
    "use_ffn": False,
    "strategies": ["aan"],
    # batches
    "max_len": 100,
    "eval_max_len": 1000000,
    "batch_or_token": "token",
    "batch_size": 80,
    "token_size": 3000,
    "eval_batch_size": 32,
    "buffer_size": 100,
    "shuffle_batch": True,
    "data_leak_ratio": 0.5,
    "process_num": 1,
    "nthreads": 6,
    "input_queue_size": 100,
    "output_queue_size": 100,
    # files
    "src_vocab_file": "",
    "tgt_vocab_file": "",
    "src_train_file": "",
    "tgt_train_file": "",
    "src_dev_file": "",
    "tgt_dev_file": "",
    "src_test_file": "",
    "tgt_test_file": "",
    "output_dir": "",
    "test_output": "",
    "pretrained_model": "",
    # updates
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-9,
    "clip_grad_norm": 5.0,
    "gnorm_upper_bound": 1e20,
    "lrate": 1e-5,
    "min_lrate": 0.0,
    "max_lrate": 1.0,
    "epoches": 10,
    "max_training_steps": 1000,
    "update_cycle": 1,
    "gpus": [0],
    "safe_nan": False,
    "ema_decay": -1.0,
    "disp_freq": 100,
    "eval_freq": 10000,
    "save_freq": 5000,
    "sample_freq": 1000,
    "checkpoints": 5,
    "best_checkpoints": 1,
    "random_seed": 1234,
    "train_continue": True,
    "default_dtype": "float32",
    "dtype_epsilon": 1e-8,
    "dtype_inf": 1e8,
    "loss_scale": 1.0,
    # L0Drop
    "l0_norm_reg_scalar": 1.0,
    "l0_norm_start_reg_ramp_up": 0,
    "l0_norm_end_reg_ramp_up": 10000,
    "l0_norm_warm_up": True,
}
"""All hyper-parameters of Zero with their defaults (run.py, commit d97e2c2). docs/from_zero.md has a row for each."""

_TYPES: dict[type, str] = {bool: "True or False", int: "an integer", float: "a number", str: "text", list: "a list"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_LATER = r",(?=[A-Za-z_]\w*=)"
_Read = list[tuple[str, Any]]


class HyperParameters(NamedTuple):
    """What was found, and where."""

    given: dict[str, Any]
    """those that were named, checked; names of units and models in lower case"""
    unknown: tuple[str, ...]
    """in param.json, but not known to the Zero whose list this is; other versions have some more or less"""
    origins: tuple[str, ...]
    """the files and arguments they come from"""

    @property
    def complete(self) -> dict[str, Any]:
        """All of them, with Zero's defaults where none was named."""
        return {**DEFAULTS, **self.given}


def read_hyper_parameters(arguments: Sequence[str], *, beside: Path, saved: str | None = None) -> HyperParameters:
    """The hyper-parameters of a checkpoint.

    As in Zero, those saved with the model come first: `param.json` in the folder `beside`, or the JSON text
    `saved`; then the files among `arguments`, then their `key=value`.

    Args:
        arguments: each the name of a file with a dictionary of literals (`dict(cell="atr", ...)`, `{...}` or
            JSON), or `key=value`, or several of these separated by commas, as in Zero's `--parameters`.

    Raises:
        ConfigError: a file is missing or is not a dictionary of literals; a key written by the user is unknown or has a
            value of another type. All mistakes of a file are listed, one per line.
    """
    given: dict[str, Any] = {}
    unknown: list[str] = []
    origins: list[str] = []
    record = beside / PARAM_JSON
    texts = [(PARAM_JSON, saved)] if saved is not None else []
    if not texts and record.is_file():
        texts = [(str(record), _first_line(record))]
    for origin, text in texts:
        values = _json_pairs(text, origin=origin)
        unknown += [key for key, _ in values if key not in DEFAULTS]
        given |= _checked([pair for pair in values if pair[0] in DEFAULTS], origin=origin)
        origins.append(origin)
    files = [argument for argument in arguments if not _ASSIGNMENT.match(argument)]
    for name in files:
        given |= _checked(_read_file(Path(name)), origin=name)
        origins.append(name)
    assignments = [part for text in arguments if text not in files for part in re.split(_LATER, text)]
    if assignments:
        given |= _checked([_assigned(text) for text in assignments], origin="--hparams")
        origins.append("--hparams")
    return HyperParameters(given, tuple(unknown), tuple(origins))


def _first_line(path: Path) -> str:
    return _text(path).partition("\n")[0]  # Zero itself reads no more


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ConfigError(f"{path}: larger than {_LARGEST >> 20} MiB, too large for hyper-parameters")
        return content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: not UTF-8 text") from error


def _read_file(path: Path) -> _Read:
    text = _text(path)
    if text.lstrip().startswith("{"):
        try:
            return _json_pairs(text, origin=str(path))
        except ConfigError:
            pass  # a dictionary of Python begins like one of JSON
    return _literal_pairs(text, origin=str(path))


def _json_pairs(text: str, *, origin: str) -> _Read:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{origin}: not an object of JSON, {{...}}")
    return list(found.items())


def _literal_pairs(text: str, *, origin: str) -> _Read:
    """The entries of `{...}` or `dict(...)`: literals, parsed and never evaluated."""
    wanted = 'expected a dictionary of literals such as dict(cell="atr", hidden_size=1024)'
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{origin}: not a dictionary: {error}; {wanted}") from error
    entries: Iterable[tuple[Any, ast.expr]]
    if isinstance(body, ast.Dict) and all(isinstance(key, ast.Constant) for key in body.keys):
        entries = [(key.value, value) for key, value in zip(body.keys, body.values, strict=True)]  # type: ignore[union-attr]
    elif _is_dict_call(body):
        entries = [(word.arg, word.value) for word in body.keywords]  # type: ignore[attr-defined]
    else:
        raise ConfigError(f"{origin}: {wanted}; it is read as data, no other Python is allowed")
    pairs = []
    for key, value in entries:
        try:
            pairs.append((str(key), ast.literal_eval(value)))
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            place = f"{origin}, line {value.lineno}: {key}"
            raise ConfigError(f"{place}: not a literal, and expressions are not evaluated; {wanted}") from error
    return pairs


def _is_dict_call(body: ast.expr) -> bool:
    return (
        isinstance(body, ast.Call)
        and isinstance(body.func, ast.Name)
        and body.func.id == "dict"
        and not body.args
        and all(word.arg is not None for word in body.keywords)
    )


def _assigned(text: str) -> tuple[str, Any]:
    """`key=value` with the value as Zero reads it: true, false and numbers without regard to quotes."""
    key, _, value = text.partition("=")
    default = DEFAULTS.get(key)
    if isinstance(default, bool) and value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    if isinstance(default, str):
        return key, value
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return key, value  # of another type than the default, which the check says


def _checked(pairs: _Read, *, origin: str) -> Mapping[str, Any]:
    """Known keys with values of the defaults' types; else ConfigError with a line for each mistake."""
    problems = []
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            problems.append(f"{key}: given twice")
        elif key not in DEFAULTS:
            problems.append(f"{key}: Zero has no such hyper-parameter.{near_miss(key, list(DEFAULTS))}".rstrip())
        elif not _is_of_type(value, DEFAULTS[key]):
            problems.append(f"{key}: {value!r} is not {_TYPES[type(DEFAULTS[key])]}")
        seen[key] = value
    if problems:
        raise ConfigError("\n".join([f"{origin}:", *(f"  {problem}" for problem in problems)]))
    for name in ("cell", "model_name"):
        if name in seen:
            seen[name] = seen[name].lower()
    return {key: float(value) if isinstance(DEFAULTS[key], float) else value for key, value in seen.items()}


def _is_of_type(value: Any, default: Any) -> bool:
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and value == value and abs(value) != float("inf")
    return isinstance(value, type(default))


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
        "cell": model.unit_of("encoder").name,
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
    units = [config.unit_of(side) for side in SIDES]
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
