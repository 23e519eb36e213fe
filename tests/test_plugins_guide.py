"""docs/plugins.md is true: its examples register, train and translate, and its configurations load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from nmt.config import import_plugins, load_config
from nmt.registry import CELLS, INITIALIZERS, METRICS, SCHEDULES, SEARCHES, registrations
from tests.conftest import REPOSITORY
from tests.console import call
from tests.own_components import GUIDE, examples, registries_restored, write_example
from tests.tiny_training import events, nmt_train, write_config, write_corpus

OTHERS = {"my_comet"}
"""Needs a package of its own: see tests/evaluation/test_sources.py."""
NAMES = re.findall(r'^@\w+\.register\("(\w+)"\)$', "\n".join(examples("python")), flags=re.M)
NAMES = [name for name in NAMES if name not in OTHERS]
KINDS = {
    *("architecture", "callback", "cell", "initializer", "loss"),
    *("metric", "optimizer", "schedule", "search", "tokenizer"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of all examples but the architecture, which has tests of its own; it was resumed once."""
    folder = tmp_path_factory.mktemp("guide")
    write_corpus(folder)
    with registries_restored():
        plugins = [str(write_example(folder, name)) for name in NAMES]
        config = write_config(
            folder,
            model={
                "cell": "minimal", "cell_options": {"forget": 0.5}, "recurrent_dropout": 0.2,
                "initializer": "sparse_rows", "initializer_options": {"inputs": 4},
            },
            data={"tokenizer": "letters", "tokenizer_options": {"lowercase": True}},
            training={
                "max_steps": 4, "validate_every": 2, "log_every": 1, "loss": "focal", "label_smoothing": 0.0,
                "optimizer": "signs", "optimizer_options": {"momentum": 0.5}, "lr": 0.01,
                "schedule": "triangle", "schedule_options": {"period": 4},
                "callbacks": [{"enough": {"score": "exact", "reaches": 0.0, "times": 2}}],
                "early_stopping_metric": "exact",
            },
            decoding={"search": "sure_end", "search_options": {"at_least": 0.01}, "beam_size": 1},
            evaluation={"metrics": [{"exact": {"lowercase": True}}]},
        )  # fmt: skip
        own = [part for plugin in plugins for part in ("--plugin", plugin)]
        # Two starts, so that what each of them keeps is read again.
        assert nmt_train(config, *own, "--set", "training.max_steps=2") == 0
        assert nmt_train(config, *own, "--set", "training.max_steps=30") == 0
        yield folder


def test_there_is_one_example_of_each_kind(tmp_path: Path) -> None:
    with registries_restored():
        before = {(registry.kind, name) for registry, name, _ in registrations()}
        import_plugins([write_example(tmp_path, name) for name in NAMES])
        added = {(registry.kind, name) for registry, name, _ in registrations()} - before
    assert {kind for kind, _ in added} == KINDS and len(added) == len(KINDS)


