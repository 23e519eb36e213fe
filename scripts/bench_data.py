#!/usr/bin/env python3
"""Measure the cost of a large corpus: encoding compared with SentencePiece, anonymous memory, start, waiting, padding.

    scripts/generate_corpus.py data/big --pairs 5000000
    scripts/bench_data.py prepare data/big --work runs/bench_data --kill-at 0.5   # memory by phase
    scripts/bench_data.py resume --work runs/bench_data                          # start-up, waiting, padding
    scripts/bench_data.py encode data/big --work runs/bench_data                 # lines/s
    scripts/bench_data.py commands data/big --work runs/bench_data               # nmt-data prepare, clean, filter

Each prints Markdown, and adds its values to the file of `-o`; the last two measure time and need an idle machine. The
model is tiny, so that the data dominates the cost. `resume` first drops the encoded corpus from the file cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sentencepiece
import yaml
from bench_data_watch import PHASES, Watched, done_corpora, forget, marked_pairs, train_events, watch
from bench_facts import facts

from nmt.cli.arguments import natural, positive, share
from nmt.cli.common import execute, make_parser
from nmt.config import load_config
from nmt.data.corpus import Corpus, Encoder, LengthRule, encode
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.text import FilePair, find_pair, read_lines, read_pairs, sample_lines
from nmt.data.text_facts import read_facts
from nmt.errors import DataError
from nmt.system import usable_cores
from nmt.tasks.translation import build_batches
from nmt.training.batches import BatchStream, Position

LANGUAGES = ("en", "de")

Measured = tuple[list[str], dict[str, Any]]
"""Lines of Markdown, and the measured values."""


def build_parser() -> argparse.ArgumentParser:
    """The parts and their options."""
    parser = make_parser("scripts/bench_data.py", "Measure the cost of a large corpus.")
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    prepare = parts.add_parser("prepare", help="from text to the first updates: memory and seconds by phase")
    prepare.add_argument("prefix", metavar="PREFIX", help="PREFIX.en and PREFIX.de")
    prepare.add_argument("--workers", type=natural, default=1, metavar="N", help="as data.workers; default 1")
    prepare.add_argument("--updates", type=positive, default=20, metavar="N", help="default 20")
    prepare.add_argument("--vocabulary", type=positive, default=8000, metavar="N", help="default 8000")
    prepare.add_argument("--kill-at", type=share, metavar="SHARE", help="SIGKILL at this share of pairs, then restart")
    resume = parts.add_parser("resume", help="start-up time, share of time waited for data, padding")
    resume.add_argument("--updates", type=positive, default=60, metavar="N", help="default 60")
    resume.add_argument(
        "--batches", type=positive, default=3000, metavar="N", help="batches to make without a model; default 3000"
    )
    speed = parts.add_parser("encode", help="lines/s, compared with SentencePiece's batch encoding")
    speed.add_argument("prefix", metavar="PREFIX")
    speed.add_argument(
        "--pairs", type=positive, default=100_000, metavar="N", help="number of pairs to encode; default 100000"
    )
    speed.add_argument("--repeats", type=positive, default=3, metavar="N", help="of each case; default 3")
    commands = parts.add_parser("commands", help="nmt-data prepare, clean and filter: CPU seconds and memory")
    commands.add_argument("prefix", metavar="PREFIX")
    for part in (prepare, resume, speed, commands):
        part.add_argument("--work", default="runs/bench_data", metavar="DIR", help="default runs/bench_data")
        part.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="add the measured values to this file")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Do one part."""
    parts = {"prepare": prepare, "resume": resume, "encode": measure_encoding, "commands": measure_commands}
    lines, values = parts[arguments.part](arguments)
    print("\n".join(lines))
    if arguments.output is not None:
        stated = facts("bench_data.py", threads=usable_cores(), peer=None)
        record = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.is_file() else []
        record.append({"facts": stated, "part": arguments.part, "results": values})
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def prepare(arguments: argparse.Namespace) -> Measured:
    """Encode and start training, with --kill-at after one kill: memory and seconds by phase."""
    config, run_dir = _write_config(arguments)
    with Path(f"{arguments.prefix}.{LANGUAGES[0]}").open("rb") as source:
        pairs = sum(1 for _ in source)
    lines = _header("process", *(f"{phase}, {unit}" for phase in PHASES for unit in ("s", "MiB")))
    values: dict[str, Any] = {}

    def add(process: str, seen: Watched) -> None:
        lines.append(_row(process, *_phases(seen.seconds, seen.peak)))
        values[process] = {"seconds": seen.seconds, "peak_mib": seen.peak}

    if arguments.kill_at is not None:
        seen = watch(config, run_dir, overrides=[], kill=lambda: marked_pairs(run_dir) >= arguments.kill_at * pairs)
        add(f"killed at {marked_pairs(run_dir):,} pairs", seen)
    add(f"{pairs:,} pairs", watch(config, run_dir, overrides=[]))
    sizes = _sizes(arguments.prefix, run_dir, pairs)
    return [*lines, "", sizes], values | {"sizes": sizes}


