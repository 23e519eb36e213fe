#!/usr/bin/env python3
"""Write short documents whose pronouns need the sentence before, for trials of `data.context`.

    scripts/generate_documents.py FOLDER [--documents 20000] [--seed 1]

writes FOLDER/train.en, train.de and the same of dev and test, a blank line after each document. The German
pronoun for "it" follows from a noun of the sentence before (demo_grammar/documents.py). No document is in two files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from scripts.demo_grammar.documents import generate_documents

HELD_OUT = {"test": 500, "dev": 100}
"""Documents of the other texts."""


def main() -> int:
    """Parse, write, report."""
    parser = make_parser("scripts/generate_documents.py", "Write documents in English and German, from a seed.")
    parser.add_argument("folder", metavar="FOLDER", help="folder for train, dev and test, each .en and .de")
    said = "documents to train on (default 20000)"
    parser.add_argument("--documents", type=positive, default=20_000, metavar="N", help=said)
    parser.add_argument("--seed", type=natural, default=1, metavar="N", help="default 1")
    return execute(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Write the six files."""
    folder, counts = Path(arguments.folder), {**HELD_OUT, "train": arguments.documents}
    documents = iter(generate_documents(sum(counts.values()), seed=arguments.seed))
    texts = {name: [next(documents) for _ in range(count)] for name, count in counts.items()}
    for path in (folder / f"{name}.{language}" for name in texts for language in ("en", "de")):
        if path.exists():
            raise DataError(f"{path}: is there already")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{sentence[side]}\n" for document in text for sentence in [*document, ("", "")])
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")
        print(f"{folder / name}: {len(text):,} documents, {sum(map(len, text)):,} sentences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
