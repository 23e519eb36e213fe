"""Model directories made to do harm: a line that names the file, no memory spent, nothing executed or followed."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from nmt.cli import translate
from nmt.interop import run_layout
from tests.tiny_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "run", steps=(10,), best=(10,))
    (tmp_path / "text").write_text("a b\n")
    return run


@pytest.fixture
def weights(run: Path) -> Path:
    return run_layout.step_dir(run, 10) / run_layout.WEIGHTS


def complaint(run: Path, capfd: pytest.CaptureFixture[str], *, code: int = 1) -> str:
    """The one line with which nmt-translate refuses."""
    capfd.readouterr()
    assert translate.main([str(run), "-i", str(run.parent / "text"), "--device", "cpu"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and len(err) < 2000, err
    assert "internal error" not in err
    assert "\x1b" not in err
    return err


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def entry(shape: list[int], *, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


FILES = {
    "empty": b"",
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 90_000_000) + b"{}",
    "a tensor of 4 TiB": header(a=entry([2**40], end=2**42)) + bytes(16),
    "sizes that overflow": header(a=entry([2**62, 4], end=0)),
    "negative sizes": header(a=entry([-1], end=4)) + bytes(4),
    "offsets outside": header(a={"dtype": "F32", "shape": [1], "data_offsets": [2**40, 2**40 + 4]}),
    "deep JSON": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "no JSON": struct.pack("<Q", 4) + b"\xff\x00{}",
    "a pickle": b"\x80\x04\x95cos\nsystem\n(S'echo'\ntR.",
    "an unknown type": header(a=entry([1], end=4, dtype="Q9")) + bytes(4),
}


@pytest.mark.parametrize("name", FILES)
def test_headers(run: Path, weights: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    weights.write_bytes(FILES[name])
    assert f"{weights}: damaged file" in complaint(run, capfd)


@pytest.mark.parametrize("name", ["../../../escaped", "/etc/passwd", "a\nb\x1b[2J", "x" * 100_000, ""])
def test_names_of_tensors_are_names_only(
    run: Path, weights: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    before = sorted(run.parent.rglob("*"))
    save_file({**load_file(weights), name: torch.zeros(1)}, weights)
    assert "is unknown" in complaint(run, capfd)
    assert sorted(run.parent.rglob("*")) == before


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_types_that_are_no_weights(
    run: Path, weights: Path, capfd: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    found = load_file(weights)
    name = sorted(found)[0]
    try:
        save_file({**found, name: found[name].to(dtype)}, weights)
    except KeyError:
        pytest.skip(f"this safetensors knows no {dtype}, which makes it the unknown type above")
    assert f"{name} holds {dtype}" in complaint(run, capfd)


@pytest.mark.parametrize(
    "change", [("hidden_size: 8", "hidden_size: 1000000"), ("encoder_layers: 2", "encoder_layers: 1000")]
)
def test_models_that_would_fill_the_memory(
    run: Path, capfd: pytest.CaptureFixture[str], change: tuple[str, str]
) -> None:
    for config in run.rglob("config.yaml"):
        config.write_text(config.read_text().replace(*change))
    said = complaint(run, capfd)
    assert "is missing" in said or "in the configuration" in said
    assert "out of memory" not in said, "the first would need some tens of TB"


@pytest.mark.parametrize("key", ["hidden_size", "encoder_layers"])
def test_sizes_that_no_model_has(run: Path, capfd: pytest.CaptureFixture[str], key: str) -> None:
    for config in run.rglob("config.yaml"):
        config.write_text(re.sub(rf"{key}: \d+", f"{key}: 99999999999999999999", config.read_text()))
    capfd.readouterr()
    assert translate.main([str(run), "-i", str(run.parent / "text"), "--device", "cpu"]) == 2
    assert re.search(rf"line \d+: model.{key}: 99999999999999999999 must be at most \d+\n$", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("checkpoints/best.json", b"\xff\xfe"),
        ("checkpoints/best.json", b"[" * 200_000),
        ("checkpoints/best.json", b'{"metric": "loss", "steps": [{"step": 1e999, "score": 1}]}'),
        ("checkpoints/best.json", b'{"metric": "loss", "steps": [{"step": "../../x", "score": 1}]}'),
        ("tokenizer/source.vocab", b"a\na\n"),
        ("tokenizer/source.vocab", b"\xff\n"),
        ("tokenizer/source.vocab", b""),
        ("tokenizer/source.vocab", b"a b c d\n"),
        ("tokenizer/source.vocab", b"a\0b\nc\n"),
    ],
)
def test_other_files(run: Path, capfd: pytest.CaptureFixture[str], file: str, content: bytes) -> None:
    (run / file).write_bytes(content)
    complaint(run, capfd)


def test_a_sentencepiece_model_of_noise(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for config in run.rglob("config.yaml"):
        saved = yaml.safe_load(config.read_text())
        saved["data"] |= {"tokenizer": "sentencepiece", "tokenizer_options": {}}
        config.write_text(yaml.safe_dump(saved))
    for content in (b"", b"\x00" * 100, bytes(range(256)) * 10):
        (run / "tokenizer/joint.model").write_bytes(content)
        assert "joint.model: not a SentencePiece model" in complaint(run, capfd)


def test_files_named_in_a_saved_configuration_are_not_opened(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for config in run.rglob("config.yaml"):
        config.write_text(config.read_text().replace("source_vocab: null", "source_vocab: ../../../etc/passwd"))
    assert translate.main([str(run), "-i", str(run.parent / "text"), "--device", "cpu"]) == 0
