"""nmt-classify: label lines of one or two texts."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.cli.arguments import add_model
from nmt.cli.common import execute, make_parser, say
from nmt.errors import counted
from nmt.other_tasks.labelling import Labelling, add_general, add_text

if TYPE_CHECKING:
    import torch

    from nmt.classification.prediction import ClassifiedLine
    from nmt.interop.model_dir import LoadedModel

DESCRIPTION = """Label lines of text, by default from standard input to standard output, with a model of the task
`classification`. A line holds one text or, for a model that compares texts, two texts separated by a tab. Each input
line gives one output line (a blank line gives an empty one); lines from a slow pipe are labelled as they arrive. With
--as-trained a line of names gives the line `label`, and a record of several lines its label and then empty lines."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), classify, argv)


EXAMPLES = (
    "runs/topics -i lines.txt -o labels.txt",
    "runs/topics -i test.csv --as-trained --evaluate > labels.txt",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-classify."""
    parser = make_parser("nmt-classify", DESCRIPTION, examples=EXAMPLES, usage="MODEL [-i FILE] [-o FILE] [options]")
    add_model(parser)
    add_text(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="lines are JSON objects, with the keys that the model was trained on"
    )
    form.add_argument(
        "--as-trained",
        action="store_true",
        help="lines are as in the files that the model was trained on: columns with tabs, CSV or JSON",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="after each label, write a tab and the probability of every label, as NAME=P",
    )
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="input lines also hold the correct label: at their end after a tab, or in its column or under its key; "
        "accuracy and the scores of each label are written to standard error at the end",
    )
    add_general(parser, reported="errors, lines with problems and what --evaluate finds")
    return parser


@dataclass
class Classifying(Labelling):
    """Labels of lines, and counts of each correct label by predicted label."""

    program = "nmt-classify"
    tasks = ("classification",)
    what = "tokens"
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def load(self, loaded: LoadedModel, *, device: torch.device) -> str:
        """Take the model; return its labels."""
        from nmt.classification.prediction import LineClassifier

        arguments = self.arguments
        self.classifier = LineClassifier(
            loaded,
            device=device,
            json=arguments.json,
            as_trained=arguments.as_trained,
            labelled=arguments.evaluate,
        )
        return f"; labels: {', '.join(self.classifier.labels)}"

    def labelled(self, window: Sequence[str], *, name: str, on_batch: Callable[[int], object]) -> Iterator[str]:
        """The label of each line, followed by the probabilities of all labels with --scores."""
        for line in self.classifier.classify(window, name=name, first=self.lines + 1, on_batch=on_batch):
            if not line.record.is_header:
                self.count(tokens=line.tokens, unknown=line.unknown, is_empty=not line.label)
            if line.right is not None:
                self.pairs[line.right, line.label] += 1
            yield self._written(line)

    def end(self) -> None:
        """Raise DataError if the last record has no end."""
        self.classifier.end()

    def _written(self, line: ClassifiedLine) -> str:
        label = "label" if line.record.is_header else line.label
        scores: list[str] = []
        if self.arguments.scores and line.probabilities is not None:
            named = zip(self.classifier.labels, line.probabilities.tolist(), strict=True)
            scores = [f"{label}={probability:.4f}" for label, probability in named]
        return "\t".join([label, *scores]) + "\n" * line.record.lines

    def evaluation(self) -> list[str]:
        """What --evaluate reports, as lines for people."""
        from nmt.classification.task import Confusion

        if not self.pairs:
            return ["--evaluate: no line with a label"]
        confusion = Confusion.of_pairs(self.pairs, labels=self.classifier.labels)
        scores = ", ".join(f"{name} {value:.2f}" for name, value in confusion.scores.items())
        without = self.lines - self.empty - confusion.texts
        left = f"; {counted(without, 'line')} without a label not counted" if without else ""
        return [f"{scores} of {counted(confusion.texts, 'line')} with a label{left}", *confusion.lines()]


def classify(arguments: argparse.Namespace) -> int:
    """Label a text; with --evaluate, score the labels."""
    classifying = Classifying(arguments)
    classifying.run()
    if arguments.evaluate:
        for text in classifying.evaluation():
            say("nmt-classify", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
