"""A model that translates into several languages: the golden OPUS-MT model, two of whose tokens are made languages."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.light import Translator, command
from nmt.light.errors import EngineError
from nmt.serving.limits import Settings
from nmt.serving.requests import read_request
from nmt.serving.service import Service
from tests.compiled import needed_engine
from tests.console import call
from tests.marian.conftest import golden

LINES = ["A man is riding a horse.", "Two dogs run. A cat sleeps.", "", "   "]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of nmt and a file for the engine."""
    place = tmp_path_factory.mktemp("several")
    theirs = place / "theirs"
    shutil.copytree(golden("opus_mt"), theirs)
    vocabulary = json.loads((theirs / "vocab.json").read_text(encoding="utf-8"))
    renamed = {token: f">>{code}<<" for token, code in zip([*vocabulary][-4:-2], ("deu", "fra"), strict=True)}
    tokens = {renamed.get(token, token): number for token, number in vocabulary.items()}
    (theirs / "vocab.json").write_text(json.dumps(tokens), encoding="utf-8")
    found = {"folder": place / "made", "file": place / "made.nmt"}
    assert call("nmt-convert", "opus-mt", str(theirs), "-o", str(found["folder"])) == 0
    assert call("nmt-convert", "opus-mt", str(theirs), "-o", str(found["file"]), "--precision", "fp32") == 0
    return found


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_language_is_chosen_by_an_option_or_by_the_line_itself(models: dict[str, Path], kind: str) -> None:
    """Of both the line's own comes first; each part of a line has the token, which is no word in an alignment."""
    model: Any = nmt.load(models[kind], **({"precision": "fp32"} if kind == "folder" else {}))
    assert model.languages == ("deu", "fra")
    details = {"details": ["tokens", "alignment"], "split": "sentences"}
    german, french = (model.translate(LINES, target_language=code, **details) for code in ("deu", "fra"))
    named = model.translate([f" >>deu<< {line}" for line in LINES], **details)
    both = model.translate([f">>deu<<{line}" for line in LINES], target_language="fra", **details)
    assert [str(one) for one in german] == [str(one) for one in named] == [str(one) for one in both]
    assert [one.score for one in german] != [one.score for one in french]
    assert german[0].source_pieces[0] == "▁>>deu<<" and french[0].source_pieces[0] == "▁>>fra<<"
    assert german[0].source_pieces[1:] == french[0].source_pieces[1:]
    assert [piece for piece in german[1].source_pieces if ">>" in piece] == ["▁>>deu<<"] * 2
    assert [str(one) for one in german[2:]] == ["", ""] == [str(one) for one in named[2:]]
    for plain, own in zip(german[:2], named[:2], strict=True):
        assert plain.alignment and max(origin for origin, _ in plain.alignment) < len(plain.source.split())
        assert own.alignment == tuple((origin + 1, word) for origin, word in plain.alignment)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_needed_or_unknown_is_named_with_what_is_allowed(models: dict[str, Path], kind: str) -> None:
    model: Any = nmt.load(models[kind])
    assert str(model.translate("")) == ""
    for line in ("A dog.", ">>spa<< A dog."):
        with pytest.raises(nmt.NmtError, match=r"target.language.*Allowed.*deu.*, .*fra"):
            model.translate(["", line])
    with pytest.raises(nmt.ConfigError, match=r"target_language: 'spa' is .*Allowed: deu, fra\."):
        model.translate("A dog.", target_language="spa")


def test_a_model_of_one_language_has_no_such_choice(opus_mt: Path, tmp_path: Path) -> None:
    for name in ("made", "made.nmt"):
        assert call("nmt-convert", "opus-mt", str(opus_mt), "-o", str(tmp_path / name)) == 0
        model = nmt.load(tmp_path / name)
        assert model.languages == ()
        model.translate(">>deu<< A dog.", target_language="none")
        with pytest.raises(nmt.ConfigError, match="target_language: 'deu' is .*Allowed: none, as "):
            model.translate("A dog.", target_language="deu")


def test_commands_and_files_have_a_usual_language(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a configuration is in the file that is exported."""
    text, expected = tmp_path / "text", tmp_path / "expected"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    options = ("-i", str(text), "--target-language", "fra", "--precision", "fp32")
    assert call("nmt-translate", str(models["folder"]), *options, "-o", str(expected)) == 0
    config = models["folder"] / "config.yaml"
    saved = config.read_text(encoding="utf-8")
    assert "target_language: null" in saved
    usual = tmp_path / "usual"
    shutil.copytree(models["folder"], usual)
    (usual / "config.yaml").write_text(saved.replace("target_language: null", "target_language: fra"), encoding="utf-8")
    made = tmp_path / "usual.nmt"
    assert call("nmt-export", str(usual), "--format", "engine", "--precision", "fp32", "-o", str(made)) == 0
    assert [str(one) for one in nmt.load(made).translate(LINES)] == expected.read_text(encoding="utf-8").splitlines()
    with Translator(made, library=needed_engine()) as light:
        assert light.translate(LINES[0], target_language="deu").score != light.translate(LINES[0]).score
        with pytest.raises(
            EngineError, match=r"^target_language: 'spa' is no language of this model\. Allowed: deu, fra\."
        ):
            light.translate(LINES[0], target_language="spa")
    capsys.readouterr()
    assert command.main([str(models["file"]), "-i", str(text), "--target-language", "spa"]) in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_server_takes_the_language_of_a_request(models: dict[str, Path]) -> None:
    model: Any = nmt.load(models["file"])
    settings = Settings()
    service = Service(settings, name="m", doors=("file",))
    body = json.dumps({"text": LINES[0], "target_language": "fra"}).encode()
    wanted = read_request(body, "application/json", settings, "file")
    found = model.translate(wanted.sentences(), **wanted.options())
    assert str(found[0]) == str(model.translate(LINES[0], target_language="fra"))

    async def health() -> dict[str, Any]:
        await service.open(lambda: (model, {}))  # which translates once
        return service.health()

    assert asyncio.run(health())["languages"] == ["deu", "fra"]
    service.close()
