"""nmt-train --sweep: which runs a file means; that they are trained, resumed and put into one table; its mistakes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config import load_config
from nmt.registry import MODELS
from tests.conftest import REPOSITORY
from tests.console import call, parser_of
from tests.quick_python import quick_python
from tests.tiny_training import write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path)
    write_config(tmp_path, data={"test": str(tmp_path / "dev")}, training={"keep_last": 1})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_sweep(**fields: Any) -> None:
    Path("many.yaml").write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")


def sweep(*options: str) -> int:
    return call("nmt-train", "tiny.yaml", "--sweep", "many.yaml", "--device", "cpu", *options)


def planned(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The configurations of all runs, by name."""
    assert sweep("--dry-run", *options) == 0
    found = {}
    for line in capsys.readouterr().out.splitlines():
        arguments = parser_of("nmt-train").parse_args(shlex.split(line)[1:])
        config = load_config(arguments.config, arguments.overrides)
        found[Path(config.run_dir).name] = config
    return found


def refused(code: int, capsys: pytest.CaptureFixture[str], *options: str, **fields: Any) -> str:
    write_sweep(**fields)
    assert sweep(*options) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_grid_has_each_combination_with_each_seed(folder: Path, capsys) -> None:
    write_sweep(
        dir="grid",
        keys={"model.cell": ["gru", "lrn"], "training.lr": [0.01, 1e-3], "model.dropout": [0.3]},
        seeds=[1, 2],
        cpu_minutes=2.5,
    )
    runs = planned(capsys, "--set", "training.max_steps=3")
    assert list(runs) == [
        f"cell={cell}_lr={rate}-{seed}" for seed in (1, 2) for cell in ("gru", "lrn") for rate in ("0.01", "0.001")
    ], "the first seed of all comes first; a key with one value is not in the names"
    for name, config in runs.items():
        assert name == f"cell={config.model.cell}_lr={config.training.lr}-{config.seed}"
        assert (config.model.dropout, config.training.max_steps, config.run_dir) == (0.3, 3, f"grid/{name}")
        assert config.data.cache_dir == "grid/cache"
    assert sweep("--dry-run") == 0
    assert all("--max-cpu-minutes 2.5 --device cpu" in line for line in capsys.readouterr().out.splitlines())
    assert list(planned(capsys, "--part", "2/3")) == [name for place, name in enumerate(runs) if place % 3 == 1]


def test_systems_have_configurations_and_keys_of_their_own(folder: Path, capsys) -> None:
    (folder / "other.yaml").write_text((folder / "tiny.yaml").read_text().replace("cell: gru", "cell: atr"))
    write_sweep(
        systems={"wide one": {"model.hidden_size": 16}, "atr": {"config": "other.yaml"}},
        keys={"training.lr": [0.01, 0.02]},
    )
    runs = planned(capsys)
    assert list(runs) == ["wide_one_lr=0.01-1", "wide_one_lr=0.02-1", "atr_lr=0.01-1", "atr_lr=0.02-1"]
    found = [(config.model.cell, config.model.hidden_size) for config in runs.values()]
    assert found == [("gru", 16), ("gru", 16), ("atr", 8), ("atr", 8)]
    assert runs["atr_lr=0.02-1"].run_dir == "runs/many/atr_lr=0.02-1", "runs/ and the name of the file"
    write_sweep(systems={"atr": {"config": "other.yaml"}})
    assert call("nmt-train", "--sweep", "many.yaml", "--dry-run") == 0, "no CONFIG is needed"


def test_a_random_search_draws_the_same_again_and_stays_in_its_ranges(folder: Path, capsys) -> None:
    keys = {
        "model.cell": ["gru", "lrn"],
        "training.lr": {"from": 1e-4, "to": 1e-2, "scale": "log"},
        "model.hidden_size": {"from": 4, "to": 64},
    }
    write_sweep(search="random", runs=30, keys=keys, seeds=[1])
    runs = planned(capsys)
    assert list(planned(capsys)) == list(runs) and len(runs) == 30
    rates = sorted(config.training.lr for config in runs.values())
    assert all(1e-4 <= rate <= 1e-2 for rate in rates) and 8 < sum(rate < 1e-3 for rate in rates) < 22, "by ratios"
    assert {config.model.cell for config in runs.values()} == {"gru", "lrn"}
    assert all(4 <= config.model.hidden_size <= 64 for config in runs.values())
    write_sweep(search="random", runs=40, keys=keys)
    assert list(planned(capsys))[:30] == list(runs), "more draws begin with the same ones"
    write_sweep(search="random", runs=40, keys=keys, draw_seed=2)
    assert not set(planned(capsys)) & set(runs)


