"""scripts/results: what it reads from a run's log, what it measures, and what it writes."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from nmt.cli.common import execute
from nmt.cli.evaluate import main as nmt_eval
from nmt.config import load_config
from nmt.data.whitespace import WhitespaceTokenizer
from nmt.models import build_model

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "results"
SOURCE = ["one two three", "two", "", "three one", "four four two one", "one"]
CONFIG = """
run_dir: unused
model: {cell: gru, hidden_size: 12, embedding_size: 8, tie_embeddings: none}
data: {train: unused, tokenizer: whitespace}
training: {max_steps: 1, batch_sentences: 8}
decoding: {beam_size: 3, max_length_offset: 3}
"""
EVENTS = [
    {"event": "train", "step": 10, "epoch": 0.5, "seconds": 50, "target_tokens_per_second": 100.0},
    {
        "event": "validation",
        "step": 10,
        "epoch": 0.5,
        "seconds": 60,
        "loss": 3.5,
        "bleu": 1.25,
        "signatures": {"bleu": ""},
    },
    {"event": "train", "step": 20, "epoch": 1.0, "seconds": 110, "target_tokens_per_second": 5000.0},
    {"event": "train", "step": 30, "epoch": 1.5, "seconds": 160, "target_tokens_per_second": 300.0},
    {"event": "train", "step": 31, "epoch": 1.6, "seconds": 161, "target_tokens_per_second": None},
    {"event": "validation", "step": 31, "epoch": 1.6, "seconds": 180, "cpu_seconds": 170.6, "loss": None, "bleu": 2.0},
    {"event": "end", "step": 1234, "epoch": 1.6, "seconds": 180, "cpu_seconds": 1171.4},
]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_loader("results_script", SourceFileLoader("results_script", str(SCRIPT)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture
def run(tmp_path) -> Path:
    """A run directory with a log and one checkpoint of random weights."""
    run = tmp_path / "multi_gru"
    checkpoint = run / "checkpoints" / "step-31"
    checkpoint.mkdir(parents=True)
    (run / "config.yaml").write_text(CONFIG)
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    (tmp_path / "test.en").write_text("".join(line + "\n" for line in SOURCE))
    (tmp_path / "test.de").write_text("".join(line.upper() + "\n" for line in SOURCE))
    texts = [tmp_path / "test.en"]
    tokenizer = WhitespaceTokenizer.train(texts, texts, options=WhitespaceTokenizer.Options(), seed=1)
    (run / "tokenizer").mkdir()
    tokenizer.save(run / "tokenizer")
    torch.manual_seed(3)
    model = build_model(load_config(run / "config.yaml").model, tokenizer.source_size, tokenizer.target_size)
    save_file(model.state_dict(), checkpoint / "model.safetensors")
    return run


def arguments(run: Path) -> list[str]:
    return [str(run), "--source", str(run.parent / "test.en"), "--reference", str(run.parent / "test.de")]


def test_table_and_block(results, run, capsys):
    assert execute(results.build_parser(), results.write, arguments(run)) == 0
    text = capsys.readouterr().out
    cells = [cell.strip() for cell in text.split("\n")[2].strip("|").split("|")]
    assert cells[:2] == ["multi_gru", "deepnmt gru"]
    figures = ["1,234", "1.6", "3.0", "1,171", "300"]
    assert cells[3:8] == figures, "updates, epochs, minutes, CPU seconds of the end; median speed"
    assert "nmt-train multi_gru.yaml\n" in text
    assert "Checkpoint step-31, beam of 3: BLEU" in text and text.count("version:") == 2
    assert "| minutes | CPU seconds | update | validation loss | BLEU |" in text
    assert "| 1.0 |  | 10 | 3.5000 | 1.25 |" in text and "| 3.0 | 171 | 31 |  | 2.00 |" in text
    assert text.count("- source: ") == text.count("  - reference: ") == 3


def test_scores_are_those_of_the_command_that_it_names(results, run, capsys):
    assert execute(results.build_parser(), results.write, arguments(run)) == 0
    text = capsys.readouterr().out
    command = re.search(r"^nmt-eval (.*)$", text, re.MULTILINE)
    assert command is not None
    assert nmt_eval([*command[1].split(), "--json"]) == 0
    bleu, chrf = json.loads(capsys.readouterr().out)
    assert f"BLEU {bleu['score']:.2f} `{bleu['signature']}`" in text
    assert f"chrF2 {chrf['score']:.2f} `{chrf['signature']}`" in text


def test_output_is_appended_and_several_runs_share_a_table(results, run, capsys, tmp_path):
    output = tmp_path / "results.md"
    output.write_text("# Results\n")
    (tmp_path / "second").symlink_to(run)
    arguments_of_both = [str(tmp_path / "second"), *arguments(run), "-o", str(output)]
    assert execute(results.build_parser(), results.write, arguments_of_both) == 0
    text = output.read_text()
    assert text.startswith("# Results\n\n| run |")
    assert [line.split("|")[1].strip() for line in text.split("\n")[4:6]] == ["second", "multi_gru"]
    assert text.count("### ") == 2


def test_a_log_of_an_older_version_has_no_cpu_seconds(results, run, capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    old = [{key: value for key, value in event.items() if key != "cpu_seconds"} for event in EVENTS]
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in old))
    plot = ["--plot", str(tmp_path / "curves.png")]
    assert execute(results.build_parser(), results.write, [*arguments(run), *plot, "--axis", "minutes"]) == 0
    out, err = capsys.readouterr()
    assert "| 3.0 |  | 31 |  | 2.00 |" in out and "| 3.0 |  | 300 |" in out and "CPU" not in err
    assert execute(results.build_parser(), results.write, [*arguments(run), *plot, "--axis", "cpu"]) == 1
    assert f"{run}/log.jsonl: nothing to draw over CPU seconds" in capsys.readouterr().err


def test_metrics_that_are_asked_for_and_the_table_alone(results, run, capsys):
    pytest.importorskip("sacremoses", reason="sacremoses, of nmt-recurrent[moses], is not installed")
    config = (run / "config.yaml").read_text().replace("data: {", "data: {source_language: en, target_language: fr, ")
    (run / "config.yaml").write_text(config)
    asked = ["--metrics", "chrf", "bleu_moses_lc", "--no-dash-splits"]
    assert execute(results.build_parser(), results.write, [*arguments(run), *asked]) == 0
    text = capsys.readouterr().out
    assert "| chrF2 | chrF2 greedy | bleu_moses_lc | sentences/CPU s beam |" in text
    assert "moses-fr+dashes-kept" in text and "nmt-eval" in text
    assert "--metrics chrf bleu_moses_lc --no-dash-splits\n" in text, "the command gives these figures"
    assert execute(results.build_parser(), results.write, [*arguments(run), *asked, "--brief"]) == 0
    brief = capsys.readouterr().out
    assert len(brief.splitlines()) == 3 and brief.splitlines()[:2] == text.splitlines()[:2]
    assert execute(results.build_parser(), results.write, [*arguments(run), "--no-dash-splits"]) == 2
    assert "--no-dash-splits: no requested metric has this option" in capsys.readouterr().err


def test_plot(results, run, capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    picture = tmp_path / "curves.svg"
    drawn = [*arguments(run), "--plot", str(picture), "--axis", "cpu"]
    assert execute(results.build_parser(), results.write, drawn) == 0
    shown = picture.read_text(encoding="utf-8")
    assert all(f">{text}</text>" in shown for text in ("multi_gru", "Loss", "BLEU", "CPU seconds"))
    assert "log.jsonl: left out 5 events without CPU seconds" in capsys.readouterr().err
    assert execute(results.build_parser(), results.write, [*arguments(run), "--plot", "x.jpg"]) == 2
    assert capsys.readouterr().out == "", "before anything is measured"


def test_mistakes_are_one_line(results, run, capsys):
    (run.parent / "test.de").write_text("one line\n")
    assert execute(results.build_parser(), results.write, arguments(run)) == 1
    assert "has 6 lines but" in capsys.readouterr().err
    (run.parent / "test.de").write_text("\n" * 6)
    (run / "log.jsonl").write_text("")
    assert execute(results.build_parser(), results.write, arguments(run)) == 1
    assert "nothing was trained yet" in capsys.readouterr().err
