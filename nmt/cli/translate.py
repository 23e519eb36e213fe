"""nmt-translate: translate lines of text."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from nmt.cli.arguments import MODELS_OR_FILES, add_checkpoint, add_decoding, add_n_best, check_ensemble, details
from nmt.cli.common import add_device, add_errors, add_plugins, main_of, make_parser, say
from nmt.errors import ConfigError
from nmt.interop.engine.opened import are_engine_files
from nmt.light.options import DESCRIPTION, add_texts
from nmt.light.pretrained import add_models, one_ensemble
from nmt.registry import PIPES
from nmt.system import keep_large_blocks, keep_more_kernels

if TYPE_CHECKING:
    from nmt.training.distributed import World


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-translate."""
    parser = make_parser(
        "nmt-translate",
        DESCRIPTION,
        examples=(
            "runs/demo -i news.en -o news.de",
            "model.nmt < news.en > news.de",
            "runs/a runs/b -i news.en --format jsonl --n-best 3",
        ),
        usage="MODEL... [-i FILE] [-o FILE] [options]",
    )
    add_models(parser, help=MODELS_OR_FILES)
    add_texts(
        parser,
        details=details,
        more="heads (of each layer and head), confidence (nmt-confidence fits it), ",
        wishes="prefix, require, forbid",
    )
    parser.add_argument(
        "--input-format",
        choices=("text", "tsv", "jsonl"),
        default="text",
        help="format of input lines; text (default): the text alone; tsv: the text and phrases that its translation "
        "must contain, separated by tabs; jsonl: a JSON object with text and optionally prefix, require, forbid",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no bar and no status lines; errors and lines with problems are still reported",
    )
    parser.add_argument(
        "--live",
        metavar="POLICY[,OPTION=VALUE...]",
        help="translate text while it arrives, as soon as the translation is sure: wait_k,wait=3; "
        "local_agreement,agree=2; alignatt,unread=2; a line of output for each line",
    )
    add_checkpoint(parser)
    add_errors(parser)
    search = parser.add_argument_group("search (defaults: the configuration of the first model)")
    add_n_best(search)
    add_decoding(search)
    add_device(parser)
    add_plugins(parser)
    return parser


def translate(arguments: argparse.Namespace) -> int:
    """Load the model, and translate alone or together with the processes that torchrun started."""
    arguments.models = one_ensemble(arguments)
    if arguments.live is not None:
        return int(PIPES.get("live")(arguments))
    if are_engine_files(arguments.models):
        return _translate(arguments, None)
    keep_more_kernels()
    # Imported late, so that --help and mistakes in the options do not load torch.
    from nmt.training.distributed import connected

    with connected(arguments.device) as world:
        keep_large_blocks()
        return _translate(arguments, world)


def _translate(arguments: argparse.Namespace, world: World | None) -> int:
    """Read, translate and write, window by window; several processes translate a part each, and rank 0 writes.

    `world`: None where the engine translates, without the package of torch.
    """
    from nmt.cli.lines import HINT, STDIN, RequestReader, bar_for, input_windows, prompt_for
    from nmt.cli.opened import Work, open_models
    from nmt.cli.output import check_reader, opened_writer
    from nmt.data.text import Undecodable
    from nmt.light.counts import Counts
    from nmt.search.values import WINDOW

    if arguments.details and arguments.format != "jsonl":
        raise ConfigError(f"--with: allowed only with --format jsonl, not {arguments.format}")
    path = None if arguments.input in (None, STDIN) else arguments.input
    if arguments.constraints is not None and arguments.input_format != "text":
        raise ConfigError(
            f"--constraints: not allowed with --input-format {arguments.input_format}, whose lines hold the constraints"
        )
    check_ensemble(arguments, models=len(arguments.models))
    beside = [file for file in (arguments.prefix, arguments.constraints) if file is not None]
    size, is_main, device = (1, True, "cpu") if world is None else (world.size, world.is_main, str(world.device))
    if world is not None:
        from nmt.cli.across_processes import check_input, translate_across_processes

        for file in (path, *beside):
            check_input(file, world=world)

    def log(message: str) -> None:
        say("nmt-translate", message)

    def tell(message: str) -> None:
        if is_main and not arguments.quiet:
            log(message)

    undecodable, counts = Undecodable(arguments.errors), Counts(arguments.errors, split_long="decoding.split_long")
    with opened_writer(arguments, inputs=(path or "/dev/stdin", *beside), is_main=is_main) as writer:
        reader = RequestReader(
            path or "standard input",
            input_format=arguments.input_format,
            prefix=arguments.prefix,
            constraints=arguments.constraints,
            policy=arguments.errors,
        )
        bar = bar_for(path, writer.output, wanted=is_main and not arguments.quiet, processes=size)
        work = Work(
            device=device,
            place=device if size == 1 else f"{device.partition(':')[0]}, {size} processes",
            scores=arguments.format != "text",
            on_batch=bar.batch,
            before_batch=lambda: check_reader(writer.output),  # so that nothing is translated after `| head` has ended
            say=tell,
        )
        opened = open_models(arguments, work)
        translated = opened.translate
        if world is not None:
            translated = partial(translate_across_processes, opened.translate, world=world)
        counts.longest = opened.longest
        tell(opened.described)
        prompt = prompt_for(path, opened.languages[0])
        if prompt is not None:
            tell(HINT)
        start = time.perf_counter()
        lines = input_windows(path, size=WINDOW * size, undecodable=undecodable, prompt=prompt)
        with bar, lines as windows:
            for window in windows:
                bar.window(len(window))
                for result in translated(reader.requests(window), writer.details):
                    number = counts.lines
                    notes = [*(["not_utf8"] if undecodable.had(number + 1) else ()), *result.notes]
                    counts.add(result.source_tokens, result.unknown, notes)
                    writer.write(number, result, n_best=opened.n_best, notes=notes)
                writer.flush()
        reader.finish()
    is_silent = arguments.quiet or prompt is not None  # its time is that of typing
    if is_main and (counts.problems() or not is_silent):
        log(counts.summary(time.perf_counter() - start, models=len(arguments.models)))
    for problem in reader.problems() if is_main else ():
        log(problem)
    return counts.exit_code


main = main_of(build_parser, translate)

if __name__ == "__main__":
    sys.exit(main())
