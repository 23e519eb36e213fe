#!/usr/bin/env python3
"""Measure the engine beside CTranslate2 in models of equal shapes and, with --wmt14, in those of the WMT14 table.

    scripts/bench_shapes.py --peers PYTHON --work DIR [--only NAME...] [-o FILE.md]
    scripts/bench_shapes.py --wmt14 --work DIR [-o FILE.md]

PYTHON is that of an environment with `pip install ctranslate2==4.8.5 sentencepiece`. Weights are random: all models of
a shape take the same time, whatever they have learnt. The steps are fixed: as many as the source has pieces, its end
symbol counted. So there is no BLEU here, and no side gains by short output.

Every case runs in a separate process with one thread, `--rounds` times, in turn with the others; tables have medians.
Times are CPU times, so that other work on the machine has little effect.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sentencepiece
import torch
from bench_facts import add_output, facts, in_turn, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.compiling import engine_recipe
from nmt.compiling import library as compiled
from nmt.config import find_config, load_config
from nmt.errors import DataError
from nmt.interop.engine.export import file_of, sections_of, settings_of
from nmt.interop.engine.lowering import lower
from nmt.marian import pieces
from nmt.marian.pieces import Piece
from nmt.models import build_model
from nmt.search.shortlist import Shortlist
from nmt.shortlisting.association import CoOccurrences

CASE = Path(__file__).with_name("bench_shapes_case.py")
OWN = 5000
"""Pieces that are learnt from the text, those of the shapes."""
FREQUENT, PARTNERS = 100, 50
"""Words that a shortlist allows always, and for each word of the source."""
LONG = [50, 100, 400, 800]
"""Words of long lines."""
UNITS = {"gru": 45.35, "lstm": None, "atr": 34.40, "sru": 42.84, "lrn": 36.50, "olrn": 40.19}
"""Of the WMT14 table, with its milliseconds a sentence."""


def attention(layers: int, decoder: str, decoder_layers: int, width: int, heads: int) -> list[str]:
    """Settings of blocks like those of CTranslate2's Transformers; `decoder` mixes words by a unit or by attention."""
    options = {"encoder_mixing": "attention", "encoder_layers": layers, "decoder_layers": decoder_layers}
    options |= {"encoder_feed_forward": width, "decoder_feed_forward": width, "heads": heads}
    unit = ["model.cell=ssru"] if decoder == "ssru" else []
    options |= {} if unit else {"decoder_mixing": "attention"}
    return [*unit, "model.embedding_size=128", f"model.architecture_options={json.dumps(options)}"]


WIDE = 32_000
"""Pieces of the largest vocabulary."""
SHAPES: dict[str, tuple[str, list[str], bool, int]] = {
    "SSRU 4+1": ("multi30k.yaml", attention(4, "ssru", 1, 256, 4), False, OWN),
    "SSRU 6+1": ("multi30k.yaml", attention(6, "ssru", 1, 256, 4), False, OWN),
    "attention 4+4": ("multi30k.yaml", attention(4, "attention", 4, 256, 4), False, OWN),
    "LRN": ("multi30k_lrn.yaml", [], False, OWN),
    "LRN, shortlist": ("multi30k_lrn.yaml", [], True, OWN),
    **{unit.upper(): (f"multi30k_{unit}.yaml", [], False, OWN) for unit in ("atr", "sru", "gru", "lstm")},
    "oLRN": ("multi30k_olrn.yaml", [], False, OWN),
    "blocks of LRN": ("multi30k.yaml", [], False, OWN),
    "LRN, 32,000 pieces": ("multi30k_lrn.yaml", [], False, WIDE),
    "LRN, 32,000 pieces, shortlist": ("multi30k_lrn.yaml", [], True, WIDE),
}
"""Name -> configuration, settings, whether there is a shortlist, size of the vocabulary."""
PEERS = {"4+1": (4, 1), "6+1": (6, 1), "4+4": (4, 4)}
"""Layers of the Transformers, of width 128, 256 in feed-forward layers, 4 heads."""


