"""nmt-check: a good run, and a line for each thing that is wrong with a bad one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.run_check import command as check
from tests.tiny_training import nmt_train, write_config, write_corpus

CORPORA = ("train.en", "train.de", "dev.en", "dev.de")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder)
    assert nmt_train(write_config(folder)) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to be damaged, with checkpoints 6 and 12."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


Report = Callable[..., dict[str, Any]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """The JSON report, after a look at the exit code and at the lines for people."""

    def read(run: Path, *options: str) -> dict[str, Any]:
        capsys.readouterr()
        code = check.main([str(run), "--json", *options])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert code == (0 if found["ok"] else 1)
        assert check.main([str(run), *options]) == code
        lines = capsys.readouterr().out.splitlines()
        problems = [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]
        assert problems == found["problems"]
        return found

    return read


def flip(file: Path) -> None:
    """Change a byte in the middle, which no size tells."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def rewrite_state(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    state = torch.load(path / "training.pt", weights_only=True)
    change(state)
    torch.save(state, path / "training.pt")
    (path / "SHA256SUMS").unlink()  # as in a checkpoint of an older version


def test_a_good_run(run: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    found = report(run)
    assert found["ok"] and found["problems"] == [] and found["notes"] == []
    assert found["resume"] == 12
    assert found["translate"] == [6, 12]
    assert found["best"] in (6, 12)
    check.main([str(run)])
    said = capsys.readouterr().out
    assert "resumes after step 12" in said and "(best)" in said and "all is well" in said
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_several_runs_are_checked_each(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, tmp_path / "other")
    flip(tmp_path / "other/checkpoints/step-12/model.safetensors")
    assert check.main([str(run), str(run), "--json"]) == 0
    assert [json.loads(line)["ok"] for line in capsys.readouterr().out.splitlines()] == [True, True]
    assert check.main([str(tmp_path / "other"), str(tmp_path / "nothing"), str(run)]) == 1
    said = capsys.readouterr()
    assert said.err == f"nmt-check: {tmp_path / 'nothing'}: no such directory\n"
    assert [line for line in said.out.splitlines() if line.startswith(str(tmp_path))] == [
        f"{tmp_path / 'other'}: 1 problem",
        f"{run}: all is well",
    ]
    assert [check.main([str(first), str(second)]) for first, second in ((tmp_path / "other", run), (run, run))] == [
        1,
        0,
    ]


def test_a_flipped_bit(run: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    weights = run / "checkpoints/step-12/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    found = report(run)
    assert len(found["problems"]) == 1
    assert "step-12: damaged checkpoint: model.safetensors differs from what was saved" in found["problems"][0]
    assert (found["resume"], found["translate"]) == (6, [6])
    check.main([str(run)])
    lines = capsys.readouterr().out.splitlines()
    assert "resume: the same nmt-train command resumes after step 6; step 12 cannot be used" in lines
    best = "" if found["best"] == 6 else "; the best checkpoint, step 12, cannot be used: choose one with --checkpoint"
    assert f"translate: step 6{' (best)' * (not best)}{best}" in lines
    assert lines[-1] == f"{run}: 1 problem"


def test_without_training_states_translation_is_left(run: Path, report: Report) -> None:
    for step in (6, 12):
        (run / f"checkpoints/step-{step}/training.pt").unlink()
    found = report(run)
    assert len(found["problems"]) == 2
    assert (found["resume"], found["translate"]) == (None, [6, 12])


def test_other_shapes_and_values(run: Path, report: Report) -> None:
    from nmt.training.run_dir import DIGEST

    path = run / "checkpoints/step-12"
    weights = load_file(path / "model.safetensors")
    first, second, *_ = sorted(weights)
    weights[first] = torch.zeros(2, 3)
    weights[second].view(-1)[0] = float("nan")
    save_file({**weights, "a\nb": torch.zeros(1)}, path / "model.safetensors")
    digest = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    rewrite_state(path, lambda state: state.update({DIGEST: digest}))
    found = report(run)
    assert [problem.partition(": ")[2] for problem in found["problems"]] == [
        "a\\nb is unknown",
        f"{first} is [2, 3] but must be {list(load_file(run / 'checkpoints/step-6/model.safetensors')[first].shape)}",
        f"{second} contains NaN or infinite values (1 of {weights[second].numel()})",
    ]
    assert (found["resume"], found["translate"]) == (6, [6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state["progress"].update(step=7), "belongs to step 7, but the directory is named step-12"),
        (lambda state: state.pop("random"), "not a whole training state: random missing"),
        (lambda state: state["progress"].pop("epoch"), "progress must hold step, epoch"),
        (lambda state: state.update(format=99), "training state of format 99"),
    ],
)
def test_foreign_training_states(
    run: Path, report: Report, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    rewrite_state(run / "checkpoints/step-12", change)
    found = report(run)
    assert len(found["problems"]) == 1 and message in found["problems"][0]
    assert found["resume"] == 6


def test_a_changed_letter_of_the_tokenizer(run: Path, report: Report) -> None:
    file = run / "tokenizer/target.vocab"
    file.write_bytes(file.read_bytes().swapcase())
    found = report(run)
    assert len(found["problems"]) == 1 and f"{file}: changed since it was saved" in found["problems"][0]
    assert (found["resume"], found["translate"]) == (None, [])


def test_another_vocabulary_without_checksums(run: Path, report: Report) -> None:
    (run / "tokenizer/checksums.json").unlink()
    assert report(run)["notes"] == [f"{run / 'tokenizer'}: has no checksums, as an older version wrote none"]
    with (run / "tokenizer/source.vocab").open("a") as stream:
        stream.write("one-more\n")
    found = report(run)
    assert len(found["problems"]) == 2 and all("but must be" in problem for problem in found["problems"])
    assert (found["resume"], found["translate"]) == (None, [])


@pytest.mark.parametrize("shared", [False, True])
def test_a_flipped_bit_of_the_encoded_text(run: Path, report: Report, shared: bool) -> None:
    """Whatever a start has verified before; of a cache that runs share, what belongs to this one."""
    cache = run / "cache"
    if shared:
        cache = cache.rename(run.parent / "shared")
        shutil.copytree(next(cache.glob("train-*")), cache / "train-0123456789abcdef")
        flip(cache / "train-0123456789abcdef" / "source.ids")
        for file in (run / "config.yaml", *run.glob("checkpoints/*/config.yaml")):
            file.write_text(file.read_text().replace("cache_dir: null", f"cache_dir: {cache}"))
    assert report(run)["problems"] == []
    damaged = [next(cache.glob(f"{name}-[!0]*")) / "target.ids" for name in ("dev", "train")]
    for file in damaged:
        before = file.stat()
        flip(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = report(run)
    said = "damaged: its checksum is not the one in corpus.json; the next start of nmt-train encodes this text again"
    assert sorted(found["problems"]) == [f"{file}: {said}" for file in damaged]
    assert (found["resume"], found["translate"]) == (12, [6, 12])


def test_configurations(run: Path, report: Report) -> None:
    own = run / "checkpoints/step-12/config.yaml"
    own.write_text(own.read_text().replace("seed: 1", "seed: 2"))
    found = report(run)
    assert found["problems"] == [f"{own}: not the run's: seed: 2 -> 1"]
    assert (found["resume"], found["translate"]) == (6, [6])
    (run / "config.yaml").write_text("run_dir: x\nmodel: {cell: atrr, hiden_size: 3}\n")
    found = report(run)
    assert [problem.split(": ")[1:3] for problem in found["problems"]] == [
        ["line 2", "model.hiden_size"],
        ["line 2", "model.cell"],
    ]
    assert (found["resume"], found["translate"]) == (None, [])


def test_ranking_and_log(run: Path, report: Report) -> None:
    shutil.rmtree(run / "checkpoints/step-6")
    (run / "checkpoints/step-9").mkdir()
    lines = (run / "log.jsonl").read_bytes().splitlines(keepends=True)
    train = [line for line in lines if b'"train"' in line]
    (run / "log.jsonl").write_bytes(train[1] + train[0] + b"\x00\n" + train[2][:20])
    found = report(run)
    tails = [problem.removeprefix(f"{run}/") for problem in found["problems"]]
    assert tails == [
        "checkpoints/step-9: has no model.safetensors",
        "checkpoints/best.json: names step 6, which has no checkpoint",
        "log.jsonl, line 2: step 3 comes after step 6",
        "log.jsonl, line 3: not a whole line of the log",
        "log.jsonl, line 4: not a whole line of the log",
        "log.jsonl: ends before step 12, which has a checkpoint",
    ]
    assert found["resume"] == 12
    for broken in (b"\xff", b"[" * 100_000, b'{"metric": "loss", "steps": [{"step": 1e999, "score": 1}]}'):
        (run / "checkpoints/best.json").write_bytes(broken)
        problems = report(run)["problems"]
        assert any("best.json: not a list of best checkpoints" in problem for problem in problems)
    assert all("\n" not in problem for problem in problems)


def test_notes_are_no_problems(run: Path, report: Report, tmp_path: Path, trained: Path) -> None:
    for name in ("damaged-step-3", ".writing-step-18-77"):
        (run / "checkpoints" / name).mkdir()
    config = run / "config.yaml"
    for file in (config, *run.glob("checkpoints/*/config.yaml")):
        file.write_text(file.read_text().replace(str(trained / "train"), str(tmp_path / "gone")))
    found = report(run)
    assert found["ok"]
    parts = (".writing-step-18-77", "damaged-step-3", "resuming needs the training text: data.train: neither")
    both = (*parts, parts[-1])  # source and target
    assert len(found["notes"]) == 4 and all(part in note for part, note in zip(both, found["notes"], strict=True))
    shutil.rmtree(run / "checkpoints")
    found = report(run)
    assert found["ok"] and found["resume"] is None and "training starts from the beginning" in found["notes"][0]


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(tmp_path / "nowhere")]) == 1
    assert check.main([str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"nmt-check: {tmp_path / 'nowhere'}: no such directory",
        f"nmt-check: {tmp_path}: not a run directory of nmt-train",
    ]
