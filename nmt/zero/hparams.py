"""Hyper-parameters of the original Zero system: names, defaults, and how they are read, as data and never as code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.errors import ConfigError, near_miss
from nmt.files import open_regular

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
