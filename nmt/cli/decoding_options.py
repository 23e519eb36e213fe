"""Options of search that every translating command has, in place of the settings that a model was saved with."""

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
    """Add the options of search that every translating command has; `overridden` also reads `n_best`."""
    group.add_argument(
        "--search",
        metavar="NAME",
        help="beam, greedy, sample, noisy_beam, diverse_beam, mbr, one of a plugin, or auto: greedy for a beam size "
        "of 1, else beam",
    )
    group.add_argument(
        "--search-option",
        dest="search_options",
        metavar="KEY=VALUE",
        action="append",
        help="option of the search, such as temperature=0.7; repeatable",
    )
    group.add_argument("--beam-size", metavar="N", type=beam_size, help="hypotheses kept")
    group.add_argument(
        "--length-penalty",
        metavar="A",
        type=length_penalty,
        help="0 to 10; log-probabilities are divided by ((5+length)/6)**A",
    )
    group.add_argument(
        "--coverage-penalty",
        metavar="B",
        type=length_penalty,
        help="beta of the penalty for source words that nothing attends to, 0 to 10",
    )
    group.add_argument(
        "--max-length-offset",
        metavar="N",
        type=length_offset,
        help="tokens a translation may have more than its source",
    )
    group.add_argument("--min-length", metavar="N", type=natural, help="tokens a translation has at least")
    group.add_argument(
        "--no-repeat-ngram",
        metavar="N",
        type=natural,
        help="no sequence of N tokens comes twice in a translation; 0: all may",
    )
    group.add_argument(
        "--split-long",
        metavar="N|none",
        type=positive_or_none,
        help="a line of more than N source tokens is translated in parts, cut at sentence ends",
    )
    group.add_argument(
        "--batch-tokens",
        metavar="N|auto",
        type=positive_or_auto,
        help="size of a batch: its source tokens times the beam size",
    )
    group.add_argument(
        "--shortlist", metavar="FILE", help="words to choose from, in a file of nmt-shortlist; 'none': all words"
    )
    group.add_argument(
        "--language-model",
        metavar="MODEL",
        help="run of a language model over the same words that has a say in each step; 'none': none",
    )
    group.add_argument(
        "--language-model-weight",
        metavar="W",
        type=length_penalty,
        help="what its log-probabilities are multiplied by before they are added, 0 to 10 (default: 0.2)",
    )
    group.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16", "int8"),
        help="number format to compute in; int8: for the decoder's matrices",
    )
    group.add_argument(
        "--replace-unknown",
        action=argparse.BooleanOptionalAction,
        help="where the translation has an unknown word, write the source word that it comes from",
    )
    group.add_argument(
        "--placeholders",
        action=argparse.BooleanOptionalAction,
        help="keep {name}, <tag>, web and e-mail addresses as they are, each as often as in the source",
    )
    group.add_argument(
        "--glossary",
        metavar="FILE",
        help="file of lines 'term TAB translation', by which terms are translated; 'none': no glossary",
    )
    add_ensemble(group)


def add_ensemble(group: argparse._ActionsContainer) -> None:
    """Add the options of several models, which scoring has, too."""
    group.add_argument(
        "--ensemble-weights",
        metavar="W,W...|none",
        type=ensemble_weights,
        help="how much each of several models counts, in any unit, such as 2,1",
    )
    group.add_argument(
        "--ensemble-mean",
        choices=("probabilities", "log_probabilities"),
        help="what is averaged over several models (default: probabilities)",
    )


def check_ensemble(arguments: argparse.Namespace, *, models: int) -> None:
    """Raise ConfigError for options of several models that are not for so many."""
    weights = arguments.ensemble_weights
    if weights not in (None, NONE) and len(weights) != models:
        from nmt.search.ensemble_mean import wrong_number

        raise ConfigError(f"--ensemble-weights: {wrong_number(len(weights), models=models)}")
    if arguments.ensemble_mean is not None and models == 1:
        raise ConfigError("--ensemble-mean: there is only 1 model; name several")


def with_ensemble(decoding: DecodingConfig, arguments: argparse.Namespace) -> DecodingConfig:
    """`decoding` with the options of `add_ensemble` in their place."""
    names = ("ensemble_weights", "ensemble_mean")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    changes: dict[str, Any] = {name: None if value == NONE else value for name, value in given.items()}
    return dataclasses.replace(decoding, **changes)


def overridden(
    decoding: DecodingConfig, arguments: argparse.Namespace, *, say: Callable[[str], object] | None = None
) -> DecodingConfig:
    """The decoding settings of a model with those of a command line in their place; `say` as in `changed_decoding`."""
    from nmt.config.changed import changed_decoding

    changes = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    for name in ("shortlist", "split_long", "ensemble_weights", "glossary", "language_model"):
        if changes.get(name) == NONE:
            changes[name] = None
    if "search_options" in changes:
        given = search_options(changes.pop("search_options"))
        plain = changed_decoding(decoding, changes, option=_option)
        changes["search_options"] = {**plain.search_options, **given}  # of another search none are left
    return changed_decoding(decoding, changes, option=_option, say=say)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def search_options(given: Sequence[str]) -> dict[str, Any]:
    """Options of a search from KEY=VALUE; values are YAML, as those of --set."""
    from nmt.config.yaml12 import read_yaml

    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--search-option {shown(text)[1:-1]}: must be KEY=VALUE, such as temperature=0.7")
        if key.strip() in found:
            raise ConfigError(f"--search-option {key.strip()}: is given twice")
        try:
            found[key.strip()] = read_yaml(value, origin="value").value
        except ConfigError as error:
            message = str(error).removeprefix("value: ").removeprefix("line 1: ")
            raise ConfigError(f"--search-option {key.strip()}: {message}") from None
    return found
