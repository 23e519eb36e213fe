"""nmt-report: write one HTML page that compares systems on a test set."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import MODEL, add_checkpoint, any_text, check_labels, natural
from nmt.cli.common import EXIT_FAILURE, add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.lines import read_texts
from nmt.config import import_plugins
from nmt.data.text import Undecodable
from nmt.errors import ConfigError, DataError, NmtError, counted, missing, printable
from nmt.evaluation import check_subwords
from nmt.evaluation.metrics import counting
from nmt.interop.run_layout import EVENTS
from nmt.library.evaluation import chosen_metrics
from nmt.light.counts import Noted
from nmt.light.pretrained import each_of
from nmt.registry import ROBUSTNESS
from nmt.report import (
    MapSentence,
    Sentences,
    Subject,
    chosen_sentences,
    contents,
    packed,
    page,
    require_jinja,
    sentences,
)
from nmt.report.contents import Words, letter, robustness

if TYPE_CHECKING:
    from nmt.library.translator import Translator

PROGRAM = "nmt-report"
DESCRIPTION = """Write one HTML page that compares systems on a test set: scores with
intervals and significance, by length and frequency of the words, over- and
under-translation, learning curves, and all sentences, which can be filtered, sorted and inspected. Each --hyp and each
--model is a system; the first is the baseline of the others. The page works without a network."""
USAGE = "-o FILE [--hyp FILE...] [--model RUN... --source FILE]\n                  --ref FILE... [options]"
METRICS = ("bleu", "chrf", "chrf++", "ter")
MAPS = 100
HYP, RUN = "hyp", "model"
_CALLED = {"tokenize": "--tokenize", "lowercase": "--lowercase", "language": "--language"}


def main(argv: list[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), report, argv)


class _InOrder(argparse.Action):
    """Adds systems to one list, as they come on the command line."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.systems = [*namespace.systems, *((self.const, value) for value in values)]


