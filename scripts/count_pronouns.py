#!/usr/bin/env python3
"""Count how often translations have the right German pronoun for "it", in text of scripts/generate_documents.py.

    scripts/count_pronouns.py SOURCE REFERENCE TRANSLATION...

prints for each file of translations the share of the sentences with "it" that have the German pronoun of the reference
and no other one for a thing; and the share that the most frequent gender alone would have.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.cli.common import execute, make_parser
from nmt.data.text import read_lines
from nmt.errors import DataError
from scripts.demo_grammar.documents import FORMS, has_pronoun

GENDERS = {"er": "m", "ihn": "m", "sie": "f", "es": "n"}


def pronouns(german: str) -> list[str]:
    """Those of a sentence that "it" can be, in their order."""
    return [word for word in german.lower().rstrip(".").split() if word in FORMS]


def main() -> int:
    """Parse, count, print."""
    parser = make_parser("scripts/count_pronouns.py", "Count right pronouns in translations of documents.")
    parser.add_argument("source", metavar="SOURCE", help="English text")
    parser.add_argument("reference", metavar="REFERENCE", help="its German translation by the grammar")
    parser.add_argument("translations", metavar="TRANSLATION", nargs="+", help="translations to look at")
    return execute(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Read, count, print."""
    names = (arguments.source, arguments.reference, *arguments.translations)
    source, reference, *translations = (list(read_lines(path)) for path in names)
    for path, lines in zip(names[1:], (reference, *translations), strict=True):
        if len(lines) != len(source):
            raise DataError(f"{path}: has {len(lines):,} lines, but {arguments.source} {len(source):,}")
    places = [place for place, line in enumerate(source) if has_pronoun(line)]
    if not places:
        raise DataError(f"{arguments.source}: no sentence has 'it'")
    wanted = {place: pronouns(reference[place]) for place in places}
    genders = Counter(GENDERS[found] for own in wanted.values() for found in own)
    print(f"{len(places):,} sentences with 'it'; the most frequent gender: {max(genders.values()) / len(places):.1%}")
    for path, lines in zip(arguments.translations, translations, strict=True):
        right = sum(pronouns(lines[place]) == wanted[place] for place in places)
        exact = sum(lines[place] == reference[place] for place in places)
        print(f"{path}: right pronoun in {right / len(places):.1%}, as the reference {exact / len(places):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
