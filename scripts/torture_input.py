"""Randomly damaged configurations, model files and texts, and odd lines: each gets an answer or a one-line error."""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from nmt.data import read_lines
from nmt.errors import CheckpointError, ConfigError, DataError, NmtError
from nmt.interop import run_layout
from nmt.interop.model_dir import load_model
from nmt.run_check.check_run import check_run
from nmt.run_check.command import as_lines
from nmt.search.translator import Translator
from tests.robustness.model_fields import mutated_fields
from tests.robustness.odd_text import ODD_LINES, random_lines
from tests.robustness.test_fuzz import VALID, read_config
from tests.tiny_run import make_run

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = (
    f"checkpoints/step-10/{run_layout.WEIGHTS}",
    "checkpoints/best.json",
    "tokenizer/source.vocab",
    "tokenizer/target.vocab",
    "config.yaml",
    "tokenizer/joint.model",
)
LINES_BY_BEAM = 2000
QUICKLY = ("--beam-size", "1", "--max-length-offset", "2", "--batch-tokens", "20000")


def fuzz(work: Path, *, minutes: float, seed: int) -> dict[str, int]:
    """Damage configurations, model files and text, alternating, for `minutes`.

    Raises:
        DataError: there was neither an answer nor a one-line error; the input is in `work`/guilty.
    """
    chance = random.Random(seed)
    words = make_run(work / "run", steps=(10,), best=(10,))
    subwords = make_run(work / "subwords", steps=(10,), best=(10,), sentencepiece=True)
    loaded = load_model(words)
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding)
    found: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + 60 * minutes
    content = b""
    try:
        while time.monotonic() < end:
            content = mutated(VALID.encode(), chance)
            read_config(content.decode("utf-8", "replace"))
            found["configurations"] += 1
            found["bytes fuzzed"] += len(content)
            name = chance.choice(FILES)
            run = words if (words / name).exists() else subwords
            content = (run / name).read_bytes()
            if run == subwords and chance.random() < 0.8:
                content = mutated_fields(content, chance)
            else:
                content = mutated(content, chance, header=chance.random() < 0.5)
            _hostile(run, name, content)
            found["hostile model files"] += 1
            found["bytes fuzzed"] += len(content)
            content = mutated("\n".join(chance.choices(ODD_LINES, k=3)).encode(), chance)
            found["texts refused" if _text(translator, work, content) is None else "texts translated"] += 1
            found["bytes fuzzed"] += len(content)
    except Exception as error:
        (work / "guilty").write_bytes(content)
        raise DataError(f"{work}/guilty: {type(error).__name__}: {str(error)[:200]}") from error
    return dict(sorted(found.items()))


def mutated(content: bytes, chance: random.Random, *, header: bool = False) -> bytes:
    """`content` with some bytes changed, inserted, deleted, doubled or cut off; `header`: among the first 100 bytes."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(min(len(data), 100) if header and data else len(data) + 1)
        kind = chance.choice(("change", "change", "insert", "delete", "double", "cut"))
        if kind == "change" and place < len(data):
            data[place] = chance.randrange(256)
        elif kind == "insert":
            data[place:place] = chance.randbytes(chance.randint(1, 4))
        elif kind == "delete":
            del data[place : place + chance.randint(1, 20)]
        elif kind == "double":
            data[place:place] = data[place : place + chance.randint(1, 100)]
        elif chance.random() < 0.2:
            del data[place:]
    return bytes(data)


def _hostile(run: Path, name: str, content: bytes) -> None:
    """Load and check a model after its file `name` was given this content."""
    path = run / name
    whole = path.read_bytes()
    try:
        path.write_bytes(content)
        try:
            tokenizer = load_model(run).tokenizer
            for ids in tokenizer.encode_source(ODD_LINES):
                tokenizer.decode_target([i for i in ids if i < tokenizer.target_size])
        except (CheckpointError, ConfigError, DataError) as error:
            if "\n" in str(error) and not isinstance(error, ConfigError):
                raise AssertionError(f"more than one line: {error!r}") from error
        if any("\n" in line for line in as_lines(check_run(run))):
            raise AssertionError("nmt-check would print more than a line for a finding")
    finally:
        path.write_bytes(whole)


def _text(translator: Translator, work: Path, content: bytes) -> int | None:
    """The number of lines, each of which has a translation; None if the text is refused."""
    path = work / "text"
    path.write_bytes(content)
    try:
        lines = list(read_lines(path))
    except NmtError as error:
        if "\n" in str(error):
            raise AssertionError(f"more than one line: {error!r}") from error
        return None
    if len(lines) != content.count(b"\n") + bool(content and not content.endswith(b"\n")):
        raise AssertionError(f"{len(lines)} lines read")
    translations = list(translator.translate(lines))
    if len(translations) != len(lines) or any("\n" in line or "\r" in line for line in translations):
        raise AssertionError(f"{len(lines)} lines, {len(translations)} translations")
    return len(lines)


def lines(work: Path, *, count: int, seed: int) -> dict[str, int]:
    """nmt-translate on `count` random lines, then on the same lines in reverse order: each line gets the same answer.

    The first lines are translated with the configured beam, then all lines with greedy search and short answers: the
    model never ends an answer by itself, and a million long answers would take hours.

    Raises:
        DataError: a line is lost, out of order or answered differently; the first such line is named.
    """
    run = make_run(work / "run", steps=(10,), best=(10,))
    text = random_lines(count, seed=seed)
    by_beam = text[:LINES_BY_BEAM]
    _same_both_ways(run, by_beam, work)
    _same_both_ways(run, text, work, *QUICKLY)
    return {
        "lines translated twice with a beam": len(by_beam),
        "lines translated twice with greedy search": count,
        "bytes": sum(len(line.encode()) + 1 for line in text),
    }


def _same_both_ways(run: Path, text: list[str], work: Path, *options: str) -> None:
    ahead, back = _translated(run, text, work, *options), _translated(run, text[::-1], work, *options)[::-1]
    for number, (line, first, second) in enumerate(zip(text, ahead, back, strict=True)):
        one, other = json.loads(first), json.loads(second)
        if one["source"] != line.removesuffix("\r") or one["translations"] != other["translations"]:
            raise DataError(f"{work}: line {number + 1}, {line!r}, is answered with {one} and {other}")


def _translated(run: Path, text: list[str], work: Path, *options: str) -> list[bytes]:
    """An answer in JSON for each line; the caller parses them one by one, as a million objects take gigabytes."""
    command = [sys.executable, "-m", "nmt.cli.translate", str(run), "--format", "jsonl", "--device", "cpu", *options]
    # Without MKL_CBWR, Intel's library rounds products differently in another batch.
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "MKL_CBWR": "AUTO,STRICT"}
    (work / "in").write_bytes("".join(f"{line}\n" for line in text).encode())
    done = subprocess.run([*command, "-i", str(work / "in")], capture_output=True, env=environment, check=False)
    (work / "said").write_bytes(done.stderr)
    found = done.stdout.split(b"\n")[:-1]
    if done.returncode or len(found) != len(text):
        raise DataError(f"{work}/said: exit code {done.returncode}, {len(found)} answers to {len(text)} lines")
    return found
