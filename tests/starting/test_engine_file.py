"""A file for the engine becomes a model directory again."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from nmt.cli import convert
from nmt.config.load import validate
from nmt.exporting import command as export
from nmt.interop.export import write_model
from nmt.interop.run_layout import TrainingFacts, read_facts, write_facts
from nmt.models import build_model
from tests.compiled import needed_engine
from tests.interop.engine_models import section
from tests.light.file_parts import parts_of, with_sections
from tests.tiny_run import subwords

MODELS = [
    {"cell": "lrn", "encoder_layers": 2, "decoder_layers": 2, "layer_norm": True},
    {"cell": "lstm", "cell_options": {"peepholes": True}, "tie_embeddings": "none", "encoder_hidden_size": 20},
    {"cell": "gru", "cell_options": {"reset": "after"}, "deep_output": False, "embedding_size": 16},
    {"architecture": "rnnsearch_deepatt", "encoder_layers": 3, "decoder_layers": 3, "attention_heads": 4},
    {"architecture": "transformer", "cell": "lrn", "tie_embeddings": "all"},
    {"architecture": "transformer", "cell": "ssru", "architecture_options": {"form": "marian", "heads": 2}},
]

SEARCH = {"beam_size": 3, "max_length_offset": 7, "no_repeat_ngram": 3, "placeholders": True, "split_long": None}


def make(folder: Path, **model: Any) -> Path:
    """A model directory with random weights, biases too, and subwords."""
    tokenizer = subwords(folder)
    data = {
        "source_language": "xx",
        "target_language": "yy",
        "tokenizer": "sentencepiece",
        "tokenizer_options": {"vocab_size": 300},
    }
    raw = {"run_dir": str(folder / "model"), "model": dataclasses.asdict(section(**model)), "data": data}
    config = validate({**raw, "decoding": SEARCH}, origin="test")
    torch.manual_seed(3)
    built = build_model(config.model, tokenizer.source_size, tokenizer.target_size)
    weights = {name: weight + 0.3 * torch.randn_like(weight) for name, weight in built.state_dict().items()}
    write_model(folder / "model", weights, config=config, tokenizer=tokenizer, metadata={})
    return folder / "model"


def exported(model: Path, precision: str) -> Path:
    needed_engine()
    file = model.with_name(f"{model.name}.{precision}.nmt")
    assert export.main([str(model), "-o", str(file), "--precision", precision, "--overwrite"]) == 0
    return file


def sections(file: Path) -> dict[str, bytes]:
    return parts_of(file.read_bytes())


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, list(model.values())[:2])))
def test_its_export_is_the_file_again(model: dict[str, Any], precision: str, tmp_path: Path) -> None:
    first = exported(make(tmp_path, **model), precision)
    assert convert.main(["engine", str(first), "-o", str(tmp_path / "back")]) == 0
    again = exported(tmp_path / "back", precision)
    ours, theirs = sections(again), sections(first)
    same = ["SETT", "OPTS", "TENS", "REGS", "STAT", "ENCO", "STEP", "SPMS"]
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
    if precision == "fp32":
        assert ours["DATA"] == theirs["DATA"]
    else:  # scales of rounded rows differ by rounding
        there = torch.frombuffer(bytearray(theirs["DATA"]), dtype=torch.int8)
        here = torch.frombuffer(bytearray(ours["DATA"]), dtype=torch.int8)
        assert (here != there).float().mean() < 0.05


def test_weights_that_no_sum_hides_are_those_of_the_model(tmp_path: Path) -> None:
    model = make(tmp_path, **MODELS[4])
    assert convert.main(["engine", str(exported(model, "fp32")), "-o", str(tmp_path / "back")]) == 0
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "back", model))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if theirs[name].dim() == 2)


def test_the_directory_says_what_it_is_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make(tmp_path, **MODELS[0])
    write_facts(model, TrainingFacts(12, 0.25))
    file = exported(model, "int8")
    assert convert.main(["engine", str(file), "-o", str(tmp_path / "back")]) == 0
    assert read_facts(tmp_path / "back") == TrainingFacts(12, 0.25)
    assert capsys.readouterr().out.splitlines()[-1].endswith("parameters; its weights are rounded to int8")
    config = yaml.safe_load((tmp_path / "back/config.yaml").read_text())
    assert (config["data"]["source_language"], config["data"]["target_language"]) == ("xx", "yy")
    assert {key: config["decoding"][key] for key in SEARCH} == SEARCH
    assert convert.main(["engine", str(file), "-o", str(tmp_path / "back")]) == 1
    assert "exists already" in capsys.readouterr().err
    assert convert.main(["engine", str(file), "-o", str(tmp_path / "back"), "--overwrite"]) == 0


def test_a_file_of_before_needs_the_configuration_of_its_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make(tmp_path, **MODELS[0])
    file = exported(model, "int8")
    meta = json.loads(sections(file)["META"])
    del meta["model"]
    file.write_bytes(with_sections(file.read_bytes(), META=json.dumps(meta).encode()))
    back = ["engine", str(file), "-o", str(tmp_path / "back")]
    assert convert.main(back) == 2
    assert "does not say its architecture" in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    raw = yaml.safe_load((model / "config.yaml").read_text())
    for key, value in (("hidden_size", 20), ("cell", "atr"), ("cell_options", {"tanh": True})):
        changed = {**raw["model"], key: value}
        if key == "cell":
            changed = {name: part for name, part in changed.items() if not name.endswith(("cell", "options"))}
        other.write_text(yaml.safe_dump({**raw, "model": {**changed, key: value}}))
        assert convert.main([*back, "--config", str(other)]) == 2
        assert "its layers are not those of the configuration" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()
    assert convert.main([*back, "--config", str(model / "config.yaml")]) == 0


def test_a_file_cannot_ask_for_any_amount_of_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported(make(tmp_path, **MODELS[4]), "fp32")
    meta = json.loads(sections(file)["META"])
    meta["model"]["embedding_size"] = 200_000
    file.write_bytes(with_sections(file.read_bytes(), META=json.dumps(meta).encode()))
    capsys.readouterr()
    assert convert.main(["engine", str(file), "-o", str(tmp_path / "back")]) == 2
    assert "its layers are not those of the configuration" in capsys.readouterr().err


def test_a_shortlist_that_stays_behind_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make(tmp_path, **MODELS[4])
    size = len(load_file(model / "model.safetensors")["embeddings.source"])
    file = exported(model, "fp32")
    lists = struct.pack(f"<{size + 4}I", 1, 0, 5, *[0] * (size + 1))
    file.write_bytes(with_sections(file.read_bytes(), LIST=lists))
    assert convert.main(["engine", str(file), "-o", str(tmp_path / "back")]) == 0
    assert "its shortlist stays behind" in capsys.readouterr().err


def test_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed_engine()
    for content in (b"", b"\x89NMT\r\n\x1a\n and more"):
        (tmp_path / "a.nmt").write_bytes(content)
        assert convert.main(["engine", str(tmp_path / "a.nmt"), "-o", str(tmp_path / "back")]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert convert.main(["engine", str(tmp_path / "none.nmt"), "-o", str(tmp_path / "back")]) == 1
    assert "none.nmt" in capsys.readouterr().err
