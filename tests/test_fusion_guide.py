"""What docs/language_models.md says of translations is true: searches that a language model joins, and ranking."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from nmt.cli import translate
from nmt.config.yaml12 import read_yaml
from nmt.ranking import command as rank
from nmt.scoring import command as score
from tests.conftest import REPOSITORY
from tests.tiny_language_model import make_language_model, target_words
from tests.tiny_run import TARGET_WORDS, make_run
from tests.tiny_training import nmt_train

SECTION = "## In the search for translations"
GUIDE, RANKING = (
    (REPOSITORY / "docs/language_models.md")
    .read_text(encoding="utf-8")
    .split(SECTION)[1]
    .split("## Ranking n-best lists")
)


@pytest.mark.parametrize("kind", ["sentencepiece", "whitespace"])
def test_the_recipe_trains_a_language_model_that_joins_the_search(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("runs", "corpus", "monolingual"):
        (tmp_path / folder).mkdir()
    make_run(tmp_path / "runs/model", sentencepiece=kind == "sentencepiece")
    monkeypatch.chdir(tmp_path)
    words = TARGET_WORDS[:6] if kind == "whitespace" else ["a long", "sentence of by"]
    lines = [f"{a} {b}\n" for a in words for b in words]
    for name in ("corpus/train.de", "monolingual/news.de", "corpus/val.de"):
        Path(name).write_text("".join(lines))
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    config = read_yaml(block, origin="guide").value
    config["model"] |= {"hidden_size": 8, "embedding_size": 6}
    if kind == "whitespace":
        assert "`source_vocab`" in GUIDE
        options = {"source_vocab": "runs/model/tokenizer/target.vocab"}
        config["data"] |= {"tokenizer": kind, "tokenizer_options": options}
    Path("lm.yaml").write_text(yaml.safe_dump(config))
    assert nmt_train("lm.yaml") == 0
    (command,) = re.findall(r"^nmt-translate (.*)$", GUIDE, re.M)
    Path("news.en").write_text("a b\n\nlonger\n")
    assert translate.main([*shlex.split(command), "--max-length-offset", "6"]) == 0
    assert len(Path("news.de").read_text().splitlines()) == 3


def test_lists_are_scored_tuned_and_ranked_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/model")
    make_run(tmp_path / "runs/other", steps=(30,), best=(30,))
    make_language_model(tmp_path / "runs/german", target_words())
    monkeypatch.chdir(tmp_path)
    Path("val.en").write_text("a b\nc d a\nb\n")
    Path("val.de").write_text("x y\nz u v w\nx\n")
    (block,) = re.findall(r"```\n(.*?)```", RANKING, re.S)
    commands = {"nmt-translate": translate, "nmt-score": score, "nmt-rank": rank}
    for line in block.splitlines():
        command, _, output = line.partition(" > ")
        weights = Path("weights").read_text().strip() if "cat weights" in command else ""
        name, *arguments = shlex.split(command.replace("$(cat weights)", weights))
        capsys.readouterr()
        assert commands[name].main(arguments) == 0, line
        if output:
            Path(output).write_text(capsys.readouterr().out)
    assert len(Path("val.best").read_text().splitlines()) == 3
    assert {part.split("=")[0] for part in weights.split(",")} == {"score", "lm", "other", "words"}
    options = set(re.findall(r"(?<=`)--[a-z-]+", RANKING))
    assert options == {"--source", "--feature", "--weights", "--format", "--tune", "--metric", "--mbr"}
