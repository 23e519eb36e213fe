"""The tasks `tagging` and `segmentation`: runs that learn, resume and share; nmt-tag; what is refused."""

from __future__ import annotations

import gzip
import io
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt.cli import translate
from nmt.config import load_config
from nmt.interop.model_dir import load_model
from nmt.interop.run_layout import last_step
from nmt.models.base import loss_weights
from nmt.tagging import command as tag
from nmt.tagging.labels import Columns, read_columns, spans, words_of
from nmt.tagging.prediction import LineTagger
from nmt.tagging.task import LabelledBatch, LabelLoss
from nmt.training.batches import Position
from nmt.training.distributed import Share
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.other_validation import ranked_with_less_text
from tests.quick_python import quick_python
from tests.shared_gradients import gradients
from tests.tagging.texts import write_columns, write_config, write_segmented
from tests.tiny_training import events, nmt_train, same, training_state

CPU = torch.device("cpu")
COLUMNS = Columns()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_columns(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    write_columns(folder)
    assert (
        nmt_train(write_config(folder, training={"max_steps": 60, "validate_every": 30, "early_stopping_metric": "f1"}))
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    write_segmented(folder)
    more = {
        "data": {"tokenizer_options": {"bigrams": True}},
        "training": {"max_steps": 90, "validate_every": 30, "lr": 0.03},
    }
    assert nmt_train(write_config(folder, task="segmentation", **more)) == 0
    return folder


def test_names_are_learned_and_the_test_text_is_written_with_labels(names: Path) -> None:
    first, last = events(names / "run", kinds=("validation",))
    assert last["f1"] > 90 and last["loss"] < first["loss"]
    (test,) = events(names / "run", kinds=("test",))
    given, found = (list(read_columns(file, COLUMNS)) for file in (names / "test.conll", names / "run/test.conll"))
    assert [sentence.words for sentence in given] == [sentence.words for sentence in found]
    pairs = [(set(spans(a.labels)), set(spans(b.labels))) for a, b in zip(given, found, strict=True)]
    right = sum(len(a & b) for a, b in pairs)
    assert test["recall"] == pytest.approx(100 * right / sum(len(a) for a, _ in pairs), abs=1e-4)
    assert set(test["by_type"]) == {"PER", "LOC"}
    lines, own = ((file).read_text().split("\n") for file in (names / "test.conll", names / "run/test.conll"))
    assert [line.rpartition(" ")[0] for line in lines] == [line.rpartition(" ")[0] for line in own]


def test_words_are_learned_and_empty_lines_stay(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert events(words / "run", kinds=("validation",))[-1]["f1"] > 90
    given, found = (
        file.read_text(encoding="utf-8").split("\n") for file in (words / "test.txt", words / "run/test.txt")
    )
    assert ["".join(words_of(line)) for line in given] == [line.replace(" ", "") for line in found]
    assert found[0] == ""


@pytest.mark.parametrize("task", ["tagging", "segmentation"])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path, task: str) -> None:
    """Words that are taken for unknown ones included, across the end of an epoch."""
    states = []
    for name, stops in (("whole", (9,)), ("stopped", (4, 9))):
        own = tmp_path / name
        own.mkdir()
        (write_columns if task == "tagging" else write_segmented)(own, lines=40)
        for steps in stops:
            training = {"max_steps": steps, "save_every": 4, "validate_every": 4, "accumulate": 2}
            assert nmt_train(write_config(own, task=task, options={"unknown_share": 1.0}, training=training)) == 0
        states.append((load_file(own / "run/checkpoints/step-9/model.safetensors"), training_state(own / "run", 9)))
    assert same(*states)


def test_a_run_whose_validation_measures_no_loss_is_saved_and_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only sentence of the development text has a label that the training text lacks."""
    (folder / "dev.conll").write_text("Anna - I-NEW\n")
    for steps in (6, 12):
        assert nmt_train(write_config(folder, training={"max_steps": steps})) == 0
        said = capsys.readouterr().err
        assert "loss nan" in said and "perplexity nan  best loss so far none" in said
        assert f"max_steps = {steps} is reached at update {steps}" in said and "was best" not in said
        assert last_step(folder / "run") == steps
    (validation, _) = events(folder / "run", kinds=("validation",))
    assert validation["loss"] is None and not validation["new_best"]
    assert tagged(folder / "run", "Anna saw\n")


@pytest.mark.parametrize(
    ("task", "metric", "dev"), [("tagging", "f1", "dev.conll"), ("segmentation", "loss", "dev.txt")]
)
def test_another_validation_text_begins_a_new_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, metric: str, dev: str
) -> None:
    (write_columns if task == "tagging" else write_segmented)(tmp_path)
    config = write_config(tmp_path, task=task, training={"early_stopping_metric": metric})
    assert ranked_with_less_text(config, tmp_path / dev) == [6, 8]
    assert "cannot be compared with old ones: data.dev has different contents" in capsys.readouterr().err


@pytest.mark.parametrize("normalization", ["token", "sentence"])
@pytest.mark.parametrize("crf", [True, False])
def test_processes_that_share_a_batch_come_to_the_gradient_of_one(folder: Path, normalization: str, crf: bool) -> None:
    options = {"character_size": 4, "character_hidden_size": 5, "crf": crf, "layers": 2}
    config = load_config(
        write_config(folder, model={"architecture_options": options}, training={"normalization": normalization})
    )
    task = task_of(config)
    data = task.prepare(folder / "run", progress=False)

    whole = gradients(task, data, [Share()], updates=2)
    shared = gradients(task, data, [Share(0, 2), Share(1, 2)], updates=2)
    assert sum(float(gradient.abs().sum()) for gradient in whole) > 0
    for one, two in zip(whole, shared, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("normalization", ["token", "sentence"])
def test_the_loss_is_normalized_as_asked_for(folder: Path, normalization: str) -> None:
    task = task_of(load_config(write_config(folder, training={"normalization": normalization})))
    data = task.prepare(folder / "run", progress=False)
    updater = build_updater(task, data.tokenizer, device=CPU)
    group = next(task.build_batches(data).groups(Position(1, 0)))
    (batch,), model = group.batches, updater.model.eval()
    losses, lengths = model.token_losses(batch.source, batch.target), (batch.target != 0).sum(1)
    mean = losses.sum() / lengths.sum() if normalization == "token" else (losses / lengths).mean()
    weights = loss_weights(batch.target, normalization=normalization)  # type: ignore[arg-type]
    found = LabelLoss()(LabelledBatch(model, batch, weights))
    torch.testing.assert_close(found.total, mean)
    torch.testing.assert_close(found.nll, losses)
    uneven = weights * (torch.arange(weights.size(1)) + 1)
    shares = torch.stack([own[:length].mean() for own, length in zip(uneven, lengths.tolist(), strict=True)])
    found = LabelLoss()(LabelledBatch(model, batch, uneven))
    torch.testing.assert_close(found.total, (losses * shares).sum().to(found.total.dtype))


def words_read(batches: Any, *, epochs: int) -> list[list[int]]:
    """The ids of the words of each epoch, in order of their size."""
    groups, found = batches.groups(Position(1, 0)), []
    for _ in range(epochs):
        own = [next(groups) for _ in range(batches.updates_per_epoch())]
        found.append(sorted(int(i) for group in own for batch in group.batches for i in batch.source.words.flatten()))
    return found


def test_each_epoch_takes_other_words_for_unknown(folder: Path) -> None:
    """Of 60 words that come once; with a share of 0 all are read in each epoch."""
    rows = "".join(f"word{chr(97 + i // 10)}{chr(97 + i % 10)} - I-PER\n\n" for i in range(60))
    (folder / "train.conll").write_text(rows)
    for share, are_same in ((0.5, False), (0.0, True)):
        task = task_of(load_config(write_config(folder, options={"unknown_share": share})))
        data = task.prepare(folder / "run", progress=False)
        first, second, third = words_read(task.build_batches(data), epochs=3)
        assert (first == second == third) is are_same and len(set(first)) == (60 if are_same else len(set(first)))
        assert (first == second) is (second == third) is are_same


@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_update_has_as_many_batches_as_asked_for(folder: Path, accumulate: int) -> None:
    task = task_of(load_config(write_config(folder, training={"accumulate": accumulate})))
    data = task.prepare(folder / "run", progress=False)
    batches = task.build_batches(data)
    assert batches.updates_per_epoch() == math.ceil(math.ceil(len(data.train) / 8) / accumulate)
    assert len(next(batches.groups(Position(1, 0))).batches) == accumulate


def test_the_memory_of_a_batch_is_that_of_its_longest_sentences(folder: Path) -> None:
    task = task_of(load_config(write_config(folder, training={"batch_sentences": 200})))
    data = task.prepare(folder / "run", progress=False)
    sample = task.memory_sample(data, task.build_batches(data))
    longest = int(data.train.source_lengths.max())
    assert (sample.batch.target != 0).sum(1).max() == sample.batch.target.size(1) == longest
    assert len(sample.batch.target) < sample.rows == len(data.train)


def test_what_is_made_of_the_text_is_kept_where_that_is_asked_for(folder: Path) -> None:
    config = write_config(folder, data={"cache_dir": str(folder / "mine")}, training={"max_steps": 1})
    assert nmt_train(config) == 0
    assert any((folder / "mine").iterdir()) and not (folder / "run" / "cache").exists()


def test_a_test_text_of_several_files_is_labelled_as_a_whole(folder: Path) -> None:
    files = [folder / "test.conll", folder / "dev.conll"]
    config = write_config(folder, data={"test": [str(file) for file in files]}, training={"max_steps": 1})
    assert nmt_train(config) == 0
    found = [sentence.words for sentence in read_columns(folder / "run/test.conll", COLUMNS)]
    assert found == [sentence.words for file in files for sentence in read_columns(file, COLUMNS)]


def tagged(run: Path, text: str, *options: str) -> list[str]:
    source, output = run.parent / "in.txt", run.parent / "out.txt"
    source.write_text(text, encoding="utf-8")
    assert tag.main([str(run), "-i", str(source), "-o", str(output), "--device", "cpu", *options]) == 0
    lines = output.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return lines


def test_nmt_tag_writes_a_line_for_each_line(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the cat saw Bob Smith\n\n \t \nAnna  went\tto\u2028Rome \nqqqqqqq\n" + "New York and " * 60 + "\n"
    lines = tagged(names / "run", text)
    assert [len(line.split()) for line in lines] == [5, 0, 0, 3, 1, 180]
    assert lines[0] == "O O O I-PER I-PER" and lines[5] == "I-LOC I-LOC O " * 59 + "I-LOC I-LOC O"
    said = capsys.readouterr().err
    assert "6 lines in" in said and "2 empty" in said and "of the words are not in the vocabulary" in said
    alone = LineTagger(load_model(names / "run", task="tagging"), device=CPU)
    assert [alone.tag([line])[0].text for line in text.split("\n")[:-1]] == lines


def test_conll_output_names_each_word(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tagged(names / "run", "saw Anna and\n\ncat and\n", "--format", "conll", "-q")
    assert lines == ["saw\tO", "Anna\tI-PER", "and\tO", "", "", "cat\tO", "and\tO", ""]
    assert capsys.readouterr().err == ""


def test_segmented_lines_keep_their_characters_and_spaces(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = ["badedig", "", "co fucofuba", "\u3000", "日本x", "ba" * 90]
    lines = tagged(words / "run", "".join(f"{line}\n" for line in raw))
    assert [line.replace(" ", "") for line in lines] == ["".join(words_of(line)) for line in raw]
    assert lines[0] == "ba dedi g" and lines[2].startswith("co fu") and lines[1] == lines[3] == ""
    assert tag.main([str(words / "run"), "--format", "conll", "-i", str(words / "test.txt")]) == 2
    assert "--format conll" in capsys.readouterr().err


def test_nmt_tag_streams(names: Path) -> None:
    command = [*quick_python(), "-m", "nmt.tagging.command", str(names / "run"), "--device", "cpu", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdin is not None and process.stdout is not None
        for line, expected in ((b"Anna and\n", b"I-PER O\n"), (b"\n", b"\n"), (b"the and\n", b"O O\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == expected
        process.stdin.close()
        assert process.wait() == 0


def test_bytes_that_are_not_utf8(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (names / "bad.txt").write_bytes(b"Anna and\n\xff saw\n")
    arguments = [str(names / "run"), "-i", str(names / "bad.txt"), "--device", "cpu"]
    assert tag.main(arguments) == 1
    assert "bad.txt, line 2: not UTF-8" in capsys.readouterr().err
    assert tag.main([*arguments, "--errors", "empty", "-q"]) == 0
    out, err = capsys.readouterr()
    assert out == "I-PER O\n\n" and "1 line not UTF-8" in err


def test_models_are_for_their_command(names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert translate.main([str(names / "run"), "-i", str(names / "test.conll")]) == 1
    assert "is a model of the task tagging, but a model of translation is needed here" in capsys.readouterr().err


def test_a_saved_tokenizer_that_was_changed_is_refused(folder: Path) -> None:
    assert nmt_train(write_config(folder, training={"max_steps": 1, "validate_every": 1})) == 0
    loaded = load_model(folder / "run", task="tagging")
    assert loaded.tokenizer.fingerprint() == task_of(loaded.config).prepare(folder / "run").tokenizer.fingerprint()
    (folder / "run/tokenizer/scheme.txt").write_text("bioes\n")
    with pytest.raises(Exception, match=r"scheme.txt: changed since it was saved"):
        load_model(folder / "run", task="tagging")


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("data", {"tokenizer": "whitespace"}, "data.tokenizer: 'whitespace' reads no labels. Allowed: tagged_words"),
        ("data", {"max_length": 50}, "data.max_length: has no effect with the task 'tagging'"),
        ("model", {"decoder_layers": 2}, "model.decoder_layers: has no effect with the task 'tagging'"),
        ("training", {"label_smoothing": 0.1}, "training.label_smoothing: has no effect with the task 'tagging'"),
        ("training", {"early_stopping_metric": "bleu"}, "Allowed: loss, f1, precision, recall"),
        ("data", {"tokenizer_options": {"word_column": 0}}, "columns are counted from 1"),
    ],
)
def test_what_says_nothing_is_refused(
    folder: Path, section: str, values: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(write_config(folder, **{section: values})) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("tagging", {"bigram_size": 10}, "bigram_size: has no effect with the task 'tagging'"),
        ("tagging", {"character_size": 0, "character_hidden_size": 9}, "character_hidden_size: has no effect with"),
        ("segmentation", {"bigram_size": 10}, "bigram_size: has no effect without data.tokenizer_options.bigrams"),
        ("segmentation", {"character_size": 9}, "character_size: has no effect with the task 'segmentation'"),
        ("segmentation", {"character_hidden_size": 9}, "character_hidden_size: has no effect with the task"),
    ],
)
def test_no_option_of_a_missing_part_is_taken(
    folder: Path, task: str, options: dict[str, int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nmt_train(write_config(folder, task=task, model={"architecture_options": options})) == 2
    assert f"model.architecture_options.{said}" in capsys.readouterr().err


def test_a_number_of_bigrams_is_for_bigrams(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"tokenizer_options": {"bigram_min_count": 5}}
    assert nmt_train(write_config(folder, task="segmentation", data=data)) == 2
    assert "bigram_min_count: has no effect without bigrams: true" in capsys.readouterr().err
    write_segmented(folder)
    used = {"tokenizer_options": {"bigram_min_count": 5, "bigrams": True}}
    model = {"architecture_options": {"bigram_size": 10}}
    assert nmt_train(write_config(folder, task="segmentation", data=used, model=model), "--dry-run") == 0


def test_other_tasks_have_no_use_for_its_tokenizers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(folder, model={"architecture": "deepnmt", "architecture_options": {}})
    path.write_text(path.read_text().replace("task: tagging", "task: translation"))
    assert nmt_train(path) == 2
    assert "'tagged_words' is for the task 'tagging', not 'translation'" in capsys.readouterr().err


def test_files_that_are_not_there_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(folder, options={"vectors": str(folder / "none.vec")}, data={"dev": str(folder / "none")})
    assert nmt_train(path) == 1
    said = capsys.readouterr().err
    assert f"data.dev: {folder / 'none'}: no such file" in said
    assert f"task_options.vectors: {folder / 'none.vec'}: no such file" in said


def test_vectors_are_what_embeddings_start_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"anna": "1 2 3 4 5 6", "0000": "6 5 4 3 2 1", "zebra": "0 0 0 0 0 0"}
    with gzip.open(folder / "v.txt.gz", "wt") as stream:
        stream.write("".join(f"{word} {numbers}\n" for word, numbers in rows.items()))
    path = write_config(folder, options={"vectors": str(folder / "v.txt.gz")})
    task = task_of(load_config(path))
    data = task.prepare(folder / "run", progress=False)
    model = task.build_model(data.tokenizer, device=CPU)
    for word in ("anna", "0000"):
        assert model.words.weight[data.tokenizer.tokens.id(word)].tolist() == list(map(float, rows[word].split()))
    lines = task.data_lines(data, task.build_batches(data))
    count = len(data.tokenizer.tokens) - 3
    assert f"vectors: 2 of {count} words ({2 / count:.1%}) have one of the 3 vectors in {folder / 'v.txt.gz'}" in lines


def test_labels_that_training_has_not_count_in_f1_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "dev.conll").read_text()
    (folder / "dev.conll").write_text(f"{text}\nMars - I-PLANET\n")
    assert nmt_train(write_config(folder, training={"max_steps": 2, "validate_every": 2})) == 0
    assert "dev: 1 sentence with labels that are not in the training text" in capsys.readouterr().err
    (found,) = events(folder / "run", kinds=("validation",))
    assert 0 < found["loss"] < 10


def test_a_text_without_a_known_label_has_no_loss_which_is_said_and_ranks_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dev.conll").write_text("Mars - I-PLANET\n\nVenus - I-PLANET\n")
    training = {"max_steps": 6, "validate_every": 1, "patience": 2, "early_stopping_metric": "loss"}
    assert nmt_train(write_config(folder, training=training)) == 0
    said = capsys.readouterr().err
    assert "not in the loss: nothing is left of it" in said.partition("update 1 ")[0]
    assert "training.max_steps = 6 is reached" in said and "loss was best" not in said
    assert not any(event["new_best"] for event in events(folder / "run", kinds=("validation",)))
    other = "--set", f"run_dir={folder / 'other'}", "--set", "training.max_steps=null"
    assert nmt_train(write_config(folder, training=training), *other) == 1
    assert "data.dev: every sentence has labels that are not in the training text" in capsys.readouterr().err


def test_patience_waits_until_a_tagger_finds_more_than_chance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = {"max_steps": 30, "validate_every": 1, "patience": 2, "early_stopping_metric": "f1", "lr": 1e-3}
    assert nmt_train(write_config(folder, training=training)) == 0
    found = events(folder / "run", kinds=("validation",))
    assert len(found) > 4, "the loss falls"
    assert len({event["f1"] for event in found[:4]}) == 1 and not any(event["beats_chance"] for event in found[:4])


def test_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder), "--dry-run") == 0
    out = capsys.readouterr().out
    assert "vocabularies: words" in out and "characters" in out


def test_all_texts_are_read_from_standard_input_too(
    names: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Anna and\nthe and")))
    assert tag.main([str(names / "run"), "--device", "cpu", "-q"]) == 0
    assert capsys.readouterr().out == "I-PER O\nO O\n"
