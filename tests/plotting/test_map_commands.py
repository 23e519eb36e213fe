"""nmt-plot attention and nmt-plot memory: maps of what `Translator.inspect` gives."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pytest

import nmt
from nmt.inspection.values import Inspection, UnitTrace
from nmt.plotting.command import main
from tests.plotting.test_maps import labels, maps
from tests.tiny_run import make_run

pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")

SOURCE, TARGET = ("▁a", "b", "<eos>"), ("x", "<eos>")
READ = ("<bos>", "x")
NUMBERS = np.random.default_rng(5)
ATTENTION = {
    "encoder.0.self": NUMBERS.random((2, 3, 3)),
    "decoder.0.self": NUMBERS.random((2, 2, 2)),
    "decoder.0": np.full((2, 2, 3), 1 / 3),
    "decoder.1": np.stack([np.eye(3)[:2]] * 2),
}


def unit(name, tokens, *, memory=True):
    count = len(tokens)
    weights = NUMBERS.random((count, count)) if memory else None
    return UnitTrace(name, False, tokens, np.zeros((count, 4)), {}, weights)


UNITS = {
    "encoder.0.forward": unit("rnn", SOURCE, memory=False),
    "encoder.1.forward": unit("lrn", SOURCE),
    "encoder.1.backward": unit("lrn", SOURCE),
    "decoder.0": unit("atr", READ),
}


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Runs the command with a model in which the above goes on; its figure, and what it was asked for."""
    asked, figures = [], []

    class Model(contextlib.AbstractContextManager):
        units = UNITS

        def __exit__(self, *error):
            asked.append("closed")

        def inspect(self, text, target):
            asked.append((text, target))
            zeros = np.zeros(len(TARGET))
            return Inspection(text, target or "x", SOURCE, TARGET, zeros, zeros, ATTENTION, self.units)

    monkeypatch.setattr(nmt, "load", lambda path, **options: asked.append((path, options)) or Model())
    import nmt.plotting as plotting

    picture = plotting.picture
    monkeypatch.setattr(plotting, "picture", lambda figure, ending: figures.append(figure) or picture(figure, ending))

    def run(kind, *options):
        assert main([kind, "runs/x", "--text", "a b", "-o", str(tmp_path / "map.svg"), *options]) == 0
        return figures[-1], asked

    run.model = Model
    return run


def titles(figure):
    return [text.get_text() for text in figure.texts]


def shown(figure):
    return [axes.get_images()[0].get_array() for axes in maps(figure)]


def test_the_sharpest_layer_is_drawn(drawn, tmp_path):
    figure, asked = drawn("attention", "--target", "x", "--checkpoint", "7", "--device", "cpu", "--plugin", "my.py")
    assert titles(figure) == ["Attention of decoder.1, mean of 2 heads", "source →", "← target"]
    (axes,) = maps(figure)
    assert np.array_equal(shown(figure)[0], np.eye(3)[:2])
    assert labels(axes.xaxis) == ["␣a", "b", "<eos>"] and labels(axes.yaxis) == ["x", "<eos>"]
    path, options = asked[0]
    assert path == "runs/x" and asked[1:] == [("a b", "x"), "closed"]
    assert options == {"device": "cpu", "checkpoint": "7", "plugins": ["my.py"]}
    assert (tmp_path / "map.svg").read_bytes().startswith(b"<?xml")


def test_layers_and_heads(drawn):
    figure, _ = drawn("attention", "--layer", "decoder", "--heads", "all")
    wanted = [f"decoder.{layer}, head {head}" for layer in (0, 1) for head in (1, 2)]
    assert titles(figure) == ["Attention", "source →", "← target", *wanted]
    assert np.array_equal(shown(figure), np.concatenate([ATTENTION["decoder.0"], ATTENTION["decoder.1"]]))
    figure, _ = drawn("attention", "--layer", "decoder.0", "--heads", "2")
    assert titles(figure)[0] == "Attention of decoder.0, head 2"


