"""nmt-average and what it is made of."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nmt.errors import CheckpointError
from nmt.interop import run_layout
from nmt.interop.weights_file import weights_bytes
from nmt.optimization.average import main
from nmt.training.run_dir import average_weights


def weights(step):
    return {
        "embedding": torch.full((3, 2), float(step)),
        "half": torch.full((2,), float(step), dtype=torch.bfloat16),
        "count": torch.tensor(step),
    }


@pytest.fixture
def run(tmp_path):
    """A run directory with four checkpoints, the best of which are 30 and 10."""
    run = tmp_path / "run"
    (run / "tokenizer").mkdir(parents=True)
    (run / "tokenizer" / "joint.model").write_bytes(b"model")
    (run / "config.yaml").write_text("of the run\n")
    for step in (10, 20, 30, 40):
        folder = run_layout.step_dir(run, step)
        folder.mkdir(parents=True)
        save_file(weights(step), folder / "model.safetensors")
        (folder / "config.yaml").write_text(f"of step {step}\n")
    ranking = tuple(run_layout.Scored(step, -float(rank)) for rank, step in enumerate((30, 10, 40, 20)))
    run_layout.write_best(run, run_layout.Best("bleu", ranking))
    return run


@pytest.mark.parametrize(
    ("which", "names", "mean"),
    [
        (["--last", "2"], ["step-30", "step-40"], 35.0),
        (["--best", "2"], ["step-10", "step-30"], 20.0),
        (["--last", "1"], ["step-40"], 40.0),
        (["--last", "4"], ["step-10", "step-20", "step-30", "step-40"], 25.0),
    ],
)
def test_averages_and_names_the_checkpoints(run, tmp_path, capsys, which, names, mean):
    output = tmp_path / "deeper" / "averaged"
    assert main([str(run), *which, "-o", str(output)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"averaged {', '.join(names)} of {run} into {output}")
    assert sorted(path.name for path in output.iterdir()) == ["config.yaml", "model.safetensors", "tokenizer"]
    assert (output / "tokenizer" / "joint.model").read_bytes() == b"model"
    assert (output / "config.yaml").read_text() == f"of step {names[-1].removeprefix('step-')}\n"
    found = load_file(output / "model.safetensors")
    assert torch.equal(found["embedding"], torch.full((3, 2), mean))
    assert found["half"].dtype is torch.bfloat16
    assert found["count"].item() == int(names[-1].removeprefix("step-"))
    with safe_open(output / "model.safetensors", framework="pt") as reader:
        assert reader.metadata() == {"format": "pt", "averaged": " ".join(names)}
    content = (output / "model.safetensors").read_bytes()
    facts = [("format", "pt"), ("averaged", " ".join(names))]
    for given in (found, dict(reversed(found.items()))):  # byte by byte, as a resumed nmt-distill wants it
        for metadata in (facts, facts[::-1]):
            assert weights_bytes(given, metadata=dict(metadata)) == content
    assert [path.name for path in output.parent.iterdir()] == ["averaged"]


def test_sums_in_double_precision(tmp_path):
    values = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]  # in fp32 the sum would stay 1
    files = []
    for number, value in enumerate(values):
        files.append(tmp_path / f"{number}.safetensors")
        save_file({"weight": torch.tensor([value])}, files[-1])
    assert average_weights(files)["weight"].item() == torch.tensor(sum(values) / 4, dtype=torch.float32).item()
    assert average_weights(files)["weight"].item() != 0.25


def test_existing_output(run, tmp_path, capsys):
    output = tmp_path / "averaged"
    output.mkdir()
    assert main([str(run), "--last", "2", "-o", str(output)]) == 0
    before = (output / "model.safetensors").read_bytes()
    assert main([str(run), "--last", "3", "-o", str(output)]) == 1
    assert f"{output}: this directory is not empty" in capsys.readouterr().err
    assert (output / "model.safetensors").read_bytes() == before
    (tmp_path / "file").touch()
    assert main([str(run), "--last", "2", "-o", str(tmp_path / "file")]) == 1
    assert "exists and is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--last", "5"], "--last 5: only 4 checkpoints; training.keep_last"),
        (["--best", "5"], "--best 5: only 4 validated checkpoints; training.keep_best"),
    ],
)
def test_too_few_checkpoints(run, tmp_path, capsys, arguments, message):
    assert main([str(run), *arguments, "-o", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "existing: step-" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [[], ["--last", "0"], ["--last", "2", "--best", "2"], ["--best", "x"]])
def test_usage_errors(run, tmp_path, capsys, arguments):
    assert main([str(run), *arguments, "-o", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_not_a_run(tmp_path, capsys):
    assert main([str(tmp_path / "none"), "--best", "1", "-o", str(tmp_path / "out")]) == 1
    assert "not a run directory with checkpoints" in capsys.readouterr().err


def test_run_without_validation(run, tmp_path, capsys):
    (run / "checkpoints" / "best.json").unlink()
    assert main([str(run), "--best", "1", "-o", str(tmp_path / "out")]) == 1
    assert "--best 1: only 0 validated checkpoints" in capsys.readouterr().err


def test_nothing_is_left_behind_after_an_error(run, tmp_path, capsys):
    shutil.rmtree(run / "tokenizer")
    assert main([str(run), "--last", "2", "-o", str(tmp_path / "out")]) == 1
    assert "tokenizer: missing" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_files_that_do_not_fit(tmp_path):
    def file(name, **tensors):
        save_file(tensors, tmp_path / name)
        return tmp_path / name

    first = file("first", weight=torch.zeros(2))
    with pytest.raises(CheckpointError, match="second: another model than .*first; not in both: bias"):
        average_weights([first, file("second", weight=torch.zeros(2), bias=torch.zeros(1))])
    with pytest.raises(CheckpointError, match=r"third: another model: weight is torch.float32 \(3,\)"):
        average_weights([first, file("third", weight=torch.zeros(3))])
    with pytest.raises(CheckpointError, match="fourth: weight contains NaN"):
        average_weights([first, file("fourth", weight=torch.tensor([0.0, torch.nan]))])
    (tmp_path / "fifth").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match="fifth: damaged file"):
        average_weights([first, tmp_path / "fifth"])
    with pytest.raises(CheckpointError, match="sixth: no such file"):
        average_weights([first, tmp_path / "sixth"])
