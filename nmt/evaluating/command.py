"""nmt-eval: score translations from a file, or a model's translations of a source file."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from nmt.cli.arguments import (
    DECODING,
    MODEL_OR_FILE,
    add_checkpoint,
    add_decoding,
    any_text,
    check_ensemble,
    check_labels,
    resamples,
    seed,
)
from nmt.cli.common import add_device, add_errors, add_plugins, main_of, make_parser, say
from nmt.cli.descriptors import require
from nmt.cli.lines import STDIN, LinesBar, read_texts
from nmt.config import import_plugins
from nmt.data import read_lines
from nmt.errors import ConfigError, printable
from nmt.evaluating.groups import CORPUS, FREQUENCY, LENGTH, Grouping, by_length, by_name, read_names
from nmt.evaluating.sentences import check_ending, rows
from nmt.evaluating.words import of_words, training_text
from nmt.evaluation import Metric, check_subwords
from nmt.evaluation.metrics import counting
from nmt.evaluation.report import FORMATS, written
from nmt.evaluation.significance import BOOTSTRAP, DEFAULT_SAMPLES, DEFAULT_SEED, DEFAULT_TRIALS, TESTS
from nmt.library.evaluation import DEFAULT_METRICS, LOOKED_AT_BY_NONE, chosen_metrics, measured, target_of
from nmt.light.options import command_option
from nmt.light.output import STDOUT, is_one_file
from nmt.light.pretrained import FIRST, add_models, each_of, named_models
from nmt.registry import LAGS, ROBUSTNESS, TEST_SETS

if TYPE_CHECKING:
    from nmt.cli.opened import Opened
    from nmt.light.counts import Counts

DESCRIPTION = """Score translations with sacreBLEU and print each score with its signature. Each MODEL, which translates
--source, and each --hyp is a system; the first one is the baseline of the others. A+B is an ensemble of two models. -t
SET -l PAIR replaces --ref and --source by a published test set."""
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
            "runs/a runs/b runs/a+runs/b --source news.en --ref reference.de",
            "runs/demo -t wmt14 -l en-de",
        ),
        usage=USAGE,
    )
    add_models(parser, help=f"translates --source: {MODEL_OR_FILE}; A+B: both as an ensemble", together=False)
    parser.add_argument(
        "--ensemble", metavar="MODEL", nargs="+", default=[], help="one more system: these models as an ensemble"
    )
    parser.add_argument(
        "--hyp",
        metavar="FILE",
        nargs="+",
        default=[],
        help="translations, one per line; each file is one system; - is standard input",
    )
    parser.add_argument(
        "--labels",
        metavar="NAME",
        type=any_text,
        nargs="+",
        help="names of the systems: of MODEL..., --ensemble, and --hyp (default: what was given)",
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
    scores.add_argument(
        "--sentences",
        metavar="FILE",
        help="also write the scores of each sentence: FILE.tsv has numbers, FILE.jsonl the texts too",
    )
    scores.add_argument(
        "--by",
        metavar="WHAT",
        nargs="+",
        action="extend",
        default=[],
        help="also score parts of the text: by length in words; by corpus, domain or another column of --groups; by "
        "corpus also where -t has several sets; by frequency: words by how often the training text has them",
    )
    scores.add_argument(
        "--by-length", dest="by", action="append_const", const=LENGTH, help="short and long lines: alias of --by length"
    )
    scores.add_argument(
        "--groups",
        metavar="FILE",
        help="for --by: a name for each line, or columns of names in TSV, whose first line names the columns",
    )
    scores.add_argument(
        "--frequency-of",
        metavar="FILE",
        help="training text in the target language, for --by frequency (default: that of the first MODEL)",
    )
    scores.add_argument("--confidence", action="store_true", help="95%% intervals, by bootstrap resampling")
    output = scores.add_mutually_exclusive_group()
    output.add_argument("--format", choices=FORMATS, help="format of the tables (default: text)")
    output.add_argument(
        "--json", dest="format", action="store_const", const="json", help="alias of --format json, for programs"
    )
    add_errors(parser)
    group = parser.add_argument_group("test of significance, for several systems or with --baseline")
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
    arguments.systems = _systems(arguments)
    language = _take_test_set(arguments)
    _check_arguments(arguments)
    labels = _labels(arguments)
    require(1)
    if len(arguments.systems) > 1 and not arguments.ensemble:
        alone = [models for models in arguments.systems if len(models) == 1]
        if len(alone) > 1:
            both = "+".join(model for models in alone for model in models)
            say("nmt-eval", f"{len(alone)} models are compared; write {both} for the ensemble of them")
    import_plugins(arguments.plugins)
    metrics = make_metrics(arguments, language=language)
    needing = [metric.name for metric in metrics if metric.needs_sources]
    if not arguments.systems and arguments.source is not None and not needing:
        if arguments.test_set is None:
            raise ConfigError(f"--source: {LOOKED_AT_BY_NONE}")
        arguments.source = None  # of the test set
    if needing and arguments.source is None:
        raise ConfigError(f"--metrics {needing[0]}: needs --source, the text that was translated")
    texts = read_texts("nmt-eval", _inputs(arguments), policy=arguments.errors)
    arguments.grouped = partial(_groupings, arguments, _names(arguments, lines=len(texts[0])))
    if arguments.live is not None:
        return int(LAGS.get("live")(arguments, texts, make_metrics))
    training = training_text(arguments) if FREQUENCY in arguments.by else []
    with _written_to(arguments.sentences, arguments) as sentences:
        return _scored(arguments, texts, metrics, training, labels=labels, language=language, sentences=sentences)


def _scored(
    arguments: argparse.Namespace,
    texts: list[list[str]],
    metrics: list[Metric],
    training: Sequence[Path],
    *,
    labels: Sequence[str],
    language: str,
    sentences: BinaryIO | None,
) -> int:
    """Translate if asked to, score and print; `texts` are those of `_inputs`."""
    sources = None if arguments.source is None else texts.pop(0 if arguments.systems else -1)
    hypotheses = dict(zip(labels[len(arguments.systems) :], texts, strict=False))
    places = len(hypotheses), len(hypotheses) + len(arguments.ref)
    references, others = texts[places[0] : places[1]], texts[places[1] :]
    baselines, exit_code = dict(zip(arguments.baseline, others, strict=True)), 0
    if arguments.systems:
        assert sources is not None
        own = dict(zip(labels, arguments.systems, strict=False))
        made, models, exit_code, compared = _translations(sources, own, arguments)
        hypotheses = made | hypotheses
        references = [[models.joined(line) for line in stream] for stream in references]
        into = (arguments.target_language or "").partition("+")[0] or models.languages[1]
        metrics = make_metrics(arguments, language=language or into)
        language = language or into
        if compared is not None:
            hypotheses = {name: compared(lines) for name, lines in hypotheses.items()}
            references = [compared(stream) for stream in references]
            say("nmt-eval", "all texts are compared in small letters and without marks at their ends")
    named = [*hypotheses.items(), *zip(map(" ".join, arguments.ref), references, strict=True), *baselines.items()]
    note = check_subwords(dict(named))
    if note is not None:
        say("nmt-eval", note)
    metrics = [counting(metric) for metric in metrics]  # for scores of sentences, too
    found = measured(
        metrics,
        hypotheses,
        references,
        baselines=baselines,
        test=arguments.significance or BOOTSTRAP,
        samples=arguments.samples,
        seed=DEFAULT_SEED if arguments.seed is None else arguments.seed,
        confidence=arguments.confidence,
        groups=arguments.grouped(references[0]),
        sources=None if arguments.robustness else sources,
    )
    if training:
        words = of_words(metrics, hypotheses, references[0], training, language=language)
        found = [system._replace(results=[*system.results, *words[system.name]]) for system in found]
    if sentences is not None:
        for row in rows(arguments.sentences, metrics, hypotheses, references, sources):
            sentences.write(row.encode())
    print(written(found, arguments.format or "text"))
    return exit_code


def _names(arguments: argparse.Namespace, *, lines: int) -> dict[str, list[str]]:
    """By each kind of --by that needs names those of all lines: of --groups, or of the sets of -t."""
    kinds = _named_kinds(arguments)
    if not kinds:
        return {}
    if arguments.groups is not None:
        return read_names(arguments.groups, kinds, lines=lines, policy=arguments.errors)
    sets = zip(arguments.test_set.split(","), arguments.ref[0], strict=True)
    return {CORPUS: [name for name, file in sets for _ in read_lines(file)]}


def _named_kinds(arguments: argparse.Namespace) -> list[str]:
    return [kind for kind in dict.fromkeys(arguments.by) if kind not in (LENGTH, FREQUENCY)]


def _groupings(
    arguments: argparse.Namespace, names: Mapping[str, Sequence[str]], reference: Sequence[str]
) -> dict[str, Grouping]:
    """The groups of the lines by each kind of --by, in its order."""
    kinds = [kind for kind in dict.fromkeys(arguments.by) if kind != FREQUENCY]
    return {kind: by_length(reference) if kind == LENGTH else by_name(kind, names[kind]) for kind in kinds}


def _written_to(path: str | None, arguments: argparse.Namespace) -> AbstractContextManager[BinaryIO | None]:
    """A file of results, which is opened before the work starts: one that cannot be written is told then."""
    from nmt.cli.output import output_stream

    if path is None:
        return nullcontext()
    inputs = [name for text in _inputs(arguments) for name in text]
    return output_stream(path, inputs=inputs, models=[part for models in arguments.systems for part in models])


def _systems(arguments: argparse.Namespace) -> list[list[str]]:
    """The models of each system that translates; ConfigError for one that is given twice."""
    named = arguments.models or arguments.models_by_option
    systems = [each_of(name) for name in (named_models(arguments) if named else [])]
    if arguments.ensemble:
        systems.append([part for name in arguments.ensemble for part in each_of(name)])
    names = ["+".join(models) for models in systems]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name}: given twice; each MODEL is one system")
    return systems


def _labels(arguments: argparse.Namespace) -> list[str]:
    """The names of the systems, first of those that translate."""
    names = [*map("+".join, arguments.systems), *arguments.hyp]
    if arguments.labels is None:
        return names
    check_labels(arguments.labels, len(names), "system", called="name")
    return [printable(label) for label in arguments.labels]


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
    systems = arguments.systems
    if not systems and not arguments.hyp:
        raise ConfigError(f"nothing to score; give --hyp FILE, or a MODEL that translates --source; {FIRST}")
    if systems and arguments.source is None:
        beside = f"; to compare it with --hyp {' '.join(arguments.hyp)}, give both" if arguments.hyp else ""
        raise ConfigError(f"MODEL needs --source, the text to translate{beside}")
    given = [name for name, usual in MODEL_OPTIONS.items() if getattr(arguments, name) != usual]
    if given and not systems:
        listed = ", ".join(map(command_option, given))
        raise ConfigError(f"{listed}: allowed only with MODEL; --hyp is a translation already")
    if arguments.sentences is not None:
        check_ending(arguments.sentences)
        if arguments.output is not None and is_one_file(arguments.output, arguments.sentences):
            raise ConfigError(f"--sentences {arguments.sentences}: is also the output of -o; choose another file")
    for name, alone in itertools.product(("sentences", "labels"), ("robustness", "live")):
        if getattr(arguments, name) and getattr(arguments, alone):
            raise ConfigError(f"--{name}: does not go with --{alone}")
    for option, wanted in (
        ("-o", arguments.output),
        ("--robustness", arguments.robustness),
        ("--live", arguments.live),
    ):
        if wanted and (len(systems) != 1 or arguments.hyp):
            several = f"for the ensemble of several write {'+'.join(map('+'.join, systems))}"
            problem = "does not go with --hyp" if arguments.hyp else several
            raise ConfigError(f"{option}: needs one MODEL; {problem}")
    named = _named_kinds(arguments)
    if named and arguments.groups is None and (named != [CORPUS] or "," not in (arguments.test_set or "")):
        without = f"Allowed without it: {LENGTH}, {FREQUENCY}, and with several sets of -t {CORPUS}"
        raise ConfigError(f"--by {named[0]}: needs --groups FILE, which names it for each line. {without}.")
    for option, needed in (("groups", f"{CORPUS}, domain or another column of it"), ("frequency_of", FREQUENCY)):
        if getattr(arguments, option) is not None and not (named if option == "groups" else FREQUENCY in arguments.by):
            raise ConfigError(f"{command_option(option)}: needs --by {needed}")
    if FREQUENCY in arguments.by:
        for alone in ("robustness", "live"):
            if getattr(arguments, alone):
                raise ConfigError(f"--by {FREQUENCY}: does not go with --{alone}")
        if arguments.frequency_of is None and not systems:
            raise ConfigError(f"--by {FREQUENCY}: needs --frequency-of FILE, the training text in the target language")
    if arguments.output is not None and is_one_file(arguments.output, STDOUT):
        raise ConfigError(f"-o {arguments.output}: standard output has the scores; give a file for the translations")
    if arguments.robustness and (arguments.output or arguments.baseline):
        problem = "-o" if arguments.output else "--baseline"
        raise ConfigError(f"--robustness: translates --source in several forms by MODEL; {problem} does not go with it")
    weighed = [models for models in systems if len(models) > 1] or systems[:1]  # one model has nothing to weigh
    for models in weighed:
        check_ensemble(arguments, models=len(models))
    files = [name for text in _inputs(arguments) for name in text]
    if files.count(STDIN) > 1:
        raise ConfigError("- (standard input) can stand for one file only")
    for option, names in (("--hyp", arguments.hyp), ("--baseline", arguments.baseline)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(f"{option} {twice[0]}: given twice; each file is one system")
    if not arguments.baseline and len(systems) + len(arguments.hyp) < 2 and not arguments.robustness:
        others = "something to compare with: several systems, or --baseline"
        if arguments.significance:
            raise ConfigError(f"--significance: needs {others}")
        drawn = [f"--{name}" for name in ("samples", "seed") if getattr(arguments, name) is not None]
        if drawn and not arguments.confidence:
            raise ConfigError(f"{', '.join(drawn)}: needs --confidence, or {others}")


def _inputs(arguments: argparse.Namespace) -> list[list[str]]:
    """The files of each text, in the order in which they are read."""
    source = [] if arguments.source is None else [arguments.source]
    scored = [*([name] for name in arguments.hyp), *arguments.ref, *([name] for name in arguments.baseline)]
    return [*source, *scored] if arguments.systems else [*scored, *source]


def make_metrics(arguments: argparse.Namespace, *, language: str = "") -> list[Metric]:
    """The requested metrics with the command's options; `language` is the default of that option."""
    given = {name: getattr(arguments, name) for name in METRIC_OPTIONS if getattr(arguments, name) is not None}
    return chosen_metrics(arguments.metrics, given, called=METRIC_OPTIONS, language=language or None)


