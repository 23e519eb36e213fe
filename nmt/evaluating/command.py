"""nmt-eval: score translations from a file, or a model's translations of a source file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from nmt.cli.arguments import (
    DECODING,
    FIRST,
    MODELS_OR_FILES,
    add_checkpoint,
    add_decoding,
    add_models,
    check_ensemble,
    named_models,
    resamples,
    seed,
)
from nmt.cli.common import add_device, add_errors, add_plugins, main_of, make_parser, say
from nmt.cli.descriptors import require
from nmt.cli.lines import STDIN, LinesBar, read_texts
from nmt.config import import_plugins
from nmt.errors import ConfigError
from nmt.evaluation import Metric, check_subwords
from nmt.evaluation.report import FORMATS, written
from nmt.evaluation.significance import BOOTSTRAP, DEFAULT_SAMPLES, DEFAULT_SEED, DEFAULT_TRIALS, TESTS
from nmt.library.evaluation import DEFAULT_METRICS, LOOKED_AT_BY_NONE, chosen_metrics, measured, target_of
from nmt.light.options import command_option
from nmt.light.output import STDOUT, is_one_file
from nmt.registry import LAGS, ROBUSTNESS, TEST_SETS

if TYPE_CHECKING:
    from nmt.cli.opened import Opened

DESCRIPTION = """Score translations with sacreBLEU and print each score with its signature: --hyp FILE... --ref FILE...,
or MODEL... --source FILE --ref FILE... to translate first. -t SET -l PAIR replaces --ref and --source by a published
test set."""
USAGE = "(MODEL... --source FILE | --hyp FILE...)\n                (--ref FILE... | -t SET -l PAIR) [options]"
METRIC_OPTIONS = {name: f"--{name}" for name in ("tokenize", "lowercase", "language")} | {
    "dash_splits": "--no-dash-splits"
}
"""Options of metrics: their names, and the command's names for them."""
MODEL_OPTIONS = dict.fromkeys((*DECODING, "output", "live")) | {
    "checkpoint": "best",
    "device": "auto",
    "n_best": 1,
}
"""Options that only a model can use, and the values that they have where they are not given."""


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-eval."""
    parser = make_parser(
        "nmt-eval",
        DESCRIPTION,
        examples=(
            "--hyp news.de --ref reference.de",
            "--hyp baseline.de ours.de --ref reference.de --confidence",
            "runs/demo --source news.en --ref reference.de",
            "runs/demo -t wmt14 -l en-de",
        ),
        usage=USAGE,
    )
    add_models(parser, help=f"translates --source: {MODELS_OR_FILES}")
    parser.add_argument(
        "--hyp",
        metavar="FILE",
        nargs="+",
        default=[],
        help="translations, one per line; each file is one system, and the first is the baseline of the others; - is "
        "standard input",
    )
    parser.add_argument("--ref", metavar="FILE", nargs="+", default=[], help="one file for each set of references")
    parser.add_argument(
        "-t",
        "--test-set",
        metavar="SET",
        help="source and references of a test set known to sacreBLEU, such as wmt14; several are separated by commas",
    )
    parser.add_argument(
        "-l", "--language-pair", metavar="PAIR", help="language pair, such as en-de: of the test set, or of the files"
    )
    scores = parser.add_argument_group("scores")
    scores.add_argument(
        "--metrics",
        metavar="NAME",
        nargs="+",
        default=list(DEFAULT_METRICS),
        help="bleu, chrf, chrf++, ter; without case bleu_tok_lc for text that is already tokenised and bleu_moses_lc "
        "on Moses tokens (default: bleu chrf ter)",
    )
    scores.add_argument(
        "--tokenize",
        metavar="NAME",
        help="sacreBLEU's tokenizer for bleu: 13a, intl, zh, ... (default: by the language)",
    )
    scores.add_argument("--lowercase", action="store_true", default=None, help="ignore case in bleu")
    scores.add_argument(
        "--language",
        metavar="CODE",
        help="language of the text, which decides how bleu and bleu_moses_lc find words (default: that of -l or of the "
        "model)",
    )
    scores.add_argument(
        "--no-dash-splits",
        dest="dash_splits",
        action="store_false",
        default=None,
        help="bleu_moses_lc leaves words with hyphens whole (default: it splits them, as tokenizer.perl -a)",
    )
    scores.add_argument(
        "--robustness",
        action="store_true",
        help="also translate the source in capitals, without end marks, with typing errors and the like, and compare: "
        "without case and end marks",
    )
    scores.add_argument(
        "--live",
        metavar="POLICY[,OPTION=VALUE...]",
        nargs="+",
        help="compare policies of live translation, such as wait_k,wait=1..9, and their lag; -o is a folder for logs",
    )
    scores.add_argument("--by-length", action="store_true", help="also score short and long sentences separately")
    scores.add_argument("--confidence", action="store_true", help="95%% intervals, by bootstrap resampling")
    output = scores.add_mutually_exclusive_group()
    output.add_argument("--format", choices=FORMATS, help="format of the tables (default: text)")
    output.add_argument(
        "--json", dest="format", action="store_const", const="json", help="alias of --format json, for programs"
    )
    add_errors(parser)
    group = parser.add_argument_group("test of significance, for several --hyp or with --baseline")
    group.add_argument(
        "--baseline", metavar="FILE", nargs="+", default=[], help="baseline translations to compare with"
    )
    group.add_argument(
        "--significance",
        choices=TESTS,
        help="method: paired bootstrap resampling (default) or approximate randomisation",
    )
    group.add_argument(
        "--samples",
        metavar="N",
        type=resamples,
        help=f"resamples, also of --confidence (default: {DEFAULT_SAMPLES}), or trials of approximate randomisation "
        f"(default: {DEFAULT_TRIALS})",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=seed,
        help=f"seed of the resamples or trials (default: {DEFAULT_SEED})",
    )
    group = parser.add_argument_group(
        "translation, with MODEL", "The defaults are those of the (first) model's configuration."
    )
    group.add_argument(
        "--source",
        metavar="FILE",
        help="text to translate, or, of --hyp, that metrics such as plugins look at; - is standard input",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="also write the translations to this file")
    add_decoding(group)
    parser.set_defaults(n_best=1)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def evaluate(arguments: argparse.Namespace) -> int:
    """Read, translate if asked to, score and print."""
    arguments.models = named_models(arguments)
    language = _take_test_set(arguments)
    _check_arguments(arguments)
    require(1)
    import_plugins(arguments.plugins)
    metrics = make_metrics(arguments, language=language)
    needing = [metric.name for metric in metrics if metric.needs_sources]
    if arguments.hyp and arguments.source is not None and not needing:
        if arguments.test_set is None:
            raise ConfigError(f"--source: {LOOKED_AT_BY_NONE}")
        arguments.source = None  # of the test set
    if needing and arguments.source is None:
        raise ConfigError(f"--metrics {needing[0]}: needs --source, the text that was translated")
    texts = read_texts("nmt-eval", _inputs(arguments), policy=arguments.errors)
    if arguments.live is not None:
        return int(LAGS.get("live")(arguments, texts, make_metrics))
    place = len(arguments.hyp) or 1
    references = texts[place : place + len(arguments.ref)]
    sources = None if arguments.source is None else texts.pop() if arguments.hyp else texts[0]
    baselines = dict(zip(arguments.baseline, texts[place + len(arguments.ref) :], strict=True))
    hypotheses, exit_code = dict(zip(arguments.hyp, texts, strict=False)), 0
    if arguments.models:
        hypotheses, models, exit_code, compared = _translations(texts[0], arguments)
        references = [[models.joined(line) for line in stream] for stream in references]
        metrics = make_metrics(arguments, language=language or models.languages[1])
        if compared is not None:
            hypotheses = {name: compared(lines) for name, lines in hypotheses.items()}
            references = [compared(stream) for stream in references]
            say("nmt-eval", "all texts are compared in small letters and without marks at their ends")
    named = [*hypotheses.items(), *zip(map(" ".join, arguments.ref), references, strict=True), *baselines.items()]
    note = check_subwords(dict(named))
    if note is not None:
        say("nmt-eval", note)
    found = measured(
        metrics,
        hypotheses,
        references,
        baselines=baselines,
        test=arguments.significance or BOOTSTRAP,
        samples=arguments.samples,
        seed=DEFAULT_SEED if arguments.seed is None else arguments.seed,
        confidence=arguments.confidence,
        lengths=arguments.by_length,
        sources=sources,
    )
    print(written(found, arguments.format or "text"))
    return exit_code


def _take_test_set(arguments: argparse.Namespace) -> str:
    """Make each text a list of files; with -t those of the test set. Returns the target language, if it is known."""
    if arguments.test_set is None:
        language = "" if arguments.language_pair is None else target_of(arguments.language_pair, called="-l")
        if not arguments.ref:
            raise ConfigError("no references; give --ref FILE, or -t SET")
        arguments.ref = [[name] for name in arguments.ref]
        arguments.source = None if arguments.source is None else [arguments.source]
        return language
    if arguments.ref or arguments.source is not None:
        option = "--ref" if arguments.ref else "--source"
        raise ConfigError(f"{option}: the test set {arguments.test_set} already provides it; give one of the two")
    found = TEST_SETS.get("sacrebleu")(arguments.test_set, arguments.language_pair)
    arguments.ref = found.references
    arguments.source = found.sources
    return found.language


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if not arguments.models and not arguments.hyp:
        raise ConfigError(f"nothing to score; give --hyp FILE, or a MODEL that translates --source; {FIRST}")
    if arguments.models and arguments.hyp:
        models = " ".join(arguments.models)
        hypotheses = " ".join(arguments.hyp)
        raise ConfigError(f"--hyp {hypotheses}: is a translation already; MODEL {models} needs --source instead")
    if arguments.models and arguments.source is None:
        raise ConfigError("MODEL needs --source, the text to translate")
    if arguments.output is not None and is_one_file(arguments.output, STDOUT):
        raise ConfigError(f"-o {arguments.output}: standard output has the scores; give a file for the translations")
    if arguments.robustness and (not arguments.models or arguments.output or arguments.baseline):
        problem = "-o" if arguments.output else "--baseline" if arguments.baseline else "--hyp"
        raise ConfigError(f"--robustness: translates --source in several forms by MODEL; {problem} does not go with it")
    if arguments.models:
        check_ensemble(arguments, models=len(arguments.models))
    if arguments.hyp:
        given = [name for name, usual in MODEL_OPTIONS.items() if getattr(arguments, name) != usual]
        if given:
            listed = ", ".join(map(command_option, given))
            raise ConfigError(f"{listed}: allowed only with MODEL; --hyp is a translation already")
    files = [name for text in _inputs(arguments) for name in text]
    if files.count(STDIN) > 1:
        raise ConfigError("- (standard input) can stand for one file only")
    for option, names in (("--hyp", arguments.hyp), ("--baseline", arguments.baseline)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(f"{option} {twice[0]}: given twice; each file is one system")
    if not arguments.baseline and len(arguments.hyp) < 2 and not arguments.robustness:
        others = "something to compare with: several --hyp, or --baseline"
        if arguments.significance:
            raise ConfigError(f"--significance: needs {others}")
        drawn = [f"--{name}" for name in ("samples", "seed") if getattr(arguments, name) is not None]
        if drawn and not arguments.confidence:
            raise ConfigError(f"{', '.join(drawn)}: needs --confidence, or {others}")


def _inputs(arguments: argparse.Namespace) -> list[list[str]]:
    """The files of each text, in the order in which they are read."""
    systems = [[name] for name in arguments.hyp] or [arguments.source]
    beside = [arguments.source] if arguments.hyp and arguments.source is not None else []
    return [*systems, *arguments.ref, *([name] for name in arguments.baseline), *beside]


def make_metrics(arguments: argparse.Namespace, *, language: str = "") -> list[Metric]:
    """The requested metrics with the command's options; `language` is the default of that option."""
    given = {name: getattr(arguments, name) for name in METRIC_OPTIONS if getattr(arguments, name) is not None}
    return chosen_metrics(arguments.metrics, given, called=METRIC_OPTIONS, language=language or None)


