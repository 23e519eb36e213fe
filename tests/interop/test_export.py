"""Exported folders: what is stored, that a search computes the same with it, and that nothing damaged is used."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nmt.config import dump, load_config
from nmt.data import EOS
from nmt.errors import CheckpointError, ConfigError
from nmt.interop import model_dir, run_layout
from nmt.interop.export import export_model
from nmt.interop.exported import FORMATS, format_name, layout, packed
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.interop.run_layout import TrainingFacts, write_facts
from nmt.interop.weights_file import read_metadata, write_weights
from nmt.models import build_model, inference
from nmt.models.base import Seq2Seq
from nmt.models.inference import SOFTMAX, inference_copy, step_matrices
from nmt.search.ensemble import choose_search_precision
from tests.tiny_run import words

CPU = torch.device("cpu")


def make_model_dir(folder: Path, *, tie: str = "target_softmax", cell: str = "gru", decoding: str = "") -> Path:
    """A run with one checkpoint, `step-7`, whose model ties its tables in this way."""
    folder.mkdir()
    (folder / "in.yaml").write_text(
        f"run_dir: {folder}\n"
        f"model: {{cell: {cell}, hidden_size: 8, embedding_size: 6, encoder_layers: 2, decoder_layers: 2,"
        f" init_range: 0.8, tie_embeddings: {tie}}}\n"
        "data: {train: corpus/train, tokenizer: whitespace}\n"
        f"decoding: {{beam_size: 3, max_length_offset: 4{decoding}}}\n"
    )
    config = load_config(folder / "in.yaml")
    tokenizer = words()
    (folder / run_layout.TOKENIZER).mkdir()
    tokenizer.save(folder / run_layout.TOKENIZER)
    checkpoint = run_layout.step_dir(folder, 7)
    checkpoint.mkdir(parents=True)
    (folder / run_layout.CONFIG).write_text(dump(config))
    torch.manual_seed(4)
    model = build_model(config.model, tokenizer.source_size, tokenizer.target_size)
    save_file(dict(model.state_dict()), checkpoint / run_layout.WEIGHTS)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_model_dir(tmp_path / "run")


def steps(model: Seq2Seq) -> Tensor:
    """Logits of three steps of a search."""
    source = torch.tensor([[4, 5, 6, EOS], [8, 7, EOS, 0]])
    with torch.inference_mode():
        state, found, tokens = model.start(source), [], None
        for word in (3, 4, 5):
            logits, state = model.step(tokens, state)
            found.append(logits.float())
            tokens = torch.full((2,), word)
    return torch.stack(found)


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32 elsewhere", "bf16 elsewhere"])
@pytest.mark.parametrize("tie", ["none", "target_softmax"])
def test_int8_computes_bit_for_bit_what_the_run_does(
    tie: str, bf16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On machines with bf16 arithmetic and without; nothing is quantised again."""
    run = make_model_dir(tmp_path / "run", tie=tie)
    export_model(run, tmp_path / "out", stored="int8")
    expected = inference_copy(load_model(run).model, int8=True, bf16=bf16)
    loaded = load_model(tmp_path / "out")
    monkeypatch.setattr(inference, "quantize", lambda weight: pytest.fail("quantised again"))
    found = inference_copy(loaded.model, int8=True, bf16=bf16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        assert torch.equal(steps(found), steps(expected))
    again = inference_copy(loaded.model, int8=True, bf16=bf16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        assert torch.equal(steps(again), steps(expected))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_fp32_is_the_run_in_every_number_format(precision: Any, run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "out")
    models = [load_model(place).model for place in (run, tmp_path / "out")]
    chosen = choose_search_precision(precision, device=CPU, models=models)
    with chosen.autocast():
        first, second = (steps(chosen.converted(model)) for model in models)
    assert torch.equal(first, second)
    assert choose_search_precision("auto", device=CPU, models=models).name == "fp32"


def test_bf16_is_the_run_with_rounded_weights(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "out", stored="bf16")
    loaded, expected = load_model(tmp_path / "out").model, load_model(run).model
    with torch.no_grad():
        for weight in expected.parameters():
            if weight.dim() > 1:
                weight.copy_(weight.to(torch.bfloat16))
    for precision in ("bf16", "fp32"):
        chosen = choose_search_precision(precision, device=CPU, models=[loaded])  # type: ignore[arg-type]
        with chosen.autocast():
            assert torch.equal(steps(chosen.converted(loaded)), steps(chosen.converted(expected)))
    chosen = choose_search_precision("auto", device=CPU, models=[loaded])
    assert chosen.name == "bf16" and chosen.reason.startswith("as exported")


def test_int8_bf16_differs_from_int8_in_the_rounding_of_all_else_alone(run: Path, tmp_path: Path) -> None:
    tables = {}
    for stored in ("int8", "int8_bf16"):
        export_model(run, tmp_path / stored, stored=stored)
        tables[stored] = load_file(tmp_path / stored / run_layout.WEIGHTS)
    exact, small = tables["int8"], tables["int8_bf16"]
    assert exact.keys() == small.keys()
    for name, weight in exact.items():
        is_other = weight.dim() > 1 and weight.dtype == torch.float32
        assert torch.equal(small[name], weight.to(torch.bfloat16) if is_other else weight)
        assert small[name].dtype == (torch.bfloat16 if is_other else weight.dtype)
    model = load_model(tmp_path / "int8_bf16").model
    assert choose_search_precision("auto", device=CPU, models=[model]).name == "int8"
    exact_model = load_model(tmp_path / "int8").model
    difference = steps(inference_copy(model, int8=True)) - steps(inference_copy(exact_model, int8=True))
    assert 0 < float(difference.abs().max()) < 0.2


@pytest.mark.parametrize("tie", ["none", "target_softmax"])
def test_each_weight_is_stored_once_as_it_is_used(tie: str, tmp_path: Path) -> None:
    """But for a table that search reads as int8 and embeddings as it is."""
    run = make_model_dir(tmp_path / "run", tie=tie)
    exported = export_model(run, tmp_path / "out", stored="int8_bf16")
    tensors = load_file(tmp_path / "out" / run_layout.WEIGHTS)
    model = load_model(run).model
    matrices = {**dict(step_matrices(model)), SOFTMAX: model.embeddings.softmax_table}
    assert len(matrices) > 10
    expected = set[str]()
    for name, weight in model.state_dict().items():
        if name not in matrices:
            expected.add(name)
            assert tensors[name].dtype == (torch.bfloat16 if weight.dim() > 1 else torch.float32)
    for name, weight in matrices.items():
        expected |= {f"{name}.int8", f"{name}.scales"}
        values, scales = tensors[f"{name}.int8"], tensors[f"{name}.scales"]
        assert (values.dtype, scales.dtype) == (torch.int8, torch.float32)
        assert values.shape == weight.shape and scales.shape == weight.shape[:1]
        assert float((values * scales.unsqueeze(1) - weight.detach()).abs().max()) <= 0.51 * float(scales.max())
    assert tensors.keys() == expected
    content = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert 0 < exported.weights - content < 200 * len(tensors), "the header"
    assert exported.total == sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_what_a_plugin_uses_in_its_own_way_is_not_rounded(run: Path) -> None:
    """As a search leaves it: see `inference_copy`."""
    model = load_model(run).model
    model.decoder.add_module("extra", torch.nn.Conv1d(2, 3, 4))
    model.decoder.add_module("known", torch.nn.Linear(2, 3))
    for stored, form in FORMATS.items():
        tensors = packed(model, form)
        assert tensors["decoder.extra.weight"].dtype == torch.float32
        assert ("decoder.known.weight.int8" in tensors) == (form.precision == "int8"), stored
        planned = layout(model, form)
        assert planned.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert (planned[name].shape, planned[name].dtype) == (tensor.shape, tensor.dtype)


def test_scoring_uses_the_values_that_are_stored(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "out", stored="int8")
    model, stored = load_model(tmp_path / "out").model, load_file(tmp_path / "out" / run_layout.WEIGHTS)
    name = next(name for name, _ in step_matrices(model))
    values = stored[f"{name}.int8"].float() * stored[f"{name}.scales"].unsqueeze(1)
    assert torch.equal(dict(model.named_parameters())[name], values)


def test_what_was_rounded_is_used_in_no_finer_format(run: Path, tmp_path: Path) -> None:
    models = {}
    for stored in FORMATS:
        export_model(run, tmp_path / stored, stored=stored)
        models[stored] = load_model(tmp_path / stored).model
    for stored, requested in (("int8", "fp32"), ("int8_bf16", "bf16"), ("bf16", "int8")):
        with pytest.raises(ConfigError) as found:
            choose_search_precision(requested, device=CPU, models=[load_model(run).model, models[stored]])  # type: ignore[arg-type]
        kept = FORMATS[stored].precision
        allowed = "auto, int8" if kept == "int8" else "auto, fp32, bf16"
        assert str(found.value) == (
            f"precision: {requested} is not possible, because the model was exported in {kept}. "
            f"Allowed: {allowed}. For {requested} use the run, or export it in {requested}."
        )
    together = [load_model(run).model, models["int8"], models["fp32"]]
    assert choose_search_precision("auto", device=CPU, models=together).name == "int8"


def test_only_what_training_has_made_is_exported_again(run: Path, tmp_path: Path) -> None:
    for stored in FORMATS:
        export_model(run, tmp_path / stored, stored=stored)
    export_model(tmp_path / "fp32", tmp_path / "again", stored="int8")
    first, second = (load_file(tmp_path / name / run_layout.WEIGHTS) for name in ("again", "int8"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert format_name(tmp_path / "again") == "int8"
    with pytest.raises(CheckpointError, match=r"/bf16: exported in bf16, so its weights are rounded; use"):
        export_model(tmp_path / "bf16", tmp_path / "more")


def test_weights_that_bf16_has_not_are_refused(run: Path, tmp_path: Path) -> None:
    file = run_layout.step_dir(run, 7) / run_layout.WEIGHTS
    weights = load_file(file)
    weights["embeddings.source"][0, 0] = 3.4e38
    save_file(weights, file)
    for stored in ("bf16", "int8_bf16"):
        with pytest.raises(ConfigError, match=r"^precision: embeddings.source holds 3.4e\+38, too large for bf16"):
            export_model(run, tmp_path / "out", stored=stored)
    assert not (tmp_path / "out").exists()
    export_model(run, tmp_path / "out", stored="int8")


def test_files_that_decoding_names_go_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list.safetensors").write_bytes(b"a shortlist")
    (tmp_path / "terms.tsv").write_bytes(b"a\tx\n")
    named = f", shortlist: {tmp_path / 'list.safetensors'}, glossary: {tmp_path / 'terms.tsv'}"
    run = make_model_dir(tmp_path / "run", decoding=named)
    export_model(run, tmp_path / "out")
    (tmp_path / "list.safetensors").unlink()
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    decoding = load_model("elsewhere").config.decoding
    assert decoding.shortlist == "elsewhere/shortlist.safetensors"
    assert Path(decoding.shortlist).read_bytes() == b"a shortlist"
    assert decoding.glossary == "elsewhere/glossary.tsv" and Path(decoding.glossary).read_bytes() == b"a\tx\n"
    with pytest.raises(
        ConfigError, match=r"^decoding.shortlist: .*list.safetensors: No such file.*; the folder would lack"
    ):
        export_model(run, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_language_model_is_no_part_of_a_folder(tmp_path: Path) -> None:
    run = make_model_dir(tmp_path / "run", decoding=", language_model: runs/lm")
    with pytest.raises(
        ConfigError, match=r"^decoding.language_model: runs/lm is set, .*: null; give it with --language-model"
    ):
        export_model(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_is_written_whole_or_not_at_all(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "out"
    export_model(run, out, stored="int8")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="exists already; choose another name or replace it with --overwrite"):
        export_model(run, out)
    with monkeypatch.context() as broken, pytest.raises(OSError, match=f"full: .*{out.name}"):
        broken.setattr("nmt.registry.CARDS.get", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        export_model(run, out, overwrite=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    export_model(run, out, overwrite=True)
    assert read_metadata(out / run_layout.WEIGHTS)["stored_as"] == "fp32"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_overwrite_deletes_nothing_but_an_export(run: Path, tmp_path: Path) -> None:
    for folder in ("mine", "plain"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine" / "work.txt").write_text("years")
    shutil.copy(run_layout.step_dir(run, 7) / run_layout.WEIGHTS, tmp_path / "plain")
    for folder in ("mine", "plain"):
        with pytest.raises(CheckpointError, match=f"/{folder}: --overwrite replaces only exported folders"):
            export_model(run, tmp_path / folder, overwrite=True)
        assert list((tmp_path / folder).iterdir())
    with pytest.raises(CheckpointError, match="is a part of the model"):
        export_model(run, run / "checkpoints" / "out", overwrite=True)
    export_model(run, tmp_path / "out")
    with pytest.raises(CheckpointError, match="is a part of the model"):
        export_model(tmp_path / "out", tmp_path / "out", stored="int8", overwrite=True)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(CheckpointError, match="exists and is not a directory"):
        export_model(run, tmp_path / "link", overwrite=True)


def renew_sums(folder: Path) -> None:
    """As somebody does who changes files of a folder knowingly."""
    names = [line.split("  ")[1] for line in (folder / run_layout.SUMS).read_text().splitlines()]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / run_layout.SUMS).write_text("".join(sums))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "a changed weight",
        lambda folder: flip(folder / "model.safetensors"),
        "/model.safetensors: changed since it was exported",
    ),
    ("a changed setting", lambda folder: flip(folder / "config.yaml"), "/config.yaml: changed since it was exported"),
    (
        "a changed token",
        lambda folder: flip(next((folder / "tokenizer").glob("source*"))),
        "changed since it was saved",
    ),
    (
        "other checksums of the tokenizer",
        lambda folder: flip(folder / "tokenizer/checksums.json"),
        "/checksums.json: changed",
    ),
    (
        "no configuration",
        lambda folder: (folder / "config.yaml").unlink(),
        "/config.yaml: missing, although SHA256SUMS lists it",
    ),
    ("no tokenizer", lambda folder: shutil.rmtree(folder / "tokenizer"), "/tokenizer/checksums.json: missing"),
    (
        "no checksums",
        lambda folder: (folder / "SHA256SUMS").unlink(),
        "/SHA256SUMS: no such file; an exported folder must have it",
    ),
    (
        "empty checksums",
        lambda folder: (folder / "SHA256SUMS").write_text(""),
        "/SHA256SUMS: not a list of the checksums of",
    ),
    (
        "checksums of something else",
        lambda folder: (folder / "SHA256SUMS").open("a").write(f"{'0' * 64}  ../../etc/passwd\n"),
        "/SHA256SUMS: '../../etc/passwd' is not a file of an exported folder",
    ),
    (
        "checksums of a file in a folder of it",
        lambda folder: (folder / "SHA256SUMS").open("a").write(f"{'0' * 64}  other/words\n"),
        "/SHA256SUMS: 'other/words' is not a file of an exported folder",
    ),
    (
        "half of the weights",
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:4000]),
        "/model.safetensors: damaged file",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_what_is_damaged_is_refused_in_one_line(
    damage: Callable[[Path], object], message: str, run: Path, tmp_path: Path
) -> None:
    export_model(run, tmp_path / "out", stored="int8")
    damage(tmp_path / "out")
    with pytest.raises(CheckpointError) as found:
        load_model(tmp_path / "out")
    assert message in str(found.value) and "\n" not in str(found.value)


def matrix_of(tensors: dict[str, Tensor]) -> str:
    return next(name for name in sorted(tensors) if name.endswith(".int8"))


def below(tensors: dict[str, Tensor]) -> None:
    tensors[matrix_of(tensors)][0, 0] = -128


def no_scale(tensors: dict[str, Tensor]) -> None:
    tensors[matrix_of(tensors).replace(".int8", ".scales")][1] = 0


def other_type(tensors: dict[str, Tensor]) -> None:
    tensors["embeddings.source"] = tensors["embeddings.source"].to(torch.bfloat16)


def short(tensors: dict[str, Tensor]) -> None:
    name = matrix_of(tensors)
    tensors[name] = tensors[name][:-1].contiguous()


def missing(tensors: dict[str, Tensor]) -> None:
    del tensors[SOFTMAX + ".scales"]


def not_a_number(tensors: dict[str, Tensor]) -> None:
    tensors["embeddings.source"][0, 0] = torch.nan


CHANGES = [
    (below, ".int8 holds -128, below -127"),
    (no_scale, ".scales holds scales that are not positive numbers"),
    (other_type, "embeddings.source is bfloat16 but must be float32"),
    (short, "but must be ["),
    (missing, "embeddings.softmax.scales is missing"),
    (not_a_number, "embeddings.source contains NaN or infinite values"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_weights_that_are_no_export_of_this_model_are_refused(
    change: Callable[[dict[str, Tensor]], object], message: str, run: Path, tmp_path: Path
) -> None:
    """Even where the checksums have been made anew."""
    export_model(run, tmp_path / "out", stored="int8")
    file = tmp_path / "out" / run_layout.WEIGHTS
    tensors, metadata = load_file(file), read_metadata(file)
    change(tensors)
    write_weights(file, tensors, metadata=metadata)
    renew_sums(tmp_path / "out")
    with pytest.raises(CheckpointError) as found:
        load_model(tmp_path / "out")
    assert message in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("change", [{"nmt_export": "2"}, {"stored_as": "int4"}], ids=str)
def test_a_folder_of_another_version_is_named(change: dict[str, str], run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "out")
    file = tmp_path / "out" / run_layout.WEIGHTS
    write_weights(file, load_file(file), metadata={**read_metadata(file), **change})
    with pytest.raises(CheckpointError, match="exported by an unknown version of nmt"):
        load_model(tmp_path / "out")


def test_metadata_of_the_run_goes_along_but_for_who_may_replace_it(run: Path, tmp_path: Path) -> None:
    file = run_layout.step_dir(run, 7) / run_layout.WEIGHTS
    write_weights(file, load_file(file), metadata={"scope": "nmt", "made_by": "nmt-train"})
    export_model(run, tmp_path / "out")
    metadata = read_metadata(tmp_path / "out" / run_layout.WEIGHTS)
    assert metadata["scope"] == "nmt" and "made_by" not in metadata


def log_of(run: Path, *events: dict[str, Any]) -> None:
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


SIGNATURE = "BLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def test_the_card_says_what_is_recorded_of_these_weights(run: Path, tmp_path: Path) -> None:
    scored = {"signatures": {"bleu": SIGNATURE}}
    log_of(
        run,
        {"event": "start", "step": 0, "train_pairs": 29000, "test_pairs": 1000},
        {"event": "validation", "step": 6, "epoch": 1.0, "bleu": 11.0, **scored},
        {"event": "validation", "step": 7, "epoch": 1.5, "bleu": 22.0, **scored},
        {"event": "validation", "step": 7, "epoch": 1.5, "bleu": 33.0, **scored},
        {"event": "test", "step": 9, "epoch": 2.0, "checkpoint": "step-7", "bleu": 36.97, **scored},
        {"event": "test", "step": 9, "epoch": 2.0, "checkpoint": "average", "bleu": 44.0, **scored},
    )
    export_model(run, tmp_path / "my model", stored="int8")
    card = (tmp_path / "my model" / "README.md").read_text(encoding="utf-8")
    parameters = sum(weight.numel() for weight in load_model(run).model.parameters())
    for line in (
        "# my model: en to de",
        "| languages | en → de |",
        "| architecture | deepnmt, 2 encoder layers, 2 decoder layers |",
        "| recurrent unit | gru |",
        f"| parameters | {parameters:,} |",
        "| search | beam, beam 3, length penalty 0.6 |",
        "| longest training source | not recorded |",
        "| made of | update 7, epoch 1.5 |",
        "nmt-translate 'my model' < text.en > text.de",
        "| training | corpus/train | 29,000 |",
        "| test | not recorded | 1,000 |",
        f"- validation: BLEU 33.00, `{SIGNATURE.removeprefix('BLEU ')}`",
        f"- test: BLEU 36.97, `{SIGNATURE.removeprefix('BLEU ')}`",
    ):
        assert line in card.splitlines(), line
    assert "before the weights were rounded to int8" in card
    assert "pip install nmt-recurrent" not in card, "nmt is on no package index"
    assert not any(number in card for number in ("11.00", "22.00", "44.00", str(tmp_path)))


def test_the_card_of_a_model_without_records_invents_nothing(run: Path, tmp_path: Path) -> None:
    for log in (None, "{damaged}\n"):
        if log is not None:
            (run / "log.jsonl").write_text(log)
        export_model(run, tmp_path / "out", overwrite=True)
        card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
        assert "Scores of these weights: not recorded." in card and "BLEU" not in card
        assert "| training | corpus/train | not recorded |" in card and "| made of | update 7 |" in card
    weights = load_file(run_layout.step_dir(run, 7) / run_layout.WEIGHTS)
    log_of(run, {"event": "start", "step": 0, "train_pairs": 3}, {"event": "test", "checkpoint": "mean", "bleu": 9.0})
    mean = run / "mean"
    shutil.copytree(run / "tokenizer", mean / "tokenizer")
    shutil.copy(run / "config.yaml", mean)
    write_weights(mean / run_layout.WEIGHTS, weights, metadata={"averaged": "step-5 step|7"})
    export_model(mean, tmp_path / "out2")
    card = (tmp_path / "out2" / "README.md").read_text(encoding="utf-8")
    assert "| made of | the mean of step-5 step\\|7 |" in card
    assert "| training | corpus/train | not recorded |" in card, "whose run it lies in is not known to be its own"


def test_the_average_that_a_run_made_has_its_scores(run: Path, tmp_path: Path) -> None:
    weights = load_file(run_layout.step_dir(run, 7) / run_layout.WEIGHTS)
    shutil.copytree(run / "tokenizer", run / "average" / "tokenizer")
    shutil.copy(run / "config.yaml", run / "average")
    write_weights(
        run / "average" / run_layout.WEIGHTS, weights, metadata={"averaged": "step-7", "made_by": "nmt-train"}
    )
    log_of(
        run,
        {"event": "start", "step": 0, "train_pairs": 3},
        {"event": "test", "step": 7, "checkpoint": "average", "bleu": 12.5, "signatures": {"bleu": SIGNATURE}},
    )
    export_model(run / "average", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "- test: BLEU 12.50, " in card and "| training | corpus/train | 3 |" in card
    assert "| made of | the mean of step-7 |" in card and "made_by" not in read_metadata(
        tmp_path / "out" / run_layout.WEIGHTS
    )


def test_what_loading_reads_is_what_was_exported(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "out", stored="int8")
    loaded: LoadedModel = load_model(tmp_path / "out")
    assert loaded.config.decoding.precision == "int8" and loaded.path == tmp_path / "out"
    assert loaded.model.stored is not None and loaded.model.stored.precision == "int8"
    assert not loaded.model.training
    assert loaded.longest_source == (loaded.config.data.max_length, False)
    assert model_dir.load_model(run).model.stored is None


def test_the_longest_source_of_a_run_is_that_of_its_checkpoints_and_exports(run: Path, tmp_path: Path) -> None:
    write_facts(run, TrainingFacts(5))
    export_model(run, tmp_path / "out")
    for path in (run, run_layout.step_dir(run, 7), tmp_path / "out"):
        assert load_model(path).longest_source == (5, True)
    assert "| longest training source | 5 tokens |" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
