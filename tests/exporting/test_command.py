"""nmt-export, and what the other commands do with what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import convert, train, translate
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.optimization import average
from nmt.run_check import command as check
from nmt.scoring import command as score
from nmt.shortlisting import command as shortlist
from tests.tiny_training import nmt_train, write_config, write_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a trained run and its exports int8 and bf16."""
    place = tmp_path_factory.mktemp("trained")
    write_corpus(place, train=60)
    config = write_config(place, data={"test": str(place / "dev")}, model={"tie_embeddings": "none"})
    assert nmt_train(config) == 0
    for precision in ("int8", "bf16"):
        assert export.main([str(place / "run"), "-o", str(place / precision), "--precision", precision]) == 0
    return place


def refused(capsys: pytest.CaptureFixture[str], command: Any, *arguments: object) -> str:
    """The one line by which a command refuses something."""
    capsys.readouterr()
    code = command.main([str(argument) for argument in arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert code in (1, 2)
    return line


def test_it_says_what_it_wrote_and_how_large_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "said"
    assert export.main([str(folder / "run"), "-o", str(out), "--precision", "int8_bf16", "--checkpoint", "6"]) == 0
    said = capsys.readouterr()
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert said.err == ""
    assert said.out.startswith(f"{out}: {folder / 'run/checkpoints/step-6'} in int8_bf16, {total / 1e6:.2f} MB (")
    assert " MB of weights, in fp32 " in said.out
    assert "update 6, epoch " in (out / "README.md").read_text(encoding="utf-8")
    assert refused(capsys, export, folder / "run", "-o", out).endswith(
        "choose another name or replace it with --overwrite"
    )
    mine = folder / "mine"
    mine.mkdir()
    (mine / "work.txt").write_text("years")
    assert refused(capsys, export, folder / "run", "-o", mine).endswith("choose another name or move it away")
    assert export.main([str(folder / "run"), "-o", str(out), "--overwrite"]) == 0
    assert "fp32" in capsys.readouterr().out


def test_the_card_has_the_scores_of_training(folder: Path) -> None:
    card = (folder / "int8" / "README.md").read_text(encoding="utf-8")
    events = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (test,) = [event for event in events if event["event"] == "test"]
    assert f"- test: BLEU {test['bleu']:.2f}, `nrefs:1|" in card
    assert "- validation: BLEU " in card
    for what, pairs in (("training", 60), ("validation", 8), ("test", 8)):
        assert any(line.startswith(f"| {what} | ") and line.endswith(f" | {pairs} |") for line in card.splitlines())


def test_it_translates_as_the_run_does_in_int8(folder: Path, tmp_path: Path) -> None:
    texts = []
    for model, precision in (("run", ["--precision", "int8"]), ("int8", []), ("int8", ["--precision", "auto"])):
        out = tmp_path / "out"
        options = ["-i", str(folder / "dev.en"), "-o", str(out), "--format", "moses", "--n-best", "2"]
        assert translate.main([str(folder / model), *options, *precision]) == 0
        texts.append(out.read_text(encoding="utf-8"))
    assert texts[0] == texts[1] == texts[2] and len(texts[0].splitlines()) == 16


def test_the_other_commands_take_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for stored in ("int8", "bf16"):
        model, pair = str(folder / stored), [str(folder / "dev.en"), str(folder / "dev.de")]
        assert score.main([model, "--source", pair[0], "--target", pair[1]]) == 0
        assert evaluate.main([model, "--source", pair[0], "--ref", pair[1]]) == 0
        assert shortlist.main([model, "-o", str(tmp_path / stored)]) == 0
        assert translate.main([model, "-i", pair[0], "--shortlist", str(tmp_path / stored)]) == 0
        capsys.readouterr()
        assert check.main([model]) == 0
        assert capsys.readouterr().out.splitlines()[-2:] == [
            f"translate: exported in {stored}",
            f"{model}: all is well",
        ]
    assert translate.main([str(folder / "run"), str(folder / "int8"), "-i", str(folder / "dev.en")]) == 0


def test_what_needs_the_weights_of_training_refuses_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, in one line, and takes what was exported in fp32 where that makes sense."""
    for stored in ("int8", "bf16"):
        model = folder / stored
        rounded = f"{model}: exported in {stored}, so its weights are rounded; use the run"
        assert f"{model}: not a run directory" in refused(capsys, average, model, "--last", 1, "-o", tmp_path / "mean")
        assert rounded in refused(capsys, convert, "to-zero", model, "-o", tmp_path / "zero.npz")
        again = write_config(folder, training={"init_from": str(model), "max_steps": 1})
        capsys.readouterr()
        assert train.main([str(again), "--set", f"run_dir={tmp_path / 'new'}", "--device", "cpu"]) == 2
        assert f"training.init_from: {rounded}" in capsys.readouterr().err
    assert refused(capsys, translate, folder / "int8", "--precision", "fp32", "-i", folder / "dev.en").startswith(
        "nmt-translate: --precision: fp32 is not possible, because the model was exported in int8. Allowed: auto, int8."
    )
    assert export.main([str(folder / "run"), "-o", str(tmp_path / "fp32")]) == 0
    start = ["--set", f"run_dir={tmp_path / 'new'}", "--set", f"training.init_from={tmp_path / 'fp32'}"]
    again = write_config(folder, training={"max_steps": 1}, model={"tie_embeddings": "none"})
    assert train.main([str(again), *start, "--device", "cpu"]) == 0


def test_nmt_check_names_each_damaged_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main([str(folder / "run"), "-o", str(tmp_path / "out"), "--precision", "int8"]) == 0
    for name in ("config.yaml", "model.safetensors"):
        content = bytearray((tmp_path / "out" / name).read_bytes())
        content[-2] ^= 1
        (tmp_path / "out" / name).write_bytes(content)
    capsys.readouterr()
    assert check.main([str(tmp_path / "out"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"] and [problem.split(": ")[0] for problem in found["problems"]] == [
        str(tmp_path / "out" / "config.yaml"),
        str(tmp_path / "out" / "model.safetensors"),
    ]
    (tmp_path / "out" / "SHA256SUMS").write_text("?")
    assert check.main([str(tmp_path / "out")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path / 'out'}: 1 problem"


def test_no_output_goes_onto_a_file_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("README.md", "SHA256SUMS", "model.safetensors", "tokenizer/x"):
        line = refused(capsys, translate, folder / "int8", "-i", folder / "dev.en", "-o", folder / "int8" / name)
        assert "is a part of the model" in line
    assert translate.main([str(folder / "int8"), "-i", str(folder / "dev.en"), "-o", str(folder / "int8/own.txt")]) == 0
    (folder / "int8/own.txt").unlink()


def test_one_folder_is_one_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, export, folder / "run", folder / "run", "-o", folder / "two")
    assert line.startswith("nmt-export: MODEL: an exported folder holds one model") and not (folder / "two").exists()
    assert "--format" in refused(capsys, export, folder / "run", "-o", folder / "two", "--format", "gguf")


def test_a_plugin_is_named_again(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "exported_units.py"
    plugin.write_text(
        "from nmt.cells import GRU\nfrom nmt.registry import CELLS\n\n\n"
        '@CELLS.register("exported_gru")\nclass Mine(GRU):\n    """A GRU of another name."""\n'
    )
    config = write_config(folder, model={"cell": "exported_gru"}, training={"max_steps": 1})
    config.write_text(config.read_text() + f"plugins: [{plugin}]\n")
    assert train.main([str(config), "--set", f"run_dir={tmp_path / 'run'}", "--device", "cpu"]) == 0
    options = ["--plugin", str(plugin)]
    assert export.main([str(tmp_path / "run"), "-o", str(tmp_path / "out"), "--precision", "int8", *options]) == 0
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "It needs the code of a plugin, which is not in this folder: `--plugin exported_units.py`." in card
    assert translate.main([str(tmp_path / "out"), "-i", str(folder / "dev.en"), *options]) == 0


def test_an_average_is_that_of_nmt_average(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, mean = folder / "run", tmp_path / "mean"
    assert average.main([str(run), "--last", "2", "-o", str(mean)]) == 0
    assert export.main([str(mean), "-o", str(tmp_path / "two_steps")]) == 0
    capsys.readouterr()
    assert export.main([str(run), "-o", str(tmp_path / "one_step"), "--average", "last:2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'one_step'}: {run}, the average of step-") and ", in fp32, " in said
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one_step", "two_steps")]
    assert weights[0] == weights[1] != (folder / "run/checkpoints/step-6/model.safetensors").read_bytes()
    assert not list(tmp_path.rglob("nmt-export*"))
    assert "is not allowed; write for example last:5" in refused(
        capsys, export, run, "-o", tmp_path / "x", "--average", "last5"
    )
    assert "--average: does not go with --checkpoint" in refused(
        capsys, export, run, "-o", tmp_path / "x", "--average", "best:1", "--checkpoint", "6"
    )
    assert "--last 99: only " in refused(capsys, export, run, "-o", tmp_path / "x", "--average", "last:99")
