"""The task `language_model`: losses against plain PyTorch, streams without a lost word, resumed and shared runs."""

from __future__ import annotations

import gzip
import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file

from nmt.cli import translate
from nmt.config import load_config
from nmt.interop.model_dir import load_model
from nmt.interop.run_layout import WEIGHTS, last_step, step_dir
from nmt.language_models import command as sample
from nmt.language_models.model import LanguageModel, LockedDropout, mixture_losses
from nmt.language_models.scoring import Dynamic, Sampling, _drawn, score_text
from nmt.language_models.task import STEPS, StreamLoss, Window, WindowBatch
from nmt.language_models.text import Rows, windows
from nmt.models import build_model
from nmt.models.parts import number_layers
from nmt.ops.dropout import Masks, masked_by
from nmt.run_check import command as check
from nmt.scoring import command as score
from nmt.training.batches import Position
from nmt.training.distributed import Share, World
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.other_validation import ranked_with_less_text
from tests.shared_gradients import gradients
from tests.tiny_training import WORDS, events, nmt_train, same

CPU = torch.device("cpu")


def write_text(folder: Path, *, lines: int = 60) -> None:
    """train.txt, dev.txt and test.txt of random words, with an empty line."""
    generator = random.Random(3)
    for name, count in (("train", lines), ("dev", 12), ("test", 9)):
        text = [" ".join(generator.choice(WORDS[:12]) for _ in range(generator.randint(1, 9))) for _ in range(count)]
        text[2] = ""
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def write_config(folder: Path, *, task: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Path:
    sections: dict[str, Any] = {
        "model": {
            "architecture": "language_model",
            "cell": "lrn",
            "hidden_size": 7,
            "embedding_size": 6,
            "layer_norm": False,
            "dropout": 0.2,
            "architecture_options": {"layers": 2},
        },
        "data": {
            **{name: str(folder / f"{name}.txt") for name in ("train", "dev", "test")},
            "tokenizer": "whitespace",
            "tokenizer_options": {"separator": ""},
        },
        "training": {
            "max_steps": 12,
            "batch_sentences": 4,
            "lr": 0.01,
            "schedule": "constant",
            "precision": "fp32",
            "log_every": 3,
            "validate_every": 6,
        },
    }
    for section, values in changes.items():
        sections[section] |= values
    path = folder / "lm.yaml"
    usual = {} if (task or {}).get("by_line") else {"steps": 8}
    path.write_text(
        yaml.safe_dump(
            {"run_dir": str(folder / "run"), "task": "language_model", "task_options": {**usual, **(task or {})}}
            | sections
        ),
        encoding="utf-8",
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_text(tmp_path)
    return tmp_path


def small_model(**options: Any) -> LanguageModel:
    """Of 11 words, in fp64."""
    torch.manual_seed(5)
    config = load_config(
        {
            "run_dir": "unused",
            "task": "language_model",
            "model": {
                "architecture": "language_model",
                "cell": "lstm",
                "hidden_size": 5,
                "embedding_size": 4,
                "layer_norm": False,
                "dropout": 0.0,
                "architecture_options": {"layers": 2, **options},
            },
        }
    )
    model: Any = build_model(config.model, 11, 11)
    return model.double()


@pytest.mark.parametrize(("count", "rows"), [(23, 4), (9, 6), (1, 3), (24, 4)])
def test_a_stream_in_rows_loses_nothing(count: int, rows: int) -> None:
    ids = np.arange(3, 3 + count)
    cut = Rows.of(ids, rows)
    assert [int(i) for i in cut.targets.flatten() if i] == list(ids)
    pairs = [(int(a), int(b)) for a, b in zip(cut.inputs.flatten(), cut.targets.flatten(), strict=True) if b]
    assert pairs == [(2, 3), *((i, i + 1) for i in range(3, 2 + count))]
    assert all(row.any() for row in cut.targets)


def test_windows_cover_all_words_once_and_lie_elsewhere_in_each_epoch() -> None:
    found = [windows(1000, steps=30, varied=True, generator=np.random.default_rng([1, epoch])) for epoch in (1, 2)]
    for ends in found:
        assert ends[-1] == 1000 and (np.diff(ends) > 0).all()
    assert list(found[0]) != list(found[1])
    again = windows(1000, steps=30, varied=True, generator=np.random.default_rng([1, 1]))
    assert list(again) == list(found[0])
    assert list(windows(25, steps=10, varied=False, generator=np.random.default_rng(1))) == [10, 20, 25]


def test_losses_are_those_of_the_steps_one_by_one() -> None:
    """Sequence form against step form, through the log-probabilities of the whole vocabulary."""
    for options in ({}, {"softmaxes": 3, "last_size": 6}):
        model = small_model(**options).eval()
        words = torch.randint(1, 11, (2, 6))
        source, target = words[:, :-1], words[:, 1:]
        states, expected = None, []
        for t in range(source.size(1)):
            log_p, states = model.step(source[:, t], states)
            expected.append(-log_p.gather(1, target[:, t : t + 1])[:, 0])
        found = model.token_losses(source, target)
        torch.testing.assert_close(found, torch.stack(expected, 1), rtol=1e-6, atol=1e-6)


def test_states_carried_from_window_to_window_are_those_of_one_long_run() -> None:
    model = small_model().eval()
    words = torch.randint(1, 11, (3, 9))
    whole = model.run(words)
    first = model.run(words[:, :4])
    second = model.run(words[:, 4:], first.states)
    torch.testing.assert_close(torch.cat([first.features, second.features], 1), whole.features)


def test_a_mixture_of_softmaxes_and_all_its_gradients_are_those_of_plain_pytorch() -> None:
    torch.manual_seed(1)
    priors = torch.randn(5, 3, dtype=torch.float64).log_softmax(-1).requires_grad_()
    features = torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    targets, weights = torch.tensor([1, 6, 3, 3, 2]), torch.rand(5, dtype=torch.float64)
    log_p = torch.logsumexp(priors.unsqueeze(-1) + F.log_softmax(features @ table.t(), -1), 1)
    expected = -(log_p.gather(1, targets.unsqueeze(1))[:, 0] * weights).sum()
    wanted = torch.autograd.grad(expected, (priors, features, table))
    found = mixture_losses(priors, features, table, targets, weights)
    torch.testing.assert_close(found.total, expected)
    torch.testing.assert_close(found.nll, -log_p.gather(1, targets.unsqueeze(1))[:, 0])
    for gradient, other in zip(torch.autograd.grad(found.total, (priors, features, table)), wanted, strict=True):
        torch.testing.assert_close(gradient, other)


def test_dropout_hides_the_same_at_all_places_of_a_row() -> None:
    layer = LockedDropout(0.5)
    with masked_by(Masks(7)):
        found = layer(torch.ones(3, 5, 8))
    assert (found == found[:, :1]).all() and 0 < float((found == 0).float().mean()) < 1
    assert not (found[0] == found[1]).all()


def test_dropped_words_and_weights_are_the_same_in_all_processes() -> None:
    """Rows of a table and of a matrix are counted from 0 whichever sentences a process has."""
    model = small_model(embedding_dropout=0.4, weight_dropout=0.5).train()
    number_layers(model)
    words, seen = torch.arange(1, 11).unsqueeze(0), []
    for first in (0, 6):
        with masked_by(Masks(11, first)):
            seen.append((model.words(words), model.cells[0].unit().weights[0], model.cells[1].unit().weights[0]))
    for one, other in zip(*seen, strict=True):
        assert torch.equal(one, other) and 0 < float((one == 0).double().mean()) < 1


def test_a_unit_without_a_recurrent_matrix_has_no_weight_dropout(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"architecture_options": {"layers": 2, "weight_dropout": 0.5}}
    assert nmt_train(write_config(folder, model=options)) == 2
    assert "architecture_options.weight_dropout: the unit 'lrn' has no recurrent matrix" in capsys.readouterr().err


def test_keys_of_translation_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(folder, data={"target_language": "de"}, training={"label_smoothing": 0.1})
    path.write_text(path.read_text() + "decoding: {beam_size: 5}\n")
    assert nmt_train(path) == 2
    said = capsys.readouterr().err
    for key in ("data.target_language", "training.label_smoothing", "decoding"):
        assert f"{key}: has no effect with the task 'language_model'" in said


def test_keys_of_batches_are_for_lines_and_not_for_a_stream(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"data": {"pool_batches": 2}, "training": {"normalization": "sentence", "max_steps": 3}}
    assert nmt_train(write_config(folder, **keys)) == 2
    said = capsys.readouterr().err
    for key in ("data.pool_batches", "training.normalization"):
        assert f"{key}: has no effect with the task 'language_model'" in said
    weights = []
    for number, section in enumerate(({}, {"pool_batches": 2}, {}), start=1):
        training = {"normalization": "sentence" if number == 3 else "token", "max_steps": 3}
        path = write_config(folder, task={"by_line": True}, data=section, training=training)
        assert nmt_train(path, "--set", f"run_dir={folder / str(number)}") == 0
        weights.append(load_file(folder / str(number) / "checkpoints" / "step-3" / "model.safetensors"))
    usual, *others = weights
    assert not any(all(map(torch.equal, usual.values(), other.values())) for other in others)
    assert nmt_train(path, "--set", f"run_dir={folder / '3'}", "--set", "training.max_steps=4") == 0


@pytest.mark.parametrize("by_line", [False, True])
def test_a_text_without_a_line_is_no_training_text(
    folder: Path, by_line: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.txt").write_text("")
    assert nmt_train(write_config(folder, task={"by_line": by_line}, data={"dev": str(folder / "empty.txt")})) == 1
    assert f"data.dev: {folder / 'empty.txt'}: has no line" in capsys.readouterr().err


def test_nmt_check_says_of_a_language_model_that_it_can_be_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(write_config(folder)) == 0
    capsys.readouterr()
    assert check.main([str(folder / "run")]) == 0
    said = capsys.readouterr().out
    assert "use: step 6, 12 (best)\n" in said and "translate" not in said


def test_architectures_are_for_their_task_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder, model={"architecture": "deepnmt", "architecture_options": {}})) == 2
    assert "'deepnmt' is for the task 'translation', not 'language_model'" in capsys.readouterr().err


def test_missing_files_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder, data={"dev": str(folder / "none.txt")})) == 1
    assert f"data.dev: {folder / 'none.txt'}: no such file" in capsys.readouterr().err


