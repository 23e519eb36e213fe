"""Shows a model that comes with nmt, and then the main job: train on configs/demo.yaml, translate held-out sentences,
evaluate. Run by scripts/demo."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.config import Config, load_config
from nmt.errors import NmtError

CONFIG = Path("configs/demo.yaml")
MODULES = {"nmt-train": "nmt.cli.train", "nmt-translate": "nmt.cli.translate", "nmt-eval": "nmt.evaluating.command"}
PRETRAINED = "en-de"
FIRST = ("Where is the nearest station?", "I have never seen such a beautiful garden.", "He asked me if I was tired.")
"""Sentences of the kind that the model knows."""
CURVE_ROWS = 10
SAMPLES = 5
ORDINARY = range(6, 13)
"""Lengths in words of a sentence that the demo suggests for a translation."""


class StepFailedError(Exception):
    """A command ended with an exit code other than 0; it has printed the reason."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code of the step that failed, or 0."""
    arguments = parse(argv)
    try:
        overrides: list[str] = arguments.overrides
        config = load_config(CONFIG, overrides)
        demonstrate(config, train_options(overrides, overwrite=arguments.overwrite))
    except NmtError as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        return error.exit_code
    except StepFailedError as failure:
        return failure.code
    except KeyboardInterrupt:
        print("scripts/demo: interrupted; the same command resumes the training", file=sys.stderr)
        return 130
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The two options of nmt-train that make sense here."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument("--overwrite", action="store_true", help="train again; the existing run is moved aside")
    return parser.parse_args(argv)


def train_options(overrides: Sequence[str], *, overwrite: bool) -> list[str]:
    """The options of nmt-train besides the configuration."""
    options = [part for override in overrides for part in ("--set", override)]
    return [*options, "--overwrite"] if overwrite else options


def demonstrate(config: Config, options: Sequence[str]) -> None:
    """Train, translate, evaluate; print what a newcomer wants to see."""
    started = time.monotonic()
    run = Path(config.run_dir)
    source = run / "corpus" / f"test.{config.data.source_language}"
    reference = run / "corpus" / f"test.{config.data.target_language}"
    hypothesis = run / f"demo.{config.data.target_language}"
    heading(f"translate with {PRETRAINED}, a small model that comes with nmt")
    execute("nmt-translate", PRETRAINED, text="\n".join(FIRST))
    heading("train")
    execute("nmt-train", "--config", str(CONFIG), *options)
    heading("the end of the loss curve")
    show_curve(run / "log.jsonl")
    heading("translate 500 sentences that training never saw")
    execute("nmt-translate", str(run), "-i", str(source), "-o", str(hypothesis))
    rows = read_rows(source, reference, hypothesis)
    show_samples(rows)
    heading("evaluate")
    scores = json.loads(execute("nmt-eval", "--hyp", str(hypothesis), "--ref", str(reference), "--json", capture=True))
    for score in scores:
        print(f"{score['name']} = {score['score']:.2f}  {score['signature']}")
    seconds = time.monotonic() - started
    heading("what to run next")
    show_next(run, sentence=right_one(rows))
    bleu = next(score["score"] for score in scores if score["name"] == "BLEU")
    print(f"demo: BLEU = {bleu:.2f} seconds = {seconds:.0f}", flush=True)


def heading(text: str) -> None:
    """A line that starts a part of the output."""
    print(f"\n== {text}", flush=True)


def execute(command: str, *arguments: str, text: str | None = None, capture: bool = False) -> str:
    """Run a command of nmt with this interpreter, shown as it would be typed; `text` is its input."""
    given = [] if text is None else ["<<END", *text.splitlines(), "END"]
    print(" ".join(["$", command, *arguments, *given[:1]]), *given[1:], sep="\n", flush=True)
    program = [sys.executable, "-m", MODULES[command], *arguments]
    done = subprocess.run(program, input=text, stdout=subprocess.PIPE if capture else None, text=True, check=False)
    if done.returncode:
        raise StepFailedError(done.returncode)
    return done.stdout or ""


def show_curve(log: Path) -> None:
    """The last rows of the loss in training, and every validation."""
    events = list(read_events(log))
    print("update  training loss")
    for event in [event for event in events if event["event"] == "train"][-CURVE_ROWS:]:
        print(f"{event['step']:6d}  {event['loss']:13.4f}")
    print("update  held-out loss   BLEU")
    for event in events:
        if event["event"] == "validation":
            bleu = f"{event['bleu']:5.2f}" if "bleu" in event else "    -"
            print(f"{event['step']:6d}  {event['loss']:13.4f}  {bleu}")


def read_events(log: Path) -> Iterator[dict[str, Any]]:
    """The events of a run, one JSON object a line."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_rows(*paths: Path) -> list[tuple[str, ...]]:
    """For each line number, the lines of all files."""
    return list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in paths), strict=True))


def show_samples(rows: Sequence[tuple[str, ...]]) -> None:
    """Some translations, evenly spread over the rows of source, reference and translation."""
    for row in rows[:: max(1, len(rows) // SAMPLES)][:SAMPLES]:
        for label, text in zip(("source", "reference", "translation"), row, strict=True):
            print(f"{label:12}{text}")
        print()


def right_one(rows: Sequence[tuple[str, ...]]) -> str:
    """A sentence of ordinary length whose translation equals the reference; the first sentence if there is none."""
    right = [source for source, reference, translation in rows if reference == translation and "'" not in source]
    return next((source for source in right if len(source.split()) in ORDINARY), rows[0][0])


def show_next(run: Path, *, sentence: str) -> None:
    """Commands worth typing after the demo."""
    bin_dir = os.path.relpath(Path(sys.executable).parent)
    print(f"echo {shlex.quote(sentence)} | {bin_dir}/nmt-translate {run}")
    print(f"{bin_dir}/nmt-train {CONFIG} --set model.cell=atr --set run_dir=runs/demo_atr")
    print(f"{bin_dir}/nmt-data multi30k   # real data, for the next command")
    print(f"{bin_dir}/nmt-train multi30k_lrn.yaml --max-cpu-minutes 13.4")
    print()


if __name__ == "__main__":
    sys.exit(main())
