"""Which training text makes a model that translates several sentences at once: the threshold of decoding.split.

Trains the model of configs/demo.yaml on its own corpus, in which a share of the lines are two neighbouring pairs,
and translates test lines of one, two and four sentences, as a whole and split.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_facts import add_output, facts, listed, put

import nmt

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
TO_A_LINE = (1, 2, 4)
LANGUAGES = ("en", "de")

Pairs = list[tuple[str, str]]


def main(argv: Sequence[str] | None = None) -> int:
    """Train, translate and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="of lines of two sentences in training")
    parser.add_argument("--steps", type=int, default=1000, help="updates (default: those of the demo)")
    add_output(parser)
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        generated = corpus(Path(folder))
        for share in arguments.shares:
            rows.append({"share": share, **measured(Path(folder), generated, share, steps=arguments.steps)})
            print(json.dumps(rows[-1]), flush=True)
    import torch

    stated = facts("bench_split.py", threads=torch.get_num_threads(), peer=None)
    put(arguments.output, "\n".join([*listed(stated), "", *table(rows)]) + "\n", {"facts": stated, "rows": rows})
    return 0


def corpus(folder: Path) -> dict[str, Pairs]:
    """The demo's corpus."""
    from nmt.demo_corpus.text import Demo

    made = folder / "corpus"
    made.mkdir()
    Demo.write(made, *LANGUAGES)
    sides = {
        name: [(made / f"{name}.{language}").read_text(encoding="utf-8").splitlines() for language in LANGUAGES]
        for name in ("train", "test")
    }
    return {name: list(zip(*lines, strict=True)) for name, lines in sides.items()}


def joined(pairs: Pairs, to_a_line: int) -> Pairs:
    """Neighbouring pairs joined."""
    groups = [pairs[start : start + to_a_line] for start in range(0, len(pairs), to_a_line)]
    return [(" ".join(source for source, _ in group), " ".join(target for _, target in group)) for group in groups]


def with_share(pairs: Pairs, share: float) -> Pairs:
    """Pairs of which so large a share of the lines has two sentences."""
    lines = round(len(pairs) / (1 + share))
    twice = 2 * (len(pairs) - lines)
    mixed = joined(pairs[:twice], 2) + pairs[twice:]
    random.Random(1).shuffle(mixed)
    return mixed


def measured(folder: Path, generated: dict[str, Pairs], share: float, *, steps: int) -> dict[str, float]:
    """BLEU of test lines, by sentences to a line and by `split`."""
    prefix = folder / f"train-{share}"
    mixed = with_share(generated["train"], share)
    for side, language in enumerate(LANGUAGES):
        Path(f"{prefix}.{language}").write_text("".join(pair[side] + "\n" for pair in mixed), encoding="utf-8")
    run = folder / f"run-{share}"
    changes = {
        "run_dir": str(run), "data.generator": "none", "data.train": str(prefix), "data.dev": None, "data.test": None,
        "training.max_steps": steps,
    }  # fmt: skip
    nmt.train("configs/demo.yaml", overrides=changes)
    found: dict[str, float] = {}
    with nmt.load(run) as translator:
        for to_a_line in TO_A_LINE:
            lines = joined(generated["test"], to_a_line)
            for split in ("none", "sentences"):
                results = translator.translate([source for source, _ in lines], split=split)  # type: ignore[arg-type]
                texts = [result.text for result in results]
                scores = nmt.evaluate(hypotheses=texts, references=[target for _, target in lines], metrics=["bleu"])
                found[f"{to_a_line} {split}"] = scores["bleu"]
    return found


def table(rows: Sequence[dict[str, float]]) -> list[str]:
    """The rows in Markdown."""
    head = ["lines of two sentences in training"]
    head += [f"{number} a line, {kind}" for number in TO_A_LINE for kind in ("whole", "split")]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        scores = [f"{row[f'{number} {split}']:.2f}" for number in TO_A_LINE for split in ("none", "sentences")]
        lines.append(f"| {row['share']:.0%} | {' | '.join(scores)} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