def test_the_examples_train_together(trained: Path) -> None:
    """The callback ended the run at the second validation that was good enough, counted over the resume."""
    last = json.loads((trained / "run/log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    validations = events(trained / "run", kinds=("validation",))
    assert [line["step"] for line in validations] == [2, 4] and last["step"] == 4
    assert all(line["signatures"]["exact"] == "exact case:lc" for line in validations)
    rates = [line["lr"] for line in events(trained / "run", kinds=("train",))]
    assert rates == pytest.approx([0.0, 0.005, 0.01, 0.005])
    state = torch.load(trained / "run/checkpoints/step-4/training.pt", weights_only=True)
    assert state["callbacks"]["states"] == {"enough": {"seen": 2}}
    assert all(list(kept) == ["mean"] for kept in state["updater"]["optimizer"]["state"]["state"].values())


def test_the_examples_translate_and_score(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [part for name in NAMES for part in ("--plugin", str(trained / f"my_{name}.py"))]
    run, source, reference = (str(trained / name) for name in ("run", "dev.en", "dev.de"))
    out = tmp_path / "out"
    assert call("nmt-translate", run, *own, "-i", source, "-o", str(out), "--device", "cpu") == 0
    assert "search sure_end" in capsys.readouterr().err
    assert len(out.read_text(encoding="utf-8").splitlines()) == 8
    assert call("nmt-eval", "--hyp", reference, "--ref", reference, *own, "--metrics", "exact") == 0
    assert "100.00" in capsys.readouterr().out


class TwoSteps:
    """A model that likes the end symbol best with probability 0.6, after the first word."""

    def start(self, source: torch.Tensor) -> int:
        return 0

    def step(self, tokens: torch.Tensor | None, state: int) -> tuple[torch.Tensor, int]:
        rows = [[0.05, 0.05, 0.1, 0.8], [0.05, 0.05, 0.6, 0.3]]
        return torch.tensor([rows[min(state, 1)]] * 2).log(), state + 1


@pytest.mark.parametrize(("at_least", "words"), [(0.5, [[3], [3]]), (0.7, [[3] * 3, [3] * 2])])
def test_the_search_ends_where_the_end_is_probable_enough(
    tmp_path: Path, at_least: float, words: list[list[int]]
) -> None:
    source = torch.tensor([[5, 2], [2, 0]])
    with registries_restored():
        import_plugins([write_example(tmp_path, "sure_end")])
        kind = SEARCHES.get("sure_end")
        found = kind(options=kind.Options(at_least=at_least)).search(
            TwoSteps(), source, beam_size=1, length_penalty=0.0, max_length_offset=1, n_best=1, scores=True
        )
    assert [hypothesis.ids for (hypothesis,) in found] == words
    assert [hypothesis.has_ended for (hypothesis,) in found] == [at_least == 0.5] * 2


def test_the_cells_step_is_that_of_its_equation_and_its_options_count(tmp_path: Path) -> None:
    with registries_restored():
        import_plugins([write_example(tmp_path, "minimal")])
        kind = CELLS.get("minimal")
        torch.manual_seed(2)
        cell = kind(5, 4, options=kind.Options(forget=0.7))
        cell.reset_parameters(0.5)
        x, h = torch.randn(3, 5), torch.randn(3, 4)
        x_f, x_h = cell.project(x).chunk(2, -1)
        f = torch.sigmoid(x_f + h @ cell.gate.weight.T + 0.7)
        wanted = (1 - f) * h + f * torch.tanh(x_h + (f * h) @ cell.candidate.weight.T)
        torch.testing.assert_close(cell.step(cell.project(x), cell.State(h)).h, wanted)


def test_the_initializer_leaves_few_inputs(tmp_path: Path) -> None:
    with registries_restored():
        import_plugins([write_example(tmp_path, "sparse_rows")])
        kind = INITIALIZERS.get("sparse_rows")
        weight = torch.empty(50, 200)
        kind(options=kind.Options(inputs=10)).weight_(weight, fan_in=200, fan_out=50)
        assert 5 < float((weight != 0).sum(1).float().mean()) < 15


def test_the_metric_and_the_schedule_compute_what_they_say(tmp_path: Path) -> None:
    with registries_restored():
        import_plugins([write_example(tmp_path, "exact"), write_example(tmp_path, "triangle")])
        metric = METRICS.get("exact")
        assert metric().compute(["a", "B", "c"], [["a", "x", "y"], ["y", "b", "c"]]).score == pytest.approx(200 / 3)
        assert metric(options=metric.Options(lowercase=True)).compute(["B"], [["b"]]).score == 100
        schedule = SCHEDULES.get("triangle")
        rates = schedule(lr=1.0, hidden_size=4, options=schedule.Options(period=4))
        assert [rates.at_step(step) for step in range(5)] == [0, 0.5, 1, 0.5, 0]


@pytest.mark.parametrize("text", examples("yaml"))
def test_its_configurations_load(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = yaml.safe_load(text)
    with registries_restored():
        for name in NAMES:
            write_example(tmp_path, name)
        given.setdefault("plugins", ["my_enough.py"])
        given["training"] = {"max_steps": 1, **given.get("training", {})}
        text = yaml.safe_dump({"run_dir": "run", "data": {"train": "x", "dev": "x"}, **given})
        Path("a.yaml").write_text(text, encoding="utf-8")
        assert load_config("a.yaml").plugins == given["plugins"]


def test_what_it_links_to_is_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE):
        assert (REPOSITORY / "docs" / link).exists(), link


def test_the_kinds_of_the_guide_are_its_chapters() -> None:
    chapters = {chapter.lower() for chapter in re.findall(r"^## (.*)$", GUIDE, flags=re.M)}
    without_example = {"tasks", "when something fails"}
    assert chapters - without_example == {kind + ("es" if kind[-1] in "sh" else "s") for kind in KINDS}
