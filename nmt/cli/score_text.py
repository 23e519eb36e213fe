"""nmt-score --text: score the lines of a text with language models."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import FIRST, dynamic, named_models
from nmt.cli.common import EXIT_FAILURE, say
from nmt.cli.score_totals import BATCH_TOKENS, Sums
from nmt.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from nmt.interop.model_dir import LoadedModel
    from nmt.tasks.language_model.scoring import LineScore


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add the options of texts."""
    group = parser.add_argument_group("texts (language models)")
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


def check_text(arguments: argparse.Namespace) -> None:
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
class Totals(Sums):
    """Sums over the lines of a text."""

    lines: int = 0

    def add(self, line: LineScore) -> None:
        """Count one line."""
        self.lines += 1
        self.tokens += len(line.log_probs)
        self.unknown += line.unknown
        self.nll -= sum(line.log_probs)
        if not math.isfinite(line.mean_nll):
            self.not_finite.add(self.lines)

    def summary(self) -> str:
        """One line for people."""
        counts = f"{counted(self.lines, 'line')}, {counted(self.tokens, 'token')} with ends of lines"
        return f"{self.described()}; {counts}{self.described_unknown()}"


def score_text_file(arguments: argparse.Namespace) -> int:
    """Load, read, score and print."""
    from nmt.data.text import Undecodable, read_lines
    from nmt.interop.ensemble import load_models

    named = named_models(arguments)
    if not named:
        raise ConfigError(f"MODEL is missing; {FIRST}")
    for name in ("ensemble_weights", "ensemble_mean"):
        if getattr(arguments, name, None) is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: not allowed with --text, where models have equal weights")
    undecodable = Undecodable(arguments.errors)
    lines = read_lines(arguments.text, undecodable=undecodable)
    models = load_models(
        named,
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
        task="language_model",
    )
    totals = Totals()
    for line in _scores(models, lines, arguments):
        totals.add(line)
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
    sys.stdout.flush()
    by = f", by {len(models)} models" if len(models) > 1 else ""
    found = [totals.summary() + by]
    found += [totals.not_finite.said("with a score that is not finite")] if totals.not_finite else []
    found += [f"{arguments.text}: {undecodable.summary()}"] if undecodable.noted else []
    say("nmt-score", "; ".join(found))
    return EXIT_FAILURE if totals.not_finite else 0


def _scores(models: list[LoadedModel], lines: Iterator[str], arguments: argparse.Namespace) -> Iterator[LineScore]:
    from nmt.tasks.language_model.scoring import Dynamic, score_lines, score_text

    networks: list[Any] = [loaded.model for loaded in models]
    tokenizer = models[0].tokenizer
    if arguments.by_line:
        return score_lines(networks, tokenizer, lines, batch_tokens=arguments.batch_tokens or BATCH_TOKENS)
    followed = None if arguments.dynamic is None else Dynamic(rate=arguments.dynamic[0], decay=arguments.dynamic[1])
    return score_text(networks, tokenizer, lines, dynamic=followed)
