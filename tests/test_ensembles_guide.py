"""docs/ensembles.md is true: its commands exist, and its recipe runs in small."""

from __future__ import annotations

import glob
import gzip
import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import page_of
from tests.console import call, parser_of
from tests.test_readme import TINY
from tests.tiny_training import write_corpus

GUIDE = page_of("docs/ensembles.md")
COMMANDS = re.findall(
    r"^ *(nmt-[a-z]+ -?.*)$", "".join(re.findall(r"^```\n(.*?)^```$", GUIDE, flags=re.M | re.S)), re.M
)


@pytest.mark.parametrize("line", COMMANDS)
def test_options_exist(line: str) -> None:
    name, *arguments = shlex.split(line)
    parser_of(name).parse_args(arguments)


@pytest.mark.slow
def test_the_recipe_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Exactly its lines, but with overrides for nmt-train and a corpus of nonsense in place of Multi30k."""
    (block,) = [block for block in re.findall(r"^```\n(.*?)^```$", GUIDE, flags=re.M | re.S) if "for seed in" in block]
    first, train, done, translate, evaluate = block.splitlines()
    assert done == "done"
    seeds = re.fullmatch(r"for seed in ([\d ]+); do", first)[1].split()  # type: ignore[index]
    assert len(seeds) == 8
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "data/multi30k").mkdir(parents=True)
    for language in ("en", "de"):
        for name, text in (("train", "train"), ("val", "dev"), ("test_2016_flickr", "dev")):
            content = gzip.compress(Path(f"{text}.{language}").read_bytes())
            (tmp_path / f"data/multi30k/{name}.{language}.gz").write_bytes(content)
    small = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    for seed in seeds:
        assert call(*shlex.split(train.replace("$seed", seed)), *small, "--device", "cpu") == 0
    tokenizers = {Path(path).read_bytes() for path in glob.glob("runs/lrn_*/tokenizer/joint.model")}
    assert len(tokenizers) == 1 and len(list(Path("data/cache").glob("train-*"))) == 1
    weights = {path.read_bytes() for path in Path("runs").glob("*/checkpoints/*/model.safetensors")}
    assert len(weights) == 8
    arguments = [path for word in shlex.split(translate) for path in (sorted(glob.glob(word)) or [word])]
    capfd.readouterr()
    assert call(*arguments) == 0
    assert "by 8 models" in capfd.readouterr().err
    assert call(*shlex.split(evaluate)) == 0
    assert capfd.readouterr().out.splitlines()[1].startswith("BLEU ")
    assert len(Path("eight.de").read_text(encoding="utf-8").splitlines()) == 8
