"""nmt-light: lines of text in, their translations out, by the engine alone."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from itertools import islice

from . import __version__
from .counts import Counts, counted
from .errors import EngineError, NmtError, UsageError, place_of
from .formats import FORMATS, as_pharaoh, without_alignment
from .lines import POLICIES, Pace, arriving, decodable, line_by_line, windows
from .options import DESCRIPTION, NONE, OPTIONS, add_texts, command_option, options_of
from .output import STDOUT, Output, is_one_file
from .pretrained import add_models, names, one_ensemble
from .translator import DETAILS, NOT_LIVE, Translator, unknown_detail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final, NoReturn

    from .options import Option

EXAMPLES: Final = """examples:
  echo "Where is the station?" | nmt-light en-de
  nmt-light model.nmt -i text.en -o text.de
  echo "A dog runs in the snow." | nmt-light model.nmt --n-best 3
  nmt-light model.nmt --beam-size 1 < text.en > text.de
  nmt-light model.nmt --format jsonl --with tokens,scores -i text.en"""
SETTINGS: Final = tuple(
    option
    for option in options_of("light")
    if option.name == "threads" or (option.is_key and option.name != "shortlist")
)
"""Options of the search that have options of the command by their names."""
ENDINGS: Final = {signal.SIGTERM: ("terminated", 143)}
if hasattr(signal, "SIGHUP"):
    ENDINGS[signal.SIGHUP] = ("hung up", 129)


class Help(argparse.HelpFormatter):
    """Keeps the lines of the examples."""

    def __init__(self, prog: str) -> None:
        # With a given width argparse does not look up the terminal's width, which would take longer than all the rest.
        super().__init__(prog, width=79)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text == EXAMPLES else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Its errors are one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Print `message` and exit with 2."""
        self.exit(2, f"{self.prog}: {message} (--help lists all options)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help, version or error; unlike argparse, do not hide that it cannot be written."""
        if file is sys.stderr:
            super()._print_message(message, file)
            return
        with Output(None, read=()) as output:
            output.write(message.encode())


class Ended(BaseException):
    """A signal has come that ends the command."""


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-light."""
    usage = "nmt-light MODEL... [-i FILE] [-o FILE] [options]"
    parser = Parser(
        prog="nmt-light",
        usage=usage,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        allow_abbrev=False,
        formatter_class=Help,
    )
    add = parser.add_argument
    file = f"file of nmt-export (.nmt), or a model of nmt's own ({', '.join(names())}); several are an ensemble"
    add_models(parser, help=file)
    add_texts(parser, details=_details, wishes="prefix, forbid")
    add(
        "--live",
        metavar="POLICY",
        help="translate words while they come, by wait_k,wait=3, local_agreement,agree=2 or alignatt,unread=2; each "
        "line has one line of output",
    )
    add("-q", "--quiet", action="store_true", help="no status lines; errors and lines with problems are still reported")
    add(
        "--errors",
        choices=POLICIES,
        default=POLICIES[0],
        help="what to do with lines that are not UTF-8; strict (default): stop at the first one; replace: read invalid "
        "bytes as U+FFFD; empty: read such a line as empty",
    )
    _add(parser, OPTIONS["threads"])
    add("--kernels", metavar="NAME", help="instruction set to compute with (default: the best that this CPU has)")
    add("--debug", action="store_true", help="show the traceback of an error")
    add("--version", action="version", version=f"nmt-light {__version__}", help="show the version and exit")
    group = parser.add_argument_group("search (defaults: the settings of the first model)")
    for option in SETTINGS:
        if option.is_key:
            _add(group, option)
    group.add_argument(
        "--no-shortlist", action="store_true", help="choose from all words, even if the model has a shortlist"
    )
    for option in OPTIONS.values():
        if option.is_key and option not in SETTINGS:
            parser.add_argument(command_option(option.name), action=Refused, help=argparse.SUPPRESS)
    return parser


def _add(group: Any, option: Option) -> None:
    """Add the option of the command for an option of the search."""
    if "light" in option.only or option.kind == "choice":
        choices = option.only.get("light", option.choices)
        group.add_argument(command_option(option.name), choices=choices, help=option.meaning)
        return
    if option.kind == "flag":
        group.add_argument(command_option(option.name), action=argparse.BooleanOptionalAction, help=option.meaning)
        return
    if option.kind == "pairs":
        name = command_option(option.name)
        group.add_argument(
            name, dest=option.name, metavar=option.metavar, action="append", type=pair, help=option.meaning
        )
        return
    help = option.help + (f", {option.least} to {option.engine_most}" if option.name == "beam_size" else "")
    help += " (default: 1); a smaller beam is widened" if option.name == "n_best" else ""
    kinds = {"number": (float, "a number"), "language": (str, "a code"), "file": (str, "a file")}
    kind, what = kinds.get(option.kind, (int, "a whole number"))

    def read(text: str) -> float | str:
        try:
            return text if text in option.words else kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {', or '.join((what, *option.words))}") from None

    group.add_argument(command_option(option.name), metavar=option.metavar, type=read, help=help)


class Refused(argparse.Action):
    """An option of nmt-translate that the engine does not have."""

    def __init__(self, **given: Any) -> None:
        super().__init__(nargs="?", **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """End with an error."""
        instead = "; --no-shortlist switches the file's own off" if self.dest == "shortlist" else ""
        parser.error(f"{self.option_strings[0]}: nmt-light does not have it; use nmt-translate with the run{instead}")


def pair(text: str) -> tuple[str, float]:
    """The type of an option of the search that a command line has as KEY=VALUE."""
    name, _, value = text.partition("=")
    try:
        return name, float(value) if "." in value or "e" in value else int(value)
    except ValueError:
        problem = f"{text!r} must be KEY=VALUE, such as temperature=0.7"
        raise argparse.ArgumentTypeError(problem) from None


def _details(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in DETAILS:
            raise argparse.ArgumentTypeError(unknown_detail(name))
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 done, 1 data or runtime error, or a line without a translation, 2 usage, 129 SIGHUP, 130 Ctrl-C, 141 the reader of
    the output has gone, 143 SIGTERM.
    """
    _open_missing()
    previous = _handle_signals()
    arguments = argparse.Namespace(debug=False)  # until the options are parsed
    try:
        arguments = build_parser().parse_args(argv)
        arguments.models = one_ensemble(arguments)
        return _run(arguments) if arguments.live is None else _live(arguments)
    except SystemExit as stop:  # --help, --version, or a mistake that has been reported
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        return _said("interrupted", 130)
    except Ended as end:
        said, code = ENDINGS[end.args[0]]
        return _said(said, code)
    except BrokenPipeError:  # the reader has gone away
        return 141
    except (NmtError, OSError, MemoryError) as error:
        if arguments.debug:
            raise
        return _said(str(error) or "out of memory", getattr(error, "exit_code", 1))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.details and arguments.format != "jsonl":
        raise UsageError(f"--with: allowed only with --format jsonl, not {arguments.format}")
    source = None if arguments.input in (None, "-") else arguments.input
    target = None if arguments.output in (None, "-") else arguments.output
    translator, options = _opened(arguments)
    write, n_best = FORMATS[arguments.format], arguments.n_best or 1
    counts, start = Counts(arguments.errors, split_long="--split-long"), time.perf_counter()
    aligned = arguments.alignment
    if aligned and is_one_file(target or STDOUT, aligned):
        raise UsageError(f"--alignment {aligned}: is also the output; choose another file")
    files = {"prefix": arguments.prefix, "constraints": arguments.constraints}
    beside = [(what, file, _lines(file)) for what, file in files.items() if file is not None]
    named = [] if arguments.glossary in (None, NONE) else [arguments.glossary]
    read = [source or "/dev/stdin", *arguments.models, *(file for _, file, _ in beside), *named]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(Output(target, read=read))
        alignment = None
        if aligned:
            alignment = stack.enter_context(Output(None if aligned == STDOUT else aligned, read=read))
        if not arguments.quiet:
            _say(_described(arguments.models, translator, options, typed=source is None and os.isatty(0)))
        pace = Pace()
        for window in windows(source, pace):
            name = source or "standard input"
            lines, odd, problem = decodable(window, arguments.errors, name=name, first=counts.lines + 1)
            first, begun = counts.lines, time.monotonic()
            asked: Sequence[Any] = lines
            if beside:
                asked = _with_wishes(lines, beside, arguments.errors, first=first + 1, count=len(window))
            try:
                found = translator.found(asked, **options)
            except EngineError as error:  # which counts from 0
                place, said = place_of(error)
                if place is None:
                    raise
                raise EngineError(f"{beside[-1][1] if beside else name}, line {first + place + 1}: {said}") from None
            pace.add(len(lines), time.monotonic() - begun)
            notes = counts.add_found(found, odd, translator)
            if arguments.format == "text" and n_best == 1 and alignment is None:
                output.write(found.texts())
            else:
                results = translator.results(found, [line.decode() for line in lines], details=options["details"])
                if alignment is not None:
                    alignment.write("".join(map(as_pharaoh, results)).encode())
                if "alignment" not in arguments.details:
                    results = [*map(without_alignment, results)]
                written = (
                    write(number, result, n_best=n_best, notes=own)
                    for number, (result, own) in enumerate(zip(results, notes, strict=True), start=first)
                )
                output.write("".join(written).encode())
            if problem is not None:
                raise EngineError(problem)
        for _, file, left in beside:
            if next(left, None) is not None:
                raise EngineError(f"{file}: has more than {counted(counts.lines, 'line')}, those of the input")
    if counts.problems() or not arguments.quiet:
        _say(counts.summary(time.perf_counter() - start))
    return counts.exit_code


def _live(arguments: argparse.Namespace) -> int:
    """Translate text while it comes; each line is a session of its own."""
    for name in ("alignment", "constraints", "format", *sorted(NOT_LIVE)):
        if getattr(arguments, name, None) not in (None, NONE, False, (), "text"):
            raise UsageError(f"{command_option(name)}: does not go together with --live")
    if arguments.errors == "empty":
        raise UsageError("--errors empty: does not go together with --live. Allowed: strict, replace.")
    source, target = (None if path in (None, STDOUT) else path for path in (arguments.input, arguments.output))
    translator, options = _opened(arguments)
    named = (one.name for one in SETTINGS if one.is_key and getattr(arguments, one.name) is not None)
    search = {name: options[name] for name in named} | ({"shortlist": False} if arguments.no_shortlist else {})
    start, lines = time.perf_counter(), 0
    try:
        translator.live(arguments.live, **search).close()
    except EngineError as error:
        raise UsageError(f"--live: {error}") from None
    with Output(target, read=[source or "/dev/stdin", *arguments.models]) as output:
        if not arguments.quiet:
            _say(f"{', '.join(arguments.models)}, live by {arguments.live}, {translator.kernels}")
        for text in line_by_line(arriving(source, arguments.errors), lambda: translator.live(arguments.live, **search)):
            output.write(text.encode())
            lines += text.endswith("\n")
    if not arguments.quiet:
        _say(f"{counted(lines, 'line')} live in {time.perf_counter() - start:.1f} s")
    return 0


def _lines(file: str) -> Iterator[bytes]:
    return (line for window in windows(file, Pace()) for line in window)


def _with_wishes(
    lines: list[bytes], beside: list[tuple[str, str, Iterator[bytes]]], policy: str, *, first: int, count: int
) -> list[Any]:
    """The lines of a window of `count`, with what the lines of files beside them ask for; the first has the number
    `first`.

    Raises EngineError for a file that is too short and for a line that is not UTF-8, DataError for one that is no
    constraint.
    """
    from .results import Request  # late, as few need them
    from .wishes import also_given, read_wishes

    asked: list[dict[str, Any]] = [{"text": line.decode()} for line in lines]
    for what, file, left in beside:
        own = [*islice(left, count)]
        if len(own) < count:
            raise EngineError(f"{file}: has fewer lines than the input; there must be one for each")
        decoded, _, problem = decodable(own, policy, name=file, first=first)
        if problem is not None:
            raise EngineError(problem)
        for number, (fields, line) in enumerate(zip(asked, decoded, strict=False), start=first):
            where, text = f"{file}, line {number}", line.decode()
            wishes = read_wishes(text, where) if what == "constraints" else {"prefix": text} if text.strip() else {}
            if "required" in wishes:
                raise EngineError(f"{where}: require: nmt-light does not have it; use nmt-translate with the run")
            for name in fields.keys() & wishes.keys():
                raise also_given(name, where, f"{beside[0][1]}, line {number}")
            fields |= wishes
    return [Request(**fields) for fields in asked]


def _opened(arguments: argparse.Namespace) -> tuple[Translator, dict[str, Any]]:
    """The model, and the options of its search, which are checked; UsageError for options that it does not accept."""
    options = {option.name: getattr(arguments, option.name) for option in SETTINGS}
    pairs = options["search_options"] or ()
    options["search_options"] = dict(pairs)
    if len(options["search_options"]) < len(pairs):
        raise UsageError("--search-option: an option is given twice")
    details = (*arguments.details, "alignment") if arguments.alignment else arguments.details
    options |= {"scores": arguments.format != "text", "details": details, "shortlist": not arguments.no_shortlist}
    if arguments.threads is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        options["threads"] = usable or 1
    try:
        translator = Translator(arguments.models, kernels=arguments.kernels)
        if options["glossary"] not in (None, NONE):
            options["glossary"] = translator.glossary(options["glossary"])
        translator.found([], **options)
    except EngineError as error:
        name, colon, rest = str(error).partition(":")
        if colon and name in (*options, "kernels"):
            raise UsageError(f"{command_option(name)}:{rest}") from None
        raise
    return translator, options


def _described(models: Sequence[str], translator: Translator, options: dict[str, Any], *, typed: bool) -> str:
    name = models[0] if len(models) == 1 else f"{len(models)} models"
    beam = translator.beam_size(**options)
    kept = f"{counted(beam or 1, 'sample')} a line" if options["search"] == "sample" else f"beam {beam}"
    search = "greedy" if beam is None else kept
    text = f"{name}, {search}, {translator.kernels}, {counted(options['threads'], 'thread')}"
    narrow, n_best = options["beam_size"] or translator.defaults.beam_size, options["n_best"] or 1
    if n_best > narrow and options["search"] != "sample":
        text = f"--n-best {n_best} widens the beam from {narrow} to {n_best}\nnmt-light: {text}"
    return f"{text}\nnmt-light: type a line for its translation; Ctrl-D ends" if typed else text


def _say(message: str) -> None:
    try:
        print(f"nmt-light: {message}", file=sys.stderr, flush=True)
    except OSError:  # a terminal that has been closed
        return


def _said(message: str, code: int) -> int:
    """Report the error that ended the command, on one line whatever names it contains."""
    _say("".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message))
    return code


def _open_missing() -> None:
    """Open standard input, output and error, if closed, on the null device, so that no file gets their numbers."""
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the other way round, so that using it fails and nothing is lost unnoticed
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  (as long as the process lives)


def _handle_signals() -> dict[int, Any]:
    """Have them raise `Ended`; return what they did. SIGHUP stays ignored where it is, under nohup."""
    previous = {}
    for number in ENDINGS:
        if signal.getsignal(number) != signal.SIG_IGN:
            previous[int(number)] = signal.signal(number, _end)
    return previous


def _end(number: int, _: object) -> None:
    raise Ended(number)


if __name__ == "__main__":
    sys.exit(main())
