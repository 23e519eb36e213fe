"""nmt-compare: runs as one table over systems and seeds, with curves and a picture of scores and costs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nmt.cli.arguments import DECODING, add_checkpoint, add_decoding, any_text, check_ensemble, resamples, seed
from nmt.cli.common import add_device, add_errors, add_plugins, main_of, make_parser, say
from nmt.cli.descriptors import require
from nmt.cli.lines import read_texts
from nmt.config import import_plugins
from nmt.errors import ConfigError, DataError, refused
from nmt.evaluation import Metric
from nmt.experiments import tables
from nmt.experiments.chance import SEED, TRIALS
from nmt.experiments.records import Measured, Record, digest_of, read_record, scored, written
from nmt.files import is_folder, reason, replace_file
from nmt.library.evaluation import chosen_metrics
from nmt.light.options import command_option
from nmt.plotting import AXES

PROGRAM = "nmt-compare"
DESCRIPTION = """Compare finished runs in one table: runs that differ in their seeds alone are one system, with means,
standard deviations and significance. The scores are those of RUN/test.LANGUAGE, which training has left, or of --source
and --ref, which each run translates. A RUN is a run directory, or the record of one, which --save writes: a small JSON
file, from which the table can be made again without weights and texts."""
METRICS = ("bleu", "chrf")
OVER = {"parameters": "parameters", "cpu": "cpu_seconds"}


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-compare."""
    parser = make_parser(
        PROGRAM,
        DESCRIPTION,
        examples=(
            "runs/gru-1 runs/gru-2 runs/lrn-1 runs/lrn-2",
            "runs/* --source news.en --ref news.de --save results",
            "results/*.json --curves curves.pdf --scatter costs.pdf",
        ),
        usage="RUN... [options]",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directory of nmt-train, or a record of one, .json")
    parser.add_argument("--format", choices=tables.FORMS, default="text", help="form of the table (default: text)")
    parser.add_argument(
        "--labels",
        metavar="NAME",
        type=any_text,
        nargs="+",
        help="names of the systems, in their order (default: names of their first runs, without the seed at the end)",
    )
    parser.add_argument("--sort", action="store_true", help="best system first, by the first metric")
    parser.add_argument(
        "--save",
        metavar="DIR",
        help="write the record of each run directory to DIR/NAME.json, without weights and text",
    )
    group = parser.add_argument_group("scores")
    group.add_argument(
        "--metrics",
        metavar="NAME",
        nargs="+",
        help=f"metrics as for nmt-eval (default: {' '.join(METRICS)}; of records, all that they have)",
    )
    group.add_argument("--tokenize", metavar="NAME", help="sacreBLEU's tokenizer for bleu (default: by the language)")
    group.add_argument("--lowercase", action="store_true", default=None, help="ignore case in bleu")
    group.add_argument(
        "--no-dash-splits", dest="dash_splits", action="store_false", default=None, help="as for nmt-eval"
    )
    group.add_argument(
        "--baseline",
        metavar="NAME",
        type=any_text,
        help="system that the others are compared with (default: the first)",
    )
    group.add_argument(
        "--samples",
        metavar="N",
        type=resamples,
        default=TRIALS,
        help="trials of stratified approximate randomisation (default: %(default)s)",
    )
    group.add_argument("--seed", metavar="N", type=seed, default=SEED, help="seed of the trials (default: %(default)s)")
    group = parser.add_argument_group("pictures (extra plot), FILE.png, FILE.svg or FILE.pdf")
    group.add_argument(
        "--curves",
        metavar="FILE",
        help="validations over --axis: the mean of each system, and a band from its least to its largest value",
    )
    group.add_argument(
        "--axis", choices=tuple(AXES), default="cpu", help="axis of the curves: %(choices)s (default: %(default)s)"
    )
    group.add_argument("--scatter", metavar="FILE", help="the first metric of each run and system over --over")
    group.add_argument("--over", choices=tuple(OVER), default="parameters", help="%(choices)s (default: %(default)s)")
    group = parser.add_argument_group("translation of another text", "The defaults are those of each run.")
    group.add_argument("--source", metavar="FILE", help="text that each run translates, in place of its data.test")
    group.add_argument("--ref", metavar="FILE", nargs="+", default=[], help="its references, one file for each set")
    add_decoding(group)
    parser.set_defaults(n_best=1)
    add_errors(parser)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def compare(arguments: argparse.Namespace) -> int:
    """Read, translate if asked to, compare, print and draw."""
    _check(arguments)
    require(1)
    import_plugins(arguments.plugins)
    _metrics(arguments)  # mistakes are reported first
    for picture in (arguments.curves, arguments.scatter):
        if picture is not None:
            from nmt.plotting import check_ending, check_installed

            check_ending(picture)
            check_installed()
    exit_code, records = 0, []
    texts = None
    if arguments.source is not None:
        texts = read_texts(PROGRAM, [[arguments.source], *([name] for name in arguments.ref)], policy=arguments.errors)
    for name in arguments.runs:
        record, code = _record(name, arguments, texts)
        exit_code = max(exit_code, code)
        records.append(record)
        if record.ended is None:
            say(PROGRAM, f"{name}: is still training, or was killed; the table has its state so far")
        elif not record.finished:
            say(PROGRAM, f"{name}: was stopped before its end: {record.ended}")
        if record.test is None:
            say(
                PROGRAM,
                f"{name}: has no translated test text (data.test); give --source and --ref, or see its dev scores",
            )
    found = tables.compared(
        tables.systems_of(records, labels=arguments.labels),
        baseline=arguments.baseline,
        trials=arguments.samples,
        seed=arguments.seed,
        best_first=arguments.sort,
    )
    if arguments.save is not None:
        _save(Path(arguments.save), records)
    print(tables.written(found, arguments.format))
    _draw(found, arguments)
    return exit_code


_CALLED = {"tokenize": "--tokenize", "lowercase": "--lowercase", "dash_splits": "--no-dash-splits"}


def _given(arguments: argparse.Namespace) -> dict[str, object]:
    return {name: getattr(arguments, name) for name in _CALLED if getattr(arguments, name) is not None}


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    twice = [name for name in arguments.runs if arguments.runs.count(name) > 1]
    if twice:
        raise ConfigError(f"{twice[0]}: given twice; give each run once")
    if (arguments.source is None) != (not arguments.ref):
        missing = "--ref, its references" if arguments.source is not None else "--source, the text to translate"
        raise ConfigError(f"{'--source' if arguments.source is not None else '--ref'}: needs {missing}")
    records = [name for name in arguments.runs if not is_folder(Path(name))]
    if arguments.source is not None and records:
        raise ConfigError(f"--source: {records[0]} is a record, which cannot translate; give its run directory")
    if records and (options := _given(arguments)):
        listed = ", ".join(_CALLED[name] for name in options)
        raise ConfigError(
            f"{listed}: {records[0]} is a record, whose scores are computed already; give its run directory"
        )
    if arguments.source is None:
        given = [name for name in DECODING if name != "n_best" and getattr(arguments, name) is not None]
        if given:
            raise ConfigError(
                f"{', '.join(map(command_option, given))}: allowed only with --source, which is translated"
            )
    else:
        check_ensemble(arguments, models=1)


def _record(name: str, arguments: argparse.Namespace, texts: list[list[str]] | None) -> tuple[Record, int]:
    """The record of a run, or a run translated, and the exit code of that."""
    path = Path(name)
    if not is_folder(path) and path.suffix == ".json":
        return _chosen(read_record(path), arguments.metrics), 0
    if texts is not None:
        return _translated(path, arguments, texts)
    from nmt.experiments.runs import record_of  # late, as records need no torch

    return record_of(path, metrics=lambda language: _metrics(arguments, language), plugins=arguments.plugins), 0


def _metrics(arguments: argparse.Namespace, language: str | None = None) -> list[Metric]:
    return chosen_metrics(arguments.metrics or METRICS, _given(arguments), called=_CALLED, language=language)


def _chosen(record: Record, metrics: Sequence[str] | None) -> Record:
    """A record with the scores of some metrics alone."""
    if metrics is None or record.test is None:
        return record
    known = [one.metric for one in record.test.scores]
    for name in metrics:
        if name not in known:
            raise ConfigError(f"{record.path}: {refused('--metrics', name, known, problem='is not in the record')}")
    scores = [
        one
        for name in dict.fromkeys(metrics)
        for one in record.test.scores
        if name in (one.metric, one.metric.partition("@")[0])  # with those on each set
    ]
    return replace(record, test=replace(record.test, scores=scores))


def _translated(path: Path, arguments: argparse.Namespace, texts: list[list[str]]) -> tuple[Record, int]:
    """A run with the scores of its translation of --source."""
    from nmt.cli.opened import Work, open_models
    from nmt.data.text import windows
    from nmt.experiments.runs import record_of
    from nmt.light.counts import Counts
    from nmt.search.values import WINDOW

    record = record_of(path, plugins=arguments.plugins)
    work = Work(device=arguments.device, place=arguments.device, scores=False, on_batch=lambda *batch: None)
    models = open_models(argparse.Namespace(**{**vars(arguments), "models": [str(path)]}), work)
    lines, counts = [], Counts(arguments.errors, split_long="decoding.split_long")
    counts.longest = models.longest
    start = time.perf_counter()
    for window in windows(texts[0], size=WINDOW):
        for result in models.translate(window, ()):
            lines.append(result.text)
            counts.add(result.source_tokens, result.unknown, result.notes)
    say(PROGRAM, f"{path}: {counts.summary(time.perf_counter() - start, models=1)}")
    references = [[models.joined(line) for line in stream] for stream in texts[1:]]
    test = Measured(
        text=Path(arguments.source).name,
        digest=digest_of(references),
        sentences=len(lines),
        checkpoint=arguments.checkpoint,
        scores=[
            scored(metric, lines, references, sources=texts[0]) for metric in _metrics(arguments, models.languages[1])
        ],
    )
    return replace(record, test=test), counts.exit_code


def _save(folder: Path, records: Sequence[Record]) -> None:
    """Write the records of run directories; ConfigError for two of one name."""
    own = [record for record in records if is_folder(Path(record.path))]
    names = [record.name for record in own]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"--save: two runs are called {twice[0]}; rename one of their directories")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for record in own:
            replace_file(folder / f"{record.name}.json", written(record))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {reason(error)}") from error


