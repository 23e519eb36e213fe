"""nmt-confidence: fit how sure a model is of its translations, and measure how good the estimate is."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt.cli.arguments import MODEL_OR_FILE, add_checkpoint, real_number
from nmt.cli.common import add_device, add_plugins, main_of, make_parser
from nmt.cli.lines import LinesBar, read_texts
from nmt.confidence.rating import FEATURES, FORMAT, Letters, Usual, digest_of_weights, features, place_of
from nmt.config import import_plugins
from nmt.data.text import find_pairs, read_lines, sample_lines
from nmt.errors import ConfigError, DataError, missing
from nmt.evaluation import build_metric
from nmt.evaluation.metrics import of_sentences
from nmt.evaluation.report import Table, text_tables
from nmt.files import naming, replace_text
from nmt.interop.engine.opened import are_engine_files
from nmt.light.results import Result

if TYPE_CHECKING:
    from nmt.confidence.fitting import Logistic, Numbers
    from nmt.config import Config
    from nmt.library.translator import Translator

DESCRIPTION = """Fit the probability that a translation by MODEL is good: that its sentence-level chrF reaches a number.
Translates text that has references, by default the development text of the run, and measures the estimate on other
text, by default its test text. `nmt-translate MODEL --format jsonl --with confidence` has it for each line. Also learns
what the training text looks like: lines that do not are noted, unlike_training."""
AT_LEAST = 60.0
SAMPLE = 20_000
"""Lines of training text whose letters are counted."""
KEYS = {"source": "dev", "test_source": "test"}
"""Options, and the text of the configuration that takes their place."""
bar = real_number(lambda number: 0 < number <= 100, "a number above 0 and at most 100")


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-confidence."""
    parser = make_parser(
        "nmt-confidence",
        DESCRIPTION,
        examples=(
            "runs/multi30k_lrn",
            "runs/mine --source news.en --ref news.de --at-least 50",
            "model.nmt --source dev.en --ref dev.de --train train.en",
        ),
        usage="MODEL [--source FILE --ref FILE] [options]",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_OR_FILE)
    add = parser.add_argument
    add("--source", metavar="FILE", help="text to fit to (default: data.dev of the model)")
    add("--ref", metavar="FILE", help="its reference translations")
    add("--test-source", metavar="FILE", help="text to measure the estimate on (default: data.test of the model)")
    add("--test-ref", metavar="FILE", help="its reference translations")
    add(
        "--at-least",
        metavar="N",
        type=bar,
        default=AT_LEAST,
        help="a translation whose chrF2 against its reference is so high is good (default: %(default)g)",
    )
    add("--train", metavar="FILE", nargs="+", help="training text of the source language (default: data.train)")
    add("--other", metavar="FILE", nargs="+", default=[], help="text in other languages: how much of it is noted?")
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


class Text(NamedTuple):
    """Sources and references, and what they are called."""

    name: str
    sources: list[str]
    references: list[str]


class Measured(NamedTuple):
    """The translations of a text."""

    values: Numbers  # [N, F]
    scores: Numbers  # [N]
    """Their chrF."""


