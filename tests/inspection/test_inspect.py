"""`Translator.inspect`: what goes on inside a model that reads a sentence, as plain values."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import nmt
from nmt.inspection.values import Inspection, UnitTrace
from tests.tiny_run import make_run
from tests.tiny_training import nmt_train, write_config, write_corpus


def check_same(found: Inspection, wanted: Inspection) -> None:
    names = ("source", "target", "source_tokens", "target_tokens")
    assert [getattr(found, name) for name in names] == [getattr(wanted, name) for name in names]
    assert np.array_equal(found.token_scores, wanted.token_scores)
    assert np.array_equal(found.token_entropies, wanted.token_entropies)
    assert list(found.attention) == list(wanted.attention)
    assert all(np.array_equal(found.attention[name], wanted.attention[name]) for name in wanted.attention)
    assert list(found.units) == list(wanted.units)
    for name, unit in wanted.units.items():
        own = found.units[name]
        assert (own.unit, own.reverse, own.tokens) == (unit.unit, unit.reverse, unit.tokens)
        assert np.array_equal(own.states, unit.states)
        assert np.array_equal(own.memory, unit.memory)
        assert {gate: value.tobytes() for gate, value in own.gates.items()} == {
            gate: value.tobytes() for gate, value in unit.gates.items()
        }


def test_of_the_best_translation(tiny_run: Path) -> None:
    with nmt.load(tiny_run, device="cpu", precision="fp32") as exact:
        found = exact.inspect("a b c")
        result = exact.translate("a b c", details=["tokens", "scores", "attention"])
    assert (found.source, found.target, found.target_tokens) == ("a b c", result.text, result.tokens)
    assert found.source_tokens == result.source_pieces == ("a", "b", "c", "<eos>")
    np.testing.assert_allclose(found.token_scores, result.token_scores, atol=1e-5)
    np.testing.assert_allclose(found.source_attention, result.attention, atol=1e-5)
    assert list(found.attention) == ["decoder.0"]
    words = len(found.target_tokens)
    assert found.attention["decoder.0"].shape == (1, words, 4)
    assert found.token_entropies.shape == (words,)
    assert repr(found).startswith("Inspection('a b c', ")


def test_arrays_are_fp32_and_travel(local: nmt.Translator) -> None:
    found = local.inspect("a b c", "x y")
    assert (found.target, found.target_tokens) == ("x y", ("x", "y", "<eos>"))
    for name, unit in found.units.items():
        tokens = found.source_tokens if name.startswith("encoder") else ("<bos>", "x", "y")
        assert isinstance(unit, UnitTrace)
        assert (unit.unit, unit.tokens, unit.cell) == ("gru", tokens, None)
        assert unit.states.shape == unit.gates["z"].shape == unit.gates["r"].shape == (len(tokens), 8)
        assert unit.memory is not None
        assert unit.memory.shape == (len(tokens), len(tokens))
        assert {array.dtype for array in (unit.states, unit.memory, *unit.gates.values())} == {np.dtype(np.float32)}
    assert [name for name, unit in found.units.items() if unit.reverse] == [
        "encoder.0.backward.lower", "encoder.0.backward.higher",
    ]  # fmt: skip
    arrays = [found.token_scores, found.token_entropies, *found.attention.values(), found.source_attention]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    check_same(pickle.loads(pickle.dumps(found)), found)


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_source_is_refused(local: nmt.Translator, source: str) -> None:
    with pytest.raises(nmt.DataError, match="source: is empty; give a sentence"):
        local.inspect(source)


def test_targets_of_all_kinds(local: nmt.Translator) -> None:
    assert local.inspect("a", "").target_tokens == ("<eos>",)
    assert local.inspect("a\nb", "x\ny").source == "a b"
    score = local.score("a b", "x u v")
    found = local.inspect("a b", "x u v")
    assert found.token_scores.mean() == pytest.approx(score.score, abs=1e-5)
    with pytest.raises(TypeError, match="source must be a string, not list"):
        local.inspect(["a"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target must be a string, not int 3"):
        local.inspect("a", 3)  # type: ignore[arg-type]
    with pytest.raises(nmt.DataError, match="target holds half of a surrogate pair"):
        local.inspect("a", "\ud800")


def test_sentences_that_are_too_long_are_refused(local: nmt.Translator) -> None:
    """What is computed grows with the square of the length."""
    for source, target, name in (("a " * 1001, "x", "source"), ("a", "x " * 1001, "target")):
        with pytest.raises(nmt.DataError, match=f"{name}: has 1,001 tokens; at most 1,000 are allowed"):
            local.inspect(source, target)


def test_a_model_without_a_finite_translation_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=(10,), best=(10,))
    with nmt.load(run, device="cpu") as translator:
        (model,) = translator._networks  # type: ignore[attr-defined]
        model.embeddings.bias.data.fill_(float("nan"))
        with pytest.raises(nmt.DataError, match="source: no translation of it has a finite probability; give a target"):
            translator.inspect("a")
        assert np.isnan(translator.inspect("a", "x").token_scores).all()


def test_an_ensemble_tells_of_each_model(tiny_run: Path, local: nmt.Translator) -> None:
    steps = [tiny_run / "checkpoints" / f"step-{step}" for step in (20, 10)]
    with nmt.load(steps, device="cpu", precision="fp32") as both:
        found = both.inspect("a b", "x u")
        assert found.token_scores.mean() == pytest.approx(both.score("a b", "x u").score, abs=1e-5)
        details = both.translate("a b", details=["attention", "scores"])
        own = both.inspect("a b")
        np.testing.assert_allclose(own.source_attention, details.attention, atol=1e-5)
        np.testing.assert_allclose(own.token_scores, details.token_scores, atol=1e-5)
    assert list(found.attention) == ["0.decoder.0", "1.decoder.0"]
    with nmt.load(steps[1], device="cpu") as second:
        alone = second.inspect("a b", "x u")
    assert np.array_equal(found.attention["1.decoder.0"], alone.attention["decoder.0"])
    for name, unit in alone.units.items():
        assert found.units[f"1.{name}"].tokens == unit.tokens
        assert np.array_equal(found.units[f"1.{name}"].states, unit.states)


def test_a_long_sentence_is_not_cut(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    config = run / "checkpoints" / "step-20" / "config.yaml"
    text = config.read_text(encoding="utf-8")
    assert "split_long: 1000" in text
    config.write_text(text.replace("split_long: 1000", "split_long: 3"), encoding="utf-8")
    with nmt.load(config.parent, device="cpu") as translator:
        assert "split" in translator.translate("a b c . d a").notes
        found = translator.inspect("a b c . d a")
    assert len(found.source_tokens) == 7
    assert found.units["encoder.0.forward"].states.shape == (7, 8)


def test_the_cell_of_an_lstm(tmp_path: Path) -> None:
    """It is at least as large as h, which is its tanh times a gate."""
    write_corpus(tmp_path)
    config = write_config(tmp_path, model={"cell": "lstm"}, training={"max_steps": 1})
    assert nmt_train(config) == 0
    with nmt.load(tmp_path / "run", device="cpu") as translator:
        units = translator.inspect("ba da").units
    assert {unit.unit for unit in units.values()} == {"lstm"}
    for unit in units.values():
        assert unit.cell is not None and unit.cell.shape == unit.states.shape
        assert (np.abs(unit.states) <= np.abs(unit.cell)).all() and not np.array_equal(unit.states, unit.cell)


def test_the_attention_to_the_source_is_the_mean_of_all_heads_that_read_it() -> None:
    ones = np.ones((2, 3, 3), np.float32)
    attention = {"encoder.0.self": 7 * ones, "decoder.0.self": 8 * ones, "decoder.0": ones, "decoder.1": 3 * ones}
    nothing = np.zeros(3, np.float32)
    found = Inspection("a b", "x y", ("a", "b", "<eos>"), ("x", "y", "<eos>"), nothing, nothing, attention, {})
    assert np.array_equal(found.source_attention, np.full((3, 3), 2, np.float32))


def test_a_closed_translator_says_so(tiny_run: Path) -> None:
    translator = nmt.load(tiny_run, device="cpu")
    translator.close()
    with pytest.raises(nmt.NmtError, match="this translator is closed"):
        translator.inspect("a")
