"""Messages about mistakes in a configuration: full key, value, what is allowed, near miss; for an unknown key also
another section or another toolkit's name."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from nmt.config.schema import SECTIONS, Config
from nmt.errors import ConfigError, near_miss, plain, printable, refused, shown
from nmt.light.options import OPTIONS
from nmt.registry import CELLS, INITIALIZERS, LOSSES, MODELS, OPTIMIZERS, SCHEDULES, SEARCHES, TOKENIZERS, Registry

_UNION_MEMBER = re.compile(r"^(constrained-|function-|list\[|dict\[|int$|float$|str$|none|literal\[)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LONG_NUMBER = re.compile(r"(\d{20})\d{15,}(\d{5})")
SET = "--set"
"""In place of a line number: set on the command line."""


class Problem(NamedTuple):
    """One mistake: the full key it concerns and what is wrong with it."""

    key: str
    message: str
    component: str = ""
    """Kind and name of an unknown component, such as `cell 'mine'`; a plugin could have registered it."""
    failed_plugin: bool = False
    """A plugin could not be loaded, so its components are missing."""
    in_files: bool = False
    """The configuration is valid, but a file named in it is missing."""
    cause: BaseException | None = None
    """The plugin's error that caused it, for --debug."""


class MistakesError(ConfigError):
    """All problems of a configuration."""

    def __init__(self, message: str, problems: Sequence[Problem]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class MissingPluginError(ConfigError):
    """A saved configuration whose components come from a plugin that was not given."""


def format_problems(origin: str, problems: Iterable[Problem], places: Mapping[str, int | str] | None = None) -> str:
    """All problems of one file, one per line below its name, in the order of its lines.

    `places` gives the place of a key: its line, or `SET`.
    """
    found = [(_place(problem.key, places or {}), problem) for problem in problems]
    found.sort(key=lambda pair: (not isinstance(pair[0], int), pair[0] if isinstance(pair[0], int) else 0))
    lines = [f"{origin}:"]
    for place, (key, message, *_) in found:
        where = "" if place is None else f"line {place}: " if isinstance(place, int) else f"{place}: "
        lines.append(f"  {printable(f'{where}{key}: {message}')}")
    return "\n".join(lines)


def _place(key: str, places: Mapping[str, int | str]) -> int | str | None:
    """The place of the key or, for an option or item, of what it belongs to; None if it is not written anywhere."""
    parts = key.split(".")
    for count in range(len(parts), min(len(parts), 2) - 1, -1):
        if (place := places.get(".".join(parts[:count]))) is not None:
            return place
    return None


def type_problems(
    error: ValidationError, *, prefix: tuple[str, ...] = (), known: list[str] | None = None
) -> list[Problem]:
    """Word pydantic's findings, one problem for each key; `prefix` is the section of the value.

    `known` lists the keys of the section itself; by default they come from the schema.
    """
    problems: dict[str, Problem] = {}
    for item in error.errors():
        # A union reports one error for each member, its location followed by the member's type.
        path = [str(part) for part in item["loc"] if not _UNION_MEMBER.match(str(part))]
        key = ".".join([*prefix, *path])
        siblings = known if known is not None else _names(SECTIONS.get(path[0], Config) if len(path) > 1 else Config)
        message = _message(item, key, siblings)
        # An Options dataclass that checks its own values names the option first.
        option, colon, rest = message.partition(": ")
        if item["type"] == "value_error" and colon and option in siblings:
            key, message = f"{key}.{option}", rest
        if key not in problems or item["type"] == "too_short":  # an empty list: an error about text would not help
            problems[key] = Problem(key, message)
        elif item["type"] == "dict_type" and problems[key].message == f"{shown(item['input'])} is not text":
            problems[key] = Problem(key, f"{shown(item['input'])} is neither text nor a mapping of keys to values")
        elif item["type"] == "literal_error":  # a word that may stand in place of the number
            problems[key] = Problem(key, f"{problems[key].message}; {item['ctx']['expected']} is allowed too")
    return list(problems.values())


def _message(item: Any, key: str, siblings: list[str]) -> str:
    value, context, kind = item["input"], item.get("ctx", {}), item["type"]
    if kind == "unexpected_keyword_argument":
        return unknown_key(key, siblings)
    if kind in ("missing", "missing_keyword_only_argument", "missing_argument"):
        return "missing"
    if kind == "literal_error":
        return refused("", value, re.findall(r"'([^']*)'", context["expected"]))
    if kind == "value_error":
        return _LONG_NUMBER.sub(r"\1...\2", str(context["error"]))
    wording = {
        "int_type": "is not an integer",
        "int_from_float": "is not an integer",
        "float_type": "is not a number",
        "finite_number": "is not a finite number",
        "bool_type": "is not true or false",
        "string_type": "is not text",
        "string_too_short": "must not be empty",
        "list_type": "is not a list",
        "too_short": "must not be empty",
        "dict_type": "is not a mapping of keys to values",
        "dataclass_type": "is not a section; it must be a mapping of keys to values",
        "greater_than": f"must be greater than {context.get('gt')}",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than": f"must be less than {context.get('lt')}",
        "less_than_equal": f"must be at most {context.get('le')}",
    }
    advice = ""  # how to write what was meant, if that is plain
    if kind in ("int_type", "float_type") and isinstance(value, str) and len(value) < 30 and _NUMBER.fullmatch(value):
        advice = "; leave out the quotes"
    elif kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer() and value < 1e15:
        advice = f"; write {int(value)}"
    return f"{shown(value)} {wording.get(kind, item['msg'])}{advice}"


_LONGEST_LIST = 80
"""Longest list of allowed keys in characters; for a longer one, see the reference."""

_FEW = 2
"""Most components listed for one option."""
_SIMILAR = 0.8
"""How alike a key in another place must be, from 0 to 1."""

COMPONENTS: dict[str, Registry[Any]] = {
    "model.architecture": MODELS,
    "model.cell": CELLS,
    "model.initializer": INITIALIZERS,
    "data.tokenizer": TOKENIZERS,
    "training.loss": LOSSES,
    "training.optimizer": OPTIMIZERS,
    "training.schedule": SCHEDULES,
    "decoding.search": SEARCHES,
}
"""The keys of components whose options are in the key with `_options`."""
_OPTIONS = {f"{key}_options": registry for key, registry in COMPONENTS.items()}

_MEANT: dict[str, str] = {
    "run_dir": "model_dir output_dir save_dir out_dir workdir",
    "seed": "random_seed rng_seed",
    "kernels": "use_triton",
    "model.architecture": "arch model_name",
    "model.cell": "rnn_type rnn_cell cell_type unit",
    "model.hidden_size": "hidden hidden_dim rnn_size rnn_hidden rnn_num_hidden dec_rnn_size",
    "model.encoder_hidden_size": "enc_rnn_size encoder_hidden_dim",
    "model.embedding_size": "embed_size emb_size emb_dim embed_dim embedding_dim word_vec_size d_model model_dim",
    "model.encoder_layers": "enc_layers num_encoder_layer num_encoder_layers",
    "model.decoder_layers": "dec_layers num_decoder_layer num_decoder_layers",
    "model.attention_heads model.architecture_options.heads": "num_heads",
    "model.architecture_options.encoder_feed_forward model.architecture_options.decoder_feed_forward":
        "ff_size ffn_dim ffn_size feed_forward_size transformer_ff transformer_dim_ffn",
    "model.tie_embeddings": "tied_embeddings share_embeddings weight_tying weight_tying_type shared_source_target",
    "model.initializer": "init initialization",
    "data.source_language": "src src_lang source_lang source",
    "data.target_language": "tgt trg tgt_lang target_lang target",
    "data.train": "train_file train_files train_data training_data corpus",
    "data.monolingual": "backtranslated back_translation backtranslation bt_data synthetic mono",
    "data.monolingual_tag": "bt_tag tag",
    "data.dev": "valid validation dev_file dev_data valid_data",
    "data.test": "test_file test_data",
    "data.max_length": "max_len max_seq_len max_sent_length",
    "data.tokenizer_options.vocab_size": "src_vocab_size tgt_vocab_size",
    "data.tokenizer_options.bpe_dropout data.tokenizer_options.unigram_alpha":
        "subword_alpha src_subword_alpha tgt_subword_alpha sentencepiece_alphas subword_regularization",
    "data.workers": "num_workers n_workers",
    "training.max_steps": "max_updates max_update train_steps max_training_steps updates steps num_steps",
    "training.max_epochs": "epochs epoches max_epoch num_epochs max_num_epochs",
    "training.init_from": "pretrained load_model finetune_from_model params",
    "training.batch_tokens": "token_size max_tokens",
    "training.batch_tokens training.batch_sentences": "batch_size",
    "training.accumulate": "update_cycle update_freq update_interval batch_multiplier accum_count grad_accum",
    "training.lr": "learning_rate lrate initial_learning_rate",
    "training.schedule": "scheduler scheduling lr_scheduler lr_schedule lrate_strategy learning_rate_scheduler_type",
    "training.schedule_options.warmup_steps": "warmup warmup_updates learning_rate_warmup",
    "training.schedule_options.min_lr": "min_lrate learning_rate_min stop_min_lr",
    "training.schedule_options.max_lr": "max_lrate",
    "training.clip_norm": "clip_grad_norm clip_gradient max_grad_norm gradient_clipping",
    "training.label_smoothing": "label_smooth",
    "training.precision": "fp16 bf16 amp dtype",
    "training.ema_decay": "ema",
    "training.log_every": "disp_freq logging_freq log_interval report_every",
    "training.validate_every": "eval_freq validation_freq valid_steps validate_interval eval_every",
    "training.save_every": "save_freq save_interval checkpoint_interval save_checkpoint_steps",
    "training.keep_last": "keep_checkpoint checkpoints keep_last_ckpts keep_last_params",
    "training.keep_best": "keep_best_ckpts best_checkpoints",
    "training.patience": "early_stopping early_stopping_patience estop_patience max_num_checkpoint_not_improved",
} | {f"decoding.{name}": " ".join(option.also) for name, option in OPTIONS.items() if option.also}  # fmt: skip
OTHER_NAMES: Final = MappingProxyType(
    {name: tuple(keys.split()) for keys, names in _MEANT.items() for name in names.split()}
)
"""Names that JoeyNMT, fairseq, Sockeye, OpenNMT-py and Zero have for some keys, and the full keys."""


def unknown_key(key: str, beside: Sequence[str]) -> str:
    """The message about the unknown `key`, full and with dots; `beside` are the known keys of the same section."""
    section, _, name = key.rpartition(".")
    own = next((other for other in beside if plain(other) == plain(name)), None)
    if own is not None:
        return f"unknown key. Did you mean '{own}'?"
    if section in SECTIONS and name in _names(SECTIONS[section]):  # written with a dot, as for `--set`
        return f"unknown key. Write it into the section: '{section}: {{{name}: ...}}'"
    having = _components(section, name)
    if having:
        return f"unknown key. Only {', '.join(having)} {'have' if len(having) > 1 else 'has'} it."
    meant = _elsewhere(plain(name)) or OTHER_NAMES.get(plain(name)) or _similar(plain(name), beside)
    if meant:
        return "unknown key. Did you mean " + " or ".join(_described(other, section) for other in meant) + "?"
    if hint := near_miss(name, beside):
        return f"unknown key.{hint}"
    allowed = ", ".join(sorted(beside)) or "none"
    return f"unknown key. {f'Allowed: {allowed}.' if len(allowed) <= _LONGEST_LIST else 'See docs/configuration.md.'}"


def _described(key: str, section: str) -> str:
    above, _, name = key.rpartition(".")
    if above == section:
        return f"'{name}'"
    having = _components(above, name)
    return f"'{key}'" + (f" (of {', '.join(having)})" if above in _OPTIONS and len(having) <= _FEW else "")


def _elsewhere(name: str) -> list[str]:
    """Full keys with this name: in the sections, otherwise among the options of components."""
    found = [name] if name in _names(Config) else []
    found += [f"{section}.{name}" for section, keys in SECTIONS.items() if name in _names(keys)]
    return found or [f"{where}.{name}" for where in _OPTIONS if _components(where, name)]


def _components(where: str, name: str) -> list[str]:
    """The components whose options belong at `where` and that have an option of this name."""
    registry = _OPTIONS.get(where.replace("encoder_", "").replace("decoder_", ""))
    members = {} if registry is None else {member: registry.get(member) for member in registry.names()}
    return [member for member, own in members.items() if hasattr(own, "Options") and name in _names(own.Options)]


def _similar(name: str, beside: Sequence[str]) -> list[str]:
    """Full keys of other sections that are more similar to `name` than any key of the same section."""
    members = [registry.get(member) for registry in _OPTIONS.values() for member in registry.names()]
    own = [member.Options for member in members if hasattr(member, "Options")]
    words = {word for keys in (Config, *SECTIONS.values(), *own) for word in _names(keys)}
    close = difflib.get_close_matches(name, sorted(words - set(beside)), n=1, cutoff=_SIMILAR)
    if not close or difflib.get_close_matches(name, [*beside, *close], n=1) != close:
        return []
    return _elsewhere(close[0])


def _names(section: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]
