"""nmt-sample: draw texts from a language model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from nmt.cli.arguments import above_zero, add_checkpoint, add_model, any_text, natural, positive, real_number, seed
from nmt.cli.common import add_device, add_plugins, execute, make_parser, say
from nmt.errors import counted

DESCRIPTION = """Draw lines of text from a language model. Each line is drawn independently, as if it followed the end
of another line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), sample, argv)


EXAMPLES = ('runs/ptb --prompt "the company said" --lines 3 --temperature 0.8',)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-sample."""
    parser = make_parser("nmt-sample", DESCRIPTION, examples=EXAMPLES, usage="MODEL [--prompt TEXT] [options]")
    add_model(parser)
    parser.add_argument(
        "--prompt", metavar="TEXT", type=any_text, default="", help="text at the beginning of each line"
    )
    parser.add_argument(
        "--lines", metavar="N", type=positive, default=1, help="number of lines to write (default: %(default)s)"
    )
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=positive,
        default=200,
        help="longest line in tokens, without the prompt (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=above_zero,
        default=1.0,
        help="log-probabilities are divided by T; below 1 makes probable words more frequent (default: 1)",
    )
    parser.add_argument(
        "--top-k", metavar="N", type=natural, default=0, help="draw from the N most probable words (default: all)"
    )
    parser.add_argument(
        "--top-p",
        metavar="P",
        type=real_number(lambda number: 0 < number <= 1, "a number above 0 and at most 1"),
        default=1.0,
        help="draw from the smallest set of words with total probability P (default: 1)",
    )
    parser.add_argument("--unknown", action="store_true", help="allow the symbol for unknown words")
    parser.add_argument("--seed", metavar="N", type=seed, default=1, help="seed of the random numbers (default: 1)")
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def sample(arguments: argparse.Namespace) -> int:
    """Load the model, draw and print."""
    # Late, so that --help and mistakes in the options do not wait for torch.
    from nmt.data import UNK
    from nmt.interop.model_dir import load_model
    from nmt.language_models.scoring import Sampling, sample_lines

    loaded = load_model(
        arguments.model,
        plugins=arguments.plugins,
        device=arguments.device,
        checkpoint=arguments.checkpoint,
        purpose="scoring",
        task="language_model",
    )
    names = ("temperature", "top_k", "top_p", "max_tokens", "unknown", "seed")
    sampling = Sampling(**{name: getattr(arguments, name) for name in names})
    model: Any = loaded.model
    unknown = loaded.tokenizer.encode_target([arguments.prompt])[0].count(UNK)
    if unknown:
        say("nmt-sample", f"--prompt: {counted(unknown, 'token')} unknown to the model, treated as unknown words")
    cut = 0
    for text, has_ended in sample_lines(
        model, loaded.tokenizer, arguments.prompt, count=arguments.lines, sampling=sampling
    ):
        print(text, flush=True)
        cut += not has_ended
    if cut:
        say("nmt-sample", f"{counted(cut, 'line')} cut at --max-tokens {arguments.max_tokens}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
