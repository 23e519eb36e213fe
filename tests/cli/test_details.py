"""nmt-translate --with: what it adds, what it refuses, and that it comes through from other processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nmt.cli import argument_types, translate
from nmt.cli.across_processes import _packed, _unpacked
from nmt.interop.model_dir import load_model
from nmt.search import Translator
from nmt.search.translation import DETAILS, Details
from tests.tiny_run import make_run

LINES = ["a b c d a b c", "", "long@@ er {x}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def test_each_adds_its_keys(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert argument_types.DETAILS == DETAILS
    (tmp_path / "text").write_text("\n".join(LINES))
    options = [str(run), "-i", str(tmp_path / "text"), "--format", "jsonl", "--n-best", "2", "--split-long", "4"]
    keys = {"tokens": "tokens", "scores": "token_scores", "attention": "attention", "alignment": "alignment"}
    for given in ([], ["tokens"], ["alignment"], ["scores", "attention"]):
        assert translate.main([*options, *(["--with", " ,".join(given)] if given else [])]) == 0
        records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert len(records) == 3
        for record in records:
            assert ("source_tokens" in record) == bool({"tokens", "attention"} & set(given))
            for translation in record["translations"]:
                assert set(translation) == {"text", "score", *(keys[name] for name in given)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--with", "tokens"], "--with needs --format jsonl; --format text has no place for it"),
        (["--with", "tokens", "--format", "moses"], "--with needs --format jsonl; --format moses has no place for it"),
        (["--with", "token"], "argument --with: 'token' is not known. Did you mean 'tokens'? Allowed: tokens, scores,"),
        (["--glossary", "missing.tsv"], "missing.tsv: no such file"),
    ],
)
def test_what_is_refused(run: Path, options: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code = translate.main([str(run), "-i", "/dev/null", *options])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == (1 if "--glossary" in options else 2)
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("details", [(), DETAILS])
def test_what_another_process_sends_is_the_same(run: Path, details: Details) -> None:
    loaded = load_model(run)
    translator = Translator(loaded.model, loaded.tokenizer, loaded.config.decoding)
    for line, found in zip(LINES, translator.translate_window(LINES, details=details), strict=True):
        again = _unpacked(line, json.loads(json.dumps(_packed(found))))
        assert again.source_pieces == found.source_pieces
        for ours, sent in zip(found.hypotheses, again.hypotheses, strict=True):
            for name in ("text", "score", "tokens", "token_scores", "alignment"):
                assert getattr(ours, name) == getattr(sent, name)
            if ours.attention is None:
                assert sent.attention is None
            else:
                assert sent.attention is not None
                assert torch.equal(ours.attention, sent.attention)
