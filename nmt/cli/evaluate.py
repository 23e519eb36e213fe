"""nmt-eval: scores of a file of translations, or of what a model makes of a source file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from nmt.cli.argument_types import resamples, seed
from nmt.cli.common import add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.decoding_options import DECODING, add_decoding, check_ensemble
from nmt.cli.descriptors import require
from nmt.cli.models import FIRST, MODELS_OR_FILES, add_checkpoint, add_models, named_models
from nmt.config import import_plugins
from nmt.errors import ConfigError, DataError, counted
from nmt.evaluation import Metric, check_subwords
from nmt.evaluation.report import as_json, as_text
from nmt.evaluation.significance import DEFAULT_SAMPLES, DEFAULT_SEED
from nmt.files.undecodable import Policy, Undecodable
from nmt.interop.engine.opened import are_engine_files
from nmt.library.scoring import DEFAULT_METRICS, chosen_metrics, measured

if TYPE_CHECKING:
    from nmt.cli.opened import Opened, OpenModels

DESCRIPTION = """Scores by sacreBLEU, each with its signature: --hyp FILE --ref FILE..., or
MODEL... --source FILE --ref FILE... to translate first."""
USAGE = "(MODEL... --source FILE | --hyp FILE) --ref FILE... [options]"
METRIC_OPTIONS = {"tokenize": "--tokenize", "lowercase": "--lowercase", "language": "--language"} | {
    "dash_splits": "--no-dash-splits"
}
"""Options of metrics by their names, and what they are called here."""
MODEL_OPTIONS = ("source", *(name for name in DECODING if name != "n_best"), "output")
_OPTIONS = {"search_options": "--search-option"}
"""Those of them that are not called like their keys."""
STDIN = "-"


def main(argv: list[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), evaluate, argv)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-eval."""
    parser = make_parser("nmt-eval", DESCRIPTION, usage=USAGE)
    add_models(parser, help=f"translates --source: {MODELS_OR_FILES}")
    parser.add_argument("--hyp", metavar="FILE", help="translations, one a line; - is standard input")
    parser.add_argument("--ref", metavar="FILE", nargs="+", required=True, help="one file for each set of references")
    scores = parser.add_argument_group("scores")
    scores.add_argument(
        "--metrics",
        metavar="NAME",
        nargs="+",
        default=list(DEFAULT_METRICS),
        help="bleu, chrf, ter; without case bleu_tok_lc for text that is already tokenised and bleu_moses_lc on "
        "Moses tokens (default: bleu chrf ter)",
    )
    scores.add_argument("--tokenize", metavar="NAME", help="sacreBLEU's tokenizer for bleu: 13a (default), intl, ...")
    scores.add_argument("--lowercase", action="store_true", default=None, help="ignore case in bleu")
    scores.add_argument(
        "--language", metavar="CODE", help="of the text, for bleu_moses_lc (default: the model's, else de)"
    )
    scores.add_argument(
        "--no-dash-splits",
        dest="dash_splits",
        action="store_false",
        default=None,
        help="bleu_moses_lc leaves words with hyphens whole (default: it splits them, as tokenizer.perl -a)",
    )
    scores.add_argument("--by-length", action="store_true", help="also score short and long sentences separately")
    scores.add_argument("--json", action="store_true", help="a list of objects for programs instead of tables")
    add_errors(parser)
    _add_significance(parser.add_argument_group("significance, by paired bootstrap resampling"))
    _add_model(parser)
    return parser


def _add_significance(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--baseline", metavar="FILE", nargs="+", default=[], help="translations to compare with")
    group.add_argument(
        "--samples", metavar="N", type=resamples, default=DEFAULT_SAMPLES, help="resamples (default: %(default)s)"
    )
    group.add_argument("--seed", metavar="N", type=seed, default=DEFAULT_SEED, help="of them (default: %(default)s)")


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "translation, with MODEL", "Defaults: the configuration of the model, of several that of the first."
    )
    group.add_argument("--source", metavar="FILE", help="text to translate; - is standard input")
    group.add_argument("-o", "--output", metavar="FILE", help="keep the translations there")
    add_decoding(group)
    parser.set_defaults(n_best=1)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)


