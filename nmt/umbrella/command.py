"""The command `nmt`: `nmt train ...` is `nmt-train ...`, and `nmt --help` shows all commands in four groups."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from nmt.errors import near_miss, shown
from nmt.light import __version__

GROUPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Translate": {
        "translate": ("nmt.cli.translate", "files, pipes, or what you type"),
        "serve": ("nmt.serving.command", "over HTTP, with a page to type into"),
        "tag": ("nmt.tagging.command", "label words"),
        "classify": ("nmt.classification.command", "label lines"),
        "sample": ("nmt.language_models.command", "write text with a language model"),
    },
    "Train": {
        "data": ("nmt.corpora.command", "fetch, prepare, check, filter and clean text"),
        "train": ("nmt.cli.train", "train a model, or resume"),
        "distill": ("nmt.synthetic.distill", "a teacher's translations for a student"),
        "backtranslate": ("nmt.synthetic.backtranslate", "text of the target language, translated back"),
    },
    "Evaluate and look inside": {
        "eval": ("nmt.evaluating.command", "BLEU, chrF and more, with significance"),
        "score": ("nmt.scoring.command", "the probability of translations"),
        "rank": ("nmt.ranking.command", "choose from n-best lists"),
        "plot": ("nmt.plotting.command", "learning curves, attention, memory"),
        "compare": ("nmt.experiments.command", "a table over runs and seeds"),
        "report": ("nmt.report.command", "a page that compares systems"),
        "confidence": ("nmt.confidence.command", "how sure a model is of each translation"),
        "check": ("nmt.run_check.command", "whether runs and files are whole"),
    },
    "Ship": {
        "export": ("nmt.exporting.command", "a small folder, a file for the engine, or ONNX"),
        "shortlist": ("nmt.shortlisting.command", "words that speed up a search"),
        "average": ("nmt.optimization.average", "the mean of checkpoints"),
        "convert": ("nmt.cli.convert", "models of Zero, Marian and OPUS-MT"),
    },
}
"""Of each group its commands, with their modules and what they do. All have a console script of their own, too."""
_HELP: Final = ("-h", "--help", "help")


def help_text() -> str:
    """All commands, by group."""
    lines = ["usage: nmt COMMAND ...", "", "Recurrent neural machine translation.", ""]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<14} {does}" for name, (_, does) in commands.items()), ""]
    lines += ["nmt COMMAND --help explains a command. `nmt train` is the same as `nmt-train`."]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that is named first, with what follows it; its exit code, or 2 where there is no such command."""
    given = [*(sys.argv[1:] if argv is None else argv)]
    name, rest = (given or [""])[0], given[1:]
    if name in _HELP and rest and rest[0] not in _HELP:
        name, rest = rest[0], ["--help"]  # nmt help train
    if name in _HELP:
        print(help_text())
        return 0
    if name == "--version":
        print(f"nmt {__version__}")
        return 0
    known = {name: module for commands in GROUPS.values() for name, (module, _) in commands.items()}
    if not name:
        print(help_text(), file=sys.stderr)
        return 2
    if name.removeprefix("nmt-") not in known:
        hint = near_miss(name, list(known))
        print(f"nmt: {shown(name)} is no command.{hint} nmt --help lists them.", file=sys.stderr)
        return 2
    name = name.removeprefix("nmt-")
    sys.argv = [f"nmt-{name}", *rest]
    code: int = import_module(known[name]).main()
    return code


if __name__ == "__main__":
    sys.exit(main())