def _translations(
    source: list[str], arguments: argparse.Namespace
) -> tuple[dict[str, list[str]], Opened, int, Callable[[Sequence[str]], list[str]] | None]:
    """Translate `source`, also to --output; return the translations, by their names, the models, the exit code, and how
    texts are to be compared, None for as they are."""
    # Imported late, so that mistakes in the options are reported without loading torch.
    from nmt.cli.opened import Work, open_models
    from nmt.cli.output import output_stream
    from nmt.data.text import windows
    from nmt.light.counts import Counts
    from nmt.search.values import WINDOW

    inputs = [name for text in _inputs(arguments) for name in text]
    # Opened first, so that a file that cannot be written is reported before the work starts.
    opened_output = (
        output_stream(arguments.output, inputs=inputs, models=arguments.models) if arguments.output else nullcontext()
    )
    with opened_output as output:
        sources, compared = {" ".join(arguments.models): source}, None
        work = Work(
            device=arguments.device, place=arguments.device, scores=True, on_batch=lambda *batch: bar.batch(*batch)
        )
        models = open_models(arguments, work)
        start = time.perf_counter()
        if arguments.robustness:
            sources, compared = ROBUSTNESS.get("typed")(source, languages=models.languages)
            source = [line for lines in sources.values() for line in lines]
        bar = LinesBar(len(source), shown=sys.stderr.isatty())
        lines, counts = [], Counts(arguments.errors, split_long="decoding.split_long")
        counts.longest = models.longest
        with bar:
            bar.window(len(source))
            for window in windows(source, size=WINDOW):
                for result in models.translate(window, ()):
                    lines.append(result.text)
                    counts.add(result.source_tokens, result.unknown, result.notes)
        seconds = time.perf_counter() - start
        if output is not None:
            output.write("".join(line + "\n" for line in lines).encode())
    say("nmt-eval", counts.summary(seconds, models=len(arguments.models)))
    each = len(lines) // len(sources)
    translated = {name: lines[i * each : (i + 1) * each] for i, name in enumerate(sources)}
    return translated, models, counts.exit_code, compared


main = main_of(build_parser, evaluate)

if __name__ == "__main__":
    sys.exit(main())
