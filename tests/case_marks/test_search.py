"""Searches keep to prefixes and phrases as they are written, with a vocabulary of case marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config import load_config
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.exporting import command as export
from nmt.interop.model_dir import load_model
from nmt.search.constraints import ConstraintsMaker, Phrases
from tests.compiled import needed_engine
from tests.conftest import REPOSITORY
from tests.tiny_run import make_run

LINES = [f"the {size} Dog of NASA {verb} the Cat" for size in ("small", "big") for verb in ("saw", "is", "likes")]


@pytest.fixture(scope="module")
def file(run: Path) -> Path:
    """The run for the engine, in fp32."""
    needed_engine()
    assert export.main([str(run), "-o", str(run.parent / "run.nmt"), "--precision", "fp32"]) == 0
    return run.parent / "run.nmt"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, so that translations are odd."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text").write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    options = SentencePieceOptions(vocab_size=300, case="markup")
    made = SentencePieceTokenizer.train([folder / "text"], [folder / "text"], options=options, seed=1)
    run = make_run(folder / "run", sentencepiece=True)
    made.save(run / "tokenizer")
    return run


PREFIXES = [
    "The Do",
    "the do",
    "THE DOG sa",
    "The Dog of NASA",
    "A Ca ",
    "Is",
    "⇧ x",
    "NA",
    "na",
    "iPho",
    "The Small Dog Sa",
]


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_begin_with_their_prefix(run: Path, beam: int) -> None:
    translator = nmt.load(run)
    for prefix in PREFIXES:
        text = translator.translate("the small dog", prefix=prefix, beam_size=beam).text
        assert text.startswith(prefix.strip()) and text.count(prefix.strip()) == 1, (prefix, text)


def test_prefixes_are_split_as_lines_are_and_stay_as_they_were_given(run: Path) -> None:
    """A mark where none is usual makes a model continue oddly; without it a longer word may have another letter."""
    translator, tokenizer = nmt.load(run), load_model(run).tokenizer
    for prefix in ("The Dog of NASA ", "the Cat saw "):
        tokens = translator.translate("the small dog", prefix=prefix, details=["tokens"]).tokens
        (ids,) = tokenizer.encode_target([prefix.strip()])
        assert tokens[: len(ids)] == tuple(tokenizer.target_tokens(ids))
    maker = ConstraintsMaker(tokenizer, load_config(REPOSITORY / "configs/demo.yaml").decoding)
    assert maker.with_prefix(nmt.Request("", prefix="the do"), "the Dog saw") == "the dog saw"
    assert maker.with_prefix(nmt.Request("", prefix="the do"), "of NASA") == "the doof NASA"


def test_phrases_are_forbidden_in_any_case(run: Path) -> None:
    tokenizer = load_model(run).tokenizer
    pieces = tokenizer.target_pieces()
    assert pieces is not None
    ids = dict(zip(tokenizer.target_tokens(range(tokenizer.target_size)), range(tokenizer.target_size), strict=True))
    assert pieces[ids["⇧"]] == b"" and b" dog" in pieces
    for form in ("Dog", "DOG", "dog"):
        assert Phrases(pieces, tokenizer).excluded(b" the", [form]) == {pieces.index(b" dog")}
    translator = nmt.load(run)
    for forbidden in ("dog", "NASA saw"):
        with pytest.raises(nmt.DataError, match="which is forbidden"):
            translator.translate("the", required=["The DOG of Nasa SAW"], forbidden=[forbidden], beam_size=3)
        with pytest.raises(nmt.DataError, match="is in the prefix"):
            translator.translate("the", prefix="The DOG of Nasa SAW", forbidden=[forbidden], beam_size=3)


def test_required_phrases_are_there_as_they_are_written(run: Path) -> None:
    translator = nmt.load(run)
    for phrase in ("The", "of NASA", "the big", "SAW THE"):
        text = translator.translate("the small dog", required=[phrase], prefix="a", beam_size=5).text
        assert phrase in text, (phrase, text)


def test_the_engine_translates_and_keeps_to_them_as_the_run_does(run: Path, file: Path) -> None:
    assert file.read_bytes()[8] == 2  # earlier engines refuse it
    requests = [nmt.Request("the small Dog", prefix=prefix) for prefix in PREFIXES]
    requests += [nmt.Request("A DOG Is", forbidden=[word]) for word in ("dog", "NASA", "The Cat")]
    requests += [nmt.Request(line) for line in ("THE  DOG", "iPad", "the Small DOG OF nasa saw", "⇪ É")]
    with nmt.load(run, precision="fp32", device="cpu") as by_run, nmt.load(file) as by_file:
        for beam in (1, 3):
            options = {"beam_size": beam, "details": ["tokens", "alignment"]}
            for own, other in zip(
                by_file.translate(requests, **options), by_run.translate(requests, **options), strict=True
            ):
                assert (own.text, own.n_best[0].tokens, own.source_pieces) == (
                    other.text,
                    other.n_best[0].tokens,
                    other.source_pieces,
                )
                assert own.n_best[0].alignment == other.n_best[0].alignment
                assert own.score == pytest.approx(other.score, rel=1e-4)
        for phrase in ("dog", "Of NASA"):
            with pytest.raises(nmt.DataError, match="is in the prefix"):
                by_file.translate("the", prefix="The DOG of Nasa SAW", forbidden=[phrase])


def test_the_example_of_the_card_for_onnx_translates_as_the_run_does(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    assert export.main([str(run), "-o", str(tmp_path / "graphs"), "--format", "onnx", "--precision", "fp32"]) == 0
    assert json.loads((tmp_path / "graphs/config.json").read_text("utf-8"))["case"] == "markup 1"
    card = (tmp_path / "graphs/README.md").read_text("utf-8")
    found: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path / "graphs")
    exec(card.split("```python\n")[1].split("```")[0], found)
    lines = ["the small Dog", "THE DOG", "iPad"]
    wanted = nmt.load(run, precision="fp32", device="cpu").translate(lines, search="greedy")
    assert [found["translate"](line) for line in lines] == [one.text for one in wanted]
