"""Search options of every command that translates; they replace the settings saved with the model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nmt.cli.argument_types import (
    NONE,
    beam_size,
    ensemble_weights,
    length_offset,
    length_penalty,
    natural,
    positive_or_auto,
    positive_or_none,
)
from nmt.cli.option_names import option_of
from nmt.errors import ConfigError, shown

if TYPE_CHECKING:
    from nmt.config import DecodingConfig

DECODING = (
    *("search", "beam_size", "n_best", "length_penalty", "max_length_offset", "split_long"),
    *("batch_tokens", "shortlist", "precision", "search_options", "min_length", "no_repeat_ngram"),
    *("ensemble_weights", "ensemble_mean", "coverage_penalty"),
    *("replace_unknown", "placeholders", "glossary", "language_model", "language_model_weight"),
)


def add_decoding(group: argparse._ArgumentGroup) -> None:
    """Add the search options of every command that translates; `overridden` also reads `n_best`."""
    group.add_argument(
        "--search",
        metavar="NAME",
        help="beam, greedy, sample, noisy_beam, diverse_beam, mbr, a plugin's search, or auto: greedy for a beam size "
        "of 1, else beam",
    )
    group.add_argument(
        "--search-option",
        dest="search_options",
        metavar="KEY=VALUE",
        action="append",
        help="option of the search, such as temperature=0.7; repeatable",
    )
    group.add_argument("--beam-size", metavar="N", type=beam_size, help="hypotheses kept per sentence")
    group.add_argument(
        "--length-penalty",
        metavar="A",
        type=length_penalty,
        help="0 to 10; scores are divided by ((5+length)/6)**A",
    )
    group.add_argument(
        "--coverage-penalty",
        metavar="B",
        type=length_penalty,
        help="weight of the penalty for source words without attention, 0 to 10",
    )
    group.add_argument(
        "--max-length-offset",
        metavar="N",
        type=length_offset,
        help="how many more tokens than its source a translation may have",
    )
    group.add_argument("--min-length", metavar="N", type=natural, help="smallest number of tokens of a translation")
    group.add_argument(
        "--no-repeat-ngram",
        metavar="N",
        type=natural,
        help="no sequence of N tokens occurs twice in a translation; 0: no limit",
    )
    group.add_argument(
        "--split-long",
        metavar="N|none",
        type=positive_or_none,
        help="translate a line of more than N source tokens in parts, cut at sentence ends",
    )
    group.add_argument(
        "--batch-tokens",
        metavar="N|auto",
        type=positive_or_auto,
        help="largest batch: source tokens times beam size",
    )
    group.add_argument(
        "--shortlist",
        metavar="FILE",
        help="file of nmt-shortlist with the words allowed for each source word; 'none': all words are allowed",
    )
    group.add_argument(
        "--language-model",
        metavar="MODEL",
        help="run of a language model with the same target vocabulary, whose scores are added in each step; 'none': no "
        "language model",
    )
    group.add_argument(
        "--language-model-weight",
        metavar="W",
        type=length_penalty,
        help="weight of the language model's log-probabilities, 0 to 10 (default: 0.2)",
    )
    group.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16", "int8"),
        help="number format of the computation; int8: matrices of the decoder, and of the encoder of a transformer",
    )
    group.add_argument(
        "--replace-unknown",
        action=argparse.BooleanOptionalAction,
        help="replace each unknown word in the translation by the source word it attends to most",
    )
    group.add_argument(
        "--placeholders",
        action=argparse.BooleanOptionalAction,
        help="copy {name}, <tag>, web and e-mail addresses unchanged, each as often as in the source",
    )
    group.add_argument(
        "--glossary",
        metavar="FILE",
        help="file of lines 'term TAB translation': how terms must be translated; 'none': no glossary",
    )
    add_ensemble(group)


def add_ensemble(group: argparse._ActionsContainer) -> None:
    """Add the options of an ensemble, which scoring has, too."""
    group.add_argument(
        "--ensemble-weights",
        metavar="W,W...|none",
        type=ensemble_weights,
        help="relative weights of the models of an ensemble, such as 2,1",
    )
    group.add_argument(
        "--ensemble-mean",
        choices=("probabilities", "log_probabilities"),
        help="what an ensemble averages (default: probabilities)",
    )


def check_ensemble(arguments: argparse.Namespace, *, models: int) -> None:
    """Raise ConfigError for ensemble options that do not fit the number of models."""
    weights = arguments.ensemble_weights
    if weights not in (None, NONE) and len(weights) != models:
        from nmt.search.ensemble_mean import wrong_number

        raise ConfigError(f"--ensemble-weights: {wrong_number(len(weights), models=models)}")
    if arguments.ensemble_mean is not None and models == 1:
        raise ConfigError("--ensemble-mean: there is only 1 model; give several")


def with_ensemble(decoding: DecodingConfig, arguments: argparse.Namespace) -> DecodingConfig:
    """`decoding` changed by the options of `add_ensemble`."""
    names = ("ensemble_weights", "ensemble_mean")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    changes: dict[str, Any] = {name: None if value == NONE else value for name, value in given.items()}
    return dataclasses.replace(decoding, **changes)


def overridden(
    decoding: DecodingConfig, arguments: argparse.Namespace, *, say: Callable[[str], object] | None = None
) -> DecodingConfig:
    """The decoding settings of a model, changed by a command line; `say` as in `changed_decoding`."""
    from nmt.config.changed import changed_decoding

    changes = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    for name in ("shortlist", "split_long", "ensemble_weights", "glossary", "language_model"):
        if changes.get(name) == NONE:
            changes[name] = None
    if "search_options" in changes:
        given = search_options(changes.pop("search_options"))
        plain = changed_decoding(decoding, changes, option=option_of)
        # plain: without the saved search's options if another search is chosen
        changes["search_options"] = {**plain.search_options, **given}
    return changed_decoding(decoding, changes, option=option_of, say=say)


def search_options(given: Sequence[str]) -> dict[str, Any]:
    """Search options from KEY=VALUE; values are YAML, as for --set."""
    from nmt.config.yaml12 import read_yaml

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--search-option {shown(text)[1:-1]}: must be KEY=VALUE, such as temperature=0.7")
        if key.strip() in found:
            raise ConfigError(f"--search-option {key.strip()}: given twice")
        try:
            found[key.strip()] = read_yaml(value, origin="value").value
        except ConfigError as error:
            message = str(error).removeprefix("value: ").removeprefix("line 1: ")
            raise ConfigError(f"--search-option {key.strip()}: {message}") from None
    return found