def test_a_text_may_be_compressed_under_the_name_of_the_configuration(folder: Path) -> None:
    config = write_config(folder)
    assert nmt_train(config) == 0
    for text in folder.glob("*.txt"):
        text.with_name(f"{text.name}.gz").write_bytes(gzip.compress(text.read_bytes()))
        text.unlink()
    assert nmt_train(config, "--set", f"run_dir={folder / 'packed'}") == 0
    plain, packed = (folder / run / "checkpoints" / "step-12" / "model.safetensors" for run in ("run", "packed"))
    assert plain.read_bytes() == packed.read_bytes()
    assert events(folder / "packed", kinds=("test",)) == events(folder / "run", kinds=("test",))


def test_a_run_learns_validates_and_scores_its_test_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 40})
    assert nmt_train(config) == 0
    losses = [event["loss"] for event in events(folder / "run", kinds=("validation",))]
    assert losses[-1] < losses[0] - 0.05
    (test,) = events(folder / "run", kinds=("test",))
    loaded = load_config(config)
    task = task_of(loaded)
    data = task.prepare(folder / "run", progress=False)
    model: Any = load_model(folder / "run", task="language_model").model
    states, total, before = None, 0.0, 2
    for word in data.test.ids.tolist():
        log_p, states = model.step(torch.tensor([before]), states)
        total, before = total - float(log_p[0, word]), word
    assert test["loss"] == pytest.approx(total / len(data.test.ids), rel=1e-5)
    assert "perplexity" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "limits"),
    [
        pytest.param(task, limits, marks=() if number % 2 == place % 2 else pytest.mark.slow)
        for number, task in enumerate(
            ({}, {"activation_penalty": 2.0, "temporal_penalty": 1.0, "varied_windows": False}, {"by_line": True})
        )
        for place, limits in enumerate(
            ([{"max_steps": 5}, {"max_steps": 12}], [{"max_epochs": 1}, {"max_epochs": 2}])  # within, between epochs
        )
    ],
)
def test_a_resumed_run_is_the_undisturbed_one(
    tmp_path: Path, task: dict[str, Any], limits: list[dict[str, int]]
) -> None:
    """States are carried over an interruption within an epoch, and an epoch starts without them."""
    found = []
    for name, stops in (("whole", limits[1:]), ("stopped", limits)):
        run = tmp_path / name / "run"
        run.parent.mkdir()
        write_text(run.parent)
        for limit in stops:
            training = {"max_steps": None, "save_every": 5, **limit}
            assert nmt_train(write_config(run.parent, task=task, training=training)) == 0
        validations = [event for event in events(run, kinds=("validation",)) if event["step"] % 6 == 0]
        step = last_step(run)
        assert step is not None and len(validations) >= 2
        found.append((step, [event["loss"] for event in validations], load_file(step_dir(run, step) / WEIGHTS)))
    assert same(*found)


