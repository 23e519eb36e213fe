"""Texts from hypotheses: unknown words copied from the source, terms of a glossary, and what a model makes up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli import translate
from nmt.config import load_config
from nmt.data import EOS, UNK
from nmt.errors import ConfigError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.kept_text.lines import count_placeholders
from nmt.search import Hypothesis
from nmt.search.translator import Translator
from nmt.search.values import Request
from tests.tiny_run import make_run


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def translator(loaded: LoadedModel, **changes: Any) -> Translator:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding)


def finding(monkeypatch: pytest.MonkeyPatch, *found: Sequence[int]) -> None:
    """Let searches find these hypotheses of every source."""

    def search(self: Translator, sources: Sequence[Sequence[int]], *_: object) -> list[list[Hypothesis]]:
        return [[Hypothesis(list(ids), -1.0) for ids in found] for _ in sources]

    monkeypatch.setattr(Translator, "search", search)


def test_unknown_words_become_the_words_they_come_from(words: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["a strange b", "c word d zwei", "long@@ er unknown a", "naïve"]
    targets = [[3, UNK, 4, UNK], [UNK, UNK], [5, 9, UNK]]
    finding(monkeypatch, *targets)
    found = translator(words, replace_unknown=True).translate_window(lines, details=("alignment",))
    for line, translation in zip(lines, found, strict=True):
        source = torch.tensor([[*words.tokenizer.encode_source([line])[0], EOS]])
        for ids, hypothesis in zip(targets, translation.hypotheses, strict=True):
            weights = words.model.attention(source, torch.tensor([[*ids, EOS]])).mean[0, :, :-1]
            tokens = line.split()
            copies = [tokens[int(row.argmax())] for row in weights]
            wanted = [
                {"long@@": "longer", "er": "longer"}.get(copy, copy) if token == UNK else name
                for token, copy, name in zip(ids, copies, words.tokenizer.target_tokens(ids), strict=False)
            ]
            assert hypothesis.text == " ".join(wanted).replace("@@ ", "")
            assert hypothesis.alignment is not None
            assert len(hypothesis.alignment) == len(hypothesis.text.split())
    usual = translator(words).translate_window(lines)[0].hypotheses[0]
    assert usual.text == "x <unk> y <unk>"


def test_unknown_characters_within_words(words: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SentencePiece without byte pieces: what is unknown in the source is copied, else the word without its marks."""
    from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
    from nmt.models import build_model

    (tmp_path / "text").write_text("a b c d ab cd abcd , .\n" * 50)
    options = SentencePieceOptions(vocab_size=14, byte_fallback=False)
    tokenizer = SentencePieceTokenizer.train([tmp_path / "text"], [tmp_path / "text"], options=options, seed=1)
    model = build_model(words.config.model, tokenizer.source_size, tokenizer.target_size).eval()
    (ids,) = tokenizer.encode_target(["ab \u0416\u0416 d\u0416c"])
    assert ids.count(UNK) == 2
    finding(monkeypatch, ids)
    decoding = dataclasses.replace(words.config.decoding, precision="fp32", replace_unknown=True)
    found = Translator(model, tokenizer, decoding).translate_window(["\u00ff\u00ff", "(cd),"])
    # With one unknown token in the source, or one word, all attention to them says the same.
    assert found[1].best.count("cd") == 2
    assert "\u2047" not in found[0].best + found[1].best


def test_unknown_words_of_a_prefix_stay(words: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch, [UNK, 3, UNK])
    (found,) = translator(words, replace_unknown=True).translate_window([Request(text="a", prefix="neu")])
    assert found.best == "neu x a"


def test_a_tokenizer_without_unknown_words_is_refused(subwords: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^decoding.replace_unknown: the tokenizer of this model has no"):
        translator(subwords, replace_unknown=True)
    path = tmp_path / "in.yaml"
    path.write_text(f"run_dir: {tmp_path}/run\ndata: {{train: corpus}}\ndecoding: {{replace_unknown: true}}\n")
    with pytest.raises(ConfigError, match=r"decoding.replace_unknown: the tokenizer 'sentencepiece' has"):
        load_config(path)
    path.write_text(path.read_text().replace("corpus}", "corpus, tokenizer_options: {byte_fallback: false}}"))
    assert load_config(path).decoding.replace_unknown


def test_what_the_model_makes_up_is_no_placeholder(subwords: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    written = ["{name} <b> www.x.org", "a <b", "{{ a", "http://x.org/", "> x {"]
    finding(monkeypatch, *subwords.tokenizer.encode_target(written))
    for line in ("a {name} b", "a <b>longer</b> c", "{name}{name} a", "www.x.org a www.x.org/b", "a", "x@y.org a"):
        for hypothesis in translator(subwords, placeholders=True).translate_window([line])[0].hypotheses:
            if count_placeholders(line):
                assert count_placeholders(hypothesis.text) == count_placeholders(line)
            else:
                assert hypothesis.text in written  # nothing to keep, nothing changed


def test_terms_of_a_glossary_are_there(
    words: LoadedModel, subwords: LoadedModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    terms = {"a": "Anton", "c d": "Carl Dora", "longer sentence": "Satz", "er": "{er}"}
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text("".join(f"{term}\t{target}\n" for term, target in terms.items()))
    lines = ["a b c d", "b", "longer sentence of a, a {x}", "A c  d. c d d", "er {x} er", ""]
    for loaded in (words, subwords):
        found = translator(loaded, glossary=str(glossary), placeholders=True, n_best=3).translate_window(lines)
        for line, translation in zip(lines, found, strict=True):
            counts = {
                "Anton": line.lower().replace("er a", "").split().count("a") + line.count("a,"),
                "Carl Dora": line.count("c d") + line.count("c  d"),
                "Satz": line.count("longer sentence"),
                "{er}": line.split().count("er"),
                "{x}": line.count("{x}"),
            }
            for hypothesis in translation.hypotheses:
                assert {term: hypothesis.text.count(term) for term in counts} == counts, hypothesis.text
    text = tmp_path / "text"
    text.write_text("a b\n{x} c\n")
    options = ["--glossary", str(glossary), "--placeholders", "--format", "jsonl", "--with", "alignment,tokens"]
    assert translate.main([str(words.path), "-i", str(text), *options]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert "Anton" in records[0]["translations"][0]["text"]
    assert "{x}" in records[1]["translations"][0]["text"]
    assert records[0]["source_tokens"] == ["a", "b", "<eos>"]
    assert set(records[0]["translations"][0]) == {"text", "score", "tokens", "alignment"}
