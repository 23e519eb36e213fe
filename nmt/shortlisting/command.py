"""nmt-shortlist: list the likely target words of each source word, from the training text of a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from nmt.cli.arguments import add_checkpoint, add_model, natural, positive
from nmt.cli.common import add_plugins, main_of, make_parser, say
from nmt.errors import counted
from nmt.registry import SHORTLISTS

if TYPE_CHECKING:
    from nmt.data import Tokenizer
    from nmt.data.text import FilePair

DESCRIPTION = """Write a lexical shortlist for nmt-translate --shortlist and decoding.shortlist: each sentence is then
translated with only the most frequent target tokens and the best matches of its source tokens (Dice's coefficient over
sentence pairs), which makes the output layer many times smaller."""
LINES = 10_000
"""Sentence pairs encoded at once."""
FREQUENT, BEST = 300, 50
"""Tokens allowed in every sentence, and for each source token."""


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
        default=FREQUENT,
        help="tokens allowed in every sentence (default: %(default)s)",
    )
    parser.add_argument(
        "--best",
        metavar="K",
        type=positive,
        default=BEST,
        help="tokens allowed for each source token (default: %(default)s)",
    )
    add_checkpoint(parser)
    add_plugins(parser)
    return parser


def make_shortlist(arguments: argparse.Namespace) -> int:
    """Count, choose, write, and say what was found."""
    found = write_shortlist(
        arguments.model,
        arguments.output,
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
        train=arguments.train,
        frequent=arguments.frequent,
        best=arguments.best,
    )
    say("nmt-shortlist", found)
    return 0


@SHORTLISTS.register("dice")
def write_shortlist(
    model: str,
    output: str,
    *,
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    train: Sequence[str] | None = None,
    frequent: int = FREQUENT,
    best: int = BEST,
) -> str:
    """Write the shortlist of a model to a file; return what was counted, for people.

    Args:
        model: run or model directory, with `checkpoint` and `plugins`.
        train: prefixes of the text that is counted; by default that of the model's training.
        frequent: number of tokens that are allowed in every sentence.
        best: number of tokens that are allowed for each source token.

    Raises:
        CheckpointError, ConfigError, DataError: the model or the text cannot be read.
    """
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

    directory = find_model(model, checkpoint=checkpoint)
    config = load_saved(config_file(directory), plugins)
    tokenizer = load_tokenizer(directory, config)
    key = "--train" if train else "data.train"
    prefixes = train or trained_on(config)
    files = find_pairs(prefixes, config.data.source_language, config.data.target_language, key=key)
    inputs = [str(path) for pair in files for path in pair]
    with output_stream(output, inputs=inputs, models=[model]) as stream:
        counts = CoOccurrences(tokenizer.source_size, tokenizer.target_size)
        for pair in files:
            counts.add(_encoded(pair, tokenizer))
        partners, starts = counts.best_partners(best)
        shortlist = Shortlist(
            frequent=torch.from_numpy(counts.most_frequent(frequent)),
            partners=torch.from_numpy(partners),
            starts=torch.from_numpy(starts),
            target_size=tokenizer.target_size,
        )
        stream.write(shortlist.save_bytes(tokenizer))
    each = len(partners) / max(1, int((counts.source_counts > 0).sum()))
    return (
        f"{counted(counts.sentences, 'sentence pair')}; {counted(len(shortlist.frequent), 'token')} for every sentence "
        f"and {each:.1f} for each source token"
    )


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
