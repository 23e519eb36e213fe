"""Several processes come to the gradients and weights of one; what they exchange arrives."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.distributed.process_group import ProcessGroup
from nmt.errors import ConfigError
from nmt.training.distributed import Launch, World
from tests.distributed.launch import Ranks
from tests.distributed.work import exchange, save_updates, updates
from tests.tiny_training import write_config, write_corpus

STEPS = 5
# 61 pairs in batches of 12 are 6, the last of one pair; with 4 to an update the last of an epoch has 2.
UNEVEN = {"batch_sentences": 12, "accumulate": 4, "clip_norm": 0.0, "lr": 0.01}
VARIANTS: dict[str, dict[str, Any]] = {
    "uneven": UNEVEN,
    "by sentence": {**UNEVEN, "normalization": "sentence"},
    "by batch": {**UNEVEN, "normalization": "batch"},
    "clipped": {**UNEVEN, "clip_norm": 0.01},
    "one batch": {**UNEVEN, "accumulate": 1},
    "fewer sentences than processes": {**UNEVEN, "batch_sentences": 1, "accumulate": 2},
}
DROPS: list[dict[str, Any]] = [
    {"dropout": 0.3, "cell": "lrn"},
    {"dropout": 0.3, "recurrent_dropout": 0.3, "cell": "gru", "architecture": "rnnsearch"},
]
"""Models that are trained as in the first variant, with dropout everywhere; the second in float64 alone."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As many threads as each of the processes has: more of them add up in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, Any]]]:
    """Each variant with Adam in float64 and with SGD in fp32, and one with a NaN in the third update."""
    found = []
    plain = {"dropout": 0.0, "cell": "lrn"}
    kinds = [*((training, plain) for training in VARIANTS.values()), *((UNEVEN, model) for model in DROPS)]
    kinds.append(({**UNEVEN, "loss": "r_drop"}, DROPS[1]))
    for number, (training, model) in enumerate(kinds):
        folder = tmp_path_factory.mktemp(f"variant-{number}")
        write_corpus(folder, train=61)
        config = write_config(
            folder, training={**training, "optimizer": "adam"}, model={**model, "init_range": 0.5}
        )  # fmt: skip
        prepare(load_config(config), folder / "run", progress=False)
        doubles = (True,) if model.get("recurrent_dropout") else (True, False)
        found += [(config, {"steps": STEPS, "double": double}) for double in doubles]
    return [*found, (found[0][0], {"steps": STEPS, "double": True, "bad": 2})]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_updates_are_those_of_one_process(jobs: list[tuple[Path, dict[str, Any]]], tmp_path: Path, size: int) -> None:
    ranks = Ranks(size, save_updates, jobs, tmp_path, folder=tmp_path)
    assert ranks.wait() == [0] * size, ranks.said(0)
    for number, (config, options) in enumerate(jobs):
        found = [torch.load(tmp_path / f"{size}-{number}-{rank}.pt", weights_only=True) for rank in range(size)]
        for rank in range(1, size):
            for (_, grads, weights), (_, others, other_weights) in zip(found[0], found[rank], strict=True):
                assert all(torch.equal(grads[name], others[name]) for name in grads) or "bad" in options
                assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
        if "bad" in options:
            assert [update[0] for update, *_ in found[0]] == [True, True, False, True, True]
            assert [update[0] for update, *_ in found[1]] == [update[0] for update, *_ in found[0]]
            continue
        alone = list(updates(config, World(torch.device("cpu")), **options))
        limit = 1e-11 if options["double"] else 1e-6
        # Adam divides by the root of the mean square, and so makes rounding of what is nearly zero larger.
        limits = {"gradient": limit, "weight": 1e-9 if options["double"] else limit}
        for step, ((update, grads, weights), wanted) in enumerate(zip(found[0], alone, strict=True)):
            assert update[1] == pytest.approx(wanted[0].objective, rel=limit)
            assert update[2] == pytest.approx(wanted[0].nll, rel=limit)
            assert update[3] == pytest.approx(wanted[0].grad_norm, rel=limit)
            assert grads.keys() == wanted[1].keys()
            assert weights.keys() == wanted[2].keys()
            for kind, got, expected in (("gradient", grads, wanted[1]), ("weight", weights, wanted[2])):
                for name, value in expected.items():
                    off = (got[name] - value).abs().max() / scale(name, expected)
                    assert off <= limits[kind], f"job {number}, update {step}, {kind} {name}: {off:.1e}"


def scale(name: str, tensors: dict[str, torch.Tensor]) -> float:
    """The largest value of a tensor; of all tensors for the one whose gradient is nothing but rounding.

    The attention's score bias is added to all scores alike, which changes no softmax.
    """
    of = tensors.values() if name.endswith("attention.score_bias") else [tensors[name]]
    return max(float(tensor.abs().max()) for tensor in of)


def test_what_is_exchanged_arrives(tmp_path: Path) -> None:
    ranks = Ranks(3, exchange, tmp_path, folder=tmp_path)
    assert ranks.wait() == [0, 0, 0], [ranks.said(rank) for rank in range(3)]


def test_the_group_is_left_when_no_thread_holds_what_was_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ProcessGroup(dist.HashStore(), rank=0, size=1, device=torch.device("cpu"), timeout=9)
    close, held_at_close = dist.destroy_process_group, []
    monkeypatch.setattr(dist, "destroy_process_group", lambda: (held_at_close.append(len(held)), close()))
    held = [torch.zeros(1)]
    group._done_with(*held)
    threading.Timer(0.1, held.clear).start()
    group.leave()
    assert held_at_close == [0]
    assert not dist.is_initialized()


def test_a_single_process_knows_nothing_of_it(tmp_path: Path) -> None:
    import subprocess

    write_corpus(tmp_path)
    config = write_config(tmp_path, training={"max_steps": 1}, data={"dev": None})
    script = (
        "import sys; from nmt.cli import train\n"
        f"code = train.main(['--config', {str(config)!r}, '--device', 'cpu'])\n"
        "sys.exit(code or 'nmt.distributed.process_group' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([sys.executable, "-c", script], env={**environment, "WORLD_SIZE": "1"}, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_half_a_launch_is_refused() -> None:
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    assert Launch.read({}) is None and Launch.read({"WORLD_SIZE": "1"}) is None
    assert Launch.read(torchrun) == Launch(rank=1, size=2, local_rank=1, timeout=600.0)
    on_the_second_machine = {**torchrun, "RANK": "3", "WORLD_SIZE": "4"}
    assert Launch.read(on_the_second_machine) == Launch(rank=3, size=4, local_rank=1, timeout=600.0)
    with pytest.raises(ConfigError, match="not RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; .* torchrun"):
        Launch.read({"WORLD_SIZE": "2"})
    with pytest.raises(ConfigError, match="NMT_TIMEOUT: 'soon' in the environment"):
        Launch.read({**torchrun, "NMT_TIMEOUT": "soon"})
