"""nmt-score: score given translations with a model or an ensemble, a text with language models, or an n-best list."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import (
    MODELS,
    above_zero,
    add_checkpoint,
    add_decoding,
    check_ensemble,
    given,
    positive,
    share,
)
from nmt.cli.common import EXIT_FAILURE, add_device, add_errors, add_plugins, main_of, make_parser, say
from nmt.cli.descriptors import require
from nmt.data.text import Undecodable, windows
from nmt.errors import ConfigError, DataError, counted, shown
from nmt.interop.engine.opened import are_engine_files
from nmt.library.values import PairScore
from nmt.light.counts import Noted
from nmt.light.options import as_keys, command_option
from nmt.light.pretrained import add_models, one_ensemble
from nmt.registry import TASKS
from nmt.search.values import WINDOW

if TYPE_CHECKING:
    from nmt.interop.model_dir import LoadedModel
    from nmt.interop.run_layout import LongestSource
    from nmt.language_models.scoring import LineScore
    from nmt.ranking.n_best import Entry

BATCH_TOKENS = 4096
"""Tokens per batch if neither option nor configuration gives a number: the logits of a batch are in memory at once."""
ENSEMBLE = ("ensemble_weights", "ensemble_mean")
"""Options of the search that scoring has, too."""
DESCRIPTION = """Write the mean negative log-probability of each target sentence given its source, in nats per token,
end symbol included: one number per line on standard output, the corpus perplexity on standard error. Lower is better.
An empty side is scored as the end symbol alone. With --text, score each line of a text by language models. With
--n-best, add a feature to a list of translations."""
WORDS = "words"
"""The feature that every n-best list has: `nmt.ranking.features`."""


def feature_name(text: str) -> str:
    """The name of a feature of an n-best list."""
    if not text or any(letter.isspace() or letter in "=,|" for letter in text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a name; a name has no spaces and none of = , |")
    if text == WORDS:
        raise argparse.ArgumentTypeError(
            f"'{WORDS}' is the name that nmt-rank gives to the number of words; choose another name"
        )
    return text


def dynamic(text: str) -> tuple[float, float]:
    """A rate of dynamic evaluation, optionally followed by a comma and a decay."""
    rate, _, decay = text.partition(",")
    return above_zero(rate), share(decay or "0")


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-score."""
    parser = make_parser(
        "nmt-score",
        DESCRIPTION,
        examples=(
            "runs/demo --source news.en --target news.de",
            "runs/ptb --text text.en",
            "runs/ptb --n-best news.list > scored.list",
        ),
        usage="MODEL... (--source FILE --target FILE | --text FILE |\n"
        "                           --n-best LIST [--source FILE]) [options]",
    )
    add_models(parser, help=MODELS)
    parser.add_argument("--source", metavar="FILE", type=Path, help="source text; may be .gz")
    parser.add_argument("--target", metavar="FILE", type=Path, help="its translation, line by line")
    text = parser.add_argument_group("texts (language models)")
    text.add_argument(
        "--text", metavar="FILE", type=Path, help="text to score (may be .gz); each line continues the lines before it"
    )
    text.add_argument("--by-line", action="store_true", help="score each line independently")
    text.add_argument(
        "--per-token",
        action="store_true",
        help="for each line, write the log-probabilities of its tokens and of its end",
    )
    text.add_argument(
        "--dynamic",
        metavar="RATE[,DECAY]",
        type=dynamic,
        help="dynamic evaluation: adapt the weights to the text with this learning rate, decaying towards the original "
        "weights",
    )
    lists = parser.add_argument_group("n-best lists (translation models with --source, else language models)")
    lists.add_argument(
        "--n-best",
        metavar="LIST",
        type=Path,
        help="n-best list in Moses' format (may be .gz); it is written with one more feature for each translation: its "
        "log-probability in nats, end symbol included",
    )
    lists.add_argument(
        "--feature",
        metavar="NAME",
        type=feature_name,
        help="name of the feature (default: model with --source, else lm)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with summary and scores instead of lines"
    )
    parser.add_argument(
        "--batch-tokens", metavar="N", type=positive, help="tokens per batch (default: the first model's)"
    )
    add_decoding(parser, ENSEMBLE)
    add_checkpoint(parser)
    add_errors(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if arguments.n_best is not None:
        for name in ("target", "text", "by_line", "per_token", "dynamic", "json"):
            if getattr(arguments, name):
                raise ConfigError(f"{command_option(name)}: not allowed with --n-best, which writes a list")
        if arguments.errors == "empty":
            raise ConfigError("--errors empty: a line of an n-best list is never empty. Allowed: strict, replace.")
        return
    if arguments.feature is not None:
        raise ConfigError("--feature: allowed only with --n-best")
    pair = [f"--{name}" for name in ("source", "target") if getattr(arguments, name) is not None]
    if arguments.text is None:
        if len(pair) < 2:
            raise ConfigError("nothing to score; give --source and --target, --text for language models, or --n-best")
        for name in ("by_line", "per_token", "dynamic"):
            if getattr(arguments, name):
                raise ConfigError(f"{command_option(name)}: allowed only with --text")
    elif pair:
        raise ConfigError(f"{pair[0]}: not allowed with --text, which language models score")
    if arguments.per_token and arguments.json:
        raise ConfigError("--per-token: not allowed with --json, which has one score per line")
    if arguments.text is not None and arguments.batch_tokens and not arguments.by_line:
        raise ConfigError(
            "--batch-tokens: with --text allowed only with --by-line; otherwise each line continues the lines before it"
        )
    if arguments.by_line and arguments.dynamic:
        raise ConfigError("--dynamic: not allowed with --by-line; it adapts from line to line")


Rules = Iterable[tuple[Path, Undecodable]]
"""Files, and the rules by which they were read."""


@dataclass
class Totals:
    """Sums of log-probabilities over a text or a corpus; problem lines are noted by their numbers, from 1."""

    as_json: bool
    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    nll: float = 0.0
    scores: list[float] = field(default_factory=list)
    """Kept for --json only."""
    not_finite: Noted = field(default_factory=Noted)

    def add(self, mean_nll: float, nll: float, *, tokens: int, unknown: int, shown: str = "") -> None:
        """Count a line; without --json print what is `shown`, by default its score."""
        self.lines += 1
        self.tokens += tokens
        self.unknown += unknown
        self.nll += nll
        if not math.isfinite(mean_nll):
            self.not_finite.add(self.lines)
        if self.as_json:
            self.scores.append(mean_nll)
        else:
            print(shown or f"{mean_nll:.6f}")

    @property
    def mean(self) -> PairScore:
        """Of all tokens."""
        return PairScore(-self.nll / self.tokens if self.tokens else math.nan, self.tokens, self.unknown)

    def summary(self, counts: str) -> str:
        """One line for people, with what was counted."""
        text = f"perplexity {self.mean.perplexity:.4f}, {self.mean.mean_nll:.6f} nats per token; {counts}"
        return text + (f", {self.unknown / self.tokens:.2%} are not in the vocabulary" if self.unknown else "")

    def print_json(self, **counts: int) -> None:
        """With --json, print all totals and the other counts; NaN and infinity, which JSON lacks, are null."""
        means = {"perplexity": self.mean.perplexity, "mean_nll": self.mean.mean_nll}
        record: dict[str, Any] = {name: _finite(value) for name, value in means.items()} | counts
        record |= {"tokens": self.tokens, "unknown": self.unknown, "scores": [*map(_finite, self.scores)]}
        if self.as_json:
            print(json.dumps(record, allow_nan=False))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def score(arguments: argparse.Namespace) -> int:
    """Load, read, score and print."""
    _check(arguments)
    arguments.models = one_ensemble(arguments)
    if arguments.n_best is not None:
        return _score_n_best(arguments)
    return _score_pairs(arguments) if arguments.text is None else _score_text(arguments)


def _loaded(arguments: argparse.Namespace, *, task: str) -> list[LoadedModel]:
    from nmt.interop.model_dir import load_models  # late, so that mistakes in the options do not wait for torch

    return load_models(
        arguments.models,
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
        task=task,
    )


def _end(
    arguments: argparse.Namespace, found: list[str], rules: Iterable[tuple[Path, Undecodable]], *, failed: Noted
) -> int:
    """Say what was found, and return the exit code."""
    sys.stdout.flush()
    found[0] += f", by {len(arguments.models)} models" if len(arguments.models) > 1 else ""
    if failed:
        found.insert(1, failed.said("with a score that is not finite"))
    found += [f"{path}: {rule.summary()}" for path, rule in rules if rule.noted]
    say("nmt-score", "; ".join(found))
    return EXIT_FAILURE if failed else 0


def _score_pairs(arguments: argparse.Namespace) -> int:
    """Translations of a source."""
    from nmt.cli.opened import shortest_training
    from nmt.data.text import FilePair, nothing_in, read_pairs

    check_ensemble(arguments, models=len(arguments.models))
    require(1)
    files = FilePair(arguments.source, arguments.target)
    if all(path.is_file() for path in files):
        # Report unequal and empty files before the first score; pipes can be read only once.
        lines = sum(1 for _ in read_pairs(files, undecodable=(Undecodable("empty"), Undecodable("empty"))))
        if not lines:
            raise nothing_in([files])
    rules = Undecodable(arguments.errors), Undecodable(arguments.errors)
    pairs = read_pairs(files, undecodable=rules)
    scores: Iterable[PairScore]
    if are_engine_files(arguments.models):
        scores, longest = _file_scores(pairs, arguments)
    else:
        models = _loaded(arguments, task="translation")
        scores, longest = _pair_scores(models, pairs, arguments), shortest_training(models)
    totals, longer, empty = Totals(arguments.json), Noted(), 0
    for pair in scores:
        totals.add(pair.mean_nll, pair.mean_nll * pair.tokens, tokens=pair.tokens, unknown=pair.unknown)
        empty += not pair.source_tokens or pair.tokens == 1
        if longest is not None and pair.source_tokens > longest.tokens:
            longer.add(totals.lines)
    totals.print_json(sentences=totals.lines, empty=empty)
    counts = f"{counted(totals.lines, 'sentence')}, {counted(totals.tokens, 'target token')} with end symbols"
    aside = f"; {empty:,} with an empty side, scored as the end symbol alone" if empty else ""
    found = [totals.summary(counts) + aside]
    if longer:
        found += [longer.said(f"longer than {longest}")]
    return _end(arguments, found, zip(files, rules, strict=True), failed=totals.not_finite)


def _file_scores(
    pairs: Iterable[tuple[str, str]], arguments: argparse.Namespace
) -> tuple[Iterable[PairScore], LongestSource | None]:
    """Scores by the engine, and the longest source in the training of all its files."""
    from nmt.library.light import EngineFiles, lacking

    for name in given(arguments, (*ENSEMBLE, "batch_tokens")):
        raise ConfigError(f"{command_option(name)}: {lacking(arguments.models[0])}")
    files = EngineFiles(
        arguments.models,
        device=arguments.device,
        precision="auto",
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
    )
    some = windows(pairs, size=WINDOW, length=lambda pair: len(pair[0]) + len(pair[1]))
    return (score for window in some for score in files.score(*zip(*window, strict=True))), files.longest


def _pair_scores(
    models: Sequence[LoadedModel], pairs: Iterable[tuple[str, str]], arguments: argparse.Namespace
) -> Iterator[PairScore]:
    from nmt.search.ensemble import ensemble_mean
    from nmt.search.reading import score_pairs

    decoding = replace(models[0].config.decoding, **as_keys(given(arguments, ENSEMBLE)))
    configured = BATCH_TOKENS if decoding.batch_tokens == "auto" else decoding.batch_tokens
    return score_pairs(
        models[0].model,
        models[0].tokenizer,
        pairs,
        batch_tokens=arguments.batch_tokens or configured,
        others=[other.model for other in models[1:]],
        mean=ensemble_mean(decoding, models=len(models)),
    )


def _score_text(arguments: argparse.Namespace) -> int:
    """The lines of a text."""
    from nmt.data.text import read_lines

    for name in given(arguments, ENSEMBLE):
        raise ConfigError(f"{command_option(name)}: not allowed with --text, where models have equal weights")
    undecodable = Undecodable(arguments.errors)
    lines = read_lines(arguments.text, undecodable=undecodable)
    models = _loaded(arguments, task="language_model")
    totals = Totals(arguments.json)
    for line in _line_scores(models, lines, arguments):
        shown = " ".join(f"{value:.6f}" for value in line.log_probs) if arguments.per_token else ""
        nll = -sum(line.log_probs)
        totals.add(line.mean_nll, nll, tokens=len(line.log_probs), unknown=line.unknown, shown=shown)
    if not totals.lines:
        raise DataError(f"{arguments.text}: has no line")
    totals.print_json(lines=totals.lines)
    counts = f"{counted(totals.lines, 'line')}, {counted(totals.tokens, 'token')} with ends of lines"
    return _end(arguments, [totals.summary(counts)], [(arguments.text, undecodable)], failed=totals.not_finite)


def _line_scores(
    models: Sequence[LoadedModel], lines: Iterable[str], arguments: argparse.Namespace
) -> Iterator[LineScore]:
    task = TASKS.get("language_model")
    networks: list[Any] = [loaded.model for loaded in models]
    tokenizer = models[0].tokenizer
    if arguments.by_line or arguments.n_best is not None:
        return task.score_lines(networks, tokenizer, lines, batch_tokens=arguments.batch_tokens or BATCH_TOKENS)
    return task.score_text(networks, tokenizer, lines, dynamic=arguments.dynamic)


def _score_n_best(arguments: argparse.Namespace) -> int:
    """A list of translations, which gets one more feature."""
    from nmt.data.text import read_lines
    from nmt.ranking.n_best import read_n_best

    translates = arguments.source is not None
    if translates:
        check_ensemble(arguments, models=len(arguments.models))
    elif given(arguments, ENSEMBLE):
        raise ConfigError(
            "--ensemble-weights, --ensemble-mean: not allowed for language models, which have equal weights"
        )
    rules = Undecodable(arguments.errors), Undecodable(arguments.errors)
    sources = list(read_lines(arguments.source, undecodable=rules[0])) if translates else None
    path = str(arguments.n_best)
    if are_engine_files(arguments.models):
        raise ConfigError(
            f"--n-best: {arguments.models[0]} is one file for the engine, which scores no lists; use its run"
        )
    entries = read_n_best(read_lines(arguments.n_best, undecodable=rules[1]), name=path)
    first = next(entries, None)  # a malformed list is reported before models are loaded
    models = _loaded(arguments, task="translation" if translates else "language_model")
    feature = arguments.feature or ("model" if translates else "lm")
    every = entries if first is None else chain([first], entries)
    ours, theirs = tee(_checked(every, feature=feature, path=path, sources=sources, source=arguments.source))
    if sources is None:
        scored = _line_scores(models, (entry.text for entry in theirs), arguments)
        values = (sum(line.log_probs) for line in scored)
    else:
        pairs = _pair_scores(models, ((sources[entry.number], entry.text) for entry in theirs), arguments)
        values = (-pair.mean_nll * pair.tokens for pair in pairs)
    lines, total, not_finite = 0, 0.0, Noted()
    for lines, (entry, value) in enumerate(zip(ours, values, strict=True), start=1):
        total += value
        if not math.isfinite(value):
            not_finite.add(lines)
        sys.stdout.write(entry.with_feature(feature, value).line())
    mean = f"; {feature} {total / lines:.4f} on average" if lines else ""
    files = zip((arguments.source, arguments.n_best), rules, strict=True)
    return _end(arguments, [f"{counted(lines, 'translation')}{mean}"], files, failed=not_finite)


def _checked(
    entries: Iterator[Entry], *, feature: str, path: str, sources: list[str] | None, source: Path | None
) -> Iterator[Entry]:
    """The translations; DataError if one already has the feature, or belongs to a line that does not exist."""
    for place, entry in enumerate(entries, start=1):
        if feature in entry.features:
            raise DataError(f"{path}, line {place}: already has the feature '{feature}'; choose another --feature")
        if sources is not None and entry.number >= len(sources):
            there = counted(len(sources), "line")
            raise DataError(
                f"{path}, line {place}: line number {entry.number}, but {source} has {there}, numbered from 0"
            )
        yield entry


main = main_of(build_parser, score)

if __name__ == "__main__":
    sys.exit(main())