class Case(NamedTuple):
    """A measured case; `given` is what bench_shapes_case.py is told."""

    title: str
    python: str
    given: dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_shapes.py", "Measure the engine in models of given shapes.")
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with CTranslate2")
    parser.add_argument("--wmt14", action="store_true", help="the models of the WMT14 table instead")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="for the models")
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"), metavar="DIR", help="default %(default)s")
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="cases whose names contain one of these")
    parser.add_argument("--lines", type=positive, default=1000, metavar="N", help="in batches (default: %(default)s)")
    parser.add_argument(
        "--single", type=positive, default=200, metavar="N", help="one at a time (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="in a process; the best one counts")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="of processes (default: %(default)s)")
    add_output(parser)
    return parser


def make_vocabulary(work: Path, data: Path, size: int) -> bytes:
    """A SentencePiece model; of its pieces those that the text does not fill are never found in it."""
    base = work / "shapes.model"
    if not base.exists():
        text = work / "train.txt"
        lines = [line for side in ("en", "de") for line in lines_of(data, f"train.{side}.gz")]
        text.write_text("\n".join(lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(text),
            model_prefix=str(base.with_suffix("")),
            model_type="bpe",
            vocab_size=OWN,
            character_coverage=1.0,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=2,
            num_threads=1,
            minloglevel=2,
        )
    model = base.read_bytes()
    own = pieces.pieces_of(model)
    fill = [Piece(f"\u2581piece{i}", -1e5 - i, pieces.NORMAL) for i in range(size - len(own))]
    return pieces.with_pieces(model, [*own, *fill], unk=1, eos=2) if fill else model


def counted_shortlist(work: Path, data: Path, size: int) -> Shortlist:
    """As nmt-shortlist counts it in the training text."""
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(work / "shapes.model"))
    counts = CoOccurrences(size, size)
    sides = (splitter.encode(lines_of(data, f"train.{side}.gz")) for side in ("en", "de"))
    counts.add(([*source, 2], [*target, 2]) for source, target in zip(*sides, strict=True))
    partners, starts = counts.best_partners(PARTNERS)
    return Shortlist(
        frequent=torch.from_numpy(counts.most_frequent(FREQUENT)),
        partners=torch.from_numpy(partners),
        starts=torch.from_numpy(starts),
        target_size=size,
    )


def random_shortlist(size: int) -> Shortlist:
    """Any words."""
    partners = torch.randint(0, size, (size, PARTNERS), generator=torch.Generator().manual_seed(1))
    return Shortlist(
        frequent=torch.arange(FREQUENT),
        partners=partners.sort(1).values.flatten(),
        starts=torch.arange(size + 1) * PARTNERS,
        target_size=size,
    )


def make_model(
    path: Path, config: str, settings: list[str], vocabulary: bytes, size: int, shortlist: Shortlist | None
) -> str:
    """Random weights as a file for the engine, in int8."""
    if path.exists():
        return str(path)
    loaded = load_config(find_config(config), list(settings))
    torch.manual_seed(1)
    model = build_model(loaded.model, size, size).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0.0, (2 / (parameter.shape[0] + parameter.shape[1])) ** 0.5)
    sections = sections_of(
        lower(model, precision="int8"),
        settings=settings_of(loaded.decoding),
        vocabularies=(size, size),
        subwords=(vocabulary, vocabulary),
        shortlist=shortlist,
    )
    sections["META"] = json.dumps({"name": path.stem}).encode()
    path.write_bytes(b"".join(file_of(sections)))
    return str(path)


def lines_of(data: Path, name: str) -> list[str]:
    """The lines of a file of Multi30k."""
    return gzip.decompress((data / name).read_bytes()).decode().splitlines()


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases of shapes; makes their models."""
    work = arguments.work.resolve()
    source = lines_of(arguments.data, "test_2016_flickr.en.gz")
    (work / "lines.json").write_text(json.dumps(source[: arguments.lines]), encoding="utf-8")
    common = {
        "lines": str(work / "lines.json"),
        "pieces": str(work / "shapes.model"),
        "library": str(compiled(engine_recipe(everywhere=True))),
    }
    common |= {"single": arguments.single, "repeats": arguments.repeats, "long": []}
    files = {}
    for name, (config, settings, listing, size) in SHAPES.items():
        vocabulary = make_vocabulary(work, arguments.data, size)
        path = work / f"{name}.nmt".replace(" ", "_")
        shortlist = counted_shortlist(work, arguments.data, size) if listing else None
        files[name] = make_model(path, config, settings, vocabulary, size, shortlist)
    for beam, search in ((1, "greedy"), (5, "beam 5")):
        own = {**common, "beam": beam, "kind": "engine", "kernels": None}
        for name, file in files.items():
            yield Case(f"{name}, {search}", sys.executable, {**own, "models": [file]})
        for name, layers in PEERS.items():
            yield Case(
                f"CTranslate2 {name}, {search}", arguments.peers, {**own, "kind": "ctranslate2", "layers": layers}
            )
        for name in ("SSRU 4+1", "LRN", "LRN, shortlist"):
            yield Case(f"{name}, AVX2, {search}", sys.executable, {**own, "models": [files[name]], "kernels": "avx2"})
        for count in (2, 4):
            yield Case(f"LRN x {count}, {search}", sys.executable, {**own, "models": [files["LRN"]] * count})
    words = " ".join(source).split()
    long = {**common, "beam": 1, "kernels": None, "single": 0, "long": [" ".join(words[:n]) for n in LONG]}
    for name in ("attention 4+4", "LRN"):
        yield Case(f"{name}, long", sys.executable, {**long, "kind": "engine", "models": [files[name]]})
    # CTranslate2's positions end at 512 in a model of this kind.
    given = {**long, "kind": "ctranslate2", "layers": PEERS["4+4"], "long": long["long"][:3]}
    yield Case("CTranslate2 4+4, long", arguments.peers, given)


def wmt14_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """The models of the WMT14 table, on sentences of 27 pieces, which have translations of 28."""
    work = arguments.work.resolve()
    given = {
        "kind": "ids",
        "library": str(compiled(engine_recipe(everywhere=True))),
        "kernels": None,
        "beam": 4,
        "repeats": 1,
        "sentences": 64,
    }
    for unit in UNITS:
        config = f"wmt14_{unit}.yaml"
        size = load_config(find_config(config)).data.tokenizer_options["vocab_size"]
        vocabulary = make_vocabulary(work, arguments.data, size)
        file = make_model(work / f"wmt14_{unit}.nmt", config, [], vocabulary, size, random_shortlist(size))
        for listing in (False, True):
            title = f"{unit}{', shortlist' * listing}"
            yield Case(title, sys.executable, {**given, "models": [file], "shortlist": listing, "size": size})


def measured(case: Case) -> dict[str, Any]:
    """Measure a case once, in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [case.python, str(CASE), json.dumps(case.given)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise DataError(f"{case.title}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown."""
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]] + [""]