def test_windows_follow_one_another_from_the_beginning_of_an_epoch_only(folder: Path) -> None:
    """Whatever the number of windows in an update; each counts for what its length is beside the usual one."""
    for varied in (True, False):
        task_options = {"varied_windows": varied}
        config = write_config(folder, task=task_options, training={"accumulate": 2, "batch_sentences": 2})
        task = task_of(load_config(config))
        batches = task.build_batches(task.prepare(folder / "run", progress=False))
        groups = batches.groups(Position(1, 0))
        for number in (1, 2):
            epoch, after = list[Window](), number
            while after == number:
                group = next(groups)
                epoch, after = [*epoch, *group.batches], group.after.epoch
            assert len(epoch) > 4 and [window.begins for window in epoch] == [True] + [False] * (len(epoch) - 1)
            widths = [window.source.size(1) for window in epoch]
            assert len(set(widths)) > 1
            expected = [width / 8 if varied else 1.0 for width in widths]
            assert [window.share for window in epoch] == pytest.approx(expected)


def test_only_the_first_window_of_an_epoch_starts_from_the_zero_state() -> None:
    model = small_model()
    first = Window(torch.tensor([[2, 3, 5]]), torch.tensor([[3, 5, 4]]), 0, True, 1.0)
    weights = torch.full((1, 3), 1 / 3)

    def losses(loss: StreamLoss, *windows: Window) -> list[float]:
        return [float(loss(WindowBatch(model, window, weights)).total.detach()) for window in windows]

    alone, followed, again = losses(StreamLoss(), first, first._replace(begins=False), first)
    assert alone == again != followed


