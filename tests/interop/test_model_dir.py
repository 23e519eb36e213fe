"""Loading models from run directories, checkpoints and single model directories, and what is wrong with bad ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.errors import CheckpointError, ConfigError
from nmt.interop import run_layout
from nmt.interop.model_dir import find_model, load_model
from tests.tiny_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_loads_what_was_saved(run: Path) -> None:
    loaded = load_model(run)
    assert loaded.path == run / "checkpoints" / "step-10"
    assert not loaded.model.training
    assert loaded.tokenizer.target_size == loaded.model.target_vocab_size
    assert loaded.config.model.cell == "gru"
    saved = load_file(loaded.path / run_layout.WEIGHTS)
    assert all(torch.equal(saved[name], value) for name, value in loaded.model.state_dict().items())


@pytest.mark.parametrize(("checkpoint", "step"), [("best", 10), ("last", 20), ("20", 20), (10, 10)])
def test_choice_of_checkpoint(run: Path, checkpoint: str | int, step: int) -> None:
    assert find_model(run, checkpoint=checkpoint).name == f"step-{step}"


def test_without_validation_the_newest_is_best(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=(5, 100, 20), best=())
    assert find_model(run).name == "step-100"
    run_layout.write_best(run, run_layout.Best("bleu", (run_layout.Scored(7, 9.0), run_layout.Scored(20, 8.0))))
    assert find_model(run).name == "step-20"  # step 7 was deleted since


def test_a_checkpoint_inside_a_run(run: Path) -> None:
    loaded = load_model(run / "checkpoints" / "step-20")
    assert loaded.path.name == "step-20"
    (loaded.path / "config.yaml").unlink()
    assert load_model(loaded.path).config == loaded.config


def test_a_directory_of_its_own(run: Path, tmp_path: Path) -> None:
    """As nmt-average writes it; the run is gone."""
    single = tmp_path / "averaged"
    shutil.copytree(run / "checkpoints" / "step-10", single)
    shutil.copytree(run / "tokenizer", single / "tokenizer")
    shutil.rmtree(run)
    assert load_model(str(single)).path == single
    with pytest.raises(ConfigError, match="is a single model"):
        load_model(single, checkpoint="last")


def test_unfinished_checkpoints_do_not_count(run: Path) -> None:
    (run / "checkpoints" / "step-30").mkdir()
    (run / "checkpoints" / ".writing-step-40").mkdir()
    (run / "checkpoints" / ".writing-step-40" / run_layout.WEIGHTS).touch()
    assert run_layout.checkpoint_steps(run) == [10, 20]
    assert find_model(run, checkpoint="last").name == "step-20"


def test_errors_name_what_is_missing(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such directory"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="in.yaml: is not a directory"):
        load_model(run / "in.yaml")
    with pytest.raises(CheckpointError, match="not a model: it has neither checkpoints/ nor model.safetensors"):
        load_model(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint of step 11; existing: 10, 20"):
        load_model(run, checkpoint="11")
    with pytest.raises(ConfigError, match="'newest' is not allowed. Allowed: best, last, or a step such as 20"):
        load_model(run, checkpoint="newest")
    shutil.rmtree(run / "tokenizer")
    with pytest.raises(CheckpointError, match="no tokenizer"):
        load_model(run)
    shutil.rmtree(run / "checkpoints" / "step-10")
    shutil.rmtree(run / "checkpoints" / "step-20")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        load_model(run)


def test_errors_name_the_parameters_that_differ(run: Path) -> None:
    file = run / "checkpoints" / "step-10" / run_layout.WEIGHTS
    weights = load_file(file)
    name = sorted(weights)[0]
    save_file({key: value for key, value in weights.items() if key != name}, file)
    with pytest.raises(CheckpointError, match=f"{file}: .*{name} is missing"):
        load_model(run)
    save_file({**weights, "extra": torch.zeros(1)}, file)
    with pytest.raises(CheckpointError, match="extra is unknown"):
        load_model(run)
    save_file({**weights, name: torch.zeros(3, 7)}, file)
    with pytest.raises(CheckpointError, match=rf"{name} is \[3, 7\] but must be"):
        load_model(run)
    save_file({f"other.{key}": value for key, value in weights.items()}, file)
    with pytest.raises(CheckpointError, match=r"and \d+ more$"):
        load_model(run)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="damaged file"):
        load_model(run)


def test_plugins_of_a_saved_run_are_not_imported(run: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    for config in run.rglob("config.yaml"):
        config.write_text(config.read_text().replace("plugins: []", f"plugins: [{trap}]"))
    load_model(run)
    assert not (tmp_path / "sprung").exists()
    load_model(run, plugins=[str(trap)])
    assert (tmp_path / "sprung").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, problem in (("12.9", "PyTorch finds no GPU here"), (None, r"PyTorch \S+ is a build for CPUs only")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        with pytest.raises(
            ConfigError, match=rf"^device: 'cuda' is not possible, because {problem}\. Allowed: auto, cpu\.$"
        ):
            load_model(run, device="cuda")
    assert next(load_model(run, device="auto").model.parameters()).device.type == "cpu"


def test_a_broken_record_of_the_best(run: Path) -> None:
    (run / "checkpoints" / "best.json").write_text('{"steps": [1]}')
    with pytest.raises(CheckpointError, match="best.json: not a list of best checkpoints"):
        load_model(run)
    assert run_layout.step_of(Path("step-012")) is None
