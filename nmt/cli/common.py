"""Shared by all commands: arguments, errors as one line, exit codes, signals."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from nmt import __version__
from nmt.cli.arguments import any_text, worded
from nmt.cli.descriptors import EXIT_NO_READER, has_no_reader
from nmt.data.text import POLICIES, Policy
from nmt.errors import NmtError, printable
from nmt.files import is_out_of_memory, naming, reason
from nmt.registry import plugin_error
from nmt.system import USUAL_COLUMNS, columns, expanded, wrapped

STANDARD_OUTPUT = "standard output"
"""Its name in errors."""

EXIT_FAILURE = 1
EXIT_USAGE = 2
ENDINGS: dict[int, tuple[str, int]] = {
    signal.SIGINT: ("interrupted", 130),
    signal.SIGTERM: ("terminated", 143),
    signal.SIGHUP: ("hung up", 129),
}
"""What ends a command: what it says, and its exit code."""

_POLICIES: dict[Policy, str] = {
    "strict": "strict (default): stop at the first one",
    "replace": "replace: read invalid bytes as U+FFFD",
    "empty": "empty: read such a line as empty",
}
"""What the help of --errors says about each."""

EXAMPLES = "examples:\n"
"""How the end of a help text begins."""


Handler = Callable[[int, FrameType | None], object] | int | None


class Help(argparse.HelpFormatter):
    """Wraps texts at spaces alone, not inside names such as nmt-train, and keeps the lines of examples."""

    def __init__(self, prog: str, width: int = USUAL_COLUMNS) -> None:
        # Given a width, argparse does not look up that of the terminal for each option that is added.
        super().__init__(prog, width=width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        from textwrap import wrap  # late, as only help texts need it

        return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return text
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


def _in_home(value: str) -> str:
    """The name of a file on the command line with the home directory in place of `~`."""
    try:
        return expanded(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, without the usage before it, and whose help is that of `Help`.

    In arguments of no type, and of the type Path, `~` is the home directory, also in `--config=~/x`, where shells leave
    it; an argument that is no name of a file has the type `any_text` or another one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Help, **options})
        self.register("type", None, _in_home)
        self.register("type", Path, lambda value: Path(_in_home(value)))

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse does; the words after the subcommand are left to its parser."""
        subcommands = super().add_subparsers(**options)
        subcommands.type = any_text
        return subcommands

    def format_help(self) -> str:
        """For the width of the terminal."""
        from shutil import get_terminal_size

        self.formatter_class = partial(Help, width=get_terminal_size().columns - 2)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print `message` and exit with EXIT_USAGE."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists all options)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help, version or error; unlike argparse, do not hide that it cannot be written."""
        with naming(STANDARD_OUTPUT if file is sys.stdout else "standard error"):
            (sys.stderr if file is None else file).write(message)


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; not an Exception, so that only `execute` handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def make_parser(
    program: str, description: str, *, examples: Sequence[str] = (), usage: str | None = None
) -> argparse.ArgumentParser:
    """A parser with the options that every command has; abbreviations of options are refused.

    `usage` replaces argparse's long list of all options. It and each of the examples, which end the help, have no name
    of the program: it is put before them.
    """
    usage = None if usage is None else f"%(prog)s {usage}"
    epilog = EXAMPLES + "\n".join(f"  %(prog)s {example}" for example in examples) if examples else None
    parser = Parser(prog=program, usage=usage, description=description, epilog=epilog, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def place(text: str) -> str:
    """The name of a new folder or file, or a prefix of names, which standard output cannot be."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is standard output, which cannot be written here; give a name")
    return _in_home(text)


def path_of_place(text: str) -> Path:
    """The same as a path."""
    return Path(place(text))


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Also accept `--debug` after the name of a subcommand, besides before it."""
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: a GPU if there is one, else the CPU (default)",
    )


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Add `--plugin`, repeatable, as `arguments.plugins`."""
    parser.add_argument(
        "--plugin",
        dest="plugins",
        metavar="FILE",
        action="append",
        default=[],
        help="Python file that registers components the model needs; repeatable",
    )


def add_errors(parser: argparse.ArgumentParser, *, policies: Sequence[Policy] = POLICIES) -> None:
    """Add `--errors` with the `policies` that the command allows, the default first."""
    parser.add_argument(
        "--errors",
        choices=policies,
        default=policies[0],
        help="; ".join(["what to do with lines that are not UTF-8", *(_POLICIES[policy] for policy in policies)]),
    )


def say(program: str, message: str) -> None:
    """Write a status line to standard error; on a terminal it is wrapped at words."""
    line = f"{program}: {message}"
    if sys.stderr.isatty():
        line = wrapped(line, columns(sys.stderr) or len(line))
    print(line, file=sys.stderr)


def execute(
    parser: argparse.ArgumentParser,
    command: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None = None,
) -> int:
    """Parse `argv`, run `command` and return its exit code; errors become one line on stderr.

    Exit codes: 0 done, 1 data or runtime error, 2 usage or configuration, 129 SIGHUP, 130 Ctrl-C, 141 the reader of the
    output has gone, 143 SIGTERM.
    """
    previous = _handle_signals()
    arguments = argparse.Namespace(debug=False)  # until the options are parsed
    try:
        try:
            arguments = parser.parse_args(argv)
            code = command(arguments)
        except SystemExit as stop:  # --help, --version, or a mistake that has been reported
            code = stop.code if isinstance(stop.code, int) else EXIT_USAGE
        with naming(STANDARD_OUTPUT):
            sys.stdout.flush()  # report a full disk here, not as an error of the interpreter at exit
        return code
    except (KeyboardInterrupt, Terminated) as end:
        number = end.number if isinstance(end, Terminated) else signal.SIGINT
        return _fail(parser, *ENDINGS[number], debug=False)
    except Exception as error:
        return _fail(parser, *_told(error, arguments), debug=arguments.debug)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _told(error: Exception, arguments: argparse.Namespace) -> tuple[str | None, int]:
    """The message about an error, None if nobody reads the output, and the exit code."""
    is_unread = isinstance(error, BrokenPipeError) and (has_no_reader(1) or has_no_reader(2))
    if is_unread or (isinstance(error, NmtError) and error.exit_code == EXIT_NO_READER):
        _drop_output()  # the reader of our output went away, as `head` does
        return None, EXIT_NO_READER
    if isinstance(error, NmtError):
        return worded(error, arguments), error.exit_code
    if isinstance(error, OSError) and plugin_error(error) is None:
        place = STANDARD_OUTPUT if _drop_output() else error.filename
        return f"{place}: {reason(error)}" if place else reason(error), EXIT_FAILURE
    if is_out_of_memory(error):
        return "out of memory", EXIT_FAILURE
    if type(error).__name__ == "OutOfMemoryError":  # torch, which has it, is not imported just to recognise it
        return "out of GPU memory; smaller batches need less", EXIT_FAILURE
    # A bug in nmt or in a plugin: still one line; --debug shows where.
    first = str(error).strip().split("\n")[0]
    text = plugin_error(error) or f"internal error: {type(error).__name__}: {first}"
    return f"{text} (--debug shows the traceback)", EXIT_FAILURE


def main_of(
    build_parser: Callable[[], argparse.ArgumentParser], command: Callable[[argparse.Namespace], int]
) -> Callable[..., int]:
    """The function `main` of a command: runs it with `argv` (default: the process's) and returns its exit code."""
    return lambda argv=None: execute(build_parser(), command, argv)


def _drop_output() -> bool:
    """Discard output that cannot be written, or the interpreter tries again at exit; return whether there was any."""
    try:
        sys.stdout.flush()
        return False
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True


def _fail(parser: argparse.ArgumentParser, message: str | None, code: int, *, debug: bool) -> int:
    if message is None:
        return code
    with contextlib.suppress(OSError):  # the terminal has been closed; the exit code still counts
        if debug:
            import traceback

            print(traceback.format_exc(), end="", file=sys.stderr)  # at once, for logs that keep it together
        # Names in files of others can hold terminal control sequences.
        print(f"{parser.prog}: " + "\n".join(printable(line) for line in message.split("\n")), file=sys.stderr)
    return code


def _handle_signals() -> dict[int, Handler]:
    """Make SIGTERM and SIGHUP raise Terminated (an ignored SIGHUP stays ignored); return the previous handlers."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    previous: dict[int, Handler] = {}
    with contextlib.suppress(ValueError):  # not the main thread, which alone may handle signals
        for number in (signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            previous[number] = signal.signal(number, end)
    return previous
