"""nmt-tag: label the words of lines of text, or segment text without spaces into words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from nmt.cli.arguments import add_model
from nmt.cli.common import execute, make_parser
from nmt.errors import ConfigError
from nmt.other_tasks.labelling import Labelling, add_general, add_text

if TYPE_CHECKING:
    import torch

    from nmt.interop.model_dir import LoadedModel
    from nmt.tagging.prediction import TaggedLine

DESCRIPTION = """Label text line by line, by default from standard input to standard output. A model of the task
`tagging` reads words separated by spaces and writes their labels; a model of the task `segmentation` reads text and
writes it with spaces between its words. Each input line gives one output line; lines from a slow pipe are labelled as
they arrive."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), tag, argv)


EXAMPLES = ("runs/names -i text.txt -o labels.txt",)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-tag."""
    parser = make_parser("nmt-tag", DESCRIPTION, examples=EXAMPLES, usage="MODEL [-i FILE] [-o FILE] [options]")
    add_model(parser)
    add_text(parser)
    parser.add_argument(
        "--format",
        choices=("text", "conll"),
        default="text",
        help="text (default): a line for each input line; conll (tagging only): a line for each word, with a tab and "
        "its label, and an empty line after each input line",
    )
    add_general(parser)
    return parser


class Tagging(Labelling):
    """Labels of words, or words."""

    program = "nmt-tag"
    tasks = ("tagging", "segmentation")

    def load(self, loaded: LoadedModel, *, device: torch.device) -> str:
        """Take the model; ConfigError for a format that it cannot write."""
        from nmt.tagging.prediction import LineTagger

        self.tagger = LineTagger(loaded, device=device)
        if self.arguments.format == "conll" and not self.tagger.labels_words:
            raise ConfigError(f"--format conll: {self.arguments.model} segments text and has no labels")
        return ""

    @property
    def what(self) -> str:
        """Words or characters."""
        return "words" if self.tagger.labels_words else "characters"

    def labelled(self, window: Sequence[str], *, name: str, on_batch: Callable[[int], object]) -> Iterator[str]:
        """Each line in the format asked for."""
        for line in self.tagger.tag(window, on_batch=on_batch):
            self.count(tokens=len(line.tokens), unknown=line.unknown, is_empty=not line.tokens)
            yield _written(line, self.arguments.format)


def tag(arguments: argparse.Namespace) -> int:
    """Label a text."""
    Tagging(arguments).run()
    return 0


def _written(line: TaggedLine, form: str) -> str:
    if form == "text":
        return f"{line.text}\n"
    pairs = zip(line.tokens, line.labels, strict=True)
    return "".join(f"{word}\t{label}\n" for word, label in pairs) + "\n"


if __name__ == "__main__":
    sys.exit(main())
