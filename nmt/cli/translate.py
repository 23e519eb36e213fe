"""nmt-translate: lines of text in, their translations out."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.cli.argument_types import (
    NONE,
    beam_size,
    length_offset,
    length_penalty,
    positive,
    positive_or_auto,
    positive_or_none,
)
from nmt.cli.common import add_device, add_errors, add_plugins, execute, make_parser
from nmt.cli.environment import keep_more_kernels
from nmt.errors import ConfigError

if TYPE_CHECKING:
    from nmt.config import DecodingConfig
    from nmt.training.distributed import World

DESCRIPTION = """Translate text line by line, standard input to standard output by default. Lines are
answered in order, an empty line with an empty line; what is piped slowly is answered as it comes."""
MODELS = "run directory, checkpoint in it, or output of nmt-average; of several the probabilities are averaged"
STDIN = "-"
DECODING = (
    *("search", "beam_size", "n_best", "length_penalty", "max_length_offset", "split_long"),
    *("batch_tokens", "shortlist", "precision"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), translate, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-translate."""
    parser = make_parser("nmt-translate", DESCRIPTION)
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODELS)
    parser.add_argument("-i", "--input", metavar="FILE", help="text to translate, .gz too (default: standard input)")
    parser.add_argument("-o", "--output", metavar="FILE", help="written when all is done (default: standard output)")
    parser.add_argument(
        "--format",
        choices=("text", "moses", "jsonl"),
        default="text",
        help="text: N lines for each input line with --n-best N, empty ones where there are fewer translations; "
        "moses: 'line ||| text ||| score= X ||| X'; jsonl: an object for each input line (default: text)",
    )
    add_checkpoint(parser)
    add_errors(parser)
    search = parser.add_argument_group("search (defaults: the configuration of the model, of several the first)")
    search.add_argument("--n-best", metavar="N", type=positive, help="translations of each line, at most the beam size")
    add_decoding(search)
    add_device(parser)
    add_plugins(parser)
    return parser


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add `--checkpoint`."""
    parser.add_argument(
        "--checkpoint", metavar="STEP|best|last", default="best", help="which one of each run (default: best)"
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


def translate(arguments: argparse.Namespace) -> int:
    """Load the model, and translate alone or with the other processes that torchrun has started."""
    keep_more_kernels()
    # Late, so that --help and mistakes in the options do not wait for torch.
    from nmt.training.distributed import connected

    with connected(arguments.device) as world:
        return _translate(arguments, world)


def _translate(arguments: argparse.Namespace, world: World) -> int:
    """Read, translate and write, window by window; of several processes each has a part and rank 0 writes."""
    from nmt.cli.across_processes import check_input, translate_across_processes
    from nmt.cli.formats import FORMATS
    from nmt.cli.lines import input_windows
    from nmt.cli.output import check_reader, output_stream
    from nmt.cli.totals import Totals, shortest_training
    from nmt.files.undecodable import Undecodable
    from nmt.interop.ensemble import load_models, names_of
    from nmt.search import Translator
    from nmt.search.translator import WINDOW
    from nmt.training.allocator import keep_large_blocks

    keep_large_blocks()
    path = None if arguments.input in (None, STDIN) else arguments.input
    check_input(path, world=world)
    write = FORMATS[arguments.format]
    undecodable = Undecodable(arguments.errors)
    target = arguments.output if world.is_main else os.devnull
    with output_stream(target, inputs=(path or "/dev/stdin",), models=arguments.models) as output:
        models = load_models(
            arguments.models, plugins=arguments.plugins, device=world.device, checkpoint=arguments.checkpoint
        )
        loaded, *others = models
        decoding = overridden(loaded.config.decoding, arguments)
        translator = Translator(
            loaded.model,
            loaded.tokenizer,
            decoding,
            others=[other.model for other in others],
            scores=arguments.format != "text",
            before_batch=lambda: check_reader(output),  # so that what follows `| head` need not be translated
        )
        totals = Totals(shortest_training(models), undecodable)
        if world.is_main:
            _log(f"{names_of(models)} on {_place(world)}, {_search(decoding)}, {translator.precision}")
        start = time.perf_counter()
        with input_windows(path, size=WINDOW * world.size, undecodable=undecodable) as windows:
            for window in windows:
                for translation in translate_across_processes(translator, window, world=world):
                    number, notes = totals.lines, totals.add(translation)
                    output.write(write(number, translation, n_best=decoding.n_best, notes=notes).encode())
                output.flush()
    if world.is_main:
        _log(totals.summary(time.perf_counter() - start, models=len(models)))
    return totals.exit_code


def _place(world: World) -> str:
    return str(world.device) if world.size == 1 else f"{world.device.type}, {world.size} processes"


def _search(decoding: DecodingConfig) -> str:
    from nmt.config.schema import AUTO

    named = "" if decoding.search == AUTO else f"search {decoding.search}, "
    return f"{named}beam {decoding.beam_size}"


def overridden(decoding: DecodingConfig, arguments: argparse.Namespace) -> DecodingConfig:
    """The model's decoding settings with those given on the command line in their place.

    Another search than the model's has the options that are its defaults.
    """
    from nmt.config.schema import AUTO
    from nmt.registry import SEARCHES

    changes = {name: getattr(arguments, name) for name in DECODING if getattr(arguments, name) is not None}
    if "n_best" not in changes and changes.get("beam_size", decoding.n_best) < decoding.n_best:
        changes["n_best"] = changes["beam_size"]  # the saved n_best was for the saved beam
    for name in ("shortlist", "split_long"):
        if changes.get(name) == NONE:
            changes[name] = None
    saved, decoding = decoding, dataclasses.replace(decoding, **changes)
    if decoding.chosen_search not in SEARCHES.names():
        raise ConfigError(f"--search: {SEARCHES.unknown(decoding.search, also=(AUTO,))}")
    if decoding.chosen_search != saved.chosen_search:
        decoding = dataclasses.replace(decoding, search_options={})  # the saved ones were for the saved search
    if decoding.n_best > decoding.beam_size:
        raise ConfigError(f"--n-best {decoding.n_best} must not exceed the beam size, {decoding.beam_size}")
    return decoding


def _log(message: str) -> None:
    print(f"nmt-translate: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