@pytest.mark.parametrize(
    ("layer", "tokens"), [("encoder.0.self", ["␣a", "b", "<eos>"]), ("decoder.0.self", ["<bos>", "x"])]
)
def test_self_attention_has_the_tokens_of_its_side(drawn, layer, tokens):
    figure, _ = drawn("attention", "--layer", layer)
    (axes,) = maps(figure)
    assert labels(axes.xaxis) == labels(axes.yaxis) == tokens
    assert titles(figure)[1:] == ["attends to →", "← token"]
    assert np.array_equal(shown(figure)[0], ATTENTION[layer].mean(0))


def test_memory(drawn):
    figure, _ = drawn("memory")
    assert titles(figure)[0] == "Memory of encoder.1.forward (lrn)", "the first unit has no memory weights"
    assert np.array_equal(shown(figure)[0], UNITS["encoder.1.forward"].memory)
    figure, _ = drawn("memory", "--unit", "encoder.1")
    assert titles(figure)[3:] == ["encoder.1.forward (lrn)", "encoder.1.backward (lrn)"]
    assert np.array_equal(shown(figure)[1], UNITS["encoder.1.backward"].memory)
    figure, _ = drawn("memory", "--unit", "decoder.0")
    assert labels(maps(figure)[0].yaxis) == ["<bos>", "x"]


def refused(capsys, code, *arguments):
    assert main([str(argument) for argument in arguments]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.strip()


def test_mistakes(drawn, tmp_path, capsys, monkeypatch):
    def attempt(kind, *options, text="a b", output="map.png", code=2):
        return refused(capsys, code, kind, "runs/x", "--text", text, "-o", tmp_path / output, *options)

    assert (
        attempt("attention", "--heads", "3")
        == "nmt-plot attention: --heads: decoder.1 has 2 heads; 3 is not one of them"
    )
    assert "'0' is not mean, all, or numbers of heads such as 1,3" in attempt("attention", "--heads", "0")
    assert "--layer: 'encoder.0' " not in attempt("attention", "--layer", "encoder.1")
    assert "attend to different sides" in attempt("attention", "--layer", "encoder,decoder")
    without = attempt("memory", "--unit", "encoder.0.forward")
    assert without.endswith(
        "--unit: encoder.0.forward (rnn) has no memory weights; "
        "allowed: encoder.1.forward, encoder.1.backward, decoder.0"
    )
    assert "read different tokens" in attempt("memory", "--unit", "encoder.1,decoder")
    assert attempt("memory", text=" ") == "nmt-plot memory: --text: is empty; give a sentence"
    assert "ends in none of .png, .svg, .pdf" in attempt("memory", output="map.gif")
    monkeypatch.setattr(drawn.model, "units", {"encoder.0.forward": UNITS["encoder.0.forward"]})
    assert attempt("memory").endswith("runs/x: no unit has memory weights (rnn)")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert attempt("memory", code=1).endswith("matplotlib is not installed; pip install 'nmt-recurrent[plot]'")
    assert list(tmp_path.iterdir()) == []


def test_letters_without_a_font_are_reported(drawn, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", ("▁\U000e0fff\U00020000", "b", "<eos>"))
    arguments = ["attention", "runs/x", "--text", "a b", "-o", str(tmp_path / "map.png")]
    assert main(arguments) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nmt-plot attention: no installed font has \U00020000, drawn as boxes")


def test_of_a_real_model(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    for kind in ("attention", "memory"):
        picture = tmp_path / f"{kind}.svg"
        assert main([kind, str(run), "--text", "a b c", "--target", "x y", "-o", str(picture), "--device", "cpu"]) == 0
        assert f">{kind.capitalize()} of " in picture.read_text(encoding="utf-8")
    capsys.readouterr()  # which may say that C kernels are compiled
    inside = run / "tokenizer" / "x.svg"
    said = refused(capsys, 1, "memory", run, "--text", "a", "-o", inside)
    assert said.endswith(f"{inside}: is a part of the model {run}; choose another output")
