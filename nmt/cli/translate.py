"""nmt-translate: lines of text in, their translations out."""

from __future__ import annotations

import argparse
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

DESCRIPTION = """Translate text line by line, by default from standard input to standard output. The output
has the order of the input, an empty line gives an empty line, and lines of a slow pipe are
translated as they arrive."""
STDIN = "-"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), translate, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-translate."""
    parser = make_parser("nmt-translate", DESCRIPTION, usage="MODEL... [-i FILE] [-o FILE] [options]")
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODELS_OR_FILES)
    parser.add_argument("-i", "--input", metavar="FILE", help="text to translate, .gz too (default: standard input)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write; it appears when all is done (default: standard output)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "moses", "jsonl"),
        default="text",
        help="text (default): a line for each input line, with --n-best N always N, some empty if there are fewer; "
        "moses: 'line ||| text ||| score= X ||| X' for each translation; jsonl: a JSON object for each input line",
    )
    parser.add_argument(
        "--input-format",
        choices=("text", "tsv", "jsonl"),
        default="text",
        help="what an input line is; text (default): the text alone; tsv: text and the phrases that its translation "
        "must have, separated by tabs; jsonl: a JSON object with text and, if wanted, prefix, require, forbid",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no bar and no status lines; errors and lines with problems are still reported",
    )
    parser.add_argument(
        "--with",
        dest="details",
        metavar="LIST",
        type=details,
        default=(),
        help="what --format jsonl writes in addition: any of tokens, scores (of the tokens), entropies (of their "
        "distributions), attention, heads (attention of each layer and head), alignment, separated by commas",
    )
    parser.add_argument(
        "--alignment",
        metavar="FILE",
        help="file to write: for each input line a line of word pairs of the best translation, source word first, "
        "from 0, as '0-0 1-2' (Pharaoh's format)",
    )
    add_checkpoint(parser)
    add_errors(parser)
    search = parser.add_argument_group("search (defaults: the configuration of the model, of several the first)")
    search.add_argument(
        "--n-best",
        metavar="N",
        type=beam_size,
        help="number of translations of each line; a beam that is smaller is widened",
    )
    add_decoding(search)
    search.add_argument(
        "--prefix",
        metavar="FILE",
        help="file that has for each input line a line that its translation begins with, or an empty one",
    )
    search.add_argument(
        "--constraints",
        metavar="FILE",
        help="file that has for each input line a JSON object with any of prefix, require, forbid, or an empty line",
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
    from nmt.cli.lines import input_windows
    from nmt.cli.output import check_reader
    from nmt.cli.prompt import HINT, prompt_for
    from nmt.cli.requests import RequestReader
    from nmt.cli.totals import Totals
    from nmt.cli.written import opened_writer
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
    undecodable = Undecodable(arguments.errors)
    with opened_writer(arguments, inputs=(path or "/dev/stdin", *beside), is_main=world.is_main) as writer:
        reader = RequestReader(
            path or "standard input",
            input_format=arguments.input_format,
            prefix=arguments.prefix,
            constraints=arguments.constraints,
        )
        bar = bar_for(path, writer.output, wanted=tell is _log, processes=world.size)
        opened = open_models(
            arguments,
            place=_place(world),
            scores=arguments.format != "text",
            say=tell,
            before_batch=lambda: check_reader(writer.output),  # so that what follows `| head` need not be translated
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
                for translation in _translations(opened, reader.requests(window), writer.details, world):
                    number, notes = totals.lines, totals.add(translation)
                    writer.write(number, translation, n_best=opened.n_best, notes=notes)
                writer.flush()
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