def test_the_penalty_of_activations_is_after_dropout_and_that_of_change_before_it() -> None:
    """Against the states of a run with the same masks; both are in proportion to the length of the window."""
    model = small_model(output_dropout=0.5).train()
    number_layers(model)
    window = Window(torch.randint(2, 11, (3, 4)), torch.randint(3, 11, (3, 4)), 0, True, 0.5)
    weights = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64).expand(3, 4)

    def total(**penalties: float) -> float:
        with masked_by(Masks(3)):
            return float(StreamLoss(**penalties)(WindowBatch(model, window, weights)).total.detach())

    with masked_by(Masks(3)), torch.no_grad():
        run = model.run(window.source)
    assert (run.features == 0).any() and not (run.raw == 0).any()
    of_rows, plain = 0.5 * weights.sum(1), total()
    activations = float((of_rows * run.features.square().mean((1, 2))).sum())
    changes = float((of_rows * run.raw.diff(dim=1).square().mean((1, 2))).sum())
    assert total(activation_penalty=2.0) - plain == pytest.approx(2 * activations)
    assert total(temporal_penalty=3.0) - plain == pytest.approx(3 * changes)


class Exchanging(World):
    """One of two processes that counts its exchanges; the other one contributes nothing to them."""

    size = 2
    exchanges = 0

    def gather(self, value: Any) -> list[Any]:
        self.exchanges += 1
        return [value, None]


