#!/usr/bin/env python3
"""Measure the engine beside those of Firefox, fxtranslate and slimt, with the same 8-bit models, in one run.

    scripts/bench_marian.py --peers PYTHON --work DIR [--kernels NAME...] [-o FILE.md]

PYTHON is that of an environment with `pip install fxtranslate==0.5.0 slimt==0.1.0` (slimt has a wheel for 3.11 only).
The models have random weights and the shapes of two published ones. They never end a translation, so that every
program says as many pieces as it allows: fxtranslate 2 n + 4 for n pieces of the source, slimt n; each is compared
with the engine at the same limit. Every piece that they say begins with a space, so that those that come out can be
counted in the text.

Every case runs in a separate process with one thread, `--rounds` times, alternating with the others; the table has the
medians. Times are CPU times, so that other work on the machine has little effect.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import sentencepiece
from bench_facts import add_output, facts, in_turn, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.compiling import engine_recipe
from nmt.compiling import library as compiled
from nmt.errors import DataError
from nmt.marian import pieces
from nmt.marian.arrays import write_bin
from nmt.marian.convert import convert_to_file
from nmt.marian.export import quantized, settings_of
from nmt.marian.foreign import read_foreign
from nmt.marian.pieces import Piece
from nmt.marian.shape import Shape, parts_of
from nmt.marian.shortlists import Lexicon, write_lexicon
from nmt.shortlisting.association import CoOccurrences
from nmt.system import cpu_info

CASE = Path(__file__).with_name("bench_marian_case.py")
SIZE = 32_000
OWN = 8_000
"""Pieces that are learnt from the text; the others are never found in it."""
FREQUENT = BEST = 50
LIMITS = {"fxtranslate": (2, 4), "slimt": (1, 0)}
"""[a, b]: each program says a n + b pieces for n of the source."""
SHAPES = {"tiny11": (256, 6, 2), "base-memory": (384, 6, 4)}
"""Width, layers of encoder and decoder; both have 8 heads and a feed-forward layer of 1,536."""
NEVER = -1e4
"""The bias of pieces that are not said."""
INPUT = 127 / 4
"""The multiplier of the inputs of products: random weights with norms between them give inputs of about 1."""


class Case(NamedTuple):
    """A measured case; `kind` is a key of KINDS in bench_marian_case.py."""

    kind: str
    title: str
    python: str
    given: dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_marian.py", "Measure the engine beside fxtranslate and slimt.")
    parser.add_argument("--peers", required=True, metavar="PYTHON", help="of an environment with fxtranslate and slimt")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="for the models")
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"), metavar="DIR", help="default %(default)s")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[*SHAPES], help="default: all")
    parser.add_argument("--kernels", nargs="*", default=[None], metavar="NAME", help="instruction sets of the engine")
    parser.add_argument("--library", metavar="FILE", help="another compiled engine than that of this package")
    parser.add_argument("--only", nargs="*", choices=LIMITS, default=[*LIMITS], help="programs to compare with")
    parser.add_argument("--lines", type=positive, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--single", type=positive, default=200, metavar="N", help="one at a time (default: 200)")
    parser.add_argument("--repeats", type=positive, default=2, metavar="N", help="in a process; the best one counts")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="of processes (default: %(default)s)")
    add_output(parser)
    return parser


def text_of(folder: Path, name: str) -> list[str]:
    """The lines of a file of Multi30k."""
    return gzip.decompress((folder / name).read_bytes()).decode().splitlines()


def make_vocabulary(work: Path, data: Path) -> bytes:
    """A SentencePiece model of SIZE pieces with the ids of Firefox's: </s> 0, <unk> 1."""
    text = work / "train.txt"
    text.write_text("\n".join(text_of(data, "train.en.gz") + text_of(data, "train.de.gz")), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(work / "own"),
        vocab_size=OWN,
        model_type="unigram",
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    model = (work / "own.model").read_bytes()
    own = pieces.pieces_of(model)
    fill = [Piece(f"\u2581piece{i}", -50.0, pieces.NORMAL) for i in range(SIZE - len(own))]
    return pieces.with_pieces(model, [*own, *fill], unk=1, eos=0)


def make_lexicon(vocabulary: Path, data: Path) -> Lexicon:
    """The 50 best target pieces of each source piece, counted in the training text."""
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    counts = CoOccurrences(SIZE, SIZE)
    sides = (splitter.encode(text_of(data, f"train.{side}.gz")) for side in ("en", "de"))
    counts.add(([*source, 0], [*target, 0]) for source, target in zip(*sides, strict=True))
    partners, starts = counts.best_partners(BEST)
    lists = [np.sort(partners[starts[i] : starts[i + 1]]) for i in range(SIZE)]
    lists[-1] = np.zeros(1, partners.dtype)  # Marian and slimt refuse a shortlist whose last list is empty
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    return Lexicon(FREQUENT, BEST, offsets, np.concatenate(lists).astype(np.uint32))


def all_pieces() -> Lexicon:
    """A shortlist that allows everything: slimt has no search without one."""
    return Lexicon(SIZE, 1, np.arange(SIZE + 1, dtype=np.uint64), np.arange(SIZE, dtype=np.uint32))


def make_model(path: Path, name: str, vocabulary: bytes) -> Shape:
    """Random weights of a shape, as Marian's 8-bit file with multipliers of inputs."""
    width, encoder, decoder = SHAPES[name]
    shape = Shape(width, 8, encoder, decoder, 1536, 1536, "relu", True, False, SIZE, SIZE, ("Wemb", "Wemb", "Wemb"))
    chance = np.random.default_rng(1)
    said = [len(piece.text) > 1 and piece.text.startswith("\u2581") for piece in pieces.pieces_of(vocabulary)]
    values = {
        "Wemb": chance.normal(0, width**-0.5, (SIZE, width)),
        "decoder_ff_logit_out_b": np.where(said, 0.0, NEVER)[None],
    }
    inputs = ["none", "Wemb"]
    for part in parts_of(shape):
        for weight, bias in part.theirs:
            if part.inputs:
                size = part.inputs, part.outputs
                values[weight] = chance.normal(0, (2 / sum(size)) ** 0.5, size)
                inputs.append(weight)
            else:
                values[weight] = np.ones((1, part.outputs))
            if bias is not None:
                values[bias] = np.zeros((1, part.outputs))
    floats = {name: value.astype(np.float32) for name, value in values.items()}
    write_bin(path, quantized(floats, dict.fromkeys(inputs, INPUT)), settings_of(shape))
    return shape


def grouped(vocabulary: Path, lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The lines of each number of pieces, their end symbol counted; the longest first."""
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    found: dict[int, list[str]] = {}
    for line, ids in zip(lines, splitter.encode(list(lines)), strict=True):
        found.setdefault(len(ids) + 1, []).append(line)
    return sorted(found.items(), reverse=True)


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases; makes their models."""
    work, data = arguments.work.resolve(), arguments.data.resolve()
    work.mkdir(parents=True, exist_ok=True)
    vocabulary = work / "vocab.spm"
    vocabulary.write_bytes(make_vocabulary(work, data))
    write_lexicon(work / "lex.50.50.s2t.bin", make_lexicon(vocabulary, data))
    write_lexicon(work / "lex.all.bin", all_pieces())
    (work / "lines.json").write_text(
        json.dumps(grouped(vocabulary, text_of(data, "test_2016_flickr.en.gz")[: arguments.lines])), encoding="utf-8"
    )
    library = (
        str(Path(arguments.library).resolve()) if arguments.library else str(compiled(engine_recipe(everywhere=True)))
    )
    for name in arguments.shapes:
        model = work / f"{name}.bin"
        shape = make_model(model, name, vocabulary.read_bytes())
        lists = work / "lex.50.50.s2t.bin"
        ours = work / f"{name}.nmt"
        convert_to_file(
            read_foreign(model, vocabulary=vocabulary, lexicon=lists), ours, precision="int8", overwrite=True
        )
        common = {
            "vocabulary": str(vocabulary),
            "lines": str(work / "lines.json"),
            "single": arguments.single,
            "repeats": arguments.repeats,
            "library": library,
            "layers": [shape.encoder_layers, shape.decoder_layers, shape.heads],
            "widest": widest(),
        }
        for peer in arguments.only:
            for listing, file in (("no shortlist", lists.with_name("lex.all.bin")), ("shortlist", lists)):
                title = f"{name}, {listing}, "
                short = str(file) if listing == "shortlist" or peer == "slimt" else ""
                yield Case(peer, title + peer, arguments.peers, {**common, "model": str(model), "shortlist": short})
                for kernels in arguments.kernels:
                    own = {"model": str(ours), "kernels": kernels, "limit": LIMITS[peer]}
                    own["shortlist"] = listing == "shortlist"
                    said = f"engine as {peer}" + (f" ({kernels})" if kernels else "")
                    yield Case("engine", title + said, sys.executable, {**common, **own})


def widest() -> str:
    """The widest instruction set that slimt was compiled for and this processor has."""
    flags = (cpu_info("flags") or "").split()
    return next((name for name in ("avx512bw", "avx2") if name in flags), "ssse3")


def measured(case: Case) -> dict[str, Any]:
    """Measure a case once, in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [case.python, str(CASE), case.kind, json.dumps(case.given)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise DataError(f"{case.title}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


COLUMNS = {
    "alone": ("one line at a time, pieces a CPU second", "{:,.0f}"),
    "batches": ("all lines, pieces a CPU second", "{:,.0f}"),
    "batches_pieces": ("pieces of all lines", "{:,.0f}"),
    "start_cpu_s": ("start to first line, CPU s", "{:.2f}"),
    "alone_mb": ("memory, line by line, MB", "{:.0f}"),
    "peak_mb": ("memory, all lines, MB", "{:.0f}"),
    "instructions": ("products in", "{}"),
}


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Medians, in Markdown."""
    lines = ["| case | " + " | ".join(title for title, _ in COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in results.items():
        cells = []
        for key, (_, form) in COLUMNS.items():
            values = [one[key] for one in found if key in one]
            middle = values[0] if key == "instructions" else statistics.median(values) if values else None
            cells.append("" if middle is None else form.format(middle))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def peer_versions(python: str) -> str:
    """The versions of the programs in another environment."""
    code = "from importlib.metadata import version as v; print('fxtranslate', v('fxtranslate') + ', slimt', v('slimt'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(f"{python}: {(done.stderr.strip().splitlines() or ['fails'])[-1]}")
    return done.stdout.strip()


def run(arguments: argparse.Namespace) -> int:
    """Measure all cases in turn, report."""
    stated = facts("bench_marian.py", threads=1, peer=None)
    stated["versions"] += f", {peer_versions(arguments.peers)}"
    results = in_turn({case.title: case for case in cases(arguments)}, measured, rounds=arguments.rounds)
    text = "\n".join([*listed(stated), "", table(results), ""])
    put(arguments.output, text, {"facts": stated, "results": results})
    return 0


def main() -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run)


if __name__ == "__main__":
    sys.exit(main())
