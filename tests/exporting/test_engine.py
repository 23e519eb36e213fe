"""nmt-export for the engine: one file, chosen by its name, refused where the engine would translate otherwise."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from nmt.config import dump, load_config, load_saved
from nmt.data import EOS, PAD
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.exporting import command as export
from nmt.interop import run_layout
from nmt.interop.model_dir import load_model
from nmt.light import Translator
from nmt.models import build_model
from nmt.search.shortlist import Shortlist
from nmt.search.values import FIRST_EOS_PENALTY
from nmt.shortlisting import command as shortlist
from nmt.zero.search import greedy_search
from tests.compiled import needed_engine
from tests.interop.engine_reference import File, Search
from tests.tiny_run import make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", sentencepiece=True)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def exported(*arguments: object) -> File:
    """The file at the last argument, which is written."""
    *before, output = map(str, arguments)
    assert export.main([*before, "-o", output]) == 0
    return File(Path(output).read_bytes())


def refused(capsys: pytest.CaptureFixture[str], *arguments: object, code: int) -> str:
    """The one line by which it refuses something."""
    capsys.readouterr()
    assert export.main([str(argument) for argument in arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    return line


def with_decoding(run: Path, **changes: Any) -> None:
    """Other settings of the search in the configurations of a run."""
    for path in run.rglob(run_layout.CONFIG):
        text = path.read_text()
        for key, value in changes.items():
            lines = [line for line in text.splitlines() if line.strip().startswith(f"{key}:")]
            text = text.replace(lines[-1], f"  {key}: {json.dumps(value)}")
        path.write_text(text)
        load_saved(path, [])


def test_the_name_says_what_is_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported(run, tmp_path / "new" / "model.nmt")
    said = capsys.readouterr()
    size = (tmp_path / "new" / "model.nmt").stat().st_size
    weights = len(file.sections["DATA"])
    place = f"{tmp_path / 'new/model.nmt'}: {run / 'checkpoints/step-10'}"
    assert said.out == f"{place} for the engine in int8, {size / 1e6:.2f} MB ({weights / 1e6:.2f} MB of weights)\n"
    assert said.err == ""
    assert file.beam_size == 3 and file.offset == 4 and "SPMT" not in file.sections and "LIST" not in file.sections
    (proto,) = run.glob("tokenizer/*.model")
    assert file.sections["SPMS"] == proto.read_bytes()
    assert exported(run, "--format", "engine", "--precision", "bf16", tmp_path / "model").kinds.count(2) > 10
    assert export.main([str(run), "-o", str(tmp_path / "folder.nmt"), "--format", "folder"]) == 0
    assert (tmp_path / "folder.nmt" / "model.safetensors").is_file()
    assert export.main([str(run), "-o", str(tmp_path / "folder")]) == 0 and (tmp_path / "folder").is_dir()


def test_its_card(run: Path, tmp_path: Path) -> None:
    file = exported(run, "--checkpoint", "20", tmp_path / "model.nmt")
    meta = json.loads(file.sections["META"])
    expected = {"name": "model.nmt", "architecture": "deepnmt", "units": "gru", "precision": "int8"}
    assert {key: meta[key] for key in expected} == expected
    assert (meta["source_language"], meta["target_language"]) == ("en", "de")
    assert meta["decoding"]["beam_size"] == 3
    for line in ("| made of | update 20 |", "nmt-translate model.nmt <", "| weights | int8: matrices of 16 columns or"):
        assert line in meta["card"]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_the_same_model_gives_the_same_bytes(precision: str, run: Path, tmp_path: Path) -> None:
    files = [exported(run, "--precision", precision, tmp_path / part / "model.nmt") for part in ("a", "b")]
    assert files[0].sections == files[1].sections


def test_it_translates_as_the_run_does(run: Path, tmp_path: Path) -> None:
    """Greedily, from pieces of text to pieces."""
    file = exported(run, "--precision", "fp32", tmp_path / "model.nmt")
    loaded = load_model(run)
    for ids in loaded.tokenizer.encode_source(["along long sentence of b", "\u00df", "cxer"]):
        source = [*ids, EOS]
        ((found,),) = greedy_search(
            loaded.model, torch.tensor([source]), length_penalty=0.6, max_length_offset=file.offset, scores=False
        )
        search, words = Search(file, source), list[int]()
        while EOS not in words and len(words) < len(source) + file.offset:
            logits = search.step(words[-1] if words else None)
            logits[PAD] = -np.inf
            logits[EOS] -= 0 if words else FIRST_EOS_PENALTY
            words.append(int(logits.argmax()))
        assert [word for word in words if word != EOS] == list(found.ids)


def test_two_vocabularies_are_two_models(run: Path, tmp_path: Path) -> None:
    config = load_config(run / "in.yaml", [f"run_dir={tmp_path / 'two'}", "data.tokenizer_options={joint: false}"])
    tokenizers = []
    for word in ("long", "short"):
        text = tmp_path / word
        text.write_text("".join(f"{a} {word}{b} of {a}{b} \u00df\n" for a in "abcd" for b in "xyzuv"))
        tokenizers.append(text)
    options = SentencePieceOptions(vocab_size=290, joint=False)
    tokenizer = SentencePieceTokenizer.train(tokenizers[:1], tokenizers[1:], options=options, seed=1)
    checkpoint = run_layout.step_dir(tmp_path / "two", 1)
    checkpoint.mkdir(parents=True)
    (tmp_path / "two" / run_layout.CONFIG).write_text(dump(config))
    (tmp_path / "two" / run_layout.TOKENIZER).mkdir()
    tokenizer.save(tmp_path / "two" / run_layout.TOKENIZER)
    save_file(dict(build_model(config.model, 290, 290).state_dict()), checkpoint / run_layout.WEIGHTS)
    file = exported(tmp_path / "two", tmp_path / "two.nmt")
    assert (file.sections["SPMS"], file.sections["SPMT"]) == tokenizer.models
    assert file.sections["SPMS"] != file.sections["SPMT"]


def test_a_shortlist_is_made_as_by_its_own_command(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("en", "de"):
        Path(f"corpus.{side}").write_text("a longaer sentence of ax\nc\nsentence of by b longber\n" * 3)
    assert shortlist.main([str(run), "-o", "own"]) == 0
    wanted = exported(run, "--shortlist", "own", tmp_path / "a.nmt").sections["LIST"]
    capsys.readouterr()
    assert exported(run, "--shortlist", "make", tmp_path / "b.nmt").sections["LIST"] == wanted
    assert "nmt-export: --shortlist: 9 sentence pairs; " in capsys.readouterr().err
    Path("corpus.en").unlink()
    assert "data.train: " in refused(capsys, run, "-o", tmp_path / "c.nmt", "--shortlist", "make", code=1)


def test_a_shortlist_comes_from_the_option_or_the_settings(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = load_model(run).tokenizer
    starts = torch.zeros(tokenizer.source_size + 1, dtype=torch.long)
    starts[8:] = 2
    for name, frequent in (("given", [9, 5]), ("set", [7])):
        lists = Shortlist(
            frequent=torch.tensor(frequent),
            partners=torch.tensor([11, 12]),
            starts=starts,
            target_size=tokenizer.target_size,
        )
        (tmp_path / name).write_bytes(lists.save_bytes(tokenizer))
    found = exported(run, "--shortlist", tmp_path / "given", tmp_path / "a.nmt").sections["LIST"]
    expected = [2, 2, 9, 5, *starts.tolist(), 11, 12]
    assert np.frombuffer(found, "<u4").tolist() == expected
    with_decoding(run, shortlist=str(tmp_path / "set"))
    assert np.frombuffer(exported(run, tmp_path / "b.nmt").sections["LIST"], "<u4").tolist()[:3] == [1, 2, 7]
    (tmp_path / "set").write_bytes(b"no")
    assert "not a readable shortlist" in refused(capsys, run, "-o", tmp_path / "c.nmt", code=1)
    line = refused(capsys, run, "-o", tmp_path / "c", "--shortlist", tmp_path / "given", code=2)
    assert line.startswith("nmt-export: --shortlist: allowed only with --format engine")
    assert not (tmp_path / "c.nmt").exists()


def test_what_is_there_is_replaced_only_if_it_is_such_a_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.nmt"
    exported(run, out)
    before = out.read_bytes()
    assert "exists already" in refused(capsys, run, "-o", out, "--checkpoint", "20", code=1)
    assert out.read_bytes() == before
    out.chmod(0o640)
    exported(run, "--checkpoint", "20", "--overwrite", out)
    assert out.read_bytes() != before and out.stat().st_mode & 0o777 == 0o640
    other, link = tmp_path / "text.nmt", tmp_path / "link.nmt"
    other.write_text("mine")
    link.symlink_to(out)
    (tmp_path / "dir.nmt").mkdir()
    for path, words in ((other, "this is not one"), (link, "not a file"), (tmp_path / "dir.nmt", "not a file")):
        assert words in refused(capsys, run, "-o", path, "--overwrite", code=1)
    assert other.read_text() == "mine"
    assert "is a part of the model" in refused(capsys, run, "-o", run / "config.yaml", "--format", "engine", code=1)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_the_engine_has_not_is_refused_in_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.nmt"
    line = refused(capsys, run, run, "-o", out, code=2)
    assert line.startswith("nmt-export: MODEL: a model file holds one model")
    line = refused(capsys, run, "-o", out, "--precision", "int8_bf16", code=2)
    assert (
        line == "nmt-export: --precision: 'int8_bf16' is allowed only for folders. Allowed with --format engine: int8, "
        "fp32, bf16."
    )
    words = make_run(tmp_path / "words")
    line = refused(capsys, words, "-o", out, code=2)
    assert line == "nmt-export: data.tokenizer: 'whitespace' is not known to the engine. Allowed: sentencepiece."
    for setting, wanted in (
        ({"max_length_offset": 1001}, "max_length_offset: 1001 is too large for a file for the engine."),
        ({"max_length_offset": 500, "beam_size": 250}, "max_length_offset: 500 is too large for a file for the engine"),
        ({"max_length_offset": 10, "beam_size": 1001}, "beam_size: 1001 is too large for a file for the engine"),
    ):
        with_decoding(run, **setting)
        assert f"nmt-export: decoding.{wanted}" in refused(capsys, run, "-o", out, code=2)
    with_decoding(run, max_length_offset=9, beam_size=3)
    with_decoding(run, glossary="terms.tsv")
    line = refused(capsys, run, "-o", out, code=2)
    wanted = "'terms.tsv' is set, which a file for the engine does not have. Allowed in config.yaml: null."
    assert line == f"nmt-export: decoding.glossary: {wanted}"
    with_decoding(run, min_length=0, glossary=None)
    assert export.main([str(run), "-o", str(tmp_path / "rounded"), "--precision", "int8"]) == 0
    assert "exported in int8" in refused(capsys, tmp_path / "rounded", "-o", out, code=1)
    assert not out.exists()


def test_a_unit_of_a_plugin_is_refused_by_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "engine_units.py"
    plugin.write_text(
        "from nmt.cells import GRU\nfrom nmt.registry import CELLS\n\n\n"
        '@CELLS.register("engine_gru")\nclass Mine(GRU):\n    """A GRU of another name."""\n'
    )
    for path in run.rglob(run_layout.CONFIG):
        path.write_text(path.read_text().replace("cell: gru", "cell: engine_gru", 1))
    line = refused(capsys, run, "-o", tmp_path / "model.nmt", "--plugin", plugin, code=2)
    assert line.startswith("nmt-export: model.cell: the engine does not know the class Mine of engine_units")
    assert "Allowed: atr, gru, lrn, lstm, min_gru, min_lstm, olrn, rnn, sru, ssru." in line


def test_n_best_is_noted(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_decoding(run, n_best=2)
    exported(run, tmp_path / "model.nmt")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nmt-export: decoding.n_best: 2 is not stored in the file")


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({}, ("nfc", "nfc")),
        ({"normalization": "identity"}, ("identity", "identity")),
        ({"joint": False}, ("nmt_nfkc", "nfc")),
        ({"joint": False, "normalization": "nmt_nfkc"}, ("nmt_nfkc", "nmt_nfkc")),
        ({"source_model": "a.model"}, ("that of the given model", "that of the given model")),
        ({"joint": False, "target_model": "a.model"}, ("nmt_nfkc", "that of the given model")),
    ],
)
def test_the_card_says_how_text_is_normalised(
    run: Path, tmp_path: Path, options: dict[str, Any], rules: tuple[str, str]
) -> None:
    for path in run.rglob(run_layout.CONFIG):
        saved = yaml.safe_load(path.read_text())
        saved["data"]["tokenizer_options"].update(options)
        path.write_text(yaml.safe_dump(saved))
    if not options.get("joint", True):
        for side in ("source", "target"):
            shutil.copy(run / "tokenizer/joint.model", run / f"tokenizer/{side}.model")
    card = json.loads(exported(run, tmp_path / "model.nmt").sections["META"])
    assert card["normalization"] == dict(zip(("source", "target"), rules, strict=True))
    assert export.main([str(run), "-o", str(tmp_path / "folder")]) == 0
    row = f"| normalisation | source {rules[0]}, target {rules[1]} |"
    assert row in (tmp_path / "folder/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("output", "card"), [("m.nmt", "m.nmt"), ("folder", "folder/README.md"), ("graphs", "graphs/README.md")]
)
def test_a_note_of_the_maker_is_in_the_card(
    run: Path, tmp_path: Path, output: str, card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "note.md"
    note.write_text("Licence: CC BY, *für alle*.\n", encoding="utf-8")
    format_ = ["--format", "onnx"] if output == "graphs" else []
    arguments = [str(run), "-o", str(tmp_path / output), *format_, "--note", str(note)]
    assert export.main(arguments) == 0
    assert "Licence: CC BY, *für alle*.".encode() in (tmp_path / card).read_bytes()
    note.unlink()
    assert f"{note}: " in refused(capsys, *arguments, "--overwrite", code=1)


def test_what_rounding_costs_is_printed_and_in_the_card(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "text", tmp_path / "model.nmt"
    text.write_text("a longaer sentence\n\nb of ax\n")
    assert export.main([str(run), "-o", str(out), "--source", str(text), "--ref", str(text)]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"\| the run \| [\d.]+ \| [\d.]+ MB \| [\d.]+ ms \|\n\| the file, for the engine in int8 \|", shown
    )
    with Translator(out, library=needed_engine()) as translator:
        assert "## What rounding costs" in translator.card["card"] and "3 lines of" in translator.card["card"]
    for arguments, problem in (
        (["--source", text], "--source, --ref: each needs the other"),
        (["--source", text, "--ref", text, "--format", "folder"], "--source: allowed only with --format engine"),
    ):
        assert problem in refused(capsys, run, "-o", tmp_path / "x", *arguments, code=2)
