"""Each configuration key reaches what it is meant for: another value gives other weights, another log or other text."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def weights_after_two_updates(config_file: Path, *overrides: str) -> list[tuple[str, list[float]]]:
    config = load_config(config_file, overrides)
    data = prepare(config, config_file.parent / "run", progress=False)
    updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
    for step, group in enumerate(islice(build_batches(config, data.train).groups(Position(1, 0)), 2)):
        updater.update(group, step=step)
    with updater.inference_weights() as model:
        return [(name, weight.flatten().tolist()) for name, weight in sorted(model.state_dict().items())]


CHANGES = [
    *("seed=2", "model.cell=atr", "model.hidden_size=16", "model.embedding_size=16", "model.encoder_layers=2"),
    *("model.encoder_hidden_size=16", "model.encoder_cell=atr", "model.decoder_cell=lrn"),
    "model.encoder_cell_options.recurrent_init=orthogonal",
    "model.decoder_cell_options.recurrent_init=orthogonal",
    *("model.decoder_layers=2", "model.context_aware_encoder=false", "model.deep_output=false"),
    *("model.attention_heads=2", "model.layer_norm=true", "model.tie_embeddings=none", "model.dropout=0.5"),
    "model.initializer=glorot",
    "model.recurrent_dropout=0.5",
    *("model.init_range=0.01", "model.architecture=rnnsearch", "model.cell_options.recurrent_init=orthogonal"),
    *("data.max_length=3", "data.pool_batches=1", "data.tokenizer_options.min_count=20"),
    *("training.batch_sentences=9", "training.accumulate=2", "training.optimizer=adamw", "training.optimizer=adam_tf"),
    *(f"training.optimizer={name}" for name in ("adadelta", "adafactor", "adagrad", "muon", "rmsprop", "sgd")),
    *("training.optimizer_options.beta1=0.1", "training.lr=0.02", "training.schedule=noam"),
    *("training.schedule_options.warmup_steps=5", "training.clip_norm=0.01", "training.label_smoothing=0.3"),
    *("training.skip_norm=0.01", "training.dropout_warmup_steps=3"),
    *("training.normalization=sentence", "training.precision=bf16", "training.ema_decay=0.9"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_key_changes_the_weights(folder: Path, change: str) -> None:
    # An epsilon so large that the size of the gradients counts, which Adam by itself takes out.
    options = {"optimizer_options": {"epsilon": 0.1}} if "optimizer" not in change else {}
    config = write_config(folder, training={"lr": 0.01, **options})
    before = weights_after_two_updates(config)
    assert weights_after_two_updates(config) == before
    assert weights_after_two_updates(config, change) != before


def test_too_long_and_deep_attention_change_the_weights(folder: Path) -> None:
    config = write_config(folder, model={"decoder_layers": 2}, data={"max_length": 3})
    before = weights_after_two_updates(config)
    assert weights_after_two_updates(config, "data.too_long=truncate") != before
    assert weights_after_two_updates(config, "model.deep_attention=true") != before


def test_the_scale_of_layer_norms_changes_the_weights(folder: Path) -> None:
    config = write_config(folder, model={"layer_norm": True})
    before = weights_after_two_updates(config)
    assert weights_after_two_updates(config, "model.layer_norm_scale=0.3") != before


def test_the_gain_changes_the_weights(folder: Path) -> None:
    config = write_config(folder, model={"initializer": "normal"})
    before = weights_after_two_updates(config)
    assert weights_after_two_updates(config, "model.initializer_options.gain=0.2") != before


@pytest.mark.parametrize("change", ["data.sampling_temperature=5.0", "data.sampling_weights=[1.0, 1.0]"])
def test_sampling_changes_the_weights(folder: Path, change: str) -> None:
    config = write_config(folder, data={"train": [str(folder / "train"), str(folder / "dev")]})
    assert weights_after_two_updates(config, change) != weights_after_two_updates(config)


def test_back_translated_text_and_its_tag_change_the_weights(folder: Path) -> None:
    for language in ("en", "de"):
        vocabulary = {word for line in (folder / f"train.{language}").read_text().splitlines() for word in line.split()}
        (folder / f"vocab.{language}").write_text("\n".join(["<BT>", "<tag>", *sorted(vocabulary)]) + "\n")
    options = {"source_vocab": str(folder / "vocab.en"), "target_vocab": str(folder / "vocab.de")}
    config = write_config(folder, data={"tokenizer_options": options})
    back = f"data.monolingual={folder}/dev"
    found = [
        weights_after_two_updates(config, *overrides)
        for overrides in ([], [back], [back, "data.monolingual_tag=<tag>"], [back, "data.monolingual_tag=null"])
    ]
    assert all(one != other for place, one in enumerate(found) for other in found[:place])


def test_batch_tokens_take_the_place_of_sentences(folder: Path) -> None:
    config = load_config(write_config(folder, training={"batch_sentences": None, "batch_tokens": 30}))
    data = prepare(config, folder / "run", progress=False)
    batches = [batch for group in islice(build_batches(config, data.train).groups(Position(1, 0)), 9)
               for batch in group.batches]  # fmt: skip
    assert len({len(batch.rows) for batch in batches}) > 1
    assert all(max(batch.source.numel(), batch.target.numel()) <= 30 for batch in batches)


VALIDATION: list[tuple[str, Any]] = [
    ("evaluation.metrics=[chrf]", lambda base, new: "chrf" in new and "bleu" not in new),
    ("evaluation.metrics=[]", lambda base, new: "bleu" not in new and new["samples"] == []),
    (
        "evaluation.metrics=[{bleu: {tokenize: char}}]",
        lambda base, new: "tok:13a" in base["signatures"]["bleu"] and "tok:char" in new["signatures"]["bleu"],
    ),
    ("evaluation.samples=3", lambda base, new: len(base["samples"]) == 1 and len(new["samples"]) == 3),
    ("evaluation.max_sentences=2", lambda base, new: new["samples"] != base["samples"]),
    ("decoding.max_length_offset=9", lambda base, new: new["samples"] != base["samples"]),
    ("decoding.length_penalty=0.0", lambda base, new: new["samples"] != base["samples"]),
    ("decoding.split_long=1", lambda base, new: new["samples"] != base["samples"]),
]


@pytest.mark.parametrize(("change", "differs"), VALIDATION)
def test_key_changes_the_validation(folder: Path, change: str, differs: Any) -> None:
    # Weights of almost zero like all words the same, so the length decides.
    changes = {"training": {"max_steps": 1, "lr": 1e-12}, "model": {"init_range": 1e-4, "dropout": 0.0}}
    config = write_config(folder, **changes, decoding={"length_penalty": 9.0})
    found = []
    for overrides in ((), ("--set", change)):
        assert nmt_train(config, "--overwrite", *overrides) == 0
        found += events(folder / "run", kinds=("validation",))
    assert differs(*found)


def test_the_search_changes_the_validation(folder: Path) -> None:
    # A beam of one goes on after an end symbol that greedy search ends with.
    decoding = {"beam_size": 1, "length_penalty": 9.0, "max_length_offset": 5}
    training = {"lr": 0.05, "validate_every": 12}
    config = write_config(folder, training=training, decoding=decoding, evaluation={"samples": 8})
    found = []
    for search in ("auto", "greedy", "beam"):
        assert nmt_train(config, "--overwrite", "--set", f"decoding.search={search}") == 0
        found += events(folder / "run", kinds=("validation",))
    assert found[0] == found[1] and found[1]["samples"] != found[2]["samples"]


def test_languages_are_the_suffixes(folder: Path) -> None:
    for name in ("train", "dev"):
        shutil.move(folder / f"{name}.en", folder / f"{name}.xx")
        shutil.move(folder / f"{name}.de", folder / f"{name}.yy")
    data = {"source_language": "xx", "target_language": "yy", "test": str(folder / "dev")}
    assert nmt_train(write_config(folder, data=data, training={"max_steps": 1})) == 0
    assert (folder / "run/test.yy").is_file()
