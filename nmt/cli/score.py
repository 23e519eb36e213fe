"""nmt-score: score given translations with a model or an ensemble, a text with language models, or an n-best list."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import (
    FIRST,
    add_checkpoint,
    add_ensemble,
    add_models,
    check_ensemble,
    dynamic,
    feature_name,
    named_models,
    positive,
    with_ensemble,
)
from nmt.cli.common import EXIT_FAILURE, add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.descriptors import require
from nmt.data.text import Undecodable
from nmt.errors import ConfigError, DataError, counted
from nmt.light.counts import Noted
from nmt.registry import TASKS

if TYPE_CHECKING:
    from nmt.data.n_best import Entry
    from nmt.interop.model_dir import LoadedModel
    from nmt.search import PairScore
    from nmt.search.reading import LineScore

BATCH_TOKENS = 4096
"""Tokens per batch if neither option nor configuration gives a number: the logits of a batch are in memory at once."""
_NOT_FINITE = "with a score that is not finite"
DESCRIPTION = """Write the mean negative log-probability of each target sentence given its source, in nats per token,
end symbol included: one number per line on standard output, the corpus perplexity on standard error. Lower is better.
An empty side is scored as the end symbol alone. With --text, score each line of a text by language models. With
--n-best, add a feature to a list of translations."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), score, argv)


