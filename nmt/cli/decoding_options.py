"""Options of search that every translating command has, in place of the settings that a model was saved with."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nmt.cli.argument_types import (
    NONE,
    beam_size,
    length_offset,
    length_penalty,
    positive_or_auto,
    positive_or_none,
)

if TYPE_CHECKING:
    from nmt.config import DecodingConfig

DECODING = (
    *("search", "beam_size", "n_best", "length_penalty", "max_length_offset", "split_long"),
    *("batch_tokens", "shortlist", "precision"),
)


def add_decoding(group: argparse._ArgumentGroup) -> None:
    """Add the options of search that every translating command has; `overridden` also reads `n_best`."""
    group.add_argument(
        "--search",
        metavar="NAME",
        help="beam, greedy, one of a plugin, or auto: greedy for a beam size of 1, else beam",
    )
    group.add_argument("--beam-size", metavar="N", type=beam_size, help="hypotheses kept")
    group.add_argument(
        "--length-penalty", metavar="A", type=length_penalty, help="alpha in ((5 + length) / 6) ** alpha, 0 to 10"
    )
    group.add_argument(
        "--max-length-offset",
        metavar="N",
        type=length_offset,
        help="tokens a translation may have more than its source",
    )
    group.add_argument(
        "--split-long",
        metavar="N|none",
        type=positive_or_none,
        help="a line of more than N source tokens is translated in parts, cut at sentence ends",
    )
    group.add_argument(
        "--batch-tokens", metavar="N|auto", type=positive_or_auto, help="source tokens in a batch, times the beam"
    )
    group.add_argument(
        "--shortlist", metavar="FILE", help="made by nmt-shortlist: words to choose from; 'none' allows all words"
    )
    group.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16", "int8"),
        help="number format; int8: of the decoder's matrices",
    )


def overridden(
    decoding: DecodingConfig, arguments: argparse.Namespace, *, say: Callable[[str], object] | None = None
) -> DecodingConfig:
    """The decoding settings of a model with those of a command line in their place; `say` as in `changed_decoding`."""
    from nmt.config.changed import changed_decoding

    changes = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    for name in ("shortlist", "split_long"):
        if changes.get(name) == NONE:
            changes[name] = None
    return changed_decoding(decoding, changes, option=lambda name: "--" + name.replace("_", "-"), say=say)
