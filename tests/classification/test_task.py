"""The task `classification`: runs that learn, resume and share; nmt-classify; what is refused."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from nmt.classification import command as classify
from nmt.classification.prediction import LineClassifier, predict
from nmt.classification.records import encode
from nmt.classification.task import ClassifiedBatch
from nmt.config import load_config
from nmt.errors import DataError
from nmt.interop.model_dir import load_model
from nmt.models.base import loss_weights
from nmt.tagging import command as tag
from nmt.training.batches import Position
from nmt.training.distributed import Share, World
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.classification.texts import write_colours, write_config, write_pairs
from tests.other_validation import ranked_with_less_text
from tests.quick_python import quick_python
from tests.shared_gradients import gradients
from tests.tiny_training import events, nmt_train, same, training_state

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pairs(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours")
    write_colours(folder)
    training = {"max_steps": 90, "validate_every": 30, "early_stopping_metric": "accuracy", "label_smoothing": 0.0}
    assert nmt_train(write_config(folder, pairs=False, training=training)) == 0
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that compares two texts, hardly trained."""
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder)
    assert nmt_train(write_config(folder)) == 0
    return folder


def entailment(folder: Path, texts: list[str], *, attention: str | None, steps: int) -> dict[str, float]:
    """Scores on pairs of hypotheses that were not trained on."""
    config = write_config(
        folder,
        options={"lowercase": True, "texts": texts},
        model={
            "hidden_size": 32,
            "embedding_size": 32,
            "dropout": 0.1,
            "initializer": "glorot",
            "architecture_options": {"attention": attention, "pooling": "max"},
        },
        training={
            "max_steps": steps,
            "validate_every": steps,
            "batch_sentences": 32,
            "lr": 5e-3,
            "label_smoothing": 0.0,
        },
    )
    assert nmt_train(config) == 0
    (test,) = events(folder / "run", kinds=("test",))
    return test


def test_patience_waits_until_a_classifier_is_better_than_chance(folder: Path) -> None:
    """At first every text gets the same label, which is right for half of them."""
    write_colours(folder)
    training = {"max_steps": 60, "validate_every": 4, "patience": 1, "early_stopping_metric": "accuracy"}
    assert nmt_train(write_config(folder, pairs=False, training=training)) == 0
    found = events(folder / "run", kinds=("validation",))
    assert len(found) > 3 and not any(event["beats_chance"] for event in found[:3]), "the loss falls"
    assert len({event["accuracy"] for event in found[:3]}) < 3


def test_what_is_learned_is_better_than_chance(colours: Path) -> None:
    assert events(colours / "run", kinds=("validation",))[-1]["beats_chance"]


@pytest.mark.slow
def test_entailment_is_learned_from_both_texts_alone(tmp_path: Path) -> None:
    for name in ("both", "first", "second"):
        (tmp_path / name).mkdir()
        write_pairs(tmp_path / name, groups=1500, held_out=60)
    both = entailment(tmp_path / "both", ["sentence1", "sentence2"], attention="aligned", steps=1000)
    assert both["accuracy"] > 90 and both["macro_f1"] > 90
    second = entailment(tmp_path / "second", ["sentence2"], attention=None, steps=100)
    assert second["accuracy"] == pytest.approx(100 / 3), "each hypothesis has each label once"
    first = entailment(tmp_path / "first", ["sentence1"], attention=None, steps=100)
    assert first["accuracy"] < 42


