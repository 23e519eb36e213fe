"""docs/evaluation.md is true: its commands run, and the published test sets are known."""

from __future__ import annotations

import glob
import re
import shlex
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from nmt.registry import METRICS
from tests.conftest import page_of
from tests.console import call
from tests.experiments import small_runs
from tests.tiny_run import make_run

GUIDE = page_of("docs/evaluation.md")
BLOCKS = re.findall(r"^```\n(.*?)^```$", GUIDE, flags=re.M | re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("nmt-")]
TEXT = ["The house is small.", "The car is red and old.", "The sky is blue."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    for name in ("wmt14_lrn", "multi30k_lrn", "multi30k_atr"):
        make_run(tmp_path / "runs" / name, sentencepiece=True)
    texts = ("greedy.de", "beam.de", "newstest2014.de", "test_2016_flickr.de", "test_2016_flickr.en")
    for name in (*texts, "train.de"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in TEXT))
    (tmp_path / "domains.tsv").write_text("domain\nhome\nstreet\nstreet\n")
    for name in ("wmt14", "wmt15"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name))
        for field in ("src", "ref"):
            (tmp_path / name / f"{name}.en-de.{field}").write_text("".join(f"{line}\n" for line in TEXT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMPARISONS = [line for line in COMMANDS if line.startswith("nmt-compare")]


def test_its_comparisons_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    for cell in ("gru", "lrn"):
        for seed in (1, 2, 3):
            small_runs.make_run(tmp_path / "runs", f"{cell}-{seed}", small_runs.with_faults(seed), seed=seed, cell=cell)
    monkeypatch.chdir(tmp_path)
    for command in COMPARISONS:
        words = [glob.glob(word) or [word] for word in shlex.split(command)]
        assert call(*(word for part in words for word in part)) == 0
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("curves.pdf", "costs.pdf"))


@pytest.mark.parametrize("command", [line for line in COMMANDS if line not in COMPARISONS])
def test_its_commands_run(folder: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command.replace(".de.gz", ".de").replace(".en.gz", ".en"))
    if "--metrics" in words and "comet" in "".join(words):
        pytest.skip("models of COMET are not fetched: tests/learned_metrics has tiny ones")
    if words[0] == "nmt-report":
        assert call(*words) == 0
        assert (folder / "report.html").read_text(encoding="utf-8").endswith("</html>\n")
        return
    draws = {"--confidence", "--baseline", "--significance"} & set(words)
    assert call(*words, *(["--samples", "20"] if draws else [])) == 0
    assert "signatures:" in capsys.readouterr().out


def test_all_metrics_are_listed() -> None:
    lines = re.findall(r"^- (.*?): ", GUIDE.split("`--metrics` is by default")[1].split("\n\n")[1], flags=re.M)
    listed = {name for line in lines for name in re.findall(r"`([\w+]+)`", line)}
    assert listed == set(METRICS.names())
