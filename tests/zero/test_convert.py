"""nmt-convert: checkpoints of Zero become models that translate, score and fine-tune, and go back bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from nmt import zero
from nmt.config import load_saved
from nmt.interop.model_dir import load_model
from nmt.zero.search import beam_search
from tests.conftest import golden_names
from tests.console import call
from tests.search.naive import cut
from tests.tiny_training import nmt_train
from tests.zero.files import (
    SIZES,
    convert,
    text,
    tiny_hyper_parameters,
    tiny_model,
    write_checkpoint,
    write_golden,
)

DEEP = {"architecture": "deepnmt", "encoder_layers": 2, "decoder_layers": 2}
MODELS = {
    "cae": {**DEEP, "attention_heads": 2},
    "ln": {**DEEP, "context_aware_encoder": False, "layer_norm": True, "tie_embeddings": "all", "embedding_size": 6},
    "deep": {**DEEP, "deep_attention": True, "deep_output": False, "tie_embeddings": "target_softmax"},
    "several": {"architecture": "rnnsearch_deepatt", "encoder_layers": 3, "decoder_layers": 2, "attention_heads": 2},
    "several_ln": {"architecture": "rnnsearch_deepatt", "layer_norm": True},
    "search_cae": {"architecture": "rnnsearch"},
    "search_ln": {"architecture": "rnnsearch", "context_aware_encoder": False, "layer_norm": True},
}


PADDED = ("beam_deepnmt_atr_cae1_ln1", 4, 3)
"""Golden beams, their size and the sentence for which Zero follows hypotheses with a padding inside to the end."""


@pytest.mark.parametrize("cell", ["atr", "gru", "lrn", "lstm", "olrn", "sru"])
@pytest.mark.parametrize("kind", sorted(MODELS.keys() - {"deep"}))
def test_there_and_back_is_bit_equal(kind: str, cell: str, tmp_path: Path) -> None:
    config, arrays = tiny_model(cell=cell, **MODELS[kind])
    renamed = {f"scope_of_mine/{name.partition('/')[2]}": array for name, array in arrays.items()}
    options = write_checkpoint(tmp_path, renamed, tiny_hyper_parameters(config))
    assert convert(options, tmp_path / "ours") == 0
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(tmp_path / "back.npz")) == 0
    back = np.load(tmp_path / "back.npz")
    assert set(back.files) == {*renamed, "config"}
    for name, array in renamed.items():
        assert back[name].dtype == np.float32 and back[name].tobytes() == array.tobytes(), name
    hyper = json.loads(str(back["config"]))
    assert hyper["scope_name"] == "scope_of_mine" and hyper["cell"] == cell
    read = {key: value for key, value in tiny_hyper_parameters(config).items() if key != "cell"}
    if kind.startswith("search"):  # which has one layer and one head whatever these say
        read = {key: value for key, value in read.items() if not key.startswith("num_")}
    assert {key: hyper[key] for key in read} == read
    for side in ("src", "tgt"):
        assert (tmp_path / f"back.{side}.vocab").read_bytes() == (tmp_path / f"{side}.vocab").read_bytes()


def test_what_was_exported_is_taken_back(tmp_path: Path) -> None:
    config, arrays = tiny_model(**MODELS["deep"])
    options = write_checkpoint(tmp_path, arrays, {**tiny_hyper_parameters(config), "beam_size": 9, "dropout": 0.4})
    assert convert(options, tmp_path / "ours") == 0
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "back.npz"
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(file)) == 0
    vocabularies = [f"{file.with_suffix('')}.{side}.vocab" for side in ("src", "tgt")]
    again = ["--checkpoint", str(file), "--source-vocab", vocabularies[0], "--target-vocab", vocabularies[1]]
    assert convert(again, tmp_path / "again") == 0  # its hyper-parameters come along
    ours, theirs = load_model(tmp_path / "ours"), load_model(tmp_path / "again")
    assert ours.config.model == theirs.config.model and ours.config.decoding == theirs.config.decoding
    assert ours.tokenizer.fingerprint() == theirs.tokenizer.fingerprint()
    assert all(torch.equal(value, theirs.model.state_dict()[name]) for name, value in ours.model.state_dict().items())


@pytest.mark.parametrize("name", golden_names("deepnmt_") + golden_names("rnnsearch_"))
def test_scores_are_those_of_zero(name: str, golden: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, arrays = golden(name)
    options = write_golden(tmp_path, config, arrays)
    assert convert(options, tmp_path / "ours") == 0
    pair = ("--source", str(tmp_path / "source.txt"), "--target", str(tmp_path / "target.txt"))
    capsys.readouterr()
    assert call("nmt-score", str(tmp_path / "ours"), *pair, "--json", "--device", "cpu") == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    np.testing.assert_allclose(scores, arrays["out/score"], rtol=0, atol=1e-5)
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(tmp_path / "back.npz")) == 0
    back = np.load(tmp_path / "back.npz")
    wanted = {key.removeprefix("var/"): arrays[key] for key in arrays.files if key.startswith("var/")}
    assert set(back.files) == {*wanted, "config"}
    assert all(back[key].tobytes() == array.tobytes() for key, array in wanted.items())


@pytest.mark.parametrize("name", golden_names("beam_"))
def test_translations_are_those_of_zero(name: str, golden: Any, tmp_path: Path) -> None:
    """All of them by the search that treats a batch as Zero does; by nmt-translate those that Zero ended by itself.

    Zero's other translations depend on the length of other sentences in the batch, or on a padding that it chose as a
    word (docs/from_zero.md).
    """
    config, arrays = golden(name)
    options = write_golden(tmp_path, config, arrays)
    assert convert(options, tmp_path / "ours", "--hparams", f"decode_length={config['decode_length']}") == 0
    loaded = load_model(tmp_path / "ours")
    compared = 0
    for beam, alpha in config["beam_runs"]:
        wanted = arrays[f"out/beam{beam}_alpha{alpha}/seq"]
        limit = loaded.config.decoding.max_length_offset
        source = torch.from_numpy(arrays["in/source"]).long()
        search = {"beam_size": beam, "length_penalty": alpha, "max_length_offset": limit}
        found = beam_search(loaded.model, source, stopping="batch", **search)
        assert [row[0].ids for row in found] == [cut(slots[0].tolist()) for slots in wanted]
        if (beam, alpha) == config["beam_runs"][0] or alpha == 1.0:
            continue  # one run of nmt-translate for each file is enough
        files = ("-i", str(tmp_path / "source.txt"), "-o", str(tmp_path / "out.txt"))
        flags = ("--beam-size", str(beam), "--length-penalty", str(alpha), "--precision", "fp32", "--device", "cpu")
        assert call("nmt-translate", str(tmp_path / "ours"), *files, *flags) == 0
        lines = (tmp_path / "out.txt").read_text().splitlines(keepends=True)
        for row, (slots, line) in enumerate(zip(wanted.tolist(), lines, strict=True)):
            ended = all(2 in ids and 0 not in ids[: ids.index(2)] for ids in slots)
            if ended and (name, beam, row) != PADDED:
                assert line == text(slots[:1], config["tgt_vocab_size"])
                compared += 1
    assert compared or name == "beam_rnnsearch_olrn_cae1_ln1"


def test_what_only_training_needs_is_ignored(tmp_path: Path) -> None:
    config, arrays = tiny_model()
    slots = ("Adam", "Adam_1", "CTrainOpReplica", "CTrainOpBackUpReplica", "ExponentialMovingAverage")
    more = {f"{name}/{slot}": array + 1 for name, array in arrays.items() for slot in slots}
    counters = {"global_step": np.int64(7), "beta1_power": np.float32(0.9), "beta2_power": np.float32(0.99)}
    counters |= {f"{name}/CTrainOpReplica": np.float32(1) for name in ("loss", "count")}
    options = write_checkpoint(tmp_path, {**arrays, **more, **counters}, tiny_hyper_parameters(config))
    for output, flags, added in (("weights", (), 0), ("averages", ("--moving-averages",), 1)):
        assert convert(options, tmp_path / output, *flags) == 0
        found = zero.to_arrays(load_model(tmp_path / output).model)
        assert found.keys() == arrays.keys()
        assert all((found[name] == array + added).all() for name, array in arrays.items())
    with safe_open(tmp_path / "averages" / "model.safetensors", framework="pt") as reader:
        assert reader.metadata()["converted"] == f"Zero {tmp_path / 'model.npz'} (moving averages)"


def test_averages_in_use_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, arrays = tiny_model()
    averages = {f"{name}/ExponentialMovingAverage": array for name, array in arrays.items()}
    hyper = {**tiny_hyper_parameters(config), "ema_decay": 0.999, "buffer_size": 7, "safe_nan": True}
    options = write_checkpoint(tmp_path, {**arrays, **averages}, hyper)
    assert convert(options, tmp_path / "ours") == 0
    assert capsys.readouterr().err.splitlines() == [
        "nmt-convert: not converted (docs/from_zero.md explains why): buffer_size",
        "nmt-convert: these are the plain weights; --moving-averages uses their averages, with which Zero translates",
    ]
    averages.popitem()
    write_checkpoint(tmp_path, {**arrays, **averages}, hyper)
    assert convert(options, tmp_path / "more", "--moving-averages") == 1
    assert "--moving-averages is not possible, because 1 of" in capsys.readouterr().err


def test_settings_come_along(tmp_path: Path) -> None:
    config, arrays = tiny_model()
    hyper = {
        **tiny_hyper_parameters(config),
        **{"beam_size": 7, "decode_alpha": 1, "decode_length": 9, "dropout": 0.3, "label_smooth": 0.2, "max_len": 60},
        **{"clip_grad_norm": 0.0, "lrate": 0.5, "lrate_strategy": "Cosine", "warmup_steps": 30, "cosine_period": 70},
        **{"lrate_decay": 0.9, "max_lrate": 2.0, "epsilon": 1e-7, "batch_or_token": "batch", "batch_size": 25},
        **{"update_cycle": 4, "safe_nan": True, "gnorm_upper_bound": 50.0, "ema_decay": 0.99, "random_seed": 3},
        **{"initializer": "normal", "initializer_gain": 0.02},
    }
    options = write_checkpoint(tmp_path, arrays, hyper)
    assert convert(options, tmp_path / "ours") == 0
    found = load_saved(tmp_path / "ours" / "config.yaml")
    assert (found.decoding.beam_size, found.decoding.length_penalty, found.decoding.max_length_offset) == (7, 1.0, 9)
    assert (found.model.dropout, found.model.initializer, found.model.initializer_options["gain"]) == (
        0.3,
        "normal",
        0.02,
    )
    assert (found.data.max_length, found.data.too_long, found.data.tokenizer, found.seed) == (
        60,
        "truncate",
        "whitespace",
        3,
    )
    training = found.training
    assert (training.label_smoothing, training.clip_norm, training.lr, training.schedule) == (0.2, 0.0, 0.5, "cosine")
    assert training.schedule_options == {
        "min_lr": 0.0, "max_lr": 2.0, "warmup_steps": 30, "period": 70, "period_factor": 1.0, "decay": 0.9
    }  # fmt: skip
    assert (training.optimizer, training.optimizer_options["epsilon"]) == ("adam_tf", 1e-7)
    assert (training.batch_sentences, training.batch_tokens, training.accumulate) == (25, None, 4)
    assert (training.skip_norm, training.ema_decay, training.normalization) == (50.0, 0.99, "batch")


@pytest.mark.parametrize("strategy", ["noam", "gnmt+", "epoch", "score", "vanilla", "cosine"])
def test_each_schedule_has_its_counterpart(strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, arrays = tiny_model()
    options = write_checkpoint(tmp_path, arrays, tiny_hyper_parameters(config))
    assert convert(options, tmp_path / "ours", "--hparams", f"lrate_strategy={strategy}") == 0
    training = load_saved(tmp_path / "ours" / "config.yaml").training
    assert training.skip_norm is None  # as Zero looks at no norm without safe_nan
    schedule = training.schedule
    assert schedule == {"vanilla": "constant", "score": "constant"}.get(strategy, strategy)
    assert ("lrate_strategy" in capsys.readouterr().err) == (strategy == "score")  # it would need validation data


@pytest.mark.parametrize("tie", ["none", "all"])
def test_training_goes_on_from_a_converted_model(tie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config, arrays = tiny_model(tie_embeddings=tie)
    assert convert(write_checkpoint(tmp_path, arrays, tiny_hyper_parameters(config)), Path("ours")) == 0
    for language in ("en", "de"):
        Path(f"train.{language}").write_text("w3 w4 w8\nw5 w3\n" * 4)
    changes = {
        "run_dir": "run",
        "data.train": "train",
        "data.dev": "train",
        "data.workers": "1",
        "training.init_from": "ours",
        "training.max_steps": "1",
        "training.lr": "1e-30",
        "training.schedule": "constant",
        "training.schedule_options": "{}",
        "training.precision": "fp32",
    }
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    assert nmt_train(Path("ours/config.yaml"), *settings) == 0
    found = zero.to_arrays(load_model("run").model)
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    evaluated = call("nmt-eval", "ours", "--source", "train.en", "--ref", "train.de", "--device", "cpu")
    assert evaluated == 0


def test_what_is_not_given_is_read_off_the_variables(tmp_path: Path) -> None:
    config, arrays = tiny_model(**MODELS["ln"])
    options = write_checkpoint(tmp_path, {f"var/{name}": array for name, array in arrays.items()})
    (tmp_path / "tgt.vocab").write_bytes((tmp_path / "src.vocab").read_bytes())
    given = ("--hparams", "model_name=deepnmt,cell=LRN", "hidden_size=6", "embed_size=6")
    assert convert(options, tmp_path / "ours", *given) == 0
    source, target = torch.tensor([[3, 4, 2]]), torch.tensor([[5, 2]])
    ours = load_model(tmp_path / "ours").model
    again = zero.from_arrays({**tiny_hyper_parameters(config), "cell": "lrn"}, arrays, torch.float32)
    assert torch.equal(ours.score(source, target), again.score(source, target))
    assert ours.source_vocab_size == SIZES[0]