@pytest.mark.slow
def test_word_by_word_learns_what_neither_text_tells(tmp_path: Path) -> None:
    """Whether the first text has the word of the second: half of the lines, whatever the words."""
    for seed, name in enumerate(("train", "dev", "test")):
        generator, rows = random.Random(seed), ["first\tsecond\tlabel\n"]
        for number in range(2000 if name == "train" else 200):
            words = generator.sample("abcdefgh", 8)
            rows.append(f"{' '.join(words[:4])}\t{words[3 + number % 2]}\t{('yes', 'no')[number % 2]}\n")
        (tmp_path / f"{name}.tsv").write_text("".join(rows))
    model = {"hidden_size": 16, "embedding_size": 16, "dropout": 0.0, "init_range": 0.3}
    training = {"max_steps": 700, "validate_every": 700, "batch_sentences": 16, "lr": 0.01, "label_smoothing": 0.0}
    config = write_config(
        tmp_path,
        options={"format": "tsv", "texts": ["first", "second"], "label": "label"},
        model={**model, "architecture_options": {"labels": ["yes", "no"]}},
        data={name: str(tmp_path / f"{name}.tsv") for name in ("train", "dev", "test")},
        training=training,
    )
    assert nmt_train(config) == 0
    (test,) = events(tmp_path / "run", kinds=("test",))
    assert test["accuracy"] > 90


@pytest.mark.parametrize("unit", ["atr", "lrn"])
def test_shipped_configurations_train_on_files_of_the_form_of_snli(
    tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data/snli", "data/glove"):
        Path(folder).mkdir(parents=True)
    row = {
        "annotator_labels": ["neutral"],
        "captionID": "1.jpg#4",
        "gold_label": "neutral",
        "sentence1": "A man sleeps.",
        "sentence1_binary_parse": "( ( A man ) ( sleeps . ) )",
        "sentence1_parse": "(ROOT (S (NP (DT A) (NN man)) (VP (VBZ sleeps)) (. .)))",
        "sentence2": "A man.",
        "sentence2_binary_parse": "( A ( man . ) )",
        "sentence2_parse": "(ROOT (NP (DT A) (NN man) (. .)))",
    }
    labels = ["neutral", "-", "entailment", "contradiction"] * 4
    text = "".join(f"{json.dumps({**row, 'gold_label': label})}\n" for label in labels)
    for name in ("train", "dev", "test"):
        Path(f"data/snli/snli_1.0_{name}.jsonl").write_text(text)
    vectors = "".join(f"{word} {' '.join(['0.125'] * 300)}\n" for word in ("A", "man", ". .", "."))
    Path("data/glove/glove.840B.300d.txt").write_text(vectors)
    assert nmt_train(Path(f"snli_{unit}.yaml"), "--set", "training.max_epochs=1") == 0
    said = capsys.readouterr().err
    assert "train: 12 pairs (entailment 4, neutral 4, contradiction 4), 84 tokens, 0 of them unknown" in said
    assert "train: 4 lines without a label left out" in said
    assert "vectors: 3 of 4 words (75.0%) have one of the 4 vectors in data/glove/glove.840B.300d.txt" in said


def test_labels_are_learned_and_the_test_text_is_written(colours: Path) -> None:
    first, *_, last = events(colours / "run", kinds=("validation",))
    assert last["accuracy"] > 90 and last["loss"] < first["loss"]
    (test,) = events(colours / "run", kinds=("test",))
    given = [line.split("\t") for line in (colours / "test.tsv").read_text().split("\n")[1:-1]]
    found = [line.split("\t") for line in (colours / "run/test.tsv").read_text().split("\n")[:-1]]
    assert [(row[0], row[2]) for row in given] == [(row[0], row[2]) for row in found]
    right = sum(row[0] == row[1] for row in found)
    assert test["accuracy"] == pytest.approx(100 * right / len(found), abs=1e-4)
    assert set(test["by_label"]) == {"plain", "colour"} and np.sum(test["confusion"]) == len(found) == 20
    assert np.trace(test["confusion"]) == right
    (start,) = events(colours / "run", kinds=("start",))
    assert (start["train_texts"], start["dev_texts"], start["test_texts"]) == (120, 20, 20)


def test_a_tab_in_a_text_is_no_column_of_the_labelled_test_text(folder: Path) -> None:
    rows = [{"sentence1": "a\tb c", "sentence2": "d", "gold_label": "neutral"}] * 2
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert nmt_train(write_config(folder, training={"max_steps": 1})) == 0
    found = [line.split("\t") for line in (folder / "run/test.tsv").read_text().split("\n")[:-1]]
    assert [(row[0], *row[2:]) for row in found] == [("neutral", "a b c", "d")] * 2


@pytest.mark.parametrize("attention", ["word_by_word", "aligned"])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path, attention: str) -> None:
    """With a moving average, across the end of an epoch."""
    states = []
    for name, stops in (("whole", (9,)), ("stopped", (4, 9))):
        own = tmp_path / name
        own.mkdir()
        write_pairs(own, groups=7)
        for steps in stops:
            training = {"max_steps": steps, "save_every": 4, "validate_every": 4, "accumulate": 2, "ema_decay": 0.9}
            config = write_config(own, model={"architecture_options": {"attention": attention}}, training=training)
            assert nmt_train(config) == 0
        states.append((load_file(own / "run/checkpoints/step-9/model.safetensors"), training_state(own / "run", 9)))
    assert same(*states)


