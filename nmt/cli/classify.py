"""nmt-classify: lines of one or two texts in, a label for each line out."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.cli.common import add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.models import add_checkpoint, add_model
from nmt.environment import keep_more_kernels
from nmt.errors import counted
from nmt.files.undecodable import Undecodable

if TYPE_CHECKING:
    from nmt.tasks.classification.classifier import ClassifiedLine, LineClassifier

DESCRIPTION = """Label lines of text, by default from standard input to standard output, by a model of the task
`classification`. A line has one text or, where the model compares two, two with a tab between them. There is one output
line for each input line, an empty one for a blank one, and lines of a slow pipe are labelled as they arrive."""
STDIN = "-"
WINDOW = 1000
"""Lines that are labelled together."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), classify, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-classify."""
    parser = make_parser("nmt-classify", DESCRIPTION, usage="MODEL [-i FILE] [-o FILE] [options]")
    add_model(parser)
    parser.add_argument("-i", "--input", metavar="FILE", help="text to label, .gz too (default: standard input)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write; it appears when all is done (default: standard output)"
    )
    parser.add_argument(
        "--json", action="store_true", help="lines are JSON objects, with the keys that the model was trained on"
    )
    parser.add_argument(
        "--scores", action="store_true", help="after each label a tab and the probability of every label, as NAME=P"
    )
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="lines have the right label, too: after a tab at their end or, with --json, under its key; at the end "
        "accuracy and the scores of each label are written to standard error",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no bar and no status lines; errors, lines with problems and what --evaluate finds are still reported",
    )
    add_checkpoint(parser)
    add_errors(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


@dataclass
class Totals:
    """Counts of lines and tokens, and the labels of lines that have the right one, too."""

    undecodable: Undecodable = field(default_factory=Undecodable)
    lines: int = 0
    empty: int = 0
    tokens: int = 0
    unknown: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often which right label was predicted as which."""

    def add(self, line: ClassifiedLine) -> None:
        """Count one line."""
        self.lines += 1
        self.empty += not line.label
        self.tokens += line.tokens
        self.unknown += line.unknown
        if line.right is not None:
            self.pairs[line.right, line.label] += 1

    def summary(self, seconds: float) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the tokens unknown to the vocabulary"
        return f"{text}; {self.undecodable.summary()}" if self.undecodable.noted else text

    def evaluation(self, labels: Sequence[str]) -> list[str]:
        """What --evaluate reports, as lines for people."""
        from nmt.tasks.classification.scores import Confusion

        if not self.pairs:
            return ["--evaluate: no line with a label"]
        confusion = Confusion.of_pairs(self.pairs, labels=labels)
        scores = ", ".join(f"{name} {value:.2f}" for name, value in confusion.scores.items())
        without = self.lines - self.empty - confusion.texts
        left = f"; {counted(without, 'line')} without a label not counted" if without else ""
        return [f"{scores} of {counted(confusion.texts, 'line')} with a label{left}", *confusion.lines()]


def classify(arguments: argparse.Namespace) -> int:
    """Load the model, label and write, window by window."""
    keep_more_kernels()
    # Late, so that --help and mistakes in the options do not wait for torch.
    from nmt.cli.bar import bar_for
    from nmt.cli.lines import input_windows
    from nmt.cli.output import check_reader, output_stream
    from nmt.cli.prompt import prompt_for
    from nmt.interop.device import choose_device
    from nmt.interop.model_dir import load_model
    from nmt.tasks.classification.classifier import TASK, LineClassifier

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
            task=TASK,
        )
        classifier = LineClassifier(loaded, device=device, json=arguments.json, labelled=arguments.evaluate)
        if not arguments.quiet:
            say("nmt-classify", f"{loaded.path} on {device}; labels: {', '.join(classifier.labels)}")
        bar = bar_for(path, output, wanted=not arguments.quiet, processes=1, doing="labelling")
        totals = Totals(undecodable)
        prompt = prompt_for(path, "text")
        name = path or "standard input"
        start = time.perf_counter()

        def on_batch(texts: int) -> None:
            check_reader(output)  # so that what follows `| head` need not be labelled
            bar.batch(texts)

        with bar, input_windows(path, size=WINDOW, undecodable=undecodable, prompt=prompt) as windows:
            for window in windows:
                bar.window(len(window))
                for line in classifier.classify(window, name=name, first=totals.lines + 1, on_batch=on_batch):
                    totals.add(line)
                    output.write(_written(line, classifier, scores=arguments.scores).encode())
                output.flush()
    is_silent = arguments.quiet or prompt is not None  # whose seconds are those of typing
    if undecodable.noted or not is_silent:
        say("nmt-classify", totals.summary(time.perf_counter() - start))
    if arguments.evaluate:
        for text in totals.evaluation(classifier.labels):
            say("nmt-classify", text)
    return 0


def _written(line: ClassifiedLine, classifier: LineClassifier, *, scores: bool) -> str:
    if not scores or line.probabilities is None:
        return f"{line.label}\n"
    named = zip(classifier.labels, line.probabilities.tolist(), strict=True)
    return "\t".join([line.label, *(f"{label}={probability:.4f}" for label, probability in named)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
