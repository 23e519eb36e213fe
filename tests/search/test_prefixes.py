"""Prefixes of words and beginnings of words: each stands once, and its words are completed as well as a space would."""

from __future__ import annotations

import bz2
import dataclasses
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import nmt
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.models import build_model
from nmt.search.translator import Translator
from nmt.search.values import Request, Translation
from tests.conftest import REPOSITORY
from tests.quick_python import quick_python
from tests.tiny_run import make_run

WORDS = ["ax", "longxer", "sentence", "of", "by", "dz", "\u00df", "cv", "longver", "du"]
OTHERS = [
    "Achtung",
    "2024",
    "\u65e5\u672c",
    "\u00dcber",
    "x.y",
    "\u201eax",
    "AX",
    "...",
    "\U0001f600",
    "iPhone",
    "a-b",
    "q",
]
SPACES = ["<0x09>", "<0x0A>", "<0x0B>", "<0x0C>", "<0x0D>", "<0x20>"]
"""Tokens that spell white space and begin no word."""
SOURCES = ["a longaer sentence of ax", "sentence of by b longber", "d longder sentence of dz"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Of random weights: the bytes of white space are as probable as words."""
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def prefixes(count: int, *, seed: int, words: Sequence[str], others: Sequence[str]) -> list[tuple[str, bool]]:
    """Prefixes, and whether their last word is complete."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        word = draw.choice(others if number % 4 == 0 else words)
        is_whole = number % 4 != 1
        if not is_whole:
            word = word[: draw.randrange(1, len(word) + 1)]
        found.append((f"{draw.choice(words)} {word}" if draw.random() < 0.3 else word, is_whole))
    return found


def translations(loaded: LoadedModel, given: Sequence[str], sources: Sequence[str], beam: int) -> list[Translation]:
    decoding = dataclasses.replace(loaded.config.decoding, precision="fp32", beam_size=beam)
    requests = [Request(text=sources[i % len(sources)], prefix=prefix) for i, prefix in enumerate(given)]
    return Translator(loaded.model, loaded.tokenizer, decoding).translate_window(requests, details=["tokens"])


def check(loaded: LoadedModel, given: Sequence[tuple[str, bool]], sources: Sequence[str], *, beam: int) -> None:
    found = translations(loaded, [prefix for prefix, _ in given], sources, beam)
    for (prefix, _), one in zip(given, found, strict=True):
        assert one.best.startswith(prefix)
        tokens = one.hypotheses[0].tokens
        assert tokens is not None and tokens[0] not in SPACES
        if len(prefix) > 3:  # which random weights do not repeat by chance
            assert not one.best.startswith((f"{prefix} {prefix}", prefix + prefix)), one.best


@pytest.mark.parametrize("beam", [4, 1])
def test_each_prefix_stands_once(loaded: LoadedModel, beam: int) -> None:
    check(loaded, prefixes(60, seed=3, words=WORDS, others=OTHERS), SOURCES, beam=beam)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of configs/demo.yaml, which takes minutes."""
    run = tmp_path_factory.mktemp("demo") / "run"
    options = ["--config", "configs/demo.yaml", "--set", f"run_dir={run}"]
    command = [*quick_python(), "-m", "nmt.cli.train", *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("beam", [4, 1])
def test_each_prefix_stands_once_in_translations_of_a_trained_model(demo: Path, beam: int, seed: int) -> None:
    sources, targets = ((demo / "corpus" / f"test.{name}").read_text(encoding="utf-8") for name in ("en", "de"))
    words = sorted({word.strip(".,?!") for word in targets.split()} - {""})
    model, given = load_model(demo), prefixes(300, seed=seed, words=words, others=OTHERS)
    check(model, given, sources.splitlines(), beam=beam)
    if beam > 1:
        found, spaced = (
            translations(model, [prefix + end for prefix, _ in given], sources.splitlines(), beam) for end in ("", " ")
        )
        whole = [own for (_, is_whole), *own in zip(given, found, spaced, strict=True) if is_whole]
        assert sum(is_near(one.hypotheses[0].score, other.hypotheses[0].score) for one, other in whole) >= 0.95 * len(
            whole
        )


def is_near(score: float, with_space: float) -> bool:
    """Whether a word that may continue costs no score where it had better end."""
    return score >= with_space - 0.5


def test_words_that_are_whole_are_kept_where_they_fit_best() -> None:
    """By a trained model, which continues words as words go on, in one beam for all ends of the word."""
    texts = bz2.decompress((REPOSITORY / "nmt/demo_corpus/demo.tsv.bz2").read_bytes()).decode().splitlines()[:200]
    pairs = [line.split("\t") for line in texts]
    with nmt.load("en-de") as translator:
        results = []
        for end in ("", " "):
            requests = [
                nmt.Request(text, prefix=" ".join(other.split()[: 1 + place % 3]) + end)
                for place, (text, other) in enumerate(pairs)
            ]
            results.append(translator.translate(requests))
    same = [one.text == other.text for one, other in zip(*results, strict=True)]
    near = [is_near(one.score, other.score) for one, other in zip(*results, strict=True)]
    assert sum(near) >= 0.95 * len(near) and 0.8 * len(near) < sum(same) < len(near)


@pytest.mark.parametrize("beam", [4, 1])
def test_what_follows_a_complete_word_is_a_word(loaded: LoadedModel, beam: int) -> None:
    """No byte of white space passes for the beginning of one."""
    for word in WORDS:
        (one,) = translations(loaded, [f"{word} "], SOURCES, beam)
        assert one.best == word or one.best.startswith(f"{word} ")
        assert "  " not in one.best


@pytest.mark.parametrize("beam", [4, 1])
def test_white_space_and_what_cannot_be_seen_stand_once(loaded: LoadedModel, tmp_path: Path, beam: int) -> None:
    """Where the tokenizer changes no character: in bytes, of which some are white space, also of several bytes."""
    (tmp_path / "text").write_text("a longer sentence of ax by b\n" * 50)
    options = SentencePieceOptions(vocab_size=285, normalization="identity", symbols=["<x>", "ax"])
    tokenizer = SentencePieceTokenizer.train([tmp_path / "text"], [tmp_path / "text"], options=options, seed=1)
    torch.manual_seed(1)
    model = build_model(loaded.config.model, tokenizer.source_size, tokenizer.target_size).eval()
    decoding = dataclasses.replace(loaded.config.decoding, precision="fp32", beam_size=beam)
    given = [
        "\u3000longer",
        "longer\u3000",
        "longer\u00a0",
        "of\tlonger",
        "of\nlonger",
        "\u200blonger",
        "long\u00ader",
        "longer\u200b",
        "longer\u0085",
        "of  longer",
        "longer\t",
        "\x01longer",
        "<x> longer",
        "ax",
        "cafe\u0301",
        "\u65e5\u672c\u3000\u8a9e",
    ]
    requests = [Request(text="a longer sentence", prefix=prefix) for prefix in given]
    for prefix, found in zip(given, Translator(model, tokenizer, decoding).translate_window(requests), strict=True):
        written = prefix.replace("\n", " ").strip()
        assert found.is_finite and found.best.startswith(written), (prefix, found.best)
        assert not found.best.removeprefix(written).strip().startswith(written.split()[-1]), (prefix, found.best)


@pytest.mark.parametrize("beam", [4, 1])
def test_any_white_space_at_the_ends_is_a_space(loaded: LoadedModel, beam: int) -> None:
    """Also what the tokenizer keeps: a no-break space, that of Japanese text, and narrow ones."""
    spaces = ["\u00a0", "\u3000", "\u2009", "\u202f", "\t"]
    wanted = translations(loaded, ["longxer", "longxer "], SOURCES[:1], beam)
    found = translations(loaded, [f"{space}longxer" for space in spaces], SOURCES[:1], beam)
    assert {one.best for one in found} == {wanted[0].best}
    found = translations(loaded, [f"longxer{space}" for space in spaces], SOURCES[:1], beam)
    assert {one.best for one in found} == {wanted[1].best}
