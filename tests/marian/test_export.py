"""nmt-convert to-marian: files that Marian and Firefox's engine read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import yaml

from nmt.interop.model_dir import load_model
from nmt.marian.arrays import MarianWeights, Quantized, read_weights
from nmt.marian.foreign import read_foreign
from nmt.marian.shape import QUANTIZED_INPUT, shape_of
from nmt.search.shortlist import load_shortlist
from tests.console import call


def weights_of(path: Path) -> MarianWeights:
    return read_weights(path.read_bytes(), path)


@pytest.fixture
def student(ssru: Path, tmp_path: Path) -> Path:
    """The golden student as a model directory."""
    options = ("--vocab", str(ssru / "vocab.spm"), "--languages", "en", "de", "-o", str(tmp_path / "student"))
    assert call("nmt-convert", "marian", str(ssru / "model.npz"), *options) == 0
    return tmp_path / "student"


@pytest.fixture
def dev(ssru: Path, tmp_path: Path) -> str:
    """A prefix of text."""
    for side, text in (
        ("en", (ssru / "source.en").read_text(encoding="utf-8")),
        ("de", "".join(f"{line}\n" for line in json.loads((ssru / "expected_greedy_fp32.json").read_text())["texts"])),
    ):
        (tmp_path / f"dev.{side}").write_text(text, encoding="utf-8")
    return str(tmp_path / "dev")


def test_from_marian_and_back_bit_for_bit(student: Path, dev: str, ssru: Path, tmp_path: Path) -> None:
    back = tmp_path / "back"
    assert call("nmt-convert", "to-marian", str(student), "--dev", dev, "-o", str(back)) == 0
    assert (back / "model.fp32.bin").read_bytes() == (ssru / "model.fp32.bin").read_bytes()
    first, again = weights_of(ssru / "model.npz"), weights_of(back / "model.npz")
    assert again.settings == first.settings
    assert again.values.keys() == first.values.keys()
    assert all(np.array_equal(again.array(name), first.array(name)) for name in first.values)
    ours, theirs = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm")) for folder in (back, ssru)
    )
    ids = list(range(len(theirs)))
    assert ours.id_to_piece(ids) == theirs.id_to_piece(ids)
    lines = (ssru / "source.en").read_text(encoding="utf-8").splitlines()
    assert ours.encode(lines) == theirs.encode(lines)
    assert (ours.eos_id(), ours.unk_id(), ours.pad_id(), ours.bos_id()) == (0, 1, -1, -1)


def test_the_8_bit_file_is_what_marian_conv_makes(student: Path, dev: str, ssru: Path, tmp_path: Path) -> None:
    """Weights to the bit; the multipliers of inputs are of other text, and near."""
    back = tmp_path / "back"
    assert call("nmt-convert", "to-marian", str(student), "--dev", dev, "-o", str(back)) == 0
    found, expected = (weights_of(folder / "model.intgemm.alphas.bin") for folder in (back, ssru))
    assert found.values.keys() == expected.values.keys()
    for name, value in expected.values.items():
        own = found.values[name]
        if isinstance(value, Quantized):
            assert isinstance(own, Quantized)
            assert own.multiplier == value.multiplier
            assert np.array_equal(own.values, value.values), name
        elif name.endswith(QUANTIZED_INPUT):
            assert found.array(name).item() == pytest.approx(expected.array(name).item(), rel=0.3), name
        else:
            assert np.array_equal(found.array(name), expected.array(name)), name


def test_a_folder_is_read_again(student: Path, dev: str, tmp_path: Path, ssru: Path) -> None:
    shortlist = str(tmp_path / "words.safetensors")
    options: tuple[str, ...] = ("--train", dev, "-o", shortlist)
    assert call("nmt-shortlist", str(student), *options) == 0
    back = tmp_path / "back"
    options = ("--dev", dev, "--shortlist", shortlist, "-o", str(back))
    assert call("nmt-convert", "to-marian", str(student), *options) == 0
    for name in ("model.npz", "model.fp32.bin"):
        (back / name).unlink()
    found = read_foreign(back)
    assert found.shape == shape_of(weights_of(ssru / "model.npz"))
    assert found.lexicon is not None and found.lexicon.frequent == 50
    frequent = load_shortlist(shortlist, load_model(student).tokenizer).frequent.tolist()
    theirs = {i - 1 for i in frequent if i > 2}  # of nmt's ids 0 to 2 Marian has two
    assert max(theirs) >= 50 and theirs <= {*found.lexicon.allowed([0])}
    assert found.lexicon.starts[-2] < found.lexicon.starts[-1]  # slimt and Marian refuse a list that ends empty
    config = yaml.safe_load((back / "config.yml").read_text(encoding="utf-8"))
    assert config["models"] == ["model.intgemm.alphas.bin"] and config["gemm-precision"] == "int8shiftAlphaAll"


def test_only_a_folder_of_its_own_is_replaced(
    student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back, other = tmp_path / "back", tmp_path / "other"
    command = ("nmt-convert", "to-marian", str(student), "-o")
    assert call(*command, str(back)) == 0
    capsys.readouterr()
    assert call(*command, str(back)) == 1
    assert "back: exists already; choose another name or replace it with --overwrite" in capsys.readouterr().err
    (back / "model.npz").write_bytes(b"")
    assert call(*command, str(back), "--overwrite") == 0 and (back / "model.npz").stat().st_size
    other.mkdir()
    (other / "config.yml").touch()
    assert call(*command, str(other), "--overwrite") == 1
    assert "other: --overwrite replaces only folders of to-marian" in capsys.readouterr().err
    made = tmp_path / "made"
    for more in ((), ("--overwrite",)):
        assert call("nmt-convert", "marian", str(back), "-o", str(made), *more) == 0


def test_without_text_there_is_no_8_bit_file(student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("nmt-convert", "to-marian", str(student), "-o", str(tmp_path / "back")) == 0
    assert not (tmp_path / "back" / "model.intgemm.alphas.bin").exists()
    assert "no 8-bit file: the text of data.dev is not there; --dev PREFIX names one" in capsys.readouterr().err
    missing = str(tmp_path / "none")
    assert call("nmt-convert", "to-marian", str(student), "--dev", missing, "-o", str(tmp_path / "other")) == 1
    assert f"--dev: neither {missing}.en nor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("norm_epsilon", 1e-5, "model.architecture_options.norm_epsilon: 1e-05 has no counterpart"),
        ("sinusoids", "vaswani", "model.architecture_options.sinusoids: vaswani has no counterpart"),
    ],
)
def test_what_marian_does_not_compute_is_refused(
    student: Path, tmp_path: Path, key: str, value: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = student / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["model"]["architecture_options"][key] = value
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert call("nmt-convert", "to-marian", str(student), "-o", str(tmp_path / "back")) == 2
    assert said in capsys.readouterr().err


def test_case_marks_are_refused(student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = student / "tokenizer" / "joint.model"
    table = b"markup 1\nMann\n"
    model.write_bytes(model.read_bytes() + b"\xca\x0c" + bytes([len(table)]) + table)
    (student / "tokenizer" / "checksums.json").unlink()
    assert call("nmt-convert", "to-marian", str(student), "-o", str(tmp_path / "back")) == 2
    assert "data.tokenizer_options.case: markup is not known to Marian" in capsys.readouterr().err
