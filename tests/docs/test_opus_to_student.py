"""docs/opus_to_student.md is true: its commands run, in order, with golden models in place of the teacher's weights."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from itertools import islice
from pathlib import Path

import pytest

from nmt.interop.model_dir import load_model
from tests.conftest import page_of
from tests.console import call
from tests.marian.conftest import golden

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", page_of("docs/opus_to_student.md"), flags=re.M | re.S)
SMALL = {
    "teacher.yaml": {"training.max_steps": 2, "training.batch_tokens": 512, "decoding.beam_size": 1},
    "student.yaml": {
        "model.embedding_size": 16,
        "model.architecture_options.encoder_layers": 1,
        "model.architecture_options.decoder_layers": 1,
        "model.architecture_options.encoder_feed_forward": 16,
        "model.architecture_options.decoder_feed_forward": 16,
        "model.architecture_options.heads": 2,
        "data.tokenizer_options.vocab_size": 400,
        "training.max_steps": 2,
    },
}


def text(multi30k: Path, name: str, first: int, count: int, *, sides: str = "en de") -> None:
    """data/NAME.en and .de with so many lines of Multi30k."""
    for side in sides.split():
        with gzip.open(multi30k / f"train.{side}.gz", "rt", encoding="utf-8") as stream:
            Path(f"data/{name}.{side}").write_text("".join(islice(stream, first, first + count)), encoding="utf-8")


def test_the_page_runs(
    multi30k: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for place, (name, count) in enumerate((("train", 120), ("dev", 10), ("test", 10))):
        text(multi30k, name, 200 * place, count)
    text(multi30k, "more", 600, 30, sides="en")
    shutil.copytree(golden("opus_mt"), "opus-mt-en-de")
    reverse = ("--vocab", str(golden("ssru") / "vocab.spm"), "--languages", "de", "en", "-o", "opus-mt-de-en")
    assert call("nmt-convert", "marian", str(golden("ssru") / "model.npz"), *reverse) == 0
    ran = []
    for language, block in BLOCKS:
        if language == "yaml":
            Path("teacher.yaml").write_text(block, encoding="utf-8")
            continue
        for line in block.splitlines():
            name, *arguments = shlex.split(line)
            more = SMALL.get(arguments[0], {}) if name == "nmt-train" else {}
            sets = [part for key, value in more.items() for part in ("--set", f"{key}={value}")]
            assert call(name, *arguments, *sets) == 0, (line, capsys.readouterr().err)
            ran.append(name)
    assert len(ran) == 14
    pairs = [len(Path(f"data/distilled.{end}").read_text("utf-8").splitlines()) for end in ("en", "de", "alignment")]
    assert len(set(pairs)) == 1 and 0 < pairs[0] < 150
    assert len(Path("file.de").read_text(encoding="utf-8").splitlines()) == 10
    assert (Path("ende") / "model.intgemm.alphas.bin").is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"model.cell": "lrn", "form": None, "encoder_mixing": "unit", "decoder_mixing": "unit"},
        {"model.cell": "lrn", "form": None, "encoder_mixing": "attention"},
    ],
)
def test_the_students_that_the_configuration_names(
    multi30k: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None]
) -> None:
    """Two updates each, and a file for the engine."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    text(multi30k, "distilled", 0, 60)
    text(multi30k, "dev", 200, 4)
    small = {**SMALL["student.yaml"]}
    for key, value in changes.items():
        small[key if "." in key else f"model.architecture_options.{key}"] = value or "null"
    sets = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    assert call("nmt-train", "student.yaml", *sets) == 0
    config = load_model("runs/student").config.model
    assert config.cell == changes["model.cell"]
    assert call("nmt-export", "runs/student", "-o", "student.nmt") == 0