EXAMPLES = (
    "runs/demo --source news.en --target news.de",
    "runs/ptb --text text.en",
    "runs/ptb --n-best news.list > scored.list",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-score."""
    parser = make_parser(
        "nmt-score",
        DESCRIPTION,
        examples=EXAMPLES,
        usage="MODEL... (--source FILE --target FILE | --text FILE |\n"
        "                           --n-best LIST [--source FILE]) [options]",
    )
    add_models(parser)
    parser.add_argument("--source", metavar="FILE", type=Path, help="source text; may be .gz")
    parser.add_argument("--target", metavar="FILE", type=Path, help="its translation, line by line")
    _add_text(parser.add_argument_group("texts (language models)"))
    _add_n_best(parser.add_argument_group("n-best lists (translation models with --source, else language models)"))
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with summary and scores instead of lines"
    )
    parser.add_argument(
        "--batch-tokens", metavar="N", type=positive, help="tokens per batch (default: the first model's)"
    )
    add_ensemble(parser)
    add_checkpoint(parser)
    add_errors(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def _add_text(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--text", metavar="FILE", type=Path, help="text to score (may be .gz); each line continues the lines before it"
    )
    group.add_argument("--by-line", action="store_true", help="score each line independently")
    group.add_argument(
        "--per-token",
        action="store_true",
        help="for each line, write the log-probabilities of its tokens and of its end",
    )
    group.add_argument(
        "--dynamic",
        metavar="RATE[,DECAY]",
        type=dynamic,
        help="dynamic evaluation: adapt the weights to the text with this learning rate, decaying towards the original "
        "weights",
    )


def _add_n_best(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--n-best",
        metavar="LIST",
        type=Path,
        help="n-best list in Moses' format (may be .gz); it is written with one more feature for each translation: its "
        "log-probability in nats, end symbol included",
    )
    group.add_argument(
        "--feature",
        metavar="NAME",
        type=feature_name,
        help="name of the feature (default: model with --source, else lm)",
    )


def _check_n_best(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    if arguments.n_best is None:
        if arguments.feature is not None:
            raise ConfigError("--feature: allowed only with --n-best")
        return
    for name in ("target", "text", "by_line", "per_token", "dynamic", "json"):
        if getattr(arguments, name):
            raise ConfigError(f"--{name.replace('_', '-')}: not allowed with --n-best, which writes a list")
    if arguments.errors == "empty":
        raise ConfigError("--errors empty: a line of an n-best list is never empty. Allowed: strict, replace.")


def _check_text(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that do not go together."""
    pair = [f"--{name}" for name in ("source", "target") if getattr(arguments, name) is not None]
    if arguments.text is None and len(pair) < 2:
        raise ConfigError("nothing to score; give --source and --target, --text for language models, or --n-best")
    if arguments.text is not None and pair:
        raise ConfigError(f"{pair[0]}: not allowed with --text, which language models score")
    if arguments.text is None:
        for name in ("by_line", "per_token", "dynamic"):
            if getattr(arguments, name):
                raise ConfigError(f"--{name.replace('_', '-')}: allowed only with --text")
    if arguments.per_token and arguments.json:
        raise ConfigError("--per-token: not allowed with --json, which has one score per line")
    if arguments.text is not None and arguments.batch_tokens and not arguments.by_line:
        raise ConfigError(
            "--batch-tokens: with --text allowed only with --by-line; otherwise each line continues the lines before it"
        )
    if arguments.by_line and arguments.dynamic:
        raise ConfigError("--dynamic: not allowed with --by-line; it adapts from line to line")


@dataclass
class Totals:
    """Sums of log-probabilities over a text or a corpus; problem lines are noted by their numbers, from 1."""

    lines: int = 0
    tokens: int = 0
    unknown: int = 0
    nll: float = 0.0
    scores: list[float] = field(default_factory=list)
    """Kept for --json only."""
    not_finite: Noted = field(default_factory=Noted)

    def add(self, mean_nll: float, nll: float, *, tokens: int, unknown: int) -> None:
        """Count a line."""
        self.lines += 1
        self.tokens += tokens
        self.unknown += unknown
        self.nll += nll
        if not math.isfinite(mean_nll):
            self.not_finite.add(self.lines)

    @property
    def mean_nll(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp of the mean; infinite where that overflows."""
        return math.exp(self.mean_nll) if not self.mean_nll >= 700 else math.inf

    def summary(self, counts: str) -> str:
        """One line for people, with what was counted."""
        text = f"perplexity {self.perplexity:.4f}, {self.mean_nll:.6f} nats per token; {counts}"
        return text + (f", {self.unknown / self.tokens:.2%} are not in the vocabulary" if self.unknown else "")

    def record(self, **counts: int) -> dict[str, Any]:
        """All totals and the other counts, for programs; NaN and infinity, which JSON lacks, are null."""
        return {
            "perplexity": _finite(self.perplexity),
            "mean_nll": _finite(self.mean_nll),
            **counts,
            "tokens": self.tokens,
            "unknown": self.unknown,
            "scores": [_finite(score) for score in self.scores],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def score(arguments: argparse.Namespace) -> int:
    """Load, read, score and print."""
    _check_n_best(arguments)
    if arguments.n_best is not None:
        return _score_n_best(arguments)
    _check_text(arguments)
    return _score_pairs(arguments) if arguments.text is None else _score_text(arguments)


def _named(arguments: argparse.Namespace) -> list[str]:
    """The models; ConfigError if there is none."""
    if not (named := named_models(arguments)):
        raise ConfigError(f"MODEL is missing; {FIRST}")
    return named


def _loaded(arguments: argparse.Namespace, *, task: str) -> list[LoadedModel]:
    from nmt.interop.ensemble import load_models  # late, so that mistakes in the options do not wait for torch

    return load_models(
        _named(arguments),
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
        task=task,
    )


def _end(found: list[str], rules: Sequence[tuple[Path, Undecodable]], *, failed: Noted) -> int:
    """Say what was found, and return the exit code."""
    sys.stdout.flush()
    found += [f"{path}: {rule.summary()}" for path, rule in rules if rule.noted]
    say("nmt-score", "; ".join(found))
    return EXIT_FAILURE if failed else 0


def _by(models: Sequence[LoadedModel]) -> str:
    return f", by {len(models)} models" if len(models) > 1 else ""


def _score_pairs(arguments: argparse.Namespace) -> int:
    """Translations of a source."""
    from nmt.cli.opened import shortest_training
    from nmt.data.text import FilePair, count_pairs, read_pairs

    check_ensemble(arguments, models=len(_named(arguments)))
    require(1)
    files = FilePair(arguments.source, arguments.target)
    if all(path.is_file() for path in files):
        # Report unequal files before the first score; pipes can be read only once.
        count_pairs([files], decodable=False)
    models = _loaded(arguments, task="translation")
    rules = Undecodable(arguments.errors), Undecodable(arguments.errors)
    longest = shortest_training(models)
    totals, longer, empty = Totals(), Noted(), 0
    for pair in _pair_scores(models, read_pairs(files, undecodable=rules), arguments):
        totals.add(pair.mean_nll, pair.mean_nll * pair.tokens, tokens=pair.tokens, unknown=pair.unknown)
        empty += pair.has_empty_side
        if pair.source_tokens > longest.tokens:
            longer.add(totals.lines)
        if arguments.json:
            totals.scores.append(pair.mean_nll)
        else:
            print(f"{pair.mean_nll:.6f}")
    if arguments.json:
        print(json.dumps(totals.record(sentences=totals.lines, empty=empty), allow_nan=False))
    counts = f"{counted(totals.lines, 'sentence')}, {counted(totals.tokens, 'target token')} with end symbols"
    aside = f"; {empty:,} with an empty side, scored as the end symbol alone" if empty else ""
    said = ((totals.not_finite, _NOT_FINITE), (longer, f"longer than {longest}"))
    problems = [noted.said(what) for noted, what in said if noted]
    found = [totals.summary(counts) + aside + _by(models), *problems]
    return _end(found, list(zip(files, rules, strict=True)), failed=totals.not_finite)


def _pair_scores(
    models: Sequence[LoadedModel], pairs: Iterable[tuple[str, str]], arguments: argparse.Namespace
) -> Iterator[PairScore]:
    from nmt.search import score_pairs
    from nmt.search.ensemble import ensemble_mean

    decoding = with_ensemble(models[0].config.decoding, arguments)
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

    _named(arguments)
    for name in ("ensemble_weights", "ensemble_mean"):
        if getattr(arguments, name, None) is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: not allowed with --text, where models have equal weights")
    undecodable = Undecodable(arguments.errors)
    lines = read_lines(arguments.text, undecodable=undecodable)
    models = _loaded(arguments, task="language_model")
    totals = Totals()
    for line in _line_scores(models, lines, arguments):
        totals.add(line.mean_nll, -sum(line.log_probs), tokens=len(line.log_probs), unknown=line.unknown)
        if arguments.json:
            totals.scores.append(line.mean_nll)
        elif arguments.per_token:
            print(" ".join(f"{value:.6f}" for value in line.log_probs))
        else:
            print(f"{line.mean_nll:.6f}")
    if not totals.lines:
        raise DataError(f"{arguments.text}: has no line")
    if arguments.json:
        print(json.dumps(totals.record(lines=totals.lines), allow_nan=False))
    counts = f"{counted(totals.lines, 'line')}, {counted(totals.tokens, 'token')} with ends of lines"
    found = [totals.summary(counts) + _by(models)]
    found += [totals.not_finite.said(_NOT_FINITE)] if totals.not_finite else []
    return _end(found, [(arguments.text, undecodable)], failed=totals.not_finite)


def _line_scores(
    models: Sequence[LoadedModel], lines: Iterable[str], arguments: argparse.Namespace, *, by_line: bool = False
) -> Iterator[LineScore]:
    task = TASKS.get("language_model")

    networks: list[Any] = [loaded.model for loaded in models]
    tokenizer = models[0].tokenizer
    if by_line or arguments.by_line:
        return task.score_lines(networks, tokenizer, lines, batch_tokens=arguments.batch_tokens or BATCH_TOKENS)
    return task.score_text(networks, tokenizer, lines, dynamic=arguments.dynamic)


def _score_n_best(arguments: argparse.Namespace) -> int:
    """A list of translations, which gets one more feature."""
    from nmt.data.n_best import read_n_best
    from nmt.data.text import read_lines

    named = _named(arguments)
    translates = arguments.source is not None
    if translates:
        check_ensemble(arguments, models=len(named))
    elif arguments.ensemble_weights is not None or arguments.ensemble_mean is not None:
        raise ConfigError(
            "--ensemble-weights, --ensemble-mean: not allowed for language models, which have equal weights"
        )
    rules = Undecodable(arguments.errors), Undecodable(arguments.errors)
    sources = list(read_lines(arguments.source, undecodable=rules[0])) if translates else None
    path = str(arguments.n_best)
    entries = read_n_best(read_lines(arguments.n_best, undecodable=rules[1]), name=path)
    first = next(entries, None)  # a malformed list is reported before models are loaded
    models = _loaded(arguments, task="translation" if translates else "language_model")
    feature = arguments.feature or ("model" if translates else "lm")
    every = entries if first is None else chain([first], entries)
    ours, theirs = tee(_checked(every, feature=feature, path=path, sources=sources, source=arguments.source))
    if sources is None:
        scored = _line_scores(models, (entry.text for entry in theirs), arguments, by_line=True)
        values = (sum(line.log_probs) for line in scored)
    else:
        pairs = _pair_scores(models, ((sources[entry.number], entry.text) for entry in theirs), arguments)
        values = (-pair.mean_nll * pair.tokens for pair in pairs)
    lines, total, not_finite = 0, 0.0, Noted()
    for entry, value in zip(ours, values, strict=True):
        lines += 1
        total += value
        if not math.isfinite(value):
            not_finite.add(lines)
        sys.stdout.write(entry.with_feature(feature, value).line())
    mean = f"; {feature} {total / lines:.4f} on average" if lines else ""
    found = [f"{counted(lines, 'translation')}{mean}{_by(models)}"]
    found += [not_finite.said(_NOT_FINITE)] if not_finite else []
    files = (arguments.source, arguments.n_best)
    return _end(found, list(zip(files, rules, strict=True)), failed=not_finite)


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


if __name__ == "__main__":
    sys.exit(main())