def test_a_process_without_rows_takes_part_in_saving_the_states_of_the_others() -> None:
    model, window = small_model().float(), Window(torch.tensor([[2, 3]]), torch.tensor([[3, 4]]), 0, True, 1.0)
    reading, idle = StreamLoss(), StreamLoss()
    reading(WindowBatch(model, window, torch.ones(1, 2)))
    earlier = reading.state_dict(World(CPU))

    def saved(loss: StreamLoss) -> tuple[dict[str, Any], int]:
        world = Exchanging(CPU)
        return loss.state_dict(world), world.exchanges

    for loss in (reading, idle):
        loss.load_state_dict(earlier)
    assert same(saved(reading), saved(idle)) and same(saved(idle)[0], earlier)
    reading(WindowBatch(model, window._replace(begins=False), torch.ones(1, 2)))
    (states, exchanges), (_, exchanges_of_idle) = saved(reading), saved(idle)
    assert exchanges == exchanges_of_idle
    assert same(states, reading.state_dict(World(CPU))) and not same(states, earlier)


def test_another_validation_text_begins_a_new_ranking(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ranked_with_less_text(write_config(folder), folder / "dev.txt") == [6, 8]
    assert "cannot be compared with old ones: data.dev has different contents" in capsys.readouterr().err


@pytest.mark.parametrize("by_line", [False, True])
def test_processes_that_share_the_rows_come_to_the_gradient_of_one(folder: Path, by_line: bool) -> None:
    config = load_config(write_config(folder, task={"temporal_penalty": 1.0, "by_line": by_line}))
    task = task_of(config)
    data = task.prepare(folder / "run", progress=False)

    whole = gradients(task, data, [Share()], updates=3)
    shared = gradients(task, data, [Share(0, 2), Share(1, 2)], updates=3)
    for one, two in zip(whole, shared, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


def architecture(**options: Any) -> dict[str, Any]:
    """The section `model` of two layers with these options, and the unit `cell` among them."""
    cell = options.pop("cell", "lrn")
    return {"model": {"cell": cell, "architecture_options": {"layers": 2, **options}}}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"task": {"by_line": True}},
    {"task": {"by_line": True, "activation_penalty": 1.0}},
    {"task": {"by_line": True, "temporal_penalty": 1.0}},
    {"task": {"steps": 9}},
    {"task": {"varied_windows": False}},
    {"task": {"activation_penalty": 1.0}},
    {"task": {"temporal_penalty": 1.0}},
    {"task": {"samples": 3}},
    architecture(input_dropout=0.6),
    architecture(hidden_dropout=0.6),
    architecture(output_dropout=0.6),
    architecture(embedding_dropout=0.6),
    architecture(cells=["gru", "lrn"]),
    architecture(softmaxes=2),
    architecture(softmaxes=2, last_size=5),
    architecture(softmaxes=2, mixture_dropout=0.6),
    architecture(cell="gru"),
    architecture(cell="gru", weight_dropout=0.6),
    {"training": {"batch_sentences": None, "batch_tokens": 48}},
]


