"""Searches keep to prefixes and phrases as they are written, with a vocabulary of case marks."""

from __future__ import annotations

from pathlib import Path

import pytest

import nmt
from nmt.data import SentencePieceTokenizer
from nmt.data.sentencepiece import SentencePieceOptions
from tests.tiny_run import make_run

LINES = [f"the {size} Dog of NASA {verb} the Cat" for size in ("small", "big") for verb in ("saw", "is", "likes")]


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


PREFIXES = ["The Do", "the do", "THE DOG sa", "The Dog of NASA", "A Ca ", "Is", "⇧ x", "NA", "na", "iPho", "The Small Dog Sa"]


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_begin_with_their_prefix(run: Path, beam: int) -> None:
    translator, beam_size = nmt.load(run), beam
    for prefix in PREFIXES:
        text = translator.translate("the small dog", prefix=prefix, beam_size=beam_size).text
        assert text.startswith(prefix.strip()) and text.count(prefix.strip()) == 1, (prefix, text)


def test_phrases_are_forbidden_in_any_case(run: Path) -> None:
    translator, beam_size = nmt.load(run), 3
    for line in ("the small dog", "THE CAT", "Is"):
        text = translator.translate(line, beam_size=beam_size).text
        phrase = next(word for word in text.split() if word.isascii() and word.isalpha())
        for form in (phrase, phrase.upper(), phrase.lower()):
            other = translator.translate(line, forbidden=[form], beam_size=beam_size).text
            assert phrase.lower() not in [word.lower() for word in other.split()]


def test_required_phrases_are_there_as_they_are_written(run: Path) -> None:
    translator, beam_size = nmt.load(run), 5
    for phrase in ("The", "of NASA", "the big", "SAW THE"):
        text = translator.translate("the small dog", required=[phrase], prefix="a", beam_size=beam_size).text
        assert phrase in text, (phrase, text)
