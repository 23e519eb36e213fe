#!/usr/bin/env python3
"""Write pairs of sentences with labels, for trials of the task `classification`.

    scripts/generate_entailment.py FOLDER [--pairs 12000] [--seed 1]

writes FOLDER/train.jsonl, dev.jsonl and test.jsonl, one JSON object a line. Its keys are `sentence1`, `sentence2` and
`gold_label`, as in SNLI, and `kind`: whether negation, hyponyms or numbers decide. No hypothesis is in two of the
files, and no hypothesis alone shows its label (see demo_grammar/entailment.py). Spaces separate words and full stops.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from scripts.demo_grammar.entailment import GROUP, generate_pairs

HELD_OUT = 100
"""Groups of pairs in dev, and in test."""
KEYS = ("sentence1", "sentence2", "gold_label", "kind")


def main() -> int:
    """Parse, write, report."""
    parser = make_parser("scripts/generate_entailment.py", "Write pairs of sentences with labels, from a seed.")
    parser.add_argument("folder", metavar="FOLDER", help="folder for train.jsonl, dev.jsonl and test.jsonl")
    said = "pairs to train on, rounded up to a multiple of 6 (default 12000)"
    parser.add_argument("--pairs", type=positive, default=12_000, metavar="N", help=said)
    parser.add_argument("--seed", type=natural, default=1, metavar="N", help="default 1")
    return execute(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Write the three files."""
    folder, groups = Path(arguments.folder), -(-arguments.pairs // GROUP)
    pairs = generate_pairs(2 * HELD_OUT + groups, seed=arguments.seed)
    first, second = HELD_OUT * GROUP, 2 * HELD_OUT * GROUP
    parts = {"test": pairs[:first], "dev": pairs[first:second], "train": pairs[second:]}
    paths = {name: folder / f"{name}.jsonl" for name in parts}
    for path in paths.values():
        if path.exists():
            raise DataError(f"{path}: is there already")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        with paths[name].open("w", encoding="utf-8") as stream:
            for pair in part:
                row = dict(zip(KEYS, pair, strict=True))
                stream.write(f"{json.dumps(row, ensure_ascii=False)}\n")
        print(f"{paths[name]}: {len(part):,} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