def test_each_option_changes_the_weights(folder: Path) -> None:
    """After two updates no two of these have the same."""

    def weights(changes: dict[str, Any]) -> tuple[float, ...]:
        task = task_of(load_config(write_config(folder, **changes)))
        data = task.prepare(folder / "run", progress=False)
        updater = build_updater(task, data.tokenizer, device=CPU)
        for step, group in enumerate(islice(task.build_batches(data).groups(Position(1, 0)), 2)):
            updater.update(group, step=step)
        return tuple(float(weight.detach().double().sum()) for weight in updater.model.parameters())

    assert len(set(map(weights, OPTIONS))) == len(OPTIONS)


def test_penalties_of_lines_are_of_their_words_alone(folder: Path) -> None:
    """Against a loop over lines; padding, of which a batch of several has some, counts for nothing."""
    penalties = {"by_line": True, "activation_penalty": 2.0, "temporal_penalty": 3.0}
    config = load_config(write_config(folder, task=penalties, training={"batch_sentences": 20}))
    task = task_of(config)
    data = task.prepare(folder / "run", progress=False)
    model: Any = task.build_model(data.tokenizer, device=CPU).eval()
    batch = next(task.build_batches(data).groups(Position(1, 0))).batches[0]
    words = (batch.target != 0).sum(1).tolist()
    assert len(set(words)) > 1
    weights = (batch.target != 0).double() / sum(words)
    found = task.build_loss()(task.training_batch(model, batch, weights))
    expected = 0.0
    for source, target, count in zip(batch.source, batch.target, words, strict=True):
        with torch.no_grad():
            run = model.run(source[None, :count])
            log_p = model.log_probabilities(run.features)[0]
        own = -log_p.gather(1, target[:count, None]).sum() + 2.0 * run.features.square().mean(2).sum()
        expected += float(own + 3.0 * run.raw.diff(dim=1).square().mean(2).sum()) / sum(words)
    assert float(found.total.detach()) == pytest.approx(expected, rel=1e-5)


