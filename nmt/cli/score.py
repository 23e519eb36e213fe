"""nmt-score: score given translations with a model or an ensemble, or a text with a language model."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.arguments import (
    FIRST,
    add_checkpoint,
    add_ensemble,
    add_models,
    check_ensemble,
    named_models,
    positive,
    with_ensemble,
)
from nmt.cli.common import EXIT_FAILURE, add_device, add_errors, add_plugins, execute, make_parser, say
from nmt.cli.descriptors import require
from nmt.cli.score_n_best import add_n_best, check_n_best, score_n_best
from nmt.cli.score_text import add_text, check_text, score_text_file
from nmt.cli.score_totals import BATCH_TOKENS, Sums
from nmt.data.text import NotedLines
from nmt.errors import ConfigError, counted

if TYPE_CHECKING:
    from nmt.interop.facts import LongestSource
    from nmt.search import PairScore

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
    add_text(parser)
    add_n_best(parser)
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


@dataclass(kw_only=True)
class Totals(Sums):
    """Sums over the corpus."""

    longest: LongestSource
    sentences: int = 0
    empty: int = 0
    longer: NotedLines = field(default_factory=NotedLines)

    def add(self, pair: PairScore) -> None:
        """Count one pair."""
        self.sentences += 1
        self.empty += pair.has_empty_side
        self.tokens += pair.tokens
        self.unknown += pair.unknown
        self.nll += pair.mean_nll * pair.tokens
        if not math.isfinite(pair.mean_nll):
            self.not_finite.add(self.sentences)
        if pair.source_tokens > self.longest.tokens:
            self.longer.add(self.sentences)

    def summary(self) -> str:
        """One line for people."""
        counts = f"{counted(self.sentences, 'sentence')}, {counted(self.tokens, 'target token')} with end symbols"
        text = f"{self.described()}; {counts}{self.described_unknown()}"
        return text + (f"; {self.empty:,} with an empty side, scored as the end symbol alone" if self.empty else "")

    def problems(self) -> list[str]:
        """The problems, with the numbers of the first lines that have them."""
        said = ((self.not_finite, "with a score that is not finite"), (self.longer, f"longer than {self.longest}"))
        return [noted.said(what) for noted, what in said if noted]


def score(arguments: argparse.Namespace) -> int:
    """Load, read, score and print."""
    check_n_best(arguments)
    if arguments.n_best is not None:
        return score_n_best(arguments)
    check_text(arguments)
    if arguments.text is not None:
        return score_text_file(arguments)
    # Imported late, so that --help and mistakes in the options do not load torch.
    from nmt.cli.opened import shortest_training
    from nmt.data.text import FilePair, Undecodable, count_pairs, read_pairs
    from nmt.interop.ensemble import load_models
    from nmt.search import score_pairs
    from nmt.search.ensemble import ensemble_mean

    named = named_models(arguments)
    if not named:
        raise ConfigError(f"MODEL is missing; {FIRST}")
    check_ensemble(arguments, models=len(named))
    require(1)
    files = FilePair(arguments.source, arguments.target)
    if all(path.is_file() for path in files):
        # Report unequal files before the first score; pipes can be read only once.
        count_pairs([files], decodable=False)
    models = load_models(
        named,
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
    )
    loaded, *others = models
    undecodable = (Undecodable(arguments.errors), Undecodable(arguments.errors))
    decoding = with_ensemble(loaded.config.decoding, arguments)
    configured = decoding.batch_tokens
    batch_tokens = arguments.batch_tokens or (BATCH_TOKENS if configured == "auto" else configured)
    totals = Totals(longest=shortest_training(models))
    for pair in score_pairs(
        loaded.model,
        loaded.tokenizer,
        read_pairs(files, undecodable=undecodable),
        batch_tokens=batch_tokens,
        others=[other.model for other in others],
        mean=ensemble_mean(decoding, models=len(models)),
    ):
        totals.add(pair)
        if arguments.json:
            totals.scores.append(pair.mean_nll)
        else:
            print(f"{pair.mean_nll:.6f}")
    if arguments.json:
        print(json.dumps(totals.record(sentences=totals.sentences, empty=totals.empty), allow_nan=False))
    sys.stdout.flush()
    by = f", by {1 + len(others)} models" if others else ""
    found = [totals.summary() + by, *totals.problems()]
    found += [f"{path}: {rule.summary()}" for path, rule in zip(files, undecodable, strict=True) if rule.noted]
    say("nmt-score", "; ".join(found))
    return EXIT_FAILURE if totals.not_finite else 0


if __name__ == "__main__":
    sys.exit(main())