def confidence(arguments: argparse.Namespace) -> int:
    """Translate, fit, measure, store and print."""
    import_plugins(arguments.plugins)
    config, run = _configuration(arguments)
    dev, test = (_text(arguments, config, option, run) for option in KEYS)
    if dev is None:
        raise ConfigError("no text to fit to; give --source FILE and --ref FILE")
    training = _training(arguments, config, run)
    others = [(path, list(read_lines(path))) for path in arguments.other]
    # Imported late, so that mistakes in the options are reported without loading torch.
    import numpy as np

    from nmt.confidence.fitting import check_bar, crossed, fitted, usual_of
    from nmt.library.loading import load

    given = {"device": arguments.device, "checkpoint": arguments.checkpoint, "plugins": arguments.plugins}
    with (
        load(arguments.model, **given) as translator,
        LinesBar(len(dev.sources) + (len(test.sources) if test else 0), shown=sys.stderr.isatty()) as progress,
    ):
        model = translator.models[0]
        found = {text.name: _measured(translator, text, progress) for text in (dev, test) if text is not None}
    own = found[dev.name]
    check_bar(own.scores, arguments.at_least)
    good = own.scores >= arguments.at_least
    logistic = fitted(own.values, good)
    usual = None
    if training:
        usual = usual_of(Letters.counted(sample_lines(training, SAMPLE, seed=1)), dev.sources)
    estimates = {dev.name: crossed(own.values, good)}
    if test is not None:
        estimates[test.name] = logistic.of(found[test.name].values)
    tables, measured = _tables(found, estimates, np.float64(arguments.at_least), dev.name)
    if usual is not None:
        texts = {text.name: text.sources for text in (dev, test) if text is not None}
        tables.append(_notes(usual, texts, others))
    record = _record(arguments, logistic, usual, model=model, measured=measured)
    place = place_of(model)
    with naming(place):
        replace_text(place, json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{place}: the probability that a translation has a chrF2 of {arguments.at_least:g} or more\n")
    print(text_tables(tables, []))
    if usual is None:
        why = "the development text has no letters" if training else "no training text is known; --train FILE gives it"
        print(f"\nNo line will be noted as unlike_training: {why}.")
    return 0


def _configuration(arguments: argparse.Namespace) -> tuple[Config | None, Path]:
    """The configuration of a run or folder, and the directory of it; a file for the engine has none."""
    if are_engine_files([arguments.model]):
        return None, Path()
    from nmt.config import load_saved  # late, as they import torch
    from nmt.files import model_folder
    from nmt.interop.model_dir import config_file, find_model

    folder = find_model(arguments.model, checkpoint=arguments.checkpoint)
    return load_saved(config_file(folder), arguments.plugins), model_folder(folder / "config.yaml")


def _text(arguments: argparse.Namespace, config: Config | None, option: str, run: Path) -> Text | None:
    """The text of --source and --ref or of --test-source and --test-ref, else that of the configuration, if any."""
    ref = option.replace("source", "ref")
    source, reference = getattr(arguments, option), getattr(arguments, ref)
    names = f"--{option.replace('_', '-')}", f"--{ref.replace('_', '-')}"
    if (source is None) != (reference is None):
        given, needed = names if reference is None else reversed(names)
        raise ConfigError(f"{given}: needs {needed} FILE, lines that belong to its lines")
    key = KEYS[option]
    if source is None:
        named = None if config is None else _of_configuration(config, run, key)
        if named is None or config is None:
            return None
        pairs = find_pairs(named, config.data.source_language, config.data.target_language, key=f"data.{key}")
        texts = [read_texts("nmt-confidence", [[str(path)] for path in pair], policy="strict") for pair in pairs]
        return Text(key, *([line for text in texts for line in text[side]] for side in (0, 1)))
    return Text(key, *read_texts("nmt-confidence", [[source], [reference]], policy="strict"))


def _of_configuration(config: Config, run: Path, key: str) -> Any:
    from nmt.data.prepare import generated

    return getattr(generated(config.data, run), key)


def _training(arguments: argparse.Namespace, config: Config | None, run: Path) -> list[Path]:
    """The source files of the training text; none where they are not known or, of the configuration, not there."""
    if arguments.train is not None:
        for path in arguments.train:
            if not os.path.isfile(path):
                raise DataError(f"--train: {missing(path)}")
        return [Path(path) for path in arguments.train]
    if config is None:
        return []
    languages = config.data.source_language, config.data.target_language
    try:
        pairs = find_pairs(_of_configuration(config, run, "train"), *languages, key="data.train")
        return [source for source, _ in pairs]
    except DataError:  # it has moved, which is reported at the end
        return []


def _measured(translator: Translator, text: Text, progress: LinesBar) -> Measured:
    """Features and chrF of the translations that have tokens; those of empty lines tell nothing."""
    import numpy as np

    results: list[Result] = []
    progress.window(len(text.sources))
    for result in translator.stream(text.sources, details=["scores"]):
        results.append(result)
        progress.batch(1)
    kept = [place for place, result in enumerate(results) if result.token_scores and result.score > -float("inf")]
    if not kept:
        raise DataError(f"{text.name}: no line has a translation")
    references = translator.joined([text.references[place] for place in kept])
    scores = of_sentences(build_metric("chrf"), [results[place].text for place in kept], [references])
    rows = [features(one.source_tokens, one.unknown, one.best) for one in (results[place] for place in kept)]
    return Measured(np.array(rows), np.array(scores))


def _tables(
    found: dict[str, Measured], estimates: dict[str, Numbers], least: Any, folds: str
) -> tuple[list[Table], dict[str, Any]]:
    """How good the estimates are, for people and for the record; `folds` is the text that was fitted to."""
    from nmt.confidence.fitting import FOLDS, area, bins, calibration_error

    rows, measured = [], {}
    for name, own in estimates.items():
        good = found[name].scores >= least
        error, auc = calibration_error(own, good), area(own[good], own[~good])
        called = f"{name} ({FOLDS} folds)" if name == folds else name
        shown = "-" if auc is None else f"{auc:.3f}"
        rows.append((called, str(len(good)), f"{100 * good.mean():.1f}", f"{error:.3f}", shown))
        measured[name] = {"lines": len(good), "good": float(good.mean()), "ece": error, "auc": auc}
    cells = [
        (f"{one.first:.1f}-{one.last:.1f}", str(one.lines), f"{100 * one.mean:.1f}", f"{100 * one.share:.1f}")
        for one in bins(own, good)
    ]
    title = f"{called}: lines by their confidence, and how many of them are good"  # of the last text
    by_confidence = Table(("confidence", "lines", "mean, %", "good, %"), cells, title)
    return [Table(("text", "lines", "good, %", "ECE", "AUC"), rows), by_confidence], measured


def _notes(usual: Usual, texts: dict[str, list[str]], others: Sequence[tuple[str, list[str]]]) -> Table:
    """How many lines of each text are noted, and of each of the others the AUC against the last of `texts`."""
    from nmt.confidence.fitting import area

    rows, known = list[tuple[str, ...]](), list[float]()
    for name, lines in (*texts.items(), *others):
        noted = sum(not usual.has(line) for line in lines) / max(1, len(lines))
        values = [value for value in map(usual.of, lines) if value is not None]
        auc = area(known, values) if len(rows) >= len(texts) else None
        rows.append((name, str(len(lines)), f"{100 * noted:.2f}", "" if auc is None else f"{auc:.4f}"))
        known = values if len(rows) == len(texts) else known
    return Table(("text", "lines", "unlike_training, %", "AUC"), rows, "lines that are noted")


def _record(
    arguments: argparse.Namespace, logistic: Logistic, usual: Usual | None, *, model: Path, measured: dict[str, Any]
) -> dict[str, Any]:
    """What is stored."""
    weights = dict(zip(("intercept", *FEATURES), (logistic.intercept, *map(float, logistic.weights)), strict=True))
    letters = None
    if usual is not None:
        letters = {"mean": usual.mean, "least": usual.least, "counts": usual.letters.counts}
    return {
        "format": FORMAT,
        "good": f"chrF2 >= {arguments.at_least:g}",
        "measured": measured,
        "model": digest_of_weights(model),
        "weights": weights,
        "letters": letters,
    }


main = main_of(build_parser, confidence)

if __name__ == "__main__":
    sys.exit(main())