def _translations(
    source: list[str], systems: Mapping[str, list[str]], arguments: argparse.Namespace
) -> tuple[dict[str, list[str]], Opened, int, Callable[[Sequence[str]], list[str]] | None]:
    """Translate `source` by each of the systems, also to --output; return the translations by their names, the first
    system, the exit code, and how texts are to be compared, None for as they are."""
    # Imported late, so that mistakes in the options are reported without loading torch.
    from nmt.cli.opened import Work, open_models

    bars: list[LinesBar] = []
    work = Work(
        device=arguments.device, place=arguments.device, scores=True, on_batch=lambda *batch: bars[-1].batch(*batch)
    )
    with _written_to(arguments.output, arguments) as output:
        opened = {name: open_models(_alone(models, arguments), work) for name, models in systems.items()}
        first, compared = next(iter(opened.values())), None
        for name, one in opened.items():
            if one.languages[1] != first.languages[1]:
                other = f"{first.languages[1]}, as {next(iter(systems))} does"
                raise ConfigError(f"{name}: translates into {one.languages[1]}, not into {other}")
        texts = dict.fromkeys(systems, source)
        if arguments.robustness:  # of one system
            texts, compared = ROBUSTNESS.get("typed")(source, languages=first.languages)
            opened = dict.fromkeys(texts, first)
        made: dict[str, list[str]] = {}
        exit_code = 0
        for name, text in texts.items():
            made[name], counts, seconds = _translated(text, opened[name], bars, arguments)
            by = systems[name if name in systems else next(iter(systems))]
            said = counts.summary(seconds, models=len(by))
            say("nmt-eval", f"{name}: {said}" if len(texts) > 1 else said)
            exit_code = max(exit_code, counts.exit_code)
        if output is not None:
            output.write("".join(line + "\n" for line in made[next(iter(systems))]).encode())
    return made, first, exit_code, compared