def _phases(seconds: dict[str, float], peak: dict[str, float]) -> list[str]:
    cells = [(f"{seconds[phase]:.1f}", f"{peak[phase]:.0f}") if phase in peak else ("", "") for phase in PHASES]
    return [cell for pair in cells for cell in pair]


def _sizes(prefix: str, run_dir: Path, pairs: int) -> str:
    folder = next(done_corpora(run_dir))
    corpus = Corpus(folder)
    text = sum(Path(f"{prefix}.{language}").stat().st_size for language in LANGUAGES)
    encoded = sum(path.stat().st_size for path in folder.iterdir())
    report = corpus.report
    tokens = (report.source_tokens + report.target_tokens) / len(corpus)
    return (
        f"{len(corpus):,} of {pairs:,} pairs kept, {tokens:.1f} subwords a pair, "
        f"{text / pairs:.0f} bytes of text and {encoded / len(corpus):.0f} encoded bytes a pair"
    )


def resume(arguments: argparse.Namespace) -> Measured:
    """Resume the training of `prepare`: the waiting times of a resumed run."""
    work = Path(arguments.work)
    config, run_dir = work / "config.yaml", work / "run"
    log = run_dir / "log.jsonl"
    if not log.is_file():
        raise DataError(f"{log}: does not exist; run the part `prepare` first")
    corpus = Corpus(next(done_corpora(run_dir)))
    for path in corpus.folder.iterdir():
        forget(path)
    done = train_events(log)[-1]["step"]
    seen = watch(config, run_dir, overrides=[f"training.max_steps={done + arguments.updates}"])
    events = [event for event in train_events(log) if event["step"] > done]
    times = [after["seconds"] - before["seconds"] for before, after in zip(events, events[1:], strict=False)]
    waited = sum(event["data_wait"] * took for event, took in zip(events[1:], times, strict=True))
    padding = statistics.mean(event["padding"] for event in events)
    rate = statistics.median(event["target_tokens_per_second"] for event in events[1:])
    stream = build_batches(load_config(config), corpus)
    batches, longest = _stream_rate(stream, arguments.batches)
    found = {
        "pairs": f"{len(corpus):,}",
        "start-up, s": f"{seen.began_after:.1f}",
        "first update, s": f"{seen.first_update_after:.1f}",
        "time waited for data": f"{waited / sum(times):.2%}",
        "target tokens/s": f"{rate:,.0f}",
        "padding": f"{padding:.2%}",
        "padding of an epoch": f"{stream.padding_share():.2%}",
        "memory, MiB": f"{seen.peak['training']:.0f}",
        "batches/s made": f"{batches:,.0f}",
        "longest batch, ms": f"{longest * 1000:.0f}",
    }
    return [*_header(*found), _row(*found.values())], found


def _stream_rate(stream: BatchStream, count: int) -> tuple[float, float]:
    """Batches per second that are made without training, and the most seconds for one batch."""
    groups = stream.groups(Position(epoch=2, batch=0))
    next(groups)
    took = []
    for _ in range(count):
        started = time.perf_counter()
        next(groups)
        took.append(time.perf_counter() - started)
    return count / sum(took), max(took)


