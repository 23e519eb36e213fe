"""nmt-tag: lines of text in, labels of their words, or the words of text without spaces, out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.cli.common import add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.models import add_checkpoint, add_model
from nmt.environment import keep_more_kernels
from nmt.errors import ConfigError, counted
from nmt.files.undecodable import Undecodable

if TYPE_CHECKING:
    from nmt.tasks.tagging.tagger import TaggedLine

DESCRIPTION = """Label text line by line, by default from standard input to standard output: a model of the task
`tagging` reads words with spaces between them and writes their labels; one of the task `segmentation` reads text and
writes it with spaces between its words. There is one output line for each input line, and lines of a slow pipe are
labelled as they arrive."""
STDIN = "-"
WINDOW = 1000
"""Lines that are labelled together."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), tag, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-tag."""
    parser = make_parser("nmt-tag", DESCRIPTION, usage="MODEL [-i FILE] [-o FILE] [options]")
    add_model(parser)
    parser.add_argument("-i", "--input", metavar="FILE", help="text to label, .gz too (default: standard input)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write; it appears when all is done (default: standard output)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "conll"),
        default="text",
        help="text (default): a line for each input line; conll, for words: a line for each word, with a tab and its "
        "label, and an empty line after each input line",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no bar and no status lines; errors and lines with problems are still reported",
    )
    add_checkpoint(parser)
    add_errors(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


@dataclass
class Totals:
    """Counts of lines and tokens."""

    what: str
    """What tokens are."""
    undecodable: Undecodable = field(default_factory=Undecodable)
    lines: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, line: TaggedLine) -> None:
        """Count one line."""
        self.lines += 1
        self.empty += not line.tokens
        self.tokens += len(line.tokens)
        self.unknown += line.unknown

    def summary(self, seconds: float) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the {self.what} unknown to the vocabulary"
        return f"{text}; {self.undecodable.summary()}" if self.undecodable.noted else text


def tag(arguments: argparse.Namespace) -> int:
    """Load the model, label and write, window by window."""
    keep_more_kernels()
    # Late, so that --help and mistakes in the options do not wait for torch.
    from nmt.cli.bar import bar_for
    from nmt.cli.lines import input_windows
    from nmt.cli.output import check_reader, output_stream
    from nmt.cli.prompt import prompt_for
    from nmt.interop.device import choose_device
    from nmt.interop.model_dir import load_model
    from nmt.tasks.tagging.tagger import TASKS, LineTagger

    path = None if arguments.input in (None, STDIN) else arguments.input
    undecodable = Undecodable(arguments.errors)
    device = choose_device(arguments.device)
    with output_stream(arguments.output, inputs=[path or "/dev/stdin"], models=[arguments.model]) as output:
        loaded = load_model(
            arguments.model,
            plugins=arguments.plugins,
            device=device,
            checkpoint=arguments.checkpoint,
            purpose="scoring",
            task=TASKS,
        )
        tagger = LineTagger(loaded, device=device)
        if arguments.format == "conll" and not tagger.labels_words:
            raise ConfigError(f"--format conll: {arguments.model} finds words and has no labels for them")
        if not arguments.quiet:
            say("nmt-tag", f"{loaded.path} on {device}")
        bar = bar_for(path, output, wanted=not arguments.quiet, processes=1, doing="labelling")
        totals = Totals("words" if tagger.labels_words else "characters", undecodable)
        prompt = prompt_for(path, "text")
        start = time.perf_counter()

        def on_batch(sentences: int) -> None:
            check_reader(output)  # so that what follows `| head` need not be labelled
            bar.batch(sentences)

        with bar, input_windows(path, size=WINDOW, undecodable=undecodable, prompt=prompt) as windows:
            for window in windows:
                bar.window(len(window))
                for line in tagger.tag(window, on_batch=on_batch):
                    totals.add(line)
                    output.write(_written(line, arguments.format).encode())
                output.flush()
    is_silent = arguments.quiet or prompt is not None  # whose seconds are those of typing
    if undecodable.noted or not is_silent:
        say("nmt-tag", totals.summary(time.perf_counter() - start))
    return 0


def _written(line: TaggedLine, form: str) -> str:
    if form == "text":
        return f"{line.text}\n"
    pairs = zip(line.tokens, line.labels, strict=True)
    return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n"


if __name__ == "__main__":
    sys.exit(main())