def _alone(models: list[str], arguments: argparse.Namespace) -> argparse.Namespace:
    """The command line of one system."""
    own = argparse.Namespace(**{**vars(arguments), "models": models})
    if len(models) == 1:
        own.ensemble_weights = own.ensemble_mean = None
    return own


def _translated(
    source: Sequence[str], models: Opened, bars: list[LinesBar], arguments: argparse.Namespace
) -> tuple[list[str], Counts, float]:
    """The translations by one system, the counts of their notes, and the seconds that they took."""
    from nmt.data.text import windows
    from nmt.light.counts import Counts
    from nmt.search.values import WINDOW

    start = time.perf_counter()
    lines, counts = [], Counts(arguments.errors, split_long="decoding.split_long")
    counts.longest = models.longest
    with LinesBar(len(source), shown=sys.stderr.isatty()) as bar:
        bars.append(bar)
        bar.window(len(source))
        if arguments.robustness:
            models.translate([""], ())  # ends the document of the text before
        for window in windows(source, size=WINDOW):
            for result in models.translate(window, ()):
                lines.append(result.text)
                counts.add(result.source_tokens, result.unknown, result.notes)
    return lines, counts, time.perf_counter() - start


main = main_of(build_parser, evaluate)

if __name__ == "__main__":
    sys.exit(main())