def test_runs_are_trained_measured_resumed_and_compared(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(dir="many", keys={"model.cell": ["gru", "lrn"]}, jobs=2, metrics=["chrf"])
    assert sweep() == 0
    out, err = capfd.readouterr()
    rows = [line.split()[:3] for line in out.split("\n") if line.startswith("cell=")]
    assert rows[:2] == [["cell=gru", "deepnmt", "gru"], ["cell=lrn", "deepnmt", "lrn"]]
    assert "chrF2" in out and "BLEU" not in out and "cell=gru-1: 12 updates, chrF2 " in err
    files = sorted(path.name for path in (folder / "many").iterdir())
    assert files == ["cache", "cell=gru-1", "cell=gru-1.txt", "cell=lrn-1", "cell=lrn-1.txt", "results"]
    assert len(list((folder / "many" / "cache").glob("train-*"))) == 1, "encoded once"
    times = {path: path.stat().st_mtime_ns for path in folder.glob("many/*/log.jsonl")}
    record = folder / "many/results/cell=gru-1.json"
    (folder / "many/results/cell=lrn-1.json").unlink()
    assert sweep("--part", "2/2", "--set", "training.log_every=2") == 0, "which changes nothing of a run"
    assert "cell=lrn-1: 12 updates" in capfd.readouterr().err
    assert sweep() == 0
    again, err = capfd.readouterr()
    assert again == out and "2 of 2 runs are done already" in err
    assert {path: path.stat().st_mtime_ns for path in times} == times, "finished runs are left as they are"
    assert call("nmt-compare", *map(str, sorted(folder.glob("many/results/*.json")))) == 0
    assert capfd.readouterr().out == out
    assert sweep("--set", "training.lr=0.5") == 2
    assert (
        f"{record.relative_to(folder)}: is of a run with other settings (training.lr: 0.01 -> 0.5)"
        in capfd.readouterr().err
    )
    fields = json.loads(record.read_text())
    for minutes, ended, is_done in (
        (1, "the budget of 1 CPU minute is used", True),
        (2, "the budget of ... is used", False),
    ):
        record.write_text(json.dumps({**fields, "ended": ended, "cpu_seconds": 61.0}))
        write_sweep(dir="many", keys={"model.cell": ["gru", "lrn"]}, metrics=["chrf"], cpu_minutes=minutes)
        assert sweep("--dry-run") == 0 and sweep() == 0
        assert ("2 of 2 runs are done already" in capfd.readouterr().err) == is_done


def test_a_metric_that_is_not_known_is_told_before_any_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(2, capsys, dir="many", metrics=["bleu", "chrff"])
    assert said.startswith("nmt-train: --sweep many.yaml: metrics: 'chrff' is not a known metric. Did you mean 'chrf'?")
    assert not Path("many").exists()


def test_a_run_that_fails_is_told_and_the_others_continue(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_sweep(dir="many", systems={"bad": {"data.train": "no/text"}, "good": {}}, metrics=["bleu"])
    assert sweep() == 1
    out, err = capfd.readouterr()
    assert "bad-1: ended with 1: " in err and "no/text" in err and "(see many/bad-1.txt)" in err
    assert "1 of 2 runs are done" in err and "good" in out and "bad" not in out


@pytest.mark.slow
def test_sigterm_lets_the_runs_save_and_the_same_command_resumes(folder: Path) -> None:
    write_sweep(dir="many", keys={"model.cell": ["gru", "lrn"]}, jobs=2)
    words = [*quick_python(), "-m", "nmt.cli.train", "tiny.yaml", "--sweep", "many.yaml", "--device", "cpu"]
    with subprocess.Popen(
        [*words, "--set", "training.max_steps=1000000"], stderr=subprocess.PIPE, text=True
    ) as process:
        logs = [folder / "many" / f"cell={cell}-1" / "log.jsonl" for cell in ("gru", "lrn")]
        while not all(log.exists() and '"train"' in log.read_text() for log in logs):
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    for log in logs:
        last = [json.loads(line) for line in log.read_text().splitlines()][-1]
        assert last["event"] == "end" and not last["finished"]
        assert (log.parent / "checkpoints" / f"step-{last['step']}").is_dir()
    steps = max(json.loads(log.read_text().splitlines()[-1])["step"] for log in logs) + 5
    ended = subprocess.run([*words, "--set", f"training.max_steps={steps}"], capture_output=True, text=True, check=True)
    assert (
        f"cell=lrn-1: {steps:,} updates" in ended.stderr and "resuming" in (folder / "many/cell=gru-1.txt").read_text()
    )


def test_mistakes_are_told_before_anything_starts(folder: Path, capsys) -> None:
    text = "keys: {model.cell: [gru, lrn]}\nkey: {}\nseeds: [1, 1]\njobs: 0\nsearch: grd\nruns: 2\n"
    (folder / "many.yaml").write_text(text)
    assert sweep() == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("many.yaml:")
    for line, said in zip(
        lines[1:],
        ("2: key: 'key' is unknown. Did you mean 'keys'?", "3: seeds: ", "4: jobs: ", "5: search: ", "6: runs: "),
        strict=True,
    ):
        assert line.strip().startswith(f"line {said}")
    assert "keys.training.lr: a range needs 'search: random'" in refused(
        2, capsys, keys={"training.lr": {"from": 0.1, "to": 1}}
    )
    for values in ([], "gru", {"from": 1}, {"from": 2, "to": 1}, {"from": 0, "to": 1, "scale": "log"}):
        assert "line 4: keys.training.lr: " in refused(2, capsys, search="random", runs=2, keys={"training.lr": values})
    assert "random needs 'runs'" in refused(2, capsys, search="random", keys={})
    assert "keys.seed: is not allowed here; list the seeds in 'seeds'" in refused(2, capsys, keys={"seed": [1]})
    assert "systems.a.run_dir: is not allowed here" in refused(2, capsys, systems={"a": {"run_dir": "x"}})
    said = refused(2, capsys, keys={"model.cell": ["gru", "grue"]})
    assert "run cell=grue-1: tiny.yaml:" in said and "'grue' is not a known cell" in said
    assert "the runs a-1 and b-1 have the same settings" in refused(2, capsys, systems={"a": {}, "b": {}})
    assert "would have the same name" in refused(
        2, capsys, systems={"a b": {"model.cell": "lrn"}, "a?b": {"model.cell": "gru"}}
    )
    assert "only 2 combinations were found" in refused(
        2, capsys, search="random", runs=3, keys={"model.cell": ["gru", "lrn"]}
    )
    assert "--max-cpu-minutes does not go with it; give cpu_minutes in the file" in refused(
        2, capsys, "--max-cpu-minutes", "1"
    )
    assert "--overwrite does not go with it" in refused(2, capsys, "--overwrite")
    for part in ("3/2", "0/2", "x"):
        assert "--part: " in refused(2, capsys, "--part", part, seeds=[1])
    assert call("nmt-train", "tiny.yaml", "--part", "1/2") == 2
    assert "--part: needs --sweep" in capsys.readouterr().err
    assert call("nmt-train", "tiny.yaml", "--sweep", "none.yaml") == 2
    assert "none.yaml: cannot be read: No such file" in capsys.readouterr().err
    assert call("nmt-train", "--sweep", "many.yaml") == 2
    assert "no configuration; give a YAML file, or 'config' of each system" in capsys.readouterr().err
    assert not (folder / "runs").exists() and not (folder / "many").exists()


def test_the_page_has_sweeps_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    page = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.M | re.S)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    counts = []
    for block in blocks:
        (tmp_path / "many.yaml").write_text(block, encoding="utf-8")
        assert call("nmt-train", "multi30k.yaml", "--sweep", "many.yaml", "--dry-run") == 0
        counts.append(len(capsys.readouterr().out.splitlines()))
    assert counts == [18, 9, 20]


def test_the_systems_of_the_results_are_what_their_names_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("nmt-train", "--sweep", str(REPOSITORY / "scripts/sweeps/systems.yaml"), "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13
    for line in lines:
        arguments = parser_of("nmt-train").parse_args(shlex.split(line)[1:])
        assert arguments.max_cpu_minutes == 13.4167
        config = load_config(arguments.config, arguments.overrides)
        architecture, _, mixing = Path(config.run_dir).name.removesuffix("-1").partition("-")
        outline = MODELS.get(config.model.architecture).outline(config.model)
        assert config.model.architecture == architecture
        assert outline.mixing == ("self-attention" if mixing == "attention" else mixing)


@pytest.mark.parametrize("name", ["sweep_array.sbatch", "torchrun.sbatch"])
def test_recipes_for_slurm(name: str, tmp_path: Path) -> None:
    """Bash takes them, their options are Slurm's, and the command that they start is one of nmt's."""
    file = REPOSITORY / "scripts" / "slurm" / name
    text = file.read_text(encoding="utf-8")
    known = "job-name array ntasks cpus-per-task mem time signal requeue output nodes ntasks-per-node gpus-per-node"
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=\S+)?$", text, flags=re.M)
    assert len(options) == text.count("#SBATCH") and set(options) <= set(known.split())
    head, _, body = text.partition("\nconfig=")
    assert "#SBATCH" in head and "#SBATCH" not in body, "Slurm reads them before the first command only"
    programs = {"nmt-train": "", "torchrun": "", "scontrol": "echo first-host", "srun": '"$@"'}
    for program, does in programs.items():
        (tmp_path / program).write_text(f"#!/bin/bash\n{does or 'echo $0 $*'}\n")
        (tmp_path / program).chmod(0o755)
    job = {"SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_JOB_ID": "7"}
    job |= {
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "8",
        "SLURM_ARRAY_JOB_ID": "3",
    }
    path = {**os.environ, **job, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    given = ["demo.yaml"] if name == "torchrun.sbatch" else ["demo.yaml", "many.yaml"]
    ran = subprocess.run(["bash", str(file), *given], env=path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    words = shlex.split(line.partition("nmt-train ")[2] or line.partition("-m nmt.cli.train ")[2])
    arguments = parser_of("nmt-train").parse_args(words)
    assert arguments.config == "demo.yaml"
    assert (arguments.sweep, arguments.part) == (("many.yaml", "2/4") if len(given) == 2 else (None, None))
    if name == "torchrun.sbatch":
        assert "--rdzv-endpoint first-host:29400 --rdzv-id 7" in line and "--nnodes 2 --nproc-per-node 8" in line
    assert subprocess.run(["bash", str(file)], env=path, capture_output=True).returncode != 0, (
        "a configuration is needed"
    )
