"""nmt-rank: choose the best translations of an n-best list by weighted features, and tune the weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.arguments import real_number
from nmt.cli.common import add_errors, add_plugins, main_of, make_parser, say
from nmt.cli.output import output_stream
from nmt.config import import_plugins
from nmt.errors import ConfigError, DataError, counted, near_miss, shown
from nmt.light.counts import Noted
from nmt.limits import LARGEST

if TYPE_CHECKING:
    from nmt.ranking.n_best import Entry

DESCRIPTION = """Rank the translations of each line of an n-best list, in Moses' format, by the weighted sum
of their features, or by how good each is if the others are the references, and write the best, one for each line.
nmt-translate --format moses writes such lists, and nmt-score --n-best adds features to them."""
FORMATS = ("text", "moses")
_weight = real_number(lambda number: abs(number) <= LARGEST, f"a number from {-LARGEST:g} to {LARGEST:g}")


def _feature_weights(text: str) -> dict[str, float]:
    """`NAME=NUMBER` separated by commas, each name at most once."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals or name in found:
            twice = "is given twice" if name in found else "is not NAME=NUMBER"
            raise argparse.ArgumentTypeError(f"{shown(part)} {twice}; write for example score=1,lm=0.3")
        found[name] = _weight(value)
    return found


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-rank."""
    parser = make_parser(
        "nmt-rank",
        DESCRIPTION,
        examples=("news.list --weights score=1,words=0.1 -o news.de", "dev.list --tune --ref dev.de"),
        usage="LIST (--weights NAME=W,... | --mbr METRIC |\n                --tune --ref FILE...) [-o FILE] [options]",
    )
    parser.add_argument("list", metavar="LIST", help="n-best list in Moses' format; may be .gz")
    parser.add_argument(
        "--weights",
        metavar="NAME=W,...",
        type=_feature_weights,
        help="weights of the features to use, such as score=1,lm=0.3; 'words' is the number of words of a translation, "
        "available in every list",
    )
    parser.add_argument(
        "--mbr",
        metavar="METRIC",
        help="minimum Bayes risk: rank by the mean score of a translation with each of its line as the reference, such "
        "as chrf, or comet with --source",
    )
    parser.add_argument("--source", metavar="FILE", help="with --mbr: the text that was translated")
    parser.add_argument(
        "--tune",
        action="store_true",
        help="instead write the weights that give the chosen translations the highest score",
    )
    parser.add_argument(
        "--ref", metavar="FILE", nargs="+", default=[], help="references for --tune, one file for each set"
    )
    parser.add_argument("--metric", metavar="NAME", help="metric for --tune: bleu (default), chrf, ter, ...")
    parser.add_argument(
        "--language", metavar="CODE", help="language of the translations, which decides how bleu finds words"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="text (default): the best translation of each line; moses: all of them, best first, with their sums",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: standard output)")
    add_errors(parser, policies=("strict", "replace"))  # a line of a list is never empty
    add_plugins(parser)
    return parser


def rank(arguments: argparse.Namespace) -> int:
    """Read, rank and write."""
    _check(arguments)
    from nmt.data.text import Undecodable, read_lines
    from nmt.ranking.n_best import read_n_best

    undecodable = Undecodable(arguments.errors)
    inputs = [arguments.list, *arguments.ref, *([] if arguments.source is None else [arguments.source])]
    with output_stream(arguments.output, inputs=inputs) as output:
        entries = read_n_best(read_lines(Path(arguments.list), undecodable=undecodable), name=arguments.list)
        for line in (_tuned if arguments.tune else _ranked)(arguments, entries):
            output.write(line.encode("utf-8"))
    if undecodable.noted:
        say("nmt-rank", f"{arguments.list}: {undecodable.summary()}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if (arguments.weights is not None) + (arguments.mbr is not None) + arguments.tune != 1:
        raise ConfigError("give one of --weights, --mbr and --tune")
    if arguments.source is not None and arguments.mbr is None:
        raise ConfigError("--source: allowed only with --mbr")
    if arguments.tune and not arguments.ref:
        raise ConfigError("--tune: give the references in --ref")
    if arguments.tune and arguments.format is not None:
        raise ConfigError("--format: not allowed with --tune, which writes weights")
    if not arguments.tune:
        for name in ("ref", "metric") if arguments.mbr else ("ref", "metric", "language", "plugins"):
            if getattr(arguments, name):
                others = "--tune" if name in ("ref", "metric") else "--mbr and --tune"
                raise ConfigError(f"--{name.removesuffix('s')}: allowed only with {others}")


def _ranked(arguments: argparse.Namespace, entries: Iterator[Entry]) -> Iterator[str]:
    """The lines of the output; one without a translation is empty."""
    as_text = arguments.format != "moses"
    missing, following, changed, translations = Noted(), 0, 0, 0
    for group, best_first in _best_first(arguments, entries):
        for number in range(following, group[0].number):
            missing.add(number + 1)
            if as_text:
                yield "\n"
        following = group[0].number + 1
        translations += len(group)
        changed += best_first[0].text != group[0].text
        if as_text:
            yield f"{best_first[0].text}\n"
        else:
            yield from (entry.line() for entry in best_first)
    lines = counted(following, "line")
    said = [f"{counted(translations, 'translation')} of {lines}; for {changed:,} the best is not the first"]
    said += [missing.said("without a translation")] if missing else []
    say("nmt-rank", "; ".join(said))


def _best_first(
    arguments: argparse.Namespace, entries: Iterator[Entry]
) -> Iterator[tuple[Sequence[Entry], Sequence[Entry]]]:
    """The translations of each line as they are in the list, and in their new order."""
    from nmt.cli.lines import read_texts
    from nmt.library.evaluation import chosen_metrics
    from nmt.ranking.features import ranked
    from nmt.ranking.n_best import groups_of
    from nmt.ranking.utility import by_expected_utility

    if arguments.mbr is None:
        for group in groups_of(_complete(entries, arguments.weights, path=arguments.list)):
            yield group, ranked(group, arguments.weights)
        return
    import_plugins(arguments.plugins)
    (metric,) = chosen_metrics([arguments.mbr], {}, called={}, language=arguments.language)
    if metric.needs_sources and arguments.source is None:
        raise ConfigError(f"--mbr {metric.name}: needs --source, the text that was translated")
    sources = None
    if arguments.source is not None:
        (sources,) = read_texts("nmt-rank", [[arguments.source]], policy=arguments.errors)
    yield from by_expected_utility(groups_of(entries), metric, sources=sources)


def _complete(entries: Iterator[Entry], weights: dict[str, float], *, path: str) -> Iterator[Entry]:
    """The translations; DataError if one lacks a feature that has a weight."""
    from nmt.ranking.features import features_of

    for place, entry in enumerate(entries, start=1):
        known = features_of(entry)
        for name in weights:
            if name not in known:
                listed = f"{near_miss(name, list(known))} Allowed: {', '.join(known)}."
                raise DataError(f"{path}, line {place}: has no feature '{name}'.{listed}")
        yield entry


def _tuned(arguments: argparse.Namespace, entries: Iterator[Entry]) -> Iterator[str]:
    """The line with the weights."""
    from nmt.data.text import Undecodable, read_lines
    from nmt.evaluation import build_metric
    from nmt.ranking.features import tune
    from nmt.ranking.n_best import groups_of

    import_plugins(arguments.plugins)
    name = arguments.metric or "bleu"
    metric = build_metric(name, language=arguments.language)
    references = [list(read_lines(Path(path), undecodable=Undecodable(arguments.errors))) for path in arguments.ref]
    groups = list(groups_of(entries))
    if not groups:
        raise DataError(f"{arguments.list}: holds no translation")
    for place, group in enumerate(groups):
        if group[0].number != place:
            raise DataError(f"{arguments.list}: no translation of line {place}; --tune needs one for each reference")
    for path, stream in zip(arguments.ref, references, strict=True):
        if len(groups) != len(stream):
            there = counted(len(groups), "line")
            raise DataError(
                f"{arguments.list} has translations of {there}, but {path} has {counted(len(stream), 'line')}; each "
                "reference needs one"
            )
    found = tune(groups, references, metric)
    yield ",".join(f"{feature}={weight:g}" for feature, weight in found.weights.items()) + "\n"
    say("nmt-rank", f"{name} {found.score:.2f} with these weights, {found.before:.2f} with the first translations")


main = main_of(build_parser, rank)

if __name__ == "__main__":
    sys.exit(main())
