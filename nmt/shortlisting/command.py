"""nmt-shortlist: list the likely target words of each source word, from the training text of a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from nmt.cli.arguments import add_checkpoint, add_model, natural, positive
from nmt.cli.common import add_plugins, main_of, make_parser, say
from nmt.errors import counted

if TYPE_CHECKING:
    from nmt.data import Tokenizer
    from nmt.data.text import FilePair

DESCRIPTION = """Write a lexical shortlist for nmt-translate --shortlist and decoding.shortlist: each sentence is then
translated with only the most frequent target tokens and the best matches of its source tokens (Dice's coefficient over
sentence pairs), which makes the output layer many times smaller."""
LINES = 10_000
"""Sentence pairs encoded at once."""


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-shortlist."""
    parser = make_parser(
        "nmt-shortlist", DESCRIPTION, examples=("runs/demo -o demo.shortlist",), usage="MODEL -o FILE [options]"
    )
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="shortlist to write (safetensors)")
    parser.add_argument(
        "--train", metavar="PREFIX", nargs="+", help="parallel text to count (default: the model's data.train)"
    )
    parser.add_argument(
        "--frequent",
        metavar="N",
        type=natural,
        default=300,
        help="tokens allowed in every sentence (default: %(default)s)",
    )
    parser.add_argument(
        "--best",
        metavar="K",
        type=positive,
        default=50,
        help="tokens allowed for each source token (default: %(default)s)",
    )
    add_checkpoint(parser)
    add_plugins(parser)
    return parser


def make_shortlist(arguments: argparse.Namespace) -> int:
    """Count, choose and write."""
    # Imported late, so that --help and mistakes in the options do not load torch.
    import torch

    from nmt.cli.output import output_stream
    from nmt.config import load_saved
    from nmt.data.prepare import trained_on
    from nmt.data.saved_tokenizer import load_tokenizer
    from nmt.data.text import find_pairs
    from nmt.interop.model_dir import config_file, find_model
    from nmt.search.shortlist import Shortlist
    from nmt.shortlisting.association import CoOccurrences

    directory = find_model(arguments.model, checkpoint=arguments.checkpoint)
    config = load_saved(config_file(directory), arguments.plugins)
    tokenizer = load_tokenizer(directory, config)
    key = "--train" if arguments.train else "data.train"
    prefixes = arguments.train or trained_on(config)
    files = find_pairs(prefixes, config.data.source_language, config.data.target_language, key=key)
    inputs = [str(path) for pair in files for path in pair]
    with output_stream(arguments.output, inputs=inputs, models=[arguments.model]) as output:
        counts = CoOccurrences(tokenizer.source_size, tokenizer.target_size)
        for pair in files:
            counts.add(_encoded(pair, tokenizer))
        partners, starts = counts.best_partners(arguments.best)
        shortlist = Shortlist(
            frequent=torch.from_numpy(counts.most_frequent(arguments.frequent)),
            partners=torch.from_numpy(partners),
            starts=torch.from_numpy(starts),
            target_size=tokenizer.target_size,
        )
        output.write(shortlist.save_bytes(tokenizer))
    each = len(partners) / max(1, int((counts.source_counts > 0).sum()))
    say(
        "nmt-shortlist",
        f"{counted(counts.sentences, 'sentence pair')}; {counted(len(shortlist.frequent), 'token')} for every sentence "
        f"and {each:.1f} for each source token",
    )
    return 0


def _encoded(files: FilePair, tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[int]]]:
    """The sentence pairs of two files, each side with its end symbol."""
    from nmt.data import EOS
    from nmt.data.text import read_pairs

    lines = read_pairs(files)
    while piece := list(islice(lines, LINES)):
        sources = tokenizer.encode_source([source for source, _ in piece])
        targets = tokenizer.encode_target([target for _, target in piece])
        for source, target in zip(sources, targets, strict=True):
            yield [*source, EOS], [*target, EOS]


main = main_of(build_parser, make_shortlist)

if __name__ == "__main__":
    sys.exit(main())
