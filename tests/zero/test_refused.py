"""What nmt-convert refuses: damaged or missing files, models that do not fit, and what Zero cannot compute."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nmt.cells import Cell, HiddenState
from nmt.config import dump, load_config
from nmt.data import Vocabulary
from nmt.errors import CheckpointError
from nmt.models import build_model
from nmt.registry import CELLS
from nmt.zero.checkpoint import read_vocabulary, vocabulary_text
from tests.console import call
from tests.tiny_run import SOURCE_WORDS, TARGET_WORDS, make_run
from tests.tiny_training import nmt_train, write_config, write_corpus
from tests.zero.files import convert, tiny_hyper_parameters, tiny_model, write_checkpoint


def refused(capsys: pytest.CaptureFixture[str], *, lines: int = 1) -> str:
    """What the last command said, which is so many lines."""
    error = capsys.readouterr().err
    assert len(error.splitlines()) == lines, error
    return error


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    config, arrays = tiny_model()
    return write_checkpoint(tmp_path, arrays, tiny_hyper_parameters(config))


def test_no_checkpoint(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "checkpoint").write_text('model_checkpoint_path: "/gone/since/model-7"\n')
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "state.npz", global_step=np.int64(3))
    for name, message in (
        ("gone/model-5", "gone/model-5.index: no such file; allowed: DIR/model-STEP"),
        ("gone/model-5.meta", "gone/model-5.index: no such file"),
        ("names", "names/model-7.index: no such file"),
        ("empty", "empty/checkpoint: No such file or directory; give the checkpoint itself"),
        ("gone.npz", "gone.npz: No such file"),
        ("text.npz", "text.npz: not an .npz file"),
        ("state.npz", "state.npz: holds no weights; names in it: global_step"),
    ):
        assert convert(["--checkpoint", str(tmp_path / name), *options[2:]], tmp_path / "ours") == 1
        assert message in refused(capsys)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full(4, np.nan, dtype=np.float32), "nmt/bias contains NaN or infinite values"),
        (np.arange(4), "nmt/bias holds int64; weights are real numbers"),
        (np.zeros(5, dtype=np.float32), "of the wrong shape: nmt/bias (5,) instead of (4,)"),
        (np.array([None], dtype=object), "nmt/bias cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_weights_that_cannot_be(
    array: Any, message: str, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, arrays = tiny_model()
    np.savez(tmp_path / "model.npz", **{**arrays, "nmt/bias": array})
    assert convert(options, tmp_path / "ours") == 1
    assert message in refused(capsys)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("model_name=transformer", "model_name: 'transformer' has no counterpart here. Allowed: deepnmt, rnnsearch"),
        ("cell=gruu", "'gruu' is not a known cell. Did you mean 'gru'?"),
        ("dtype_epsilon=1e-6", "dtype_epsilon: 1e-06 is not allowed; nmt's layer norm adds 1e-08"),
        ("lrate_strategy=noamm", "lrate_strategy: 'noamm' is unknown. Did you mean 'noam'?"),
        ("cell=gru", "variables do not fit the hyper-parameters; missing: "),
        ("cell=rnn", "cell: unit RNN has no counterpart in Zero"),
        ("hidden_size=0", "model.hidden_size: 0 must be greater than 0"),
        ("dropout=1.5", "model.dropout: 1.5 must be less than 1"),
        ("lrate=-1.0", "training.lr: -1.0 must be greater than 0"),
        ("hidden_size=1000000000000", "model.hidden_size: 1000000000000 must be at most 1048576"),
        ("num_decoder_layer=1000000000", "model.decoder_layers: 1000000000 must be at most 1000"),
        ("num_encoder_layer=2", "missing: nmt/encoder/layer_1/ff/W_0_0"),
        ("model_name=rnnsearch", " more; unknown: nmt/decoder/layer_0/attention/feed_logits/W_0_0"),
    ],
)
def test_hyper_parameters_that_do_not_fit(
    given: str, message: str, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = convert(options, tmp_path / "ours", "--hparams", given)
    of_the_data = ("missing: ", "unknown: ")
    assert code == (1 if any(part in message for part in of_the_data) else 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()


def test_no_hyper_parameters(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "param.json").unlink()
    assert convert(options, tmp_path / "ours") == 2
    assert "param.json: no such file; name the hyper-parameters with --hparams" in refused(capsys)


def test_vocabularies(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "src.vocab"
    source.write_text("w3\nw4\n<eos>\nw3\n\nw 5\n<unk>\nw6\r\n  w7 \nw8\n")  # the special ones always come first
    assert convert(options, tmp_path / "ours") == 1
    error = capsys.readouterr().err
    assert f"{source}: 10 tokens with the 3 special ones, but nmt/src_embedding has 9 rows" in error
    source.write_text("w3\nw4\n<eos>\nw3\n\nw 5\n<unk>\nw6\r\n  w7 \n")
    assert convert(options, tmp_path / "ours") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"nmt-convert: {source}: 1 repeated tokens; the first of each counts, as in Zero",
        f"nmt-convert: {source}: no text can contain the tokens of lines 5, 6, blank or with a space inside",
    ]
    saved = (tmp_path / "ours" / "tokenizer" / "source.vocab").read_text().splitlines()
    assert saved == ["<pad>", "<unk>", "<eos>", "w3", "w4", "<line-3>", "<line-4>", "w6", "w7"]
    (tmp_path / "src.vocab").write_text("")
    assert convert(options, tmp_path / "more") == 1
    assert "src.vocab: the vocabulary is empty" in refused(capsys)


def test_names_that_are_made_up_are_those_of_no_other_token(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("<line-2>\n\n<<line-2>>\na b\n<line-4>\n")
    vocabulary, notes = read_vocabulary(tmp_path / "v")
    assert list(vocabulary.tokens)[3:] == ["<line-2>", "<<<line-2>>>", "<<line-2>>", "<<line-4>>", "<line-4>"]
    assert len(notes) == 1 and "lines 2, 4," in notes[0]


def test_an_export_for_zero_that_fails_leaves_nothing(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert convert(options, tmp_path / "ours") == 0
    (tmp_path / "out").mkdir()

    def full(stream: Any, **_: Any) -> None:
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    capsys.readouterr()
    file = tmp_path / "out" / "back.npz"
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(file)) == 1
    assert f"{file}: " in refused(capsys) and not list((tmp_path / "out").iterdir())


def test_one_table_for_two_vocabularies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, arrays = tiny_model(tie_embeddings="all")
    options = write_checkpoint(tmp_path, arrays, tiny_hyper_parameters(config))
    text = (tmp_path / "tgt.vocab").read_text()
    (tmp_path / "tgt.vocab").write_text(text.replace("w5", "v5"))
    assert convert(options, tmp_path / "ours") == 1
    assert "another vocabulary than" in refused(capsys)


def test_nothing_is_overwritten(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(options, tmp_path / "ours") == 0
    capsys.readouterr()
    assert convert(options, tmp_path / "ours") == 1
    assert "ours: exists already; choose another name or replace it with --overwrite" in refused(capsys)
    (tmp_path / "back.tgt.vocab").touch()
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(tmp_path / "back.npz")) == 1
    assert "back.tgt.vocab: exists" in refused(capsys)
    assert call("nmt-convert", "to-zero", str(tmp_path / "ours"), "-o", str(tmp_path / "back")) == 2
    assert "back: the name must end in .npz" in refused(capsys)
    assert not list(tmp_path.glob("*.npz.*")) and not (tmp_path / "back.src.vocab").exists()


def test_only_what_was_converted_is_replaced(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, back = tmp_path / "ours", tmp_path / "back.npz"
    assert convert(options, ours) == 0
    (ours / "notes.txt").touch()
    assert convert([*options, "--overwrite"], ours) == 0
    assert not (ours / "notes.txt").exists() and not list(tmp_path.glob("*ours?*"))
    for _ in range(2):
        assert call("nmt-convert", "to-zero", str(ours), "-o", str(back), "--overwrite") == 0
    capsys.readouterr()
    (tmp_path / "back.src.vocab").unlink()
    assert call("nmt-convert", "to-zero", str(ours), "-o", str(back), "--overwrite") == 1
    assert "back.npz: --overwrite replaces only what to-zero has written" in refused(capsys)
    run = make_run(tmp_path / "run", steps=(10,))
    assert convert([*options, "--overwrite"], run) == 1
    assert "run: --overwrite replaces only converted models, and this is not one" in refused(capsys)


def make_model(folder: Path, **model: Any) -> Path:
    """A model directory with other values in its section `model`."""
    run = make_run(folder / "run", steps=(10,))
    config = load_config(run / "in.yaml", [f"model.{key}={value}" for key, value in model.items()])
    step = run / "checkpoints" / "step-10"
    (step / "config.yaml").write_text(dump(config))
    built = build_model(config.model, 3 + len(SOURCE_WORDS), 3 + len(TARGET_WORDS))
    save_file({name: value.clone() for name, value in built.state_dict().items()}, step / "model.safetensors")
    return step


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"cell": "lrn", "cell_options": "{tanh: true}"}, "  model.cell_options.tanh: True; it has only False"),
        (
            {"cell": "atr", "cell_options": "{activation: output, gates: coupled}"},
            "  model.cell_options.activation: 'output'; it has only 'none'\n"
            "nmt-convert:   model.cell_options.gates: 'coupled'; it has only 'twin'",
        ),
        (
            {"cell": "lstm", "cell_options": "{peepholes: true, output_activation: identity}"},
            "  model.cell_options.peepholes: True; it has only False\n"
            "nmt-convert:   model.cell_options.output_activation: 'identity'; it has only 'tanh'",
        ),
        (
            {"cell": "gru", "cell_options": "{reset: after}"},
            "  model.cell_options.reset: 'after'; it has only 'before'",
        ),
        ({"cell": "rnn"}, "unit RNN has no counterpart in Zero"),
        ({"encoder_hidden_size": 4}, "  model.encoder_hidden_size: 4; it has only None"),
        ({"encoder_cell": "lrn"}, "model: encoder_cell 'lrn', decoder_cell 'gru'; it has one cell"),
        (
            {"cell": "lrn", "decoder_cell": "lrn", "decoder_cell_options": "{tanh: true}"},
            "  model.decoder_cell_options.tanh: True; it has only False",
        ),
    ],
)
def test_what_zero_cannot_compute(
    model: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = make_model(tmp_path, **model)
    assert call("nmt-convert", "to-zero", str(step), "-o", str(tmp_path / "back.npz")) == 2
    error = capsys.readouterr().err
    assert error.startswith("nmt-convert: Zero cannot compute this model:")
    assert message.replace("nmt-convert: ", "") in error
    assert not (tmp_path / "back.npz").exists()


def test_what_makes_no_difference_is_exported(tmp_path: Path) -> None:
    start = {"cell_options": "{recurrent_init: orthogonal, forget_bias: 1.0}", "init_range": 0.1}
    norms = {"layer_norm": "true", "layer_norm_scale": 0.5}
    drops = {"dropout": 0.2, "recurrent_dropout": 0.1}
    step = make_model(tmp_path, cell="lstm", encoder_cell="lstm", encoder_hidden_size=8, **start, **norms, **drops)
    assert call("nmt-convert", "to-zero", str(step), "-o", str(tmp_path / "back.npz")) == 0


def test_pieces_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    data = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 320}}
    config = write_config(tmp_path, data=data, training={"max_steps": 1, "validate_every": 1})
    assert nmt_train(config) == 0
    capsys.readouterr()
    assert call("nmt-convert", "to-zero", str(tmp_path / "run"), "-o", str(tmp_path / "back.npz")) == 0
    assert "these vocabularies are the pieces of a sentencepiece tokenizer" in refused(capsys)
    words = (tmp_path / "back.src.vocab").read_text().splitlines()
    assert words[:3] == ["<pad>", "<unk>", "<eos>"] and len(words) == 320


@pytest.mark.parametrize("model", [{"cell": "rnn"}, {"cell": "lstm", "cell_options": "{peepholes: true}"}])
def test_what_there_is_only_here(model: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = make_model(tmp_path, **model)
    assert call("nmt-convert", "to-zero", str(step), "-o", str(tmp_path / "back.npz")) == 2
    assert "Zero cannot compute this model:" in capsys.readouterr().err


def test_units_of_plugins_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CELLS.names()
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))

    class Mine(Cell[HiddenState]):
        """No unit of Zero's."""

        def __init__(self, input_size: int, hidden_size: int, *, layer_norm: bool = False, options: Any = None) -> None:
            super().__init__(input_size, hidden_size, layer_norm=layer_norm, options=options)
            self.input = torch.nn.Linear(input_size, hidden_size)

        def project(self, x: torch.Tensor) -> torch.Tensor:
            return self.input(x)

        def step(self, projected: torch.Tensor, state: HiddenState) -> HiddenState:
            return HiddenState(projected + state.h)

    CELLS.register("mine")(Mine)
    step = make_model(tmp_path, cell="mine")
    assert call("nmt-convert", "to-zero", str(step), "-o", str(tmp_path / "back.npz")) == 2
    assert "Zero cannot compute this model: unit Mine has no counterpart in Zero" in refused(capsys)


@pytest.mark.parametrize("token", ["a\rb", "a\r", "\x0ba", "a\x0cb", "a b", "a\tb", "", "fine", "<unk>"])
def test_a_token_that_zero_would_not_find_in_any_text(token: str) -> None:
    """Python 2, which Zero runs in, splits text at these signs and takes them off the lines of a vocabulary."""
    tokens = ["<pad>", "<unk>", "<eos>", "fine", token]
    with pytest.raises(CheckpointError, match="a model: token 4 of its vocabulary, .* has another meaning in Zero"):
        vocabulary_text(tokens, where="a model")


def test_a_written_vocabulary_is_read_as_the_same(tmp_path: Path) -> None:
    tokens = ["<pad>", "<unk>", "<eos>", "\x1c", "a\x85", "\u2028", "\ufeffb", "\u00a0", "\0"]
    (tmp_path / "v").write_text(vocabulary_text(tokens, where="m"), encoding="utf-8", newline="")
    vocabulary, notes = read_vocabulary(tmp_path / "v")
    assert list(vocabulary.tokens) == tokens and not notes
    assert list(Vocabulary.from_file(tmp_path / "v").tokens) == tokens