def test_another_validation_text_begins_a_new_ranking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_colours(tmp_path)
    config = write_config(tmp_path, pairs=False, training={"early_stopping_metric": "macro_f1"})
    assert ranked_with_less_text(config, tmp_path / "dev.tsv") == [6, 8]
    assert "cannot be compared with old ones: data.dev has different contents" in capsys.readouterr().err


@pytest.mark.parametrize("attention", ["word_by_word", "aligned", None])
def test_processes_that_share_a_batch_come_to_the_gradient_of_one(folder: Path, attention: str | None) -> None:
    texts = ["sentence1", "sentence2"] if attention else ["sentence1"]
    options = {"attention": attention, "layers": 2}
    config = load_config(write_config(folder, options={"texts": texts}, model={"architecture_options": options}))
    task = task_of(config)
    data = task.prepare(folder / "run", progress=False)

    whole = gradients(task, data, [Share()], updates=2)
    shared = gradients(task, data, [Share(0, 2), Share(1, 2)], updates=2)
    assert sum(float(gradient.abs().sum()) for gradient in whole) > 0
    for one, two in zip(whole, shared, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_validation_is_shared(folder: Path) -> None:
    task = task_of(load_config(write_config(folder)))
    data = task.prepare(folder / "run", progress=False)
    model = task.build_model(data.tokenizer, device=CPU).eval()
    alone = task.build_validator(data, device=CPU, world=World(CPU)).validate(model, check=lambda: None)
    gathered: list[Any] = []

    def measured(rank: int, *, last: bool) -> Any:
        class Two:
            size, is_main = 2, True

            def gather(self, value: Any) -> list[Any]:
                gathered.append(value)
                return list(gathered) if last else [value, value]

            def from_main(self, value: Any) -> Any:
                return value

        two: Any = Two()
        two.rank = rank
        return task.build_validator(data, device=CPU, world=two).validate(model, check=lambda: None)

    measured(0, last=False)
    assert measured(1, last=True).scores == pytest.approx(alone.scores)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_smoothed_cross_entropy(folder: Path, smoothing: float) -> None:
    task = task_of(load_config(write_config(folder, training={"label_smoothing": smoothing})))
    data = task.prepare(folder / "run", progress=False)
    updater = build_updater(task, data.tokenizer, device=CPU)
    group = next(task.build_batches(data).groups(Position(1, 0)))
    assert group.target_tokens == 8
    (batch,), model = group.batches, updater.model.eval()
    weights = loss_weights(batch.target, normalization="token")
    found = task.build_loss()(ClassifiedBatch(model, batch, weights))
    scores, labels = model.scores(batch.source), batch.target[:, 0] - 1
    wanted = F.one_hot(labels, 3) * (1 - smoothing) + (1 - F.one_hot(labels, 3)) * smoothing / 2
    least = -(torch.special.xlogy(wanted, wanted)).sum(1)
    expected = -(wanted * scores.log_softmax(1)).sum(1) - least
    torch.testing.assert_close(found.total, expected.mean())
    torch.testing.assert_close(found.nll, F.cross_entropy(scores, labels, reduction="none"))
    torch.testing.assert_close(model.token_losses(batch.source, batch.target)[:, 0], found.nll)


def test_a_label_does_not_depend_on_the_batch(pairs: Path) -> None:
    loaded: Any = load_model(pairs / "run", task="classification")
    texts = [(f"a {'the ' * n}", "b " * (20 - n)) for n in range(20)]
    corpus = encode(texts, [0] * 20, loaded.tokenizer)
    together = predict(loaded.model, corpus, device=CPU)
    one_by_one = predict(loaded.model, corpus, device=CPU, batch_tokens=1)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-5, atol=1e-6)
    assert not np.allclose(together[0], together[-1])


