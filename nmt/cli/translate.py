"""nmt-translate: lines of text in, their translations out."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from nmt.cli.argument_types import beam_size, details
from nmt.cli.common import add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.decoding_options import add_decoding, check_ensemble
from nmt.cli.models import MODELS_OR_FILES, add_checkpoint
from nmt.environment import keep_more_kernels
from nmt.errors import ConfigError
from nmt.interop.engine.opened import are_engine_files

if TYPE_CHECKING:
    from nmt.cli.opened import Opened, OpenModels
    from nmt.search import Request, Translation
    from nmt.search.translation import Details
    from nmt.training.distributed import World

DESCRIPTION = """Translate text line by line, standard input to standard output by default. Lines are
answered in order, an empty line with an empty line; what is piped slowly is answered as it comes."""
STDIN = "-"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), translate, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-translate."""
    parser = make_parser("nmt-translate", DESCRIPTION, usage="MODEL... [-i FILE] [-o FILE] [options]")
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODELS_OR_FILES)
    parser.add_argument("-i", "--input", metavar="FILE", help="text to translate, .gz too (default: standard input)")
    parser.add_argument("-o", "--output", metavar="FILE", help="written when all is done (default: standard output)")
    parser.add_argument(
        "--format",
        choices=("text", "moses", "jsonl"),
        default="text",
        help="text: N lines for each input line with --n-best N, empty ones where there are fewer translations; "
        "moses: 'line ||| text ||| score= X ||| X'; jsonl: an object for each input line (default: text)",
    )
    parser.add_argument(
        "--input-format",
        choices=("text", "tsv", "jsonl"),
        default="text",
        help="of the lines to translate; tsv: text and required phrases with tabs between them; jsonl: objects with "
        "text, prefix, require, forbid (default: text)",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="no bar and no status lines; mistakes and odd lines are still said"
    )
    parser.add_argument(
        "--with",
        dest="details",
        metavar="LIST",
        type=details,
        default=(),
        help="more of each translation, with --format jsonl: tokens, scores (of the tokens), attention, alignment; "
        "several with commas between",
    )
    add_checkpoint(parser)
    add_errors(parser)
    search = parser.add_argument_group("search (defaults: the configuration of the model, of several the first)")
    search.add_argument(
        "--n-best", metavar="N", type=beam_size, help="translations of each line; more than the beam holds widen it"
    )
    add_decoding(search)
    search.add_argument(
        "--prefix", metavar="FILE", help="what each translation begins with, a line for each input line; empty: nothing"
    )
    search.add_argument(
        "--constraints",
        metavar="FILE",
        help="for each input line a JSON object with prefix, require, forbid, or nothing",
    )
    add_device(parser)
    add_plugins(parser)
    return parser


def translate(arguments: argparse.Namespace) -> int:
    """Load the model, and translate alone or with the other processes that torchrun has started."""
    if are_engine_files(arguments.models):
        from nmt.cli.opened_files import open_files

        return _translate(arguments, _Alone(), open_files)
    keep_more_kernels()
    # Late, so that --help and mistakes in the options do not wait for torch.
    from nmt.training.distributed import connected

    with connected(arguments.device) as world:
        from nmt.cli.opened_runs import open_runs
        from nmt.training.allocator import keep_large_blocks

        keep_large_blocks()
        return _translate(arguments, world, partial(open_runs, device=world.device))


class Processes(Protocol):
    """Those that translate together: `nmt.training.distributed.World`, or this one alone."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def is_main(self) -> bool:
        """Whether this one writes."""


class _Alone:
    size = 1
    is_main = True


def _translate(arguments: argparse.Namespace, world: Processes, open_models: OpenModels) -> int:
    """Read, translate and write, window by window; of several processes each has a part and rank 0 writes."""
    from nmt.cli.bar import bar_for
    from nmt.cli.formats import FORMATS
    from nmt.cli.lines import input_windows
    from nmt.cli.output import check_reader, output_stream
    from nmt.cli.prompt import HINT, prompt_for
    from nmt.cli.requests import RequestReader
    from nmt.cli.totals import Totals
    from nmt.files.undecodable import Undecodable
    from nmt.library.translator import WINDOW

    if arguments.details and arguments.format != "jsonl":
        raise ConfigError(f"--with needs --format jsonl; --format {arguments.format} has no place for it")
    path = None if arguments.input in (None, STDIN) else arguments.input
    if arguments.constraints is not None and arguments.input_format != "text":
        raise ConfigError(f"--constraints: with --input-format {arguments.input_format} they stand in the input itself")
    check_ensemble(arguments, models=len(arguments.models))
    beside = [file for file in (arguments.prefix, arguments.constraints) if file is not None]
    _check_inputs((path, *beside), world)
    tell = _log if world.is_main and not arguments.quiet else _ignore
    write = FORMATS[arguments.format]
    undecodable = Undecodable(arguments.errors)
    target = arguments.output if world.is_main else os.devnull
    with output_stream(target, inputs=(path or "/dev/stdin", *beside), models=arguments.models) as output:
        reader = RequestReader(
            path or "standard input",
            input_format=arguments.input_format,
            prefix=arguments.prefix,
            constraints=arguments.constraints,
        )
        bar = bar_for(path, output, wanted=tell is _log, processes=world.size)
        opened = open_models(
            arguments,
            place=_place(world),
            scores=arguments.format != "text",
            say=tell,
            before_batch=lambda: check_reader(output),  # so that what follows `| head` need not be translated
            on_batch=bar.batch,
        )
        totals = Totals(opened.longest, undecodable)
        tell(opened.described)
        prompt = prompt_for(path, opened.languages[0])
        if prompt is not None:
            tell(HINT)
        start = time.perf_counter()
        lines = input_windows(path, size=WINDOW * world.size, undecodable=undecodable, prompt=prompt)
        with bar, lines as windows:
            for window in windows:
                bar.window(len(window))
                for translation in _translations(opened, reader.requests(window), arguments.details, world):
                    number, notes = totals.lines, totals.add(translation)
                    output.write(write(number, translation, n_best=opened.n_best, notes=notes).encode())
                output.flush()
        reader.finish()
    is_silent = arguments.quiet or prompt is not None  # whose seconds are those of typing
    if world.is_main and (totals.problems() or not is_silent):
        _log(totals.summary(time.perf_counter() - start, models=opened.models))
    return totals.exit_code


def _check_inputs(paths: Sequence[str | None], world: Processes) -> None:
    """Several processes must have the same files."""
    if world.size > 1:
        from nmt.cli.across_processes import check_input

        for path in paths:
            check_input(path, world=cast("World", world))


def _translations(
    opened: Opened, lines: Sequence[str | Request], details: Details, world: Processes
) -> Sequence[Translation]:
    """The translations of `lines`; of several processes on rank 0."""
    if world.size == 1:
        return opened.translator.translate_window(lines, details=details)
    from nmt.cli.across_processes import translate_across_processes

    return translate_across_processes(opened.translator, lines, details, world=cast("World", world))


def _place(world: Processes) -> str:
    device: Any = getattr(world, "device", "cpu")
    return str(device) if world.size == 1 else f"{device.type}, {world.size} processes"


def _log(message: str) -> None:
    say("nmt-translate", message)


def _ignore(message: str) -> None:
    """Rank 0 says it, or nobody wants to know."""


if __name__ == "__main__":
    sys.exit(main())