EXAMPLES = (
    "-o report.html --hyp a.de b.de --ref reference.de",
    "-o report.html --model runs/a --source news.en --ref reference.de",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-report."""
    parser = make_parser(PROGRAM, DESCRIPTION, examples=EXAMPLES, usage=USAGE)
    parser.set_defaults(systems=[])
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="page to write, such as report.html")
    systems: dict[str, Any] = {"nargs": "+", "action": _InOrder, "dest": "systems", "default": argparse.SUPPRESS}
    parser.add_argument("--hyp", metavar="FILE", const=HYP, help="translations of a system, one per line", **systems)
    parser.add_argument(
        "--model",
        metavar="RUN",
        const=RUN,
        help=f"translates --source: {MODEL} (folder or file); A+B is an ensemble",
        **systems,
    )
    parser.add_argument("--ref", metavar="FILE", nargs="+", required=True, help="references, one file for each set")
    parser.add_argument("--source", metavar="FILE", help="source text of the translations")
    parser.add_argument(
        "--labels",
        metavar="NAME",
        type=any_text,
        nargs="+",
        help="names of the systems, in their order (default: their files and runs)",
    )
    parser.add_argument(
        "--train",
        metavar="PREFIX",
        help="training text for word frequencies: a file, or a prefix like data.train (default: data.train of the "
        "first model, if its files exist)",
    )
    parser.add_argument(
        "--maps",
        metavar="N",
        type=natural,
        default=MAPS,
        help="sentences with attention and memory maps of each model (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics",
        metavar="NAME",
        nargs="+",
        default=list(METRICS),
        help=f"metrics as for nmt-eval (default: {' '.join(METRICS)})",
    )
    parser.add_argument(
        "--tokenize", metavar="NAME", help="sacreBLEU's tokenizer for bleu and for words (default: by the language)"
    )
    parser.add_argument(
        "--language", metavar="CODE", help="target language, which decides how bleu finds words (default: the model's)"
    )
    parser.add_argument(
        "--robustness",
        action="store_true",
        help="also translate the source in capitals, without end marks, with typing errors and the like",
    )
    parser.add_argument("--lowercase", action="store_true", default=None, help="ignore case in bleu and in words")
    add_errors(parser)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


@dataclass
class _Translated:
    """The translations of the models of a command line."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """Translations by system."""
    translators: dict[str, Translator] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0


def report(arguments: argparse.Namespace) -> int:
    """Read, translate, measure, and write the page."""
    from nmt.cli.output import output_stream

    names = _names(arguments)
    options = {key: getattr(arguments, key) for key in _CALLED if getattr(arguments, key) is not None}
    files = [name for kind, name in arguments.systems if kind == HYP]
    models = [name for kind, name in arguments.systems if kind == RUN]
    _check_extra(models)
    if arguments.robustness and not models:
        raise ConfigError("--robustness: needs --model; a file of --hyp has translations of one form")
    import_plugins(arguments.plugins)
    _metrics(arguments, options)  # report mistakes before texts are read and translated
    source = [] if arguments.source is None else [arguments.source]
    inputs = [*files, *arguments.ref, *source]
    parts = [part for name in models for part in each_of(name)]
    with output_stream(arguments.output, inputs=inputs, models=parts) as output:
        texts = iter(read_texts(PROGRAM, [[name] for name in inputs], policy=arguments.errors))
        read = {name: next(texts) for name in files}
        references = [next(texts) for _ in arguments.ref]
        lines = next(texts, None)
        made = _translate(models, lines or [], arguments)
        try:
            if made.translators:
                first = next(iter(made.translators.values()))
                references = [first.joined(stream) for stream in references]
            systems = {
                label: (read if kind == HYP else made.texts)[name]
                for label, (kind, name) in zip(names, arguments.systems, strict=True)
            }
            if "language" not in options and (language := _languages(made)[1]):
                options["language"] = language
            metrics, words = _metrics(arguments, options), Words(options)
            note = check_subwords({**systems, **dict(zip(arguments.ref, references, strict=True))})
            if note is not None:
                say(PROGRAM, note)
            training = _training(arguments.train, made)
            subject = Subject(
                systems=systems,
                references=references,
                source=lines,
                frequencies=_frequencies(training, words),
                training=" ".join(printable(str(path)) for path in training),
                kinds={
                    label: made.kinds.get(name, "") for label, (_, name) in zip(names, arguments.systems, strict=True)
                },
                languages=_languages(made),
            )
            say(PROGRAM, f"measuring {counted(len(systems), 'system')} on {counted(len(references[0]), 'sentence')}")
            figures = contents(subject, metrics, words)
            places = {place: name for place, (kind, name) in enumerate(arguments.systems) if kind == RUN}
            figures["robustness"] = (
                _robustness(lines or [], references, made, metrics, places) if arguments.robustness else []
            )
            chrf = next((metric for metric in metrics if metric.name == "chrf"), None)
            table = sentences(
                subject, words, options, chrf=chrf or counting(chosen_metrics(["chrf"], {}, called={})[0])
            )
            chosen, maps = _maps(table, {p: made.translators[name] for p, name in places.items()}, arguments.maps)
        finally:
            for translator in made.translators.values():
                translator.close()
        labels = {name: label for label, (_, name) in zip(names, arguments.systems, strict=True)}
        drawn = _curves({name: labels[name] for name in _runs_with_logs(models)})
        text = page(figures, table.as_data(maps), curves=drawn, map_reason=chosen.reason)
        output.write(text.encode())
    say(PROGRAM, f"{arguments.output}: {counted(len(systems), 'system')}, {len(text.encode()) / 1e6:.1f} MB")
    return made.exit_code


def _metrics(arguments: argparse.Namespace, options: dict[str, Any]) -> list[Any]:
    """The metrics, which remember what they have counted; `options` are those of bleu."""
    given = options if "bleu" in arguments.metrics else {}
    return [counting(metric) for metric in chosen_metrics(arguments.metrics, given, called=_CALLED)]


def _names(arguments: argparse.Namespace) -> list[str]:
    """The names of the systems; ConfigError for arguments that do not go together."""
    given = [name for _, name in arguments.systems]
    if not given:
        raise ConfigError("no system; give --hyp FILE, translations, or --model RUN, which translates --source")
    twice = [name for name in given if given.count(name) > 1]
    if twice:
        raise ConfigError(f"{twice[0]}: given twice; each one is a system")
    if arguments.source is None and any(kind == RUN for kind, _ in arguments.systems):
        raise ConfigError("--model needs --source, the text to translate")
    if "-" in (*given, *arguments.ref, arguments.source):
        raise ConfigError("-: standard input is not allowed here; give files")
    if arguments.labels is None:
        return [printable(name) for name in given]
    check_labels(arguments.labels, len(given), "system")
    return [printable(label) for label in arguments.labels]


def _translate(models: Sequence[str], lines: Sequence[str], arguments: argparse.Namespace) -> _Translated:
    """Translate with each of the models, one after the other."""
    made = _Translated()
    if not models:
        return made
    from nmt.library.loading import load  # late, so that mistakes in the options do not wait for torch
    from nmt.search.values import NOT_FINITE

    for name in models:
        translator = load(
            each_of(name),
            device=arguments.device,
            checkpoint=arguments.checkpoint,
            plugins=arguments.plugins,
        )
        made.translators[name] = translator
        start = time.perf_counter()
        results = translator.translate(list(lines))
        seconds = time.perf_counter() - start
        made.texts[name] = [result.text for result in results]
        made.kinds[name] = f"translated here, {translator.precision}"
        missing, noted = Noted(), Counter(note for result in results for note in result.notes)
        for number, result in enumerate(results, 1):
            if NOT_FINITE in result.notes:
                missing.add(number)
        said = [f"{count:,} {note.replace('_', ' ')}" for note, count in noted.items() if note != NOT_FINITE]
        if missing:
            made.exit_code = EXIT_FAILURE
            said.append(missing.said("has no translation with a finite score"))
        say(PROGRAM, "; ".join([f"{name}: {counted(len(results), 'line')} in {seconds:.1f} s", *said]))
    return made


def _robustness(
    lines: Sequence[str],
    references: Sequence[Sequence[str]],
    made: _Translated,
    metrics: Sequence[Any],
    places: Mapping[int, str],
) -> list[dict[str, Any]]:
    """The tables of all models, of which `places` are the places among the systems."""
    from nmt.search.values import NOT_FINITE

    changed = ROBUSTNESS.get("typed")(lines, languages=_languages(made))
    forms: dict[str, dict[str, list[str]]] = {name: {} for name in places.values()}
    for name, own in forms.items():
        for form, text in changed.sources.items():
            results = made.translators[name].translate(text)
            own[form] = changed.compared([result.text for result in results])
            if missing := sum(NOT_FINITE in result.notes for result in results):
                made.exit_code = EXIT_FAILURE
                say(PROGRAM, f"{name}, {form}: {counted(missing, 'line')} without a translation with a finite score")
    letters = [letter(place) for place in places]
    return robustness(
        forms, [changed.compared(stream) for stream in references], metrics, letters=letters, sources=lines
    )


def _languages(made: _Translated) -> tuple[str, str]:
    for translator in made.translators.values():
        return (
            tuple(code.strip("?") for code in (translator.source_language, translator.target_language))  # type: ignore[return-value]
        )
    return "", ""


def _training(prefix: str | None, made: _Translated) -> list[Path]:
    """The target files of the training text; empty if their place is unknown."""
    from nmt.data.text import find_file, find_pairs

    if prefix is not None and Path(prefix).is_file():
        return [Path(prefix)]
    language = _languages(made)[1]
    if prefix is not None:
        if not language:
            raise DataError(f"{missing(f'--train {prefix}')}, and without --model the language of PREFIX is not known")
        return [find_file(prefix, language)]
    for translator in made.translators.values():
        try:
            text = translator.config.data
            pairs = find_pairs(text.train, text.source_language, text.target_language, key="data.train")
            return [*dict.fromkeys(pair.target for pair in pairs)]
        except (ConfigError, DataError):  # a file for the engine has no configuration, and the text may have moved
            return []
    return []


def _frequencies(files: Sequence[Path], words: Words) -> Counter[str] | None:
    from nmt.data import read_lines

    counts: Counter[str] = Counter()
    for path in files:
        # A word that is not UTF-8 cannot occur in the test set.
        for line in words.each(read_lines(path, undecodable=Undecodable("replace"))):
            counts.update(line)
    return counts if files else None


def _maps(
    table: Sentences, translators: dict[int, Translator], count: int
) -> tuple[MapSentence, dict[int, dict[str, Any]]]:
    """Inspect the models that can be inspected, at the chosen sentences."""
    from nmt.interop.engine.opened import are_engine_files

    able = {place: t for place, t in translators.items() if not are_engine_files([str(t.models[0])])}
    if not able or not count:
        return MapSentence([], ""), {}
    chosen = chosen_sentences(table, count, models=list(able))
    say(PROGRAM, f"inspecting {counted(len(able), 'model')} at {counted(len(chosen.places), 'sentence')}")
    assert table.subject.source is not None
    outputs = list(table.subject.systems.values())
    found = {}
    for place in chosen.places:
        source = table.subject.source[place]
        try:
            maps = packed({k: t.inspect(source, outputs[k][place]) for k, t in able.items()})
        except DataError:  # a source of which a tokenizer leaves nothing
            continue
        if maps:
            found[place] = maps
    return chosen, found


def _runs_with_logs(models: Sequence[str]) -> list[str]:
    return [name for name in models if (Path(name) / EVENTS).is_file()]


def _check_extra(models: Sequence[str]) -> None:
    """Raise NmtError, before anything is computed, if a needed package of the extra `report` is missing."""
    require_jinja()
    if _runs_with_logs(models) and not importlib.util.find_spec("matplotlib"):
        raise NmtError("matplotlib, which draws learning curves, is not installed; pip install 'nmt-recurrent[report]'")


def _curves(labels: dict[str, str]) -> tuple[str, str]:
    """Learning curves as SVG, for a wide page and for a phone, of runs by their names, which have these labels."""
    from nmt.plotting import AXES, as_svg, curves, default_panels, read_logs, remarks

    if not labels:
        return "", ""
    logs = read_logs(list(labels), labels=list(labels.values()))
    for remark in remarks(logs, default_panels(logs), AXES["updates"]):
        say(PROGRAM, remark)
    try:
        figures = {"curves-wide": curves(logs), "curves-narrow": curves(logs, columns=1)}
    except DataError as error:  # a log without a point
        say(PROGRAM, f"no learning curves: {error}")
        return "", ""
    wide, narrow = (as_svg(f, name=name, title="Learning curves of the models") for name, f in figures.items())
    return wide, narrow


if __name__ == "__main__":
    sys.exit(main())
