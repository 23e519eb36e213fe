"""nmt-translate --with: what it adds, what it refuses, and that it comes through from other processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.cli.across_processes import _packed, _unpacked
from nmt.interop.model_dir import load_model
from nmt.light.formats import as_jsonl
from nmt.light.options import OPTIONS
from nmt.search.translator import Translator
from nmt.search.values import DETAILS, Details
from tests.tiny_run import make_run

LINES = ["a b c d a b c", "", "long@@ er {x}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def test_each_adds_its_keys(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert OPTIONS["details"].choices == DETAILS
    (tmp_path / "text").write_text("\n".join(LINES))
    options = [str(run), "-i", str(tmp_path / "text"), "--format", "jsonl", "--n-best", "2", "--split-long", "4"]
    keys = {name: name for name in DETAILS} | {"scores": "token_scores", "entropies": "token_entropies"}
    for given in ([], ["tokens"], ["alignment"], ["scores", "attention"], ["entropies", "heads"]):
        assert translate.main([*options, *(["--with", " ,".join(given)] if given else [])]) == 0
        records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert len(records) == 3
        for record in records:
            assert ("source_tokens" in record) == bool({"tokens", "attention", "heads"} & set(given))
            for translation in record["translations"]:
                wanted = {"text", "score", *(keys[name] for name in given)}
                assert {*translation} - {"attention_begins"} == wanted
                begins = translation.get("attention_begins", [0] * 99)
                for row in (*translation.get("attention", []), *translation.get("heads", {}).get("decoder.0", [[]])[0]):
                    assert (len(row) == len(record["source_tokens"])) == ("attention_begins" not in translation)
                assert begins == sorted(begins) and begins[0] == 0
                if "heads" in given and record["source"]:
                    ((name, heads),) = translation["heads"].items()
                    assert name == "decoder.0"
                    assert len(heads[0]) == len(translation["token_entropies"])


@pytest.mark.parametrize("form", ["text", "moses", "jsonl"])
def test_alignments_have_a_file_of_their_own(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    """A line for each line of the input, whatever is written besides and however many translations there are."""
    (tmp_path / "text").write_text("\n".join(LINES))
    options = [str(run), "-i", str(tmp_path / "text"), "--format", form, "--n-best", "2", "-q"]
    assert translate.main(options) == 0
    plain = capfd.readouterr().out
    aligned = tmp_path / "aligned"
    assert translate.main([*options, "--alignment", str(aligned)]) == 0
    assert capfd.readouterr().out == plain
    assert translate.main([*options[:3], "--format", "jsonl", "--n-best", "2", "-q", "--with", "alignment"]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    best = [record["translations"][0]["alignment"] for record in records]
    assert aligned.read_text() == "".join(" ".join(f"{a}-{b}" for a, b in pairs) + "\n" for pairs in best)
    assert aligned.read_text().split("\n")[1] == ""
    assert best[0]


def test_the_file_of_alignments_is_no_other(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("a b\n")
    for aligned, code, said in (
        (output, 2, "is also the output; choose another file"),
        (text, 2, "is also the input"),
        (run / "config.yaml", 1, "config.yaml"),
        (tmp_path / "none" / "file", 1, "there is no directory"),
    ):
        before = aligned.read_bytes() if aligned.exists() else None
        arguments = [str(run), "-i", str(text), "-o", str(output), "--alignment", str(aligned), "-q"]
        assert translate.main(arguments) == code
        (line,) = capfd.readouterr().err.splitlines()
        assert str(aligned) in line and said in line
        assert (aligned.read_bytes() if aligned.exists() else None) == before
        assert not output.exists()
    assert translate.main([str(run), "-i", str(text), "-o", "/dev/null", "--alignment", "/dev/null", "-q"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--with", "tokens"], "--with: allowed only with --format jsonl, not text"),
        (["--with", "tokens", "--format", "moses"], "--with: allowed only with --format jsonl, not moses"),
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
    for translation in translator.translate_window(LINES, details=details):
        found = translation.result(longest=2)
        again = _unpacked(_packed(found))
        assert (again.unknown, again.source_tokens) == (found.unknown, found.source_tokens)
        written, sent = (as_jsonl(0, one, n_best=1, notes=one.notes) for one in (found, again))
        assert written == sent and ("attention" in written) == bool(details)
