"""Coverage-guided fuzzing of the engine by libFuzzer and clang's sanitizers: model files, SentencePiece models, text,
live sessions.

NMT_FUZZ_SECONDS is how long each target runs, by default 20; NMT_FUZZ_KEEP a folder in which what it found is kept, and
from which a later run starts.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import sentencepiece

from nmt.case_marks.marks import MARKS
from nmt.models import build_model
from tests.interop.engine_models import UNITS, content_of, section
from tests.light.engine_driver import SANITIZED, engine_objects, linked
from tests.light.subword_models import SYMBOLS, edited, odd_lines, trained
from tests.light.subwords_library import Library, compiled
from tests.light.test_safety import MODELS, OTHERS, content

SECONDS: Final = int(os.environ.get("NMT_FUZZ_SECONDS", "20"))
SLOW: Final = 10
"""Seconds that one input may take with the sanitizers."""
MEMORY: Final = ("-rss_limit_mb=1500", "-malloc_limit_mb=400")
LIMITS: Final = ("-mutate_depth=2", "-len_control=0", *MEMORY, f"-timeout={SLOW}")
KERNELS: Final = ("-g1", "-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS: Final = (*SANITIZED, "-fsanitize=fuzzer,address,undefined")
RULES: Final = "41\t61\n42\t62 62 62\n20AC\t45 55 52\n61 300\te0\nFDFA\t20 20 20\n"
"""A small map of characters: that of nmt_nfkc is 30 times as large as all else, and most bytes of it alike."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The engine for libFuzzer; skips where there is no clang, or none with libFuzzer."""
    folder = tmp_path_factory.mktemp("objects")
    if shutil.which("clang") is None:
        pytest.skip("needs clang on PATH (Debian: clang and libclang-rt-14-dev, or of its version)")
    (folder / "empty.c").write_text("int LLVMFuzzerTestOneInput(const char *p, long n) { return !p && n; }\n")
    command = ["clang", *FLAGS, str(folder / "empty.c"), "-o", str(folder / "empty")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("clang cannot link libFuzzer and its sanitizers (Debian: libclang-rt-14-dev, or of its version)")
    # What is computed shows nothing of the way that an input takes.
    return engine_objects(folder, *FLAGS, command=["clang"], kernels=KERNELS)


def limit_time() -> None:
    """Of processor time, which does not pass while a process waits for others."""
    resource.setrlimit(resource.RLIMIT_CPU, (SLOW, SLOW))


def fuzz(
    target: str, folder: Path, objects: Sequence[str], seeds: Sequence[bytes], *, longest: int, **environment: str
) -> list[Path]:
    """The inputs that it has found to differ; fails with the report of the first one that crashes, leaks or is slow."""
    source = Path(__file__).with_name(f"fuzz_{target}.c")
    program = linked(folder / target, source, objects, *FLAGS, command=["clang"])
    kept = os.environ.get("NMT_FUZZ_KEEP")
    corpus = Path(kept, target) if kept else folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    command = [str(program), *LIMITS, f"-max_len={longest}", f"-max_total_time={SECONDS}", "-print_final_stats=1"]
    given: dict[str, Any] = {"capture_output": True, "env": {**os.environ, **environment}, "check": False}
    for _ in range(5):
        done = subprocess.run([*command, f"-artifact_prefix={folder}/", str(corpus)], **given)
        said = done.stderr.decode(errors="replace")
        found = [path for kind in ("crash", "leak", "oom", "timeout") for path in folder.glob(f"{kind}-*")]
        if not found or not found[0].name.startswith("timeout"):
            break
        if subprocess.run([str(program), "-timeout=0", str(found[0])], preexec_fn=limit_time, **given).returncode:
            break
        found.pop(0).unlink()  # what was slow was the machine: start again
    if kept and found:
        shutil.copy(found[0], kept)
    assert done.returncode == 0 and not found, said[-6000:]
    (runs,) = re.findall(r"stat::number_of_executed_units: (\d+)", said)
    (taken,) = re.findall(r"inputs taken: (\d+)", said)
    covered = [int(number) for number in re.findall(r"cov: (\d+)", said)]
    print(f"{target}: {runs} inputs, {taken} taken, {covered[0]} to {covered[-1]} places covered")
    assert int(runs) > len(seeds) and int(taken) > int(runs) // 50
    return sorted(corpus.iterdir())


def test_model_files(objects: list[str], tmp_path: Path) -> None:
    units = [{"cell": name, "cell_options": options[-1]} for name, options in UNITS.items()]
    seeds = [content({"hidden_size": 8, "embedding_size": 8, **unit}, precision="int8") for unit in units]
    seeds += [content(changes, **more) for changes, more in (MODELS | OTHERS).values()]
    fuzz("model", tmp_path, objects, seeds, longest=1 << 18)


def subword_models(folder: Path) -> list[bytes]:
    """Of both kinds, with and without bytes, symbols, unused pieces, a map of characters and case marks."""

    def unused(message: object) -> None:
        for place, piece in enumerate(message.pieces):  # type: ignore[attr-defined]
            if piece.type == piece.NORMAL and place % 3 and len(piece.piece) > 1:
                piece.type = piece.UNUSED

    (folder / "rules.tsv").write_text(RULES)
    own = {"normalization_rule_tsv": str(folder / "rules.tsv")}
    small = {"normalization_rule_name": "identity", "vocab_size": 200}
    made = [
        trained(model_type=kind, **more)
        for kind in ("bpe", "unigram")
        for more in (small, own, {**own, "byte_fallback": True, "user_defined_symbols": SYMBOLS})
    ]
    table = b"markup 1\nMann\nUSA\niPhone\n"
    marked = trained(model_type="bpe", user_defined_symbols=list(MARKS)) + b"\xca\x0c" + bytes([len(table)]) + table
    return [*made, edited(made[1], unused), marked]


def test_subword_models(objects: list[str], tmp_path: Path) -> None:
    fuzz("subwords", tmp_path, objects, subword_models(tmp_path), longest=1 << 16)


def test_text(objects: list[str], tmp_path: Path) -> None:
    """Of what is found the ids are also those that SentencePiece finds."""
    protos = [
        trained(model_type=kind, byte_fallback=fallback, user_defined_symbols=SYMBOLS)
        for kind in ("bpe", "unigram")
        for fallback in (False, True)
    ]
    paths = []
    for number, proto in enumerate(protos):
        size = sentencepiece.SentencePieceProcessor(model_proto=proto).vocab_size()
        model = build_model(section(cell="lrn", hidden_size=8, embedding_size=8), size, size).eval()
        paths.append(tmp_path / f"{number}.nmt")
        paths[-1].write_bytes(content_of(model, precision="int8", subwords=(proto, proto)))
    seeds = [bytes([i % 4, 7 * i % 256]) + line for i, line in enumerate(odd_lines(64, seed=9))]
    found = fuzz("text", tmp_path, objects, seeds, longest=1024, NMT_FUZZ_MODELS=":".join(map(str, paths)))
    library = Library(compiled(tmp_path / "subwords.so", "-O2", "-shared", "-fPIC"))
    for proto in protos:
        model, reference = library.open(proto), sentencepiece.SentencePieceProcessor(model_proto=proto)
        for path in found:
            line = path.read_bytes()[2:]
            ids = reference.encode(line, out_type=int)
            assert model.encode(line) == ids, line
            assert model.decode(ids) == reference.decode(ids).encode(), ids


def test_live_sessions(objects: list[str], tmp_path: Path) -> None:
    """Of models that read forward, with case marks and with self-attention, and of one that reads both ways."""
    proto, (*_, marked) = trained(model_type="unigram"), subword_models(tmp_path)
    blocks = {"architecture": "transformer", "embedding_size": 8, "hidden_size": 8}
    made = [
        (marked, {"encoder_direction": "forward"}),
        (proto, {"encoder_direction": "forward", "encoder_layers": 2}),
        (
            proto,
            {
                **blocks,
                "encoder_direction": "forward",
                "architecture_options": {"heads": 2, "encoder_mixing": "attention"},
            },
        ),
        (proto, {}),
    ]
    paths = []
    for number, (own, changes) in enumerate(made):
        size = sentencepiece.SentencePieceProcessor(model_proto=own).vocab_size()
        settings = {"cell": "lrn", "hidden_size": 8, "embedding_size": 8, **changes}
        paths.append(tmp_path / f"{number}.nmt")
        limits: dict[str, Any] = {"max_length_factor": 0.5, "max_length_offset": 2}
        model = build_model(section(**settings), size, size).eval()
        paths[-1].write_bytes(content_of(model, precision="int8", subwords=(own, own), **limits))
    seeds = [bytes([i % 20, 7 * i % 256]) + line[:150] for i, line in enumerate(odd_lines(64, seed=5))]
    fuzz("live", tmp_path, objects, seeds, longest=200, NMT_FUZZ_MODELS=":".join(map(str, paths)))