def test_by_line_no_option_of_a_stream_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder, task={"by_line": True, "validation_rows": 3})) == 2
    assert "task_options.validation_rows: has no effect with by_line, which has no stream" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"architecture_options": {"mixture_dropout": 0.3}}, "mixture_dropout: has no effect without a mixture"),
        ({"architecture_options": {"layers": 1, "hidden_dropout": 0.3}}, "hidden_dropout: has no effect with one"),
    ],
)
def test_no_option_of_a_missing_part_is_taken(
    folder: Path, model: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(write_config(folder, model=model)) == 2
    assert said in capsys.readouterr().err


def test_lines_by_themselves_are_validated_tested_and_scored_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nmt-score --by-line says of the best checkpoint is what training has logged, of every token."""
    write_text(tmp_path)
    assert nmt_train(write_config(tmp_path, task={"by_line": True}, training={"max_steps": 12})) == 0
    assert f"nmt-score {tmp_path / 'run'} --text FILE --by-line" in capsys.readouterr().err
    logged = min(event["loss"] for event in events(tmp_path / "run", kinds=("validation",)))
    (test,) = events(tmp_path / "run", kinds=("test",))
    for name, loss in (("dev", logged), ("test", test["loss"])):
        text = tmp_path / f"{name}.txt"
        assert score.main([str(tmp_path / "run"), "--text", str(text), "--by-line", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["mean_nll"] == pytest.approx(loss, rel=1e-6)
        assert found["tokens"] == sum(len(line.split()) + 1 for line in text.read_text().split("\n")[:-1])


def test_validation_rows_are_read_side_by_side(trained: Path) -> None:
    """In more rows there is less to read before a word, so that the loss is another."""
    losses = []
    for rows in (1, 3):
        task = task_of(load_config(write_config(trained, task={"validation_rows": rows})))
        data = task.prepare(trained / "run", progress=False)
        validator = task.build_validator(data, device=CPU, world=World(CPU))
        model = load_model(trained / "run", task="language_model").model
        losses.append(validator.validate(model, check=lambda: None).scores["loss"])
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.1)


def test_a_long_validation_text_is_read_as_one_stream(trained: Path) -> None:
    """Words are read some at a time, each time from the states before: as lines are scored one after the other."""
    text = trained / "long.txt"
    lines = (trained / "dev.txt").read_text().split("\n")[:-1] * 4
    text.write_text("".join(f"{line}\n" for line in lines))
    task = task_of(load_config(write_config(trained, task={"validation_rows": 1}, data={"dev": str(text)})))
    data = task.prepare(trained / "run", progress=False)
    assert len(data.dev.ids) > 2 * STEPS
    loaded = load_model(trained / "run", task="language_model")
    model: Any = loaded.model
    found = task.build_validator(data, device=CPU, world=World(CPU)).validate(model, check=lambda: None).scores
    log_probs = [p for line in score_text([model], loaded.tokenizer, lines) for p in line.log_probs]
    assert found["loss"] == pytest.approx(-sum(log_probs) / len(data.dev.ids), rel=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    write_text(folder)
    assert nmt_train(write_config(folder, training={"max_steps": 40})) == 0
    return folder


def test_a_text_is_scored_as_published(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line after those before it, ends of lines counted: the perplexity that training has logged."""
    text = str(trained / "test.txt")
    assert score.main([str(trained / "run"), "--text", text, "--per-token"]) == 0
    out, err = capsys.readouterr()
    lines = Path(text).read_text().split("\n")[:-1]
    rows = [[float(value) for value in line.split()] for line in out.splitlines()]
    assert [len(row) for row in rows] == [len(line.split()) + 1 for line in lines]
    (test,) = events(trained / "run", kinds=("test",))
    mean = -sum(map(sum, rows)) / sum(map(len, rows))
    assert mean == pytest.approx(test["loss"], rel=1e-5)
    assert float(err.split("perplexity ")[-1].split(",")[0]) == pytest.approx(test["perplexity"], rel=1e-4)
    assert "9 lines, 57 tokens" in err


def test_lines_by_themselves_do_not_depend_on_their_batch(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for tokens in ("1", "4096"):
        arguments = ["--text", str(trained / "test.txt"), "--by-line", "--batch-tokens", tokens, "--json"]
        assert score.main([str(trained / "run"), *arguments]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["scores"] == pytest.approx(found[1]["scores"], rel=1e-5)
    assert score.main([str(trained / "run"), "--text", str(trained / "test.txt"), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert together["scores"][0] == pytest.approx(found[0]["scores"][0], rel=1e-5)
    assert together["scores"][1] != pytest.approx(found[0]["scores"][1], rel=1e-5)


def test_two_models_are_averaged(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, text = str(trained / "run"), ["--text", str(trained / "test.txt"), "--json"]
    assert score.main([run, *text]) == 0
    one = json.loads(capsys.readouterr().out)
    assert score.main([run, run, *text]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == pytest.approx(one["scores"], rel=1e-6)
    first, second = (load_model(trained / "run", task="language_model") for _ in range(2))
    models: list[Any] = [first.model, second.model]
    for weight in models[1].parameters():
        weight.data *= 3
    tokenizer, lines = first.tokenizer, ["ba be", "", "bo bi"]
    alone = [[line.log_probs for line in score_text([model], tokenizer, lines)] for model in models]
    for line, *own in zip(score_text(models, tokenizer, lines), *alone, strict=True):
        assert line.log_probs == pytest.approx(np.log(np.exp(own).mean(0)).tolist(), rel=1e-5)
        assert line.log_probs != pytest.approx(np.mean(own, 0).tolist(), rel=1e-5)


def test_dynamic_evaluation_follows_the_text_and_goes_back(trained: Path) -> None:
    loaded = load_model(trained / "run", task="language_model")
    model: Any = loaded.model
    before = [weight.clone() for weight in model.parameters()]
    lines = ["ba be ba be ba be"] * 40
    plain = list(score_text([model], loaded.tokenizer, lines))
    followed = list(score_text([model], loaded.tokenizer, lines, dynamic=Dynamic(rate=0.1, decay=0.001)))
    assert followed[0].log_probs[:5] == pytest.approx(plain[0].log_probs[:5], rel=1e-5)
    assert followed[-1].mean_nll < plain[-1].mean_nll - 0.1
    held = list(score_text([model], loaded.tokenizer, lines, dynamic=Dynamic(rate=0.1, decay=1.0)))
    assert [line.mean_nll for line in held] == pytest.approx([line.mean_nll for line in plain], rel=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_commands_for_translation_refuse_a_language_model(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translate.main([str(trained / "run"), "-i", str(trained / "test.txt")]) == 1
    message = "is a model of the task language_model, but a model of translation is needed here"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--per-token", "--json"), 2, "--per-token: not allowed with --json"),
        (("--batch-tokens", "9"), 2, "--batch-tokens: with --text allowed only with --by-line"),
        (("--json",), 1, "empty.txt: has no line"),
    ],
)
def test_mistakes_in_scoring_texts_are_named(
    trained: Path, arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (trained / "empty.txt").touch()
    assert score.main([str(trained / "run"), "--text", str(trained / "empty.txt"), *arguments]) == code
    out, said = capsys.readouterr()
    assert not out and message in said and len(said.splitlines()) == 1


def test_unknown_words_of_a_prompt_are_reported(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample.main([str(trained / "run"), "--prompt", f"zzz {WORDS[1]} qqq"]) == 0
    assert "--prompt: 2 tokens unknown to the model" in capsys.readouterr().err


def test_samples_are_reproducible_and_follow_the_prompt(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(trained / "run"), "--prompt", "ba be", "--max-tokens", "6"]
    assert sample.main([*arguments, "--lines", "3"]) == 0
    three, said = capsys.readouterr()
    lines = three.splitlines()
    assert len(lines) == 3 and all(line.startswith("ba be") and "<unk>" not in line for line in lines)
    assert len(set(lines)) > 1
    assert all(len(line.split()) <= 8 for line in lines)
    assert ("cut at --max-tokens 6" in said) == any(len(line.split()) == 8 for line in lines)
    assert sample.main(arguments) == 0
    assert capsys.readouterr().out == lines[0] + "\n"
    assert sample.main([*arguments, "--seed", "2"]) == 0
    assert capsys.readouterr().out == lines[1] + "\n"


def test_samples_have_the_frequencies_of_the_model(trained: Path) -> None:
    """First words of 3,000 samples against the probabilities, by chi-square; and with top-k the most probable only."""
    loaded = load_model(trained / "run", task="language_model")
    model: Any = loaded.model
    log_p = model.step(torch.tensor([2]), None)[0][0].double()
    log_p[:2] = -torch.inf
    expected = torch.softmax(log_p / 0.5, 0)
    generator = torch.Generator().manual_seed(4)
    drawn = [_drawn(log_p, Sampling(temperature=0.5), generator) for _ in range(3000)]
    counts = torch.bincount(torch.tensor(drawn), minlength=len(expected)).double()
    used = expected > 0
    chi_square = float(((counts - 3000 * expected)[used].square() / (3000 * expected)[used]).sum())
    assert chi_square < 45 and counts[~used].sum() == 0  # 14 words: above 40 once in 10,000
    few = {_drawn(log_p, Sampling(top_k=2), generator) for _ in range(60)}
    assert few == set(log_p.topk(2).indices.tolist())
    likely = {_drawn(log_p, Sampling(top_p=1e-6), generator) for _ in range(5)}
    assert likely == {int(log_p.argmax())}