def measure_encoding(arguments: argparse.Namespace) -> Measured:
    """Encode the same pairs with SentencePiece alone and with this package, alternating: lines/s."""
    tokenizer = SentencePieceTokenizer.load(Path(arguments.work) / "run" / "tokenizer", options=SentencePieceOptions())
    model = Path(arguments.work) / "run" / "tokenizer" / "joint.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    with tempfile.TemporaryDirectory(dir=arguments.work) as name:
        folder = Path(name)
        whole = [f"{arguments.prefix}.{language}" for language in LANGUAGES]
        files = FilePair(*(_beginning(path, folder, arguments.pairs) for path in whole))
        text = [list(read_lines(path)) for path in files]

        def alone(threads: int) -> None:
            for side in text:
                processor.encode(side, out_type=int, num_threads=threads)

        def ours(workers: int) -> None:
            target = Path(tempfile.mkdtemp(dir=folder)) / "corpus"
            encode([files], target, encoder=Encoder(tokenizer, LengthRule(max_length=100)), key="", workers=workers)

        def first_look() -> None:
            for path in files:
                read_facts(path)

        def sample() -> None:
            for path in files:
                deque(sample_lines([path], 1000, seed=1), maxlen=0)

        cases: dict[str, Callable[[], None]] = {"first look at the files": first_look, "sampling for subwords": sample}
        for count in sorted({1, usable_cores()}):
            cases[f"SentencePiece alone, threads: {count}"] = partial(alone, count)
            cases[f"files to encoded corpus, processes: {count}"] = partial(ours, count)
        rates: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(arguments.repeats):
            for name, case in cases.items():
                started = time.perf_counter()
                case()
                rates[name].append(2 * arguments.pairs / (time.perf_counter() - started))
    rows = [
        _row(name, f"{statistics.median(found):,.0f}", f"{min(found):,.0f}", f"{max(found):,.0f}")
        for name, found in rates.items()
    ]
    return [*_header("case", "lines/s, median", "lines/s, lowest", "lines/s, highest"), *rows], rates


def measure_commands(arguments: argparse.Namespace) -> Measured:
    """CPU seconds and largest memory of the commands for corpora, of a prefix and of the same text as a TSV file."""
    work, prefix = Path(arguments.work), arguments.prefix
    work.mkdir(parents=True, exist_ok=True)
    pairs = 0
    with (work / "text.tsv").open("w", encoding="utf-8") as stream, (work / "scores").open("w") as scores:
        for pairs, sides in enumerate(read_pairs(find_pair(prefix, *LANGUAGES)), start=1):
            stream.write("\t".join(sides) + "\n")
            scores.write(f"{pairs * 7919 % 10_007 / 1000}\n")
    out, languages = str(work / "out"), ("--languages", *LANGUAGES)
    commands = {
        "prepare PREFIX": ["prepare", prefix, "-o", f"{out}_prefix"],
        "prepare TEXT.tsv --clean": ["prepare", str(work / "text.tsv"), "-o", f"{out}_tsv", "--clean"],
        "clean PREFIX": ["clean", prefix, "-o", f"{out}_clean"],
        "filter PREFIX --scores": ["filter", prefix, "-o", f"{out}_best", "--keep-share", "0.8", "--scores",
                                   str(work / "scores"), "--near-duplicates"],
    }  # fmt: skip
    lines = _header(f"nmt-data, {pairs:,} pairs", "CPU, s", "seconds", "largest memory, MiB")
    values: dict[str, Any] = {}
    for name, command in commands.items():
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "nmt.corpora.command", *command, *languages, "--overwrite"],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        peak = 0.0
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, _peak_mib(child.pid))
            time.sleep(0.05)
        if status:
            raise DataError(f"nmt-data {' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
        cpu, seconds = used.ru_utime + used.ru_stime, time.perf_counter() - begin
        lines.append(_row(name, f"{cpu:.0f}", f"{seconds:.0f}", f"{peak:.0f}"))
        values[name] = {"pairs": pairs, "cpu_s": cpu, "seconds": seconds, "peak_mib": peak}
    return lines, values


def _peak_mib(pid: int) -> float:
    """The largest memory of a process so far; 0 where it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) / 1024 if found else 0.0


def _beginning(path: str, folder: Path, lines: int) -> Path:
    """Copy the first `lines` lines of a file into `folder`; return the copy's path."""
    copy = folder / Path(path).name
    with Path(path).open("rb") as whole, copy.open("wb") as part:
        part.writelines(islice(whole, lines))
    return copy


def _write_config(arguments: argparse.Namespace) -> tuple[Path, Path]:
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "run_dir": str(work / "run"),
        "model": {"cell": "lrn", "hidden_size": 64, "embedding_size": 64, "layer_norm": False, "dropout": 0.0},
        "data": {
            "train": arguments.prefix,
            "workers": arguments.workers,
            "tokenizer_options": {"vocab_size": arguments.vocabulary},
        },
        "training": {"max_steps": arguments.updates, "batch_tokens": 4096, "log_every": 1},
        "evaluation": {"metrics": []},
    }
    path = work / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path, work / "run"


def _header(*names: str) -> list[str]:
    return [_row(*names), "|-" + "|-:" * (len(names) - 1) + "|"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
