"""nmt-score --n-best: add the log-probability by a model to each translation of an n-best list, as a feature."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import FIRST, check_ensemble, feature_name, named_models, with_ensemble
from nmt.cli.common import EXIT_FAILURE, say
from nmt.cli.score_totals import BATCH_TOKENS
from nmt.data.text import NotedLines
from nmt.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from nmt.data.n_best import Entry
    from nmt.interop.model_dir import LoadedModel


def add_n_best(parser: argparse.ArgumentParser) -> None:
    """Add the options of n-best lists."""
    group = parser.add_argument_group("n-best lists (translation models with --source, else language models)")
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


def check_n_best(arguments: argparse.Namespace) -> None:
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


def score_n_best(arguments: argparse.Namespace) -> int:
    """Load, read, score and print."""
    from nmt.data.n_best import read_n_best
    from nmt.data.text import Undecodable, read_lines
    from nmt.interop.ensemble import load_models

    named = named_models(arguments)
    if not named:
        raise ConfigError(f"MODEL is missing; {FIRST}")
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
    models = load_models(
        named,
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
        task="translation" if translates else "language_model",
    )
    feature = arguments.feature or ("model" if translates else "lm")
    every = entries if first is None else chain([first], entries)
    ours, theirs = tee(_checked(every, feature=feature, path=path, sources=sources, source=arguments.source))
    texts = ((None if sources is None else sources[entry.number], entry.text) for entry in theirs)
    lines, total, not_finite = 0, 0.0, NotedLines()
    for entry, value in zip(ours, _log_probs(models, texts, arguments), strict=True):
        lines += 1
        total += value
        if not abs(value) < float("inf"):
            not_finite.add(lines)
        sys.stdout.write(entry.with_feature(feature, value).line())
    sys.stdout.flush()
    mean = f"; {feature} {total / lines:.4f} on average" if lines else ""
    by = f", by {len(models)} models" if len(models) > 1 else ""
    found = [f"{counted(lines, 'translation')}{mean}{by}"]
    found += [not_finite.said("with a score that is not finite")] if not_finite else []
    files = (arguments.source, arguments.n_best)
    found += [f"{file}: {rule.summary()}" for file, rule in zip(files, rules, strict=True) if rule.noted]
    say("nmt-score", "; ".join(found))
    return EXIT_FAILURE if not_finite else 0


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


def _log_probs(
    models: list[LoadedModel], texts: Iterator[tuple[str | None, str]], arguments: argparse.Namespace
) -> Iterator[float]:
    """The log-probability of each translation."""
    networks: list[Any] = [loaded.model for loaded in models]
    tokenizer = models[0].tokenizer
    if arguments.source is None:
        from nmt.tasks.language_model.scoring import score_lines

        batch_tokens = arguments.batch_tokens or BATCH_TOKENS
        lines = score_lines(networks, tokenizer, (text for _, text in texts), batch_tokens=batch_tokens)
        return (sum(line.log_probs) for line in lines)
    from nmt.search import score_pairs
    from nmt.search.ensemble import ensemble_mean

    decoding = with_ensemble(models[0].config.decoding, arguments)
    configured = BATCH_TOKENS if decoding.batch_tokens == "auto" else decoding.batch_tokens
    pairs = score_pairs(
        networks[0],
        tokenizer,
        ((source or "", text) for source, text in texts),
        batch_tokens=arguments.batch_tokens or configured,
        others=networks[1:],
        mean=ensemble_mean(decoding, models=len(models)),
    )
    return (-pair.mean_nll * pair.tokens for pair in pairs)
