"""ONNX graphs compute what PyTorch does, whatever the model is made of; and the folder that they are exported in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.cells import LRN
from nmt.cli import translate
from nmt.data import EOS
from nmt.data.batching import pad
from nmt.errors import ConfigError
from nmt.exporting import command as export
from nmt.files import read_sums
from nmt.interop.engine.opened import compiled_engine
from nmt.light import Translator
from nmt.models.base import Seq2Seq
from nmt.ops.recurrence import State
from nmt.ops.unit import Unit
from nmt.run_check import command as check
from tests.interop.engine_models import BLOCKS, OTHERS, TRANSFORMER, UNITS, make_model, section
from tests.onnx_export.models import Feed, Runner, example, followed, graphs, onnx, runner
from tests.tiny_run import make_run

SENTENCES = [[5, 3, 9, EOS], [8, EOS], [4, 7, 7, 3, 6, EOS]]
STEPS = 3
CELLS = [(name, options[-1]) for name, options in UNITS.items()]
RECURRENT = [OTHERS[i] for i in (0, 2, 4, 8, 11, 13)]


def check_same(model: Seq2Seq) -> None:
    """Logits and attention of some steps of a greedy search, of a batch whose sentences have several lengths."""
    with torch.inference_mode():
        source, found = pad(SENTENCES), runner(model)
        state, tokens, feed = model.start(source), None, found.start(source.numpy())
        for _ in range(STEPS):
            logits, weights, state = model.attending_step(tokens, state)
            results = found.scored(feed)
            np.testing.assert_allclose(results["logits"], logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max()))
            np.testing.assert_allclose(results["attention"], weights, atol=1e-4)
            tokens = logits[:, 3:].argmax(1) + 3
            feed = followed(feed, results, tokens.numpy())


@dataclass(frozen=True, kw_only=True)
class OwnUnit(Unit):
    """A unit as a plugin has it: h = max(a, 0.5 b - h') / (1 + exp(c) |h'|)."""

    name = "own"
    inputs = 3

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        a, b, c = x.chunk(3, -1)
        return (torch.maximum(a, 0.5 * b - seen[0]) / (1 + torch.exp(c) * torch.abs(state[0])),)


class OwnCell(LRN):
    """The cell of it."""

    def unit(self) -> Any:
        return OwnUnit()


def with_own_cells() -> Seq2Seq:
    model = make_model(section(cell="lrn"))
    for module in model.modules():
        if type(module) is LRN:
            module.__class__ = OwnCell
    return model


def test_the_equation_of_a_plugins_unit() -> None:
    check_same(with_own_cells())


def test_an_equation_with_an_unknown_operation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnUnit, "equation", lambda self, x, state, seen: (torch.erf(state[0]),))
    with pytest.raises(ConfigError, match="model.cell: the equation of its unit has erf, .* Allowed: abs, addcmul, "):
        graphs(with_own_cells())


@pytest.mark.parametrize(("cell", "options"), CELLS)
def test_each_unit(cell: str, options: dict[str, Any]) -> None:
    """With layer norm, from state to state in two cells."""
    check_same(make_model(section(cell=cell, cell_options=options, layer_norm=True)))


@pytest.mark.parametrize("changes", RECURRENT, ids=str)
def test_each_recurrent_architecture(changes: dict[str, Any]) -> None:
    check_same(make_model(section(**changes)))


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_each_option_of_the_transformer(options: dict[str, Any]) -> None:
    check_same(make_model(section(architecture="transformer", architecture_options=options)))


@pytest.mark.slow
@pytest.mark.parametrize("cell", UNITS)
def test_each_option_of_each_unit(cell: str) -> None:
    for options in UNITS[cell]:
        check_same(make_model(section(cell=cell, cell_options=options)))
        check_same(make_model(section(cell=cell, cell_options=options, **TRANSFORMER)))


@pytest.mark.slow
@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_each_option_of_the_recurrent_architectures(changes: dict[str, Any]) -> None:
    check_same(make_model(section(**changes)))


WIDE = {"hidden_size": 256, "embedding_size": 80, "init_range": 0.1}


@pytest.mark.parametrize(
    "changes",
    [
        {"cell": "lrn", **WIDE},
        {"architecture": "transformer", "architecture_options": BLOCKS[0], "embedding_size": 256},
    ],
    ids=["deepnmt", "transformer"],
)
def test_int8_is_near_fp32_and_no_row_depends_on_others(changes: dict[str, Any]) -> None:
    """Bit for bit, also where rows share what was read of the source, and however far a sentence is filled up."""
    model = make_model(section(**changes))
    exact, rounded = runner(model), runner(model, precision="int8")
    tokens = np.arange(3, 10)
    alone = rounded.start(np.array(SENTENCES[:1]))
    seven = steps(rounded, alone, tokens)
    for rows in ([0], [2, 5], [1, 3, 6], [0, 1, 2, 3, 4]):
        few = steps(rounded, alone, tokens[rows])
        apart = steps(rounded, alone, tokens[rows], shared=False)
        for name, values in seven.items():
            assert (few[name] == values[rows]).all() and (apart[name] == values[rows]).all()
    near = steps(exact, exact.start(np.array(SENTENCES[:1])), tokens)["logits"]
    assert 0 < np.abs(near - seven["logits"]).max() < 0.1 * np.abs(near).max()
    draw = np.random.default_rng(4)
    sentences = [[*draw.integers(3, 17, length).tolist(), EOS] for length in (1, 4, 11, 16, 22)]
    batch = steps(rounded, rounded.start(pad(sentences).numpy()), tokens[: len(sentences)])
    for row, sentence in enumerate(sentences):
        single = steps(rounded, rounded.start(np.array([sentence])), tokens[row : row + 1])
        for name, values in batch.items():
            found = values[row]
            if name == "attention":
                found = found[: len(sentence)]
            assert (found == single[name][0]).all()


def steps(found: Runner, start: Feed, tokens: np.ndarray[Any, Any], *, shared: bool = True) -> Feed:
    """The results of the last of some steps in rows that begin with these words, of one sentence or of one each."""
    feed = dict(start)
    for name, value in start.items():
        if len(value) == 1 and not (shared and name.startswith(("memory", "source"))):
            feed[name] = value.repeat(len(tokens), 0)
    for place in range(STEPS):
        feed["tokens"] = tokens + place
        results = found.scored(feed)
        feed = followed(feed, results, feed["tokens"])
    return results


def test_int8_has_one_product_for_each_matrix_and_each_table_once() -> None:
    """And nothing that rounds all rows with one scale."""
    for tie, more in (("all", 0), ("none", 1)):
        model = make_model(section(tie_embeddings=tie, embedding_size=16, hidden_size=20))
        for graph in graphs(model, precision="int8"):
            nodes = list(graph.graph.node)
            bodies = [attribute.g for node in nodes for attribute in node.attribute if attribute.name == "body"]
            nodes += [node for body in bodies for node in body.node]
            kinds = {node.op_type for node in nodes}
            assert "MatMulNBits" in kinds and not kinds & {"DynamicQuantizeLinear", "Gemm"}
            stored = {each.name for each in graph.graph.initializer if len(each.dims) == 2 and each.dims[0] > 2}
            assert not stored & {name for node in nodes if node.op_type == "MatMul" for name in node.input}
            values = [each for each in graph.graph.initializer if each.data_type == onnx.TensorProto.UINT8]
            tables = [each for each in values if each.dims[0] in (17, 19)]
            assert len(tables) == 1 + more * (graph.graph.name == "step")
            assert graph.ir_version == 8 and {each.domain: each.version for each in graph.opset_import} == {
                "": 17,
                "com.microsoft": 1,
            }


def test_scalars_are_of_rank_0() -> None:
    """ONNX Runtime in browsers takes nothing else for a scalar."""
    model = make_model(section(architecture="transformer", architecture_options=BLOCKS[0]))
    for graph in graphs(model):
        constants = {each.name: list(each.dims) for each in graph.graph.initializer}
        for node in graph.graph.node:
            scalars = {"CumSum": [1], "Where": [2], "Equal": [1]}.get(node.op_type, [])
            assert all(constants.get(node.input[place], []) == [] for place in scalars)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a run, and its exports for ONNX Runtime and for the engine."""
    place = tmp_path_factory.mktemp("onnx")
    make_run(place / "run", sentencepiece=True)
    assert export.main([str(place / "run"), "-o", str(place / "graphs"), "--format", "onnx"]) == 0
    assert export.main([str(place / "run"), "-o", str(place / "model.nmt"), "--precision", "fp32"]) == 0
    return place