def evaluate(arguments: argparse.Namespace) -> int:
    """Read, translate if asked to, score and print."""
    arguments.models = named_models(arguments)
    _check_arguments(arguments)
    require(1)
    import_plugins(arguments.plugins)
    metrics = make_metrics(arguments)
    system = arguments.hyp or arguments.source
    files = [system, *arguments.ref, *arguments.baseline]
    texts = _read_all(files, policy=arguments.errors)
    references = texts[1 : 1 + len(arguments.ref)]
    baselines = list(zip(arguments.baseline, texts[1 + len(arguments.ref) :], strict=True))
    hypotheses, exit_code = texts[0], 0
    if arguments.models:
        hypotheses, models, exit_code = _translations(texts[0], arguments)
        references = [[models.joined(line) for line in stream] for stream in references]
        metrics = make_metrics(arguments, language=models.languages[1])
    name = arguments.hyp or " ".join(arguments.models)
    named = [(name, hypotheses), *zip(arguments.ref, references, strict=True), *baselines]
    note = check_subwords(dict(named))
    if note is not None:
        say("nmt-eval", note)
    results = [
        measured(
            metric,
            hypotheses,
            references,
            baselines=baselines,
            samples=arguments.samples,
            seed=arguments.seed,
            lengths=arguments.by_length,
        )
        for metric in metrics
    ]
    print(as_json(results) if arguments.json else as_text(results))
    return exit_code


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if not arguments.models and not arguments.hyp:
        raise ConfigError(f"neither --hyp, translations to score, nor a MODEL to make them; {FIRST}")
    if arguments.models and arguments.hyp:
        models = " ".join(arguments.models)
        raise ConfigError(f"--hyp {arguments.hyp}: is already translated; MODEL {models} needs --source instead")
    if arguments.models and arguments.source is None:
        raise ConfigError("MODEL needs --source, the text to translate")
    if arguments.models:
        check_ensemble(arguments, models=len(arguments.models))
    if arguments.hyp:
        given = [name for name in MODEL_OPTIONS if getattr(arguments, name) is not None]
        if given:
            listed = ", ".join(_OPTIONS.get(name, "--" + name.replace("_", "-")) for name in given)
            raise ConfigError(f"{listed}: only with MODEL; --hyp is already translated")
    files = [arguments.hyp or arguments.source, *arguments.ref, *arguments.baseline]
    if files.count(STDIN) > 1:
        raise ConfigError("- (standard input) can stand for one file only")


def make_metrics(arguments: argparse.Namespace, *, language: str | None = None) -> list[Metric]:
    """The metrics asked for, with the command's options; `language` where no option says otherwise."""
    given = {name: getattr(arguments, name) for name in METRIC_OPTIONS if getattr(arguments, name) is not None}
    return chosen_metrics(arguments.metrics, given, called=METRIC_OPTIONS, language=language)


def _read_all(files: Sequence[str], *, policy: Policy) -> list[list[str]]:
    """The lines of each file; all must have as many as the first, and one at least. What is not UTF-8 is said.

    Only "\\n" ends a line, as in the sacrebleu command's files (its standard input also ends lines at "\\r").
    """
    texts = [_read(name, Undecodable(policy)) for name in files]
    for name, lines in zip(files, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(
                f"{files[0]} has {counted(len(texts[0]), 'line')} but {name} has {len(lines)}; they must be equal"
            )
    if not texts[0]:
        raise DataError(f"{files[0]}: no line to score")
    return texts


def _read(name: str, undecodable: Undecodable) -> list[str]:
    from nmt.data import read_lines

    source: Any = name
    if name == STDIN:
        require(0)
        source, name = sys.stdin, "standard input"
    lines = list(read_lines(source, name=name, undecodable=undecodable))
    if undecodable.noted:
        say("nmt-eval", f"{name}: {undecodable.summary()}")
    return lines


def _translations(source: list[str], arguments: argparse.Namespace) -> tuple[list[str], Opened, int]:
    """What the model or the ensemble makes of `source`, written to --output as well, the models, and the exit code."""
    # Late, so that mistakes in the options do not wait for torch.
    from nmt.cli.bar import LinesBar
    from nmt.cli.output import output_stream
    from nmt.cli.totals import Totals
    from nmt.data.windows import windows
    from nmt.library.translator import WINDOW

    inputs = (arguments.source, *arguments.ref, *arguments.baseline)
    # Opened first: a file that cannot be written is found out before the work is done.
    opened_output = (
        output_stream(arguments.output, inputs=inputs, models=arguments.models) if arguments.output else nullcontext()
    )
    with opened_output as output:
        bar = LinesBar(len(source), shown=sys.stderr.isatty())
        models = _open_models(arguments)(
            arguments, place=arguments.device, scores=True, say=None, before_batch=None, on_batch=bar.batch
        )
        start = time.perf_counter()
        lines, totals = [], Totals(models.longest)
        with bar:
            bar.window(len(source))
            for window in windows(source, size=WINDOW):
                for translation in models.translator.translate_window(window):
                    lines.append(translation.best)
                    totals.add(translation)
        seconds = time.perf_counter() - start
        if output is not None:
            output.write("".join(line + "\n" for line in lines).encode())
    say("nmt-eval", totals.summary(seconds, models=models.models))
    return lines, models, totals.exit_code


def _open_models(arguments: argparse.Namespace) -> OpenModels:
    """What loads the models."""
    if are_engine_files(arguments.models):
        from nmt.cli.opened_files import open_files

        return open_files
    from nmt.cli.opened_runs import open_runs

    return partial(open_runs, device=arguments.device)


if __name__ == "__main__":
    sys.exit(main())