def _draw(found: tables.Comparison, arguments: argparse.Namespace) -> None:
    """The pictures that were asked for."""
    if arguments.curves is None and arguments.scatter is None:
        return
    from nmt.cli.output import output_stream
    from nmt.plotting import bands, check_ending, picture, scatter

    inputs = [run.path for system in found.systems for run in system.runs]
    folders = [name for name in inputs if is_folder(Path(name))]
    files = [name for name in inputs if not is_folder(Path(name))]
    if arguments.curves is not None:
        curves = {system.label: [run.curve for run in system.runs] for system in found.systems}
        with output_stream(arguments.curves, inputs=files, models=folders) as stream:
            stream.write(picture(bands(curves, axis=arguments.axis), check_ending(arguments.curves)))
    if arguments.scatter is not None:
        if not found.metrics:
            raise DataError("--scatter: no run has a score of a test text; give --source and --ref")
        metric, key = found.metrics[0], OVER[arguments.over]
        points = {}
        for system in found.systems:
            pairs = [
                (getattr(run, key), one.score) for run, one in zip(system.runs, system.scores(metric), strict=False)
            ]
            points[system.label] = [(float(x), y) for x, y in pairs if x is not None]
        with output_stream(arguments.scatter, inputs=files, models=folders) as stream:
            labels = {"parameters": "parameters", "cpu_seconds": "CPU seconds"}
            stream.write(picture(scatter(points, x=labels[key], y=metric), check_ending(arguments.scatter)))


main = main_of(build_parser, compare)

if __name__ == "__main__":
    sys.exit(main())
