"""nmt-convert marian and opus-mt, and commands that take such models as they are."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
import torch

from nmt.compiling import own_directory
from nmt.data import EOS
from nmt.interop.model_dir import find_model, load_model
from nmt.library.loading import load
from nmt.marian import command
from nmt.marian import opus_mt as opus_mt_module
from nmt.marian.shortlists import read_lexicon
from nmt.search.shortlist import load_shortlist
from tests.console import call
from tests.serving.server_process import ServerProcess, started


def texts(folder: Path, name: str, key: str) -> list[str]:
    """Golden translations."""
    found = json.loads((folder / name).read_text(encoding="utf-8"))
    return list(found["texts"] if key == "texts" else found[key]["texts"])


def translated(model: Path, folder: Path, tmp_path: Path, **options: str) -> list[str]:
    """What nmt-translate makes of the source of a golden folder, by greedy search in fp32."""
    output = tmp_path / "output"
    more = [part for key, value in options.items() for part in (f"--{key}", value)]
    source = str(folder / "source.en")
    assert call("nmt-translate", str(model), "-i", source, "-o", str(output), "--beam-size", "1", *more) == 0
    return output.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("weights", ["model.npz", "model.fp32.bin"])
def test_a_student_translates_as_firefox_does(ssru: Path, tmp_path: Path, weights: str) -> None:
    made = str(tmp_path / "made")
    vocabulary = ("--vocab", str(ssru / "vocab.spm"), "--languages", "en", "de")
    assert call("nmt-convert", "marian", str(ssru / weights), *vocabulary, "-o", made) == 0
    expected = texts(ssru, "expected_greedy_fp32.json", "texts")
    assert translated(Path(made), ssru, tmp_path, precision="fp32") == expected
    assert load(made).source_language == "en"


@pytest.mark.parametrize(("precision", "least"), [("fp32", 40), ("int8", 20)])
def test_a_student_as_a_file_for_the_engine(
    ssru: Path, tmp_path: Path, precision: str, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """int8 from values that are stored in 8 bits; in fp32 all lines are equal."""
    weights = "model.npz" if precision == "fp32" else "model.intgemm.alphas.bin"
    made = str(tmp_path / "made.nmt")
    options = ("--vocab", str(ssru / "vocab.spm"), "--precision", precision, "-o", made)
    assert call("nmt-convert", "marian", str(ssru / weights), *options) == 0
    assert f"for the engine in {precision}" in capsys.readouterr().out
    expected = texts(ssru, "expected_greedy_fp32.json", "texts")
    found = translated(Path(made), ssru, tmp_path)
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= least
    assert call("nmt-convert", "marian", str(ssru / weights), *options) == 1
    assert call("nmt-convert", "marian", str(ssru / weights), *options, "--overwrite") == 0


def test_a_folder_of_transformers_is_taken_as_it_is(
    opus_mt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    read, times = opus_mt_module._tensors, list[int]()
    monkeypatch.setattr(opus_mt_module, "_tensors", lambda package: times.append(1) or read(package))
    model = load(opus_mt, precision="fp32")
    assert len(times) == 1
    lines = (opus_mt / "source.en").read_text(encoding="utf-8").splitlines()
    expected = texts(opus_mt, "expected.json", "beam1_lp1.0")
    assert [str(one) for one in model.translate(lines, beam_size=1)] == expected
    said = f"{opus_mt}: a model of OPUS-MT from en to de, 2+2 layers, 32 wide, 901 tokens, licence not stated"
    assert any(said in record.getMessage() for record in caplog.records)
    assert len(kept(tmp_path / "cache")) == 1
    load(opus_mt)
    assert len(times) == 1 and len(kept(tmp_path / "cache")) == 1


def kept(cache: Path) -> list[Path]:
    """The converted models of a cache."""
    return [path for path in (cache / "models").iterdir() if path.is_dir()]


def test_a_change_of_a_converted_folder_is_noticed(
    opus_mt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of content in place, with the size and the time of before; a file that is just being written is read again."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    read, times = opus_mt_module._tensors, list[int]()
    monkeypatch.setattr(opus_mt_module, "_tensors", lambda package: times.append(1) or read(package))
    folder = tmp_path / "model"
    folder.mkdir()
    for file in opus_mt.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(command, "_SETTLED_NS", 10**15)
    find_model(folder)
    find_model(folder)
    assert len(times) == 2
    monkeypatch.setattr(command, "_SETTLED_NS", -1)
    first = [find_model(folder) for _ in range(3)]
    assert len(times) == 3 and len(set(first)) == 1
    weights = folder / "model.safetensors"
    before = weights.stat()
    with weights.open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x01")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = [find_model(folder) for _ in range(2)]
    assert len(times) == 4 and len(set(second)) == 1 and second[0] != first[0]
    for file in (tmp_path / "cache" / "models").glob("*.json"):
        file.write_text("{")
    assert find_model(folder) == second[0]


@pytest.mark.slow
def test_a_folder_of_transformers_is_served_and_reloaded(opus_mt: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in opus_mt.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    line = (opus_mt / "source.en").read_text(encoding="utf-8").splitlines()[0]
    expected = texts(opus_mt, "expected.json", "beam1_lp1.0")[0]

    def answer(server: ServerProcess) -> str:
        found = httpx.post(f"{server.base}/translate", json={"text": [line]}, timeout=60).json()
        return str(found["translations"][0]["text"])

    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    for kernels in own_directory().glob("*.so"):  # which take minutes to compile
        shutil.copy2(kernels, cache)
    with started(str(folder), "--beam-size", "1", environment={"NMT_CACHE": str(cache)}) as server:
        assert answer(server) == expected
        weights = safetensors.numpy.load_file(folder / "model.safetensors")
        weights["final_logits_bias"] = weights["final_logits_bias"] + 100 * (np.arange(901) == 5)
        safetensors.numpy.save_file({k: v.astype(np.float32) for k, v in weights.items()}, folder / "model.safetensors")
        server.signal(signal.SIGHUP)
        server.wait_for("INFO - (reloaded)")
        assert answer(server) != expected


def test_a_folder_as_mozilla_ships_it_is_taken_as_it_is(
    ssru: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its shortlist and the search of its configuration."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "ende"
    folder.mkdir()
    for name in ("model.intgemm.alphas.bin", "vocab.spm", "lex.50.6.s2t.bin"):
        (folder / f"{name.replace('.', '.ende.', 1)}.gz").write_bytes(gzip.compress((ssru / name).read_bytes()))
    (folder / "config.yml").write_text("beam-size: 1\nnormalize: 0.8\nmax-length-factor: 2.0\n", encoding="utf-8")
    decoding = load(folder).config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.length_normalization) == (1, 0.8, "power")
    assert (decoding.max_length_factor, decoding.max_length_offset) == (2.0, 0)
    with_all = translated(folder, ssru, tmp_path, shortlist="none")
    assert len(with_all) == 40 and with_all != translated(folder, ssru, tmp_path)


@pytest.mark.parametrize("kind", ["folder", "file"])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_beam_finds_what_transformers_finds(
    opus_mt: Path, tmp_path: Path, kind: str, beam: int, alpha: float
) -> None:
    """All 40 texts and scores; but an end of sentence that is between the K-th and the 2K-th best continuation counts
    here, not there, by which one line has a better translation."""
    made = tmp_path / ("made" if kind == "folder" else "made.nmt")
    precision = () if kind == "folder" else ("--precision", "fp32")
    assert call("nmt-convert", "opus-mt", str(opus_mt), "-o", str(made), *precision) == 0
    golden_beams = json.loads((opus_mt / "expected.json").read_text(encoding="utf-8"))
    expected = golden_beams[f"beam{beam}_lp{alpha if beam > 1 else 1.0}"]
    lines = (opus_mt / "source.en").read_text(encoding="utf-8").splitlines()
    model = load(made, **({"precision": "fp32"} if kind == "folder" else {}))
    limit = {"max_length_factor": 0.0, "max_length_offset": 40}
    found = model.translate(lines, beam_size=beam, length_penalty=alpha, split="none", **limit)
    scores = expected.get("scores", [one.score for one in found])
    same = [str(one) == text for one, text in zip(found, expected["texts"], strict=True)]
    assert sum(same) == (40 if beam == 1 else 39)
    for one, score, is_same in zip(found, scores, same, strict=True):
        assert one.score == pytest.approx(score, abs=3e-5) if is_same else one.score > score


def test_what_is_refused(ssru: Path, opus_mt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = str(tmp_path / "made")
    weights = str(ssru / "model.npz")
    assert call("nmt-convert", "marian", str(tmp_path / "none"), "-o", made) == 1
    assert capsys.readouterr().err == f"nmt-convert: {tmp_path / 'none'}: no such file\n"
    assert call("nmt-convert", "marian", weights, "-o", made) == 1
    assert "needs its vocabulary: name the .spm file with --vocab" in capsys.readouterr().err
    vocabulary = ("--vocab", str(ssru / "vocab.spm"))
    assert call("nmt-convert", "marian", weights, *vocabulary, "-o", made, "--precision", "int8") == 2
    assert "--precision is for a file for the engine" in capsys.readouterr().err
    assert call("nmt-convert", "marian", weights, "--vocab", str(opus_mt / "target.spm"), "-o", made) == 1
    assert "has 500 tokens, and the model's table has 600 rows" in capsys.readouterr().err
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "mine").touch()
    assert call("nmt-convert", "marian", weights, *vocabulary, "-o", made) == 1
    assert "this directory is not empty" in capsys.readouterr().err


def test_a_shortlist_of_marian_is_kept_to(ssru: Path, tmp_path: Path) -> None:
    """The golden lists of words, by PyTorch; and what PyTorch finds with them, by the engine."""
    made, lex, folder = str(tmp_path / "made.nmt"), ssru / "lex.50.6.s2t.bin", str(tmp_path / "made")
    options = ("--vocab", str(ssru / "vocab.spm"), "--shortlist", str(lex))
    assert call("nmt-convert", "marian", str(ssru / "model.npz"), *options, "--precision", "fp32", "-o", made) == 0
    assert call("nmt-convert", "marian", str(ssru / "model.npz"), *options, "-o", folder) == 0
    assert translated(Path(folder), ssru, tmp_path, precision="fp32") == translated(Path(made), ssru, tmp_path)
    loaded = load_model(folder)
    shortlist = load_shortlist(str(loaded.config.decoding.shortlist), loaded.tokenizer)
    expected = json.loads((ssru / "expected_shortlist_first5_one_by_one.json").read_text(encoding="utf-8"))
    for line, wanted in zip((ssru / "source.en").read_text(encoding="utf-8").splitlines(), expected, strict=False):
        (ids,) = loaded.tokenizer.encode_source([line])
        own = shortlist.words(torch.tensor([[*ids, EOS]])).ids.tolist()
        # Of nmt's ids 0 to 2 Marian has two, </s> 0 and <unk> 1; the others are one less.
        assert own == [0, 1, 2, *(i + 1 for i in wanted if i > 1)] and len(wanted) % 8 == 0
    lexicon = read_lexicon(lex.read_bytes(), lex, source_size=600, target_size=600)
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(ssru / "vocab.spm"))
    lines = (ssru / "source.en").read_text(encoding="utf-8").splitlines()
    for line, found in zip(lines, load(made).translate(lines, beam_size=1, details=["tokens"]), strict=True):
        allowed = {splitter.id_to_piece(i) for i in lexicon.allowed([*splitter.encode(line), 0])}
        assert set(found.tokens) - {"</s>"} <= allowed, line
