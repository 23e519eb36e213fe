"""Shared by nmt-tag and nmt-classify: label lines of text with a model."""

from __future__ import annotations

import argparse
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from nmt.cli.arguments import add_checkpoint
from nmt.cli.common import add_device, add_errors, add_plugins, say
from nmt.data.text import Undecodable
from nmt.errors import counted
from nmt.system import keep_more_kernels

if TYPE_CHECKING:
    import torch

    from nmt.interop.model_dir import LoadedModel

STDIN = "-"
WINDOW = 1000
"""Lines that are labelled together."""


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add --input and --output."""
    parser.add_argument("-i", "--input", metavar="FILE", help="text to label; may be .gz (default: standard input)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write; it appears when it is complete (default: standard output)",
    )


def add_general(parser: argparse.ArgumentParser, *, reported: str = "errors and lines with problems") -> None:
    """Add the options of model and messages; `reported` names what --quiet still shows."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help=f"no bar and no status lines; {reported} are still reported"
    )
    add_checkpoint(parser)
    add_errors(parser)
    add_device(parser)
    add_plugins(parser)


@dataclass
class Labelling(ABC):
    """One run of such a command: its model, and counts of what has been labelled."""

    program: ClassVar[str]
    tasks: ClassVar[Sequence[str]]
    """The tasks whose models it accepts."""
    arguments: argparse.Namespace
    undecodable: Undecodable = field(init=False)
    lines: int = field(default=0, init=False)
    empty: int = field(default=0, init=False)
    tokens: int = field(default=0, init=False)
    unknown: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.undecodable = Undecodable(self.arguments.errors)

    @abstractmethod
    def load(self, loaded: LoadedModel, *, device: torch.device) -> str:
        """Take the model; return its part of the first message. ConfigError for options that do not suit the model."""

    @property
    @abstractmethod
    def what(self) -> str:
        """The word for its tokens."""

    @abstractmethod
    def labelled(self, window: Sequence[str], *, name: str, on_batch: Callable[[int], object]) -> Iterator[str]:
        """The output of each line of a window of the source `name`, counted with `count`; `on_batch` is called per
        batch."""

    def end(self) -> None:  # noqa: B027, as few have something to do
        """After the last window; DataError if more should have come."""

    def count(self, *, tokens: int, unknown: int, is_empty: bool) -> None:
        """Count one line."""
        self.lines += 1
        self.empty += is_empty
        self.tokens += tokens
        self.unknown += unknown

    def summary(self, seconds: float) -> str:
        """One line for people."""
        text = f"{counted(self.lines, 'line')} in {seconds:.1f} s ({self.lines / max(seconds, 1e-9):.1f} a second)"
        if self.empty:
            text += f"; {self.empty:,} empty"
        if self.unknown:
            text += f"; {self.unknown / self.tokens:.2%} of the {self.what} are not in the vocabulary"
        return f"{text}; {self.undecodable.summary()}" if self.undecodable.noted else text

    def run(self) -> None:
        """Load the model, label and write, window by window."""
        keep_more_kernels()
        # Imported late, so that --help and mistakes in the options do not load torch.
        from nmt.cli.lines import bar_for, input_windows, prompt_for
        from nmt.cli.output import check_reader, output_stream
        from nmt.interop.device import choose_device
        from nmt.interop.model_dir import load_model

        arguments = self.arguments
        path = None if arguments.input in (None, STDIN) else arguments.input
        device = choose_device(arguments.device)
        with output_stream(arguments.output, inputs=[path or "/dev/stdin"], models=[arguments.model]) as output:
            loaded = load_model(
                arguments.model,
                plugins=arguments.plugins,
                device=device,
                checkpoint=arguments.checkpoint,
                purpose="scoring",
                task=self.tasks,
            )
            told = self.load(loaded, device=device)
            if not arguments.quiet:
                say(self.program, f"{loaded.path} on {device}{told}")
            bar = bar_for(path, output, wanted=not arguments.quiet, processes=1, doing="labelling")
            prompt = prompt_for(path, "text")
            start = time.perf_counter()

            def on_batch(lines: int) -> None:
                check_reader(output)  # so that nothing is labelled after `| head` has ended
                bar.batch(lines)

            with bar, input_windows(path, size=WINDOW, undecodable=self.undecodable, prompt=prompt) as windows:
                for window in windows:
                    bar.window(len(window))
                    for text in self.labelled(window, name=path or "standard input", on_batch=on_batch):
                        output.write(text.encode())
                    output.flush()
                self.end()
        is_silent = arguments.quiet or prompt is not None  # its time is that of typing
        if self.undecodable.noted or not is_silent:
            say(self.program, self.summary(time.perf_counter() - start))