def report(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Medians of each case; of each peer in its columns how many times as fast the engine is."""

    def middle(name: str, key: str) -> float | None:
        return statistics.median(one[key] for one in results[name]) if key in results.get(name, [{}])[0] else None

    rows = []
    for name in results:
        if name.endswith(", long"):
            continue
        search = name.rpartition(", ")[2]
        row = [name]
        for key, form, faster in (("batch", "{:,.0f}", 1), ("alone_ms", "{:.3f}", -1)):
            value = middle(name, key)
            assert value is not None
            row.append(form.format(value))
            for peer in PEERS:
                theirs = middle(f"CTranslate2 {peer}, {search}", key)
                row.append(f"{(value / theirs) ** faster:.2f}" if theirs else "")
        rows.append(row)
    ratios = [f"by {peer}" for peer in PEERS]
    found = table(["case", "lines a CPU second", *ratios, "one line, CPU ms", *ratios], rows)
    long = [
        [name, *(f"{statistics.median(one['long_ms'][i] for one in each):.1f}" for i in range(len(each[0]["long_ms"])))]
        for name, each in results.items()
        if name.endswith(", long")
    ]
    return found + (
        table(["case", *(f"{n} words, CPU ms" for n in LONG)], [row + [""] * (5 - len(row)) for row in long])
        if long
        else []
    )


def wmt14_report(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Milliseconds a sentence, in batches and alone, beside the published ones."""

    def cells(name: str) -> list[str]:
        return [
            f"{statistics.median(one[key] for one in results[name]):.1f}"
            for key in ("batch_ms", "alone_ms")
            if name in results
        ]

    rows = [
        [unit.upper(), *cells(unit), *cells(f"{unit}, shortlist"), f"{published or '-'}"]
        for unit, published in UNITS.items()
        if unit in results
    ]
    return table(["unit", "batches", "alone", "shortlist, batches", "shortlist, alone", "published, GPU"], rows)


def run(arguments: argparse.Namespace) -> int:
    """Measure all cases in turn, report."""
    if not arguments.wmt14 and not arguments.peers:
        raise DataError("--peers: missing. Allowed without it: --wmt14")
    arguments.work.mkdir(parents=True, exist_ok=True)
    every = {case.title: case for case in (wmt14_cases if arguments.wmt14 else cases)(arguments)}
    kept = {name: case for name, case in every.items() if not arguments.only or any(x in name for x in arguments.only)}
    stated = facts("bench_shapes.py", threads=1, peer=None)
    if not arguments.wmt14:
        code = "import ctranslate2; print(', CTranslate2', ctranslate2.__version__)"
        stated["versions"] += subprocess.run(
            [*shlex.split(arguments.peers), "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
    results = in_turn(kept, measured, rounds=arguments.rounds)
    lines = [*listed(stated), "", *(wmt14_report if arguments.wmt14 else report)(results)]
    put(arguments.output, "\n".join(lines), {"facts": stated, "results": results})
    return 0


def main() -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run)


if __name__ == "__main__":
    sys.exit(main())