def test_the_example_of_the_card_translates_as_the_engine_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        engine = Translator(folder / "model.nmt", library=compiled_engine())
    except ConfigError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(folder / "graphs")
    translate_one = example(folder / "graphs")
    lines = ["a longzer sentence of cy", "b", "", "dz ß longxer"]
    found = [translate_one(line) for line in lines]
    assert found == [result.text for result in engine.translate(lines, beam_size=1)] and all(found[:2])


def test_what_is_in_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs_of = folder / "graphs"
    sums = read_sums((graphs_of / "SHA256SUMS").read_bytes())
    assert sums == {
        name: hashlib.sha256((graphs_of / name).read_bytes()).hexdigest()
        for name in ("encoder.onnx", "step.onnx", "joint.model", "config.json")
    }
    config = json.loads((graphs_of / "config.json").read_text("utf-8"))
    assert config["search"] == {
        "search": "beam",
        "beam_size": 3,
        "length_penalty": 0.6,
        "max_length_offset": 4,
        "longest_source": 1000,
    }
    assert config["source_pieces"] == config["target_pieces"] == "joint.model"
    card = (graphs_of / "README.md").read_text("utf-8")
    for graph in ("encoder", "step"):
        model = onnx.load(graphs_of / f"{graph}.onnx")
        for what, values in (("input", model.graph.input), ("output", model.graph.output)):
            names = [value.name for value in values]
            assert [each["name"] for each in config[graph][f"{what}s"]] == names
            assert all(f"| {what} `{name}` | " in card for name in names)
    for command in (translate, check):
        assert command.main([str(graphs_of)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{graphs_of}: " in line and "ONNX" in line


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line by which nmt-export refuses something."""
    capsys.readouterr()
    assert export.main([str(argument) for argument in arguments]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_overwriting(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, arguments = tmp_path / "out", [folder / "run", "-o", tmp_path / "out", "--format", "onnx"]
    assert export.main([*map(str, arguments), "--precision", "int8"]) == 0
    total = sum(path.stat().st_size for path in out.iterdir())
    said = capsys.readouterr().out
    assert said.startswith(
        f"{out}: {folder / 'run/checkpoints/step-10'} as ONNX graphs in int8, {total / 1e6:.2f} MB ("
    )
    before = (out / "step.onnx").read_bytes()
    assert "exists already; choose another name or replace it with --overwrite" in refused(capsys, *arguments)
    assert (out / "step.onnx").read_bytes() == before
    assert export.main([*map(str, arguments), "--overwrite"]) == 0 and (out / "step.onnx").read_bytes() != before
    assert "is a part of the model" in refused(capsys, *arguments[:2], folder / "run/tokenizer", *arguments[3:])
    (out / "config.json").write_text("{}")
    line = refused(capsys, *arguments, "--overwrite")
    assert "--overwrite replaces only folders of ONNX graphs, and this is not one" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_what_cannot_be_exported_is_refused_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [folder / "run", "-o", tmp_path / "out", "--format", "onnx"]
    line = refused(capsys, *arguments, "--precision", "bf16")
    assert line.endswith("--precision: 'bf16' is not allowed for ONNX graphs. Allowed with --format onnx: fp32, int8.")
    assert "--shortlist: allowed only with --format engine" in refused(capsys, *arguments, "--shortlist", "list")
    assert "MODEL: an exported folder holds one model" in refused(capsys, folder / "run", *arguments)
    make_run(tmp_path / "words")
    line = refused(capsys, tmp_path / "words", *arguments[1:])
    assert "data.tokenizer: 'whitespace' cannot be exported with ONNX graphs. Allowed: sentencepiece." in line
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "the package onnx is not installed; pip install 'nmt-recurrent[onnx]'" in refused(capsys, *arguments)
    assert not (tmp_path / "out").exists()


def test_settings_that_are_left_to_the_search_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", sentencepiece=True)
    for config in run.rglob("config.yaml"):
        config.write_text(config.read_text().replace("no_repeat_ngram: 0", "no_repeat_ngram: 3"))
    assert export.main([str(run), "-o", str(tmp_path / "out"), "--format", "onnx"]) == 0
    assert "nmt-export: decoding.no_repeat_ngram: is set, but is not part of the graphs" in capsys.readouterr().err
    assert json.loads((tmp_path / "out/config.json").read_text())["search"]["no_repeat_ngram"] == 3