def classified(run: Path, text: str, *options: str) -> list[str]:
    source, output = run.parent / "in.txt", run.parent / "out.txt"
    source.write_text(text, encoding="utf-8")
    assert classify.main([str(run), "-i", str(source), "-o", str(output), "--device", "cpu", *options]) == 0
    lines = output.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return lines


def test_nmt_classify_writes_a_line_for_each_line(colours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the red house\n\nbig tree\n \nqqq blue\na\u2028b\n" + "the house " * 60 + "green\n"
    lines = classified(colours / "run", text)
    assert lines == ["colour", "", "plain", "", "colour", "plain", "colour"]
    said = capsys.readouterr().err
    assert "labels: plain, colour" in said and "7 lines in" in said and "2 empty" in said
    assert "of the tokens are not in the vocabulary" in said
    alone = LineClassifier(load_model(colours / "run", task="classification"), device=CPU)
    assert [alone.classify([line], name="x")[0].label for line in text.split("\n")[:-1]] == lines


def test_nmt_classify_reads_what_its_model_was_trained_on(
    colours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, test = colours / "run", (colours / "test.tsv").read_text()
    lines = classified(run, test, "--as-trained", "--evaluate", "-q")
    (scored,) = events(run, kinds=("test",))
    predicted = [line.split("\t")[1] for line in (run / "test.tsv").read_text().split("\n")[:-1]]
    assert lines == ["label", *predicted] and f"accuracy {scored['accuracy']:.2f}" in capsys.readouterr().err
    assert classified(run, "text\nthe red house\n\n", "--as-trained", "--scores", "-q")[::2] == ["label", ""]
    assert classify.main([str(run), "--json", "--as-trained"]) == 2


def test_records_of_several_lines_come_in_any_pieces(tmp_path: Path) -> None:
    rows = ['plain,"the', 'big" ,the', "", 'colour,"a ""red""', "house", 'tree",big', "plain,tree,a"]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.csv").write_text("\n".join(rows).replace('" ,', '",') + "\n")
    data = {part: str(tmp_path / f"{part}.csv") for part in ("train", "dev", "test")}
    config = write_config(tmp_path, pairs=False, options={"format": "csv", "texts": [[2, 3]], "label": 1}, data=data)
    assert nmt_train(config) == 0
    text = (tmp_path / "test.csv").read_text()
    whole = classified(tmp_path / "run", text, "--as-trained")
    assert [bool(line) for line in whole] == [True, False, False, True, False, False, True]
    loaded = load_model(tmp_path / "run", task="classification")
    pieces = LineClassifier(loaded, device=CPU, as_trained=True)
    found = [line for row in text.split("\n")[:-1] for line in pieces.classify([row], name="x")]
    pieces.end()
    assert [line.label for line in found] == [whole[0], "", whole[3], whole[6]]
    assert [line.record.texts for line in found] == [("the big the",), (), ('a "red" house tree big',), ("tree a",)]
    pieces.classify(['plain,"the'], name="x")
    with pytest.raises(DataError, match="^x, line 8: a quotation mark is opened"):
        pieces.end()


def test_a_line_tells_how_many_tokens_its_texts_have_and_how_many_are_unknown(colours: Path, pairs: Path) -> None:
    one, two = (
        LineClassifier(load_model(folder / "run", task="classification"), device=CPU) for folder in (colours, pairs)
    )
    lines = one.classify(["the red qqq", "", "tree"], name="x")
    assert [(line.tokens, line.unknown) for line in lines] == [(3, 1), (0, 0), (1, 0)]
    (pair,) = two.classify(["qqq qqq qqq\tqqq"], name="x")
    assert (pair.tokens, pair.unknown) == (4, 4)


def test_wrong_lines_are_counted_from_the_beginning_of_the_input(pairs: Path) -> None:
    classifier = LineClassifier(load_model(pairs / "run", task="classification"), device=CPU)
    with pytest.raises(DataError, match=r"^x, line 42: 1 column; expected: 2 texts"):
        classifier.classify(["a\tb", "a"], name="x", first=41)


def test_scores_are_probabilities(colours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, empty = classified(colours / "run", "the red house\n\n", "--scores", "-q")
    label, *scores = first.split("\t")
    found = {name: float(value) for name, value in (score.split("=") for score in scores)}
    assert list(found) == ["plain", "colour"] and sum(found.values()) == pytest.approx(1, abs=2e-4)
    assert label == max(found, key=lambda name: found[name]) == "colour" and empty == ""
    assert capsys.readouterr().err == ""


def test_evaluation_of_lines_and_of_json_is_that_of_the_run(
    colours: Path, pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, source in ((colours, None), (pairs, pairs / "test.jsonl")):
        (test,) = events(folder / "run", kinds=("test",))
        rows = [line.split("\t") for line in (folder / "run/test.tsv").read_text().split("\n")[:-1]]
        if source is None:
            lines = [f"{text}\t{label}" if text else "" for label, _, text in rows]
            options = ["--evaluate", "-q"]
            rows = [row for row in rows if row[2]]
        else:
            lines, options = source.read_text().split("\n")[:-1], ["--evaluate", "-q", "--json"]
        found = classified(folder / "run", "".join(f"{line}\n" for line in lines), *options)
        said = capsys.readouterr().err
        assert [label for line, label in zip(lines, found, strict=True) if line and '"-"' not in line] == [
            row[1] for row in rows
        ]
        if source is not None:
            accuracy, f1 = (f"{name} {test[name]:.2f}" for name in ("accuracy", "macro_f1"))
            assert f"nmt-classify: {accuracy}, {f1} of 24 lines with a label; 1 line without a label" in said
        else:
            assert f"of {len(rows)} lines with a label\n" in said and "precision" in said


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a\tb\nc\n", [], "line 2: 1 column; expected: 2 texts, separated by tabs"),
        ("a\tb\tc\n", [], "line 1: 3 columns; expected: 2 texts, separated by"),
        ("a\tb\n", ["--evaluate"], "line 1: 2 columns; expected: 2 texts and a label"),
        (
            "a\tb\tneutral\na\tb\tmaybe\n",
            ["--evaluate"],
            "line 2: 'maybe' is not a label. Allowed: entailment, neutral",
        ),
        ('{"sentence1": "a"}\n', ["--json"], "line 1: no key 'sentence2'; the keys are 'sentence1'"),
        ("a\tb\n", ["--json"], "line 1: not JSON"),
    ],
)
def test_malformed_lines_are_named(
    pairs: Path, text: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (pairs / "bad.txt").write_text(text)
    assert classify.main([str(pairs / "run"), "-i", str(pairs / "bad.txt"), "--device", "cpu", "-q", *options]) == 1
    assert f"{pairs / 'bad.txt'}, {said}" in capsys.readouterr().err


def test_one_column_by_its_name_is_enough_for_a_header(tmp_path: Path) -> None:
    """The others may be numbers; the first line of each file is then no text."""
    write_colours(tmp_path, lines=20)
    for options in ({"texts": [3], "label": "label"}, {"texts": ["text"], "label": 1}):
        task = task_of(load_config(write_config(tmp_path, pairs=False, options=options)))
        data = task.prepare(tmp_path / "run", progress=False)
        assert data.counts == {"train_texts": 20, "dev_texts": 20, "test_texts": 20}


def test_json_needs_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_colours(tmp_path, lines=20)
    config = write_config(
        tmp_path, pairs=False, options={"texts": [3], "label": 1, "header": True}, training={"max_steps": 1}
    )
    assert nmt_train(config) == 0
    assert classify.main([str(tmp_path / "run"), "--json", "-i", str(tmp_path / "test.tsv")]) == 2
    assert "--json: " in capsys.readouterr().err


def test_nmt_classify_streams(colours: Path) -> None:
    command = [*quick_python(), "-m", "nmt.classification.command", str(colours / "run"), "--device", "cpu", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdin is not None and process.stdout is not None
        for line, expected in ((b"red tree\n", b"colour\n"), (b"\n", b"\n"), (b"the tree\n", b"plain\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == expected
        process.stdin.close()
        assert process.wait() == 0


def test_standard_input_and_bytes_that_are_not_utf8(
    colours: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for errors, code, out in (("strict", 1, ""), ("empty", 0, "plain\n\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"tree\n\xff red")))
        assert classify.main([str(colours / "run"), "--device", "cpu", "-q", "--errors", errors]) == code
        found = capsys.readouterr()
        assert found.out in (out, "plain\n") and ("not UTF-8" in found.err)


def test_models_are_for_their_command(colours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tag.main([str(colours / "run"), "-i", str(colours / "test.tsv")]) == 1
    assert "is a model of the task classification, but a model of tagging" in capsys.readouterr().err


def test_vectors_are_what_embeddings_start_from_and_may_stay(tmp_path: Path) -> None:
    write_colours(tmp_path)
    (tmp_path / "v.txt").write_text("red 1 2 3 4 5 6\nTree 6 5 4 3 2 1\ntree 1 1 1 1 1 1\n")
    learned = {}
    for fixed in (False, True):
        options = {"vectors": str(tmp_path / "v.txt"), "fixed_vectors": fixed}
        config = write_config(tmp_path, pairs=False, options=options)
        task = task_of(load_config(config, [f"run_dir={tmp_path / str(fixed)}"]))
        data = task.prepare(tmp_path / str(fixed), progress=False)
        assert (
            "vectors: 2 of 8 words (25.0%) have one of the 3 vectors in"
            in task.data_lines(data, task.build_batches(data))[-1]
        )
        updater = build_updater(task, data.tokenizer, device=CPU)
        ids = [data.tokenizer.encode_source([word])[0][0] for word in ("red", "tree", "blue")]
        before = updater.model.words.weight.detach().clone()
        assert before[ids[0]].tolist() == [1, 2, 3, 4, 5, 6] and before[ids[1]].tolist() == [1] * 6
        for step, group in enumerate(islice(task.build_batches(data).groups(Position(1, 0)), 3)):
            assert updater.update(group, step=step).applied
        learned[fixed] = [not torch.equal(updater.model.words.weight[i], before[i]) for i in ids]
    assert learned == {False: [True, True, True], True: [False, False, True]}


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("data", {"max_length": 50}, "data.max_length: has no effect with the task 'classification'"),
        ("data", {"tokenizer": "tagged_words"}, "'tagged_words' is for the task 'tagging', not 'classification'"),
        ("model", {"decoder_layers": 2}, "model.decoder_layers: has no effect with the task 'classification'"),
        ("model", {"architecture_options": {"labels": ["a"]}}, "labels: name two labels or more"),
        (
            "model",
            {"architecture_options": {"labels": ["-", "a"]}},
            "task_options.no_label: '-' must not be one of the labels",
        ),
        ("model", {"architecture_options": {"attention": None}}, "null is for one text; for two: word_by_word"),
        ("training", {"loss": "r_drop"}, "training.loss: has no effect with the task 'classification'"),
        ("training", {"normalization": "sentence"}, "training.normalization: has no effect"),
        ("training", {"early_stopping_metric": "bleu"}, "Allowed: loss, accuracy, macro_f1"),
        ("options", {"texts": ["sentence1"]}, "attention: compares two texts, but task_options.texts has 1"),
        ("options", {"texts": ["a", "b", "c"]}, "texts: one or two, not 3"),
        ("options", {"texts": ["gold_label"]}, "the texts and the label must be in different places"),
        ("options", {"texts": [1, 2]}, "JSON has named keys"),
        ("options", {"format": "tsv", "texts": [0, 1]}, "columns are counted from 1"),
        ("options", {"header": True}, "header: has no effect with JSON"),
        ("options", {"format": "tsv", "header": False}, "header: must be true if columns are given by their names"),
        ("options", {"fixed_vectors": True}, "fixed_vectors: has no effect without vectors"),
    ],
)
def test_what_does_not_fit_is_refused(
    folder: Path, section: str, values: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(write_config(folder, **{section: values})) == 2
    assert said in capsys.readouterr().err


def test_what_does_not_go_with_vectors_and_subwords_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = {"vectors": "v.txt", "fixed_vectors": True}
    optimizer = {"optimizer": "adamw", "optimizer_options": {"weight_decay": 0.1}}
    assert nmt_train(write_config(folder, options=vectors, training=optimizer)) == 2
    assert "would change the embeddings that task_options.fixed_vectors keeps fixed" in capsys.readouterr().err
    pieces = {"tokenizer": "sentencepiece", "tokenizer_options": {"bpe_dropout": 0.1}}
    assert nmt_train(write_config(folder, options={"vectors": "v.txt"}, data=pieces)) == 2
    said = capsys.readouterr().err
    assert "task_options.vectors: are for words; the tokenizer 'sentencepiece' splits them" in said
    assert "data.tokenizer_options.bpe_dropout: has no effect with the task 'classification'" in said


def test_subwords(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pieces = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 330}}
    assert nmt_train(write_config(folder, data=pieces, training={"max_steps": 2, "validate_every": 2})) == 0
    assert len(classified(folder / "run", "The men sleep .\tThe men do not sleep .\n")) == 1


def test_what_is_left_out_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (folder / "train.jsonl").read_text().split("\n")
    kept = [line for line in lines if not line or json.loads(line)["gold_label"] != "neutral"]
    (folder / "train.jsonl").write_text("\n\n".join(kept[:3]) + "\n" + "\n".join(kept[3:]))
    assert nmt_train(write_config(folder, training={"max_steps": 2, "validate_every": 2})) == 0
    said = capsys.readouterr().err
    assert "train: 1 line without a label left out" in said and "train: 2 lines that are blank left out" in said
    assert "train: 80 pairs (entailment 40, neutral 0, contradiction 40)" in said
    assert "train: no text with the label neutral; it cannot be learned" in said


def test_files_that_are_not_there_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(folder, options={"vectors": str(folder / "none.vec")}, data={"dev": str(folder / "none")})
    assert nmt_train(path) == 1
    said = capsys.readouterr().err
    assert f"data.dev: {folder / 'none'}: no such file" in said
    assert f"task_options.vectors: {folder / 'none.vec'}: no such file" in said


def test_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "labels: entailment, neutral, contradiction" in out and "comparison" in out
    assert "memory, estimated" in out
