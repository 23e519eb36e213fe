"""nmt-compare: what it reads from runs and their records, how it groups seeds, what it writes, draws and refuses."""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from nmt.evaluating.command import main as nmt_eval
from nmt.evaluation import build_metric
from nmt.experiments.chance import p_value
from nmt.experiments.command import main
from nmt.experiments.records import Measured, Record, Scored, read_record, scored, written
from tests.experiments.small_runs import RIGHT, events, make_run, with_faults


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two systems, of three seeds and of two."""
    given = {"gru": [(0,), (0, 1), (1,)], "lrn": [(0, 1, 2, 3), (1, 2, 3, 4)]}
    return [
        make_run(tmp_path, f"{cell}-{seed}", with_faults(*wrong), seed=seed, cell=cell, log=events(offset=seed / 10))
        for cell, faults in given.items()
        for seed, wrong in enumerate(faults, 1)
    ]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def score(run: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, float]:
    """What nmt-eval gives of the translations of a run."""
    reference = str(Path(run).parent / "text" / "test.de")
    assert (
        nmt_eval(["--hyp", f"{run}/test.de", "--ref", reference, "--json", "--metrics", "bleu", "chrf", *options]) == 0
    )
    return {one["name"]: one["score"] for one in json.loads(capsys.readouterr().out)}


def test_means_deviations_and_costs(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    each = [score(run, capsys) for run in runs]
    assert main([*runs, "--format", "csv"]) == 0
    gru, lrn = rows_of(capsys.readouterr().out)
    assert [gru[key] for key in ("system", "architecture", "unit", "runs", "seeds")] == [
        "gru",
        "deepnmt",
        "gru",
        "3",
        "1 2 3",
    ]
    assert (lrn["system"], lrn["unit"], lrn["seeds"]) == ("lrn", "lrn", "1 2")
    for row, own in ((gru, each[:3]), (lrn, each[3:])):
        for name in ("BLEU", "chrF2"):
            values = [found[name] for found in own]
            assert float(row[name]) == pytest.approx(statistics.mean(values))
            assert float(row[f"{name}_sd"]) == pytest.approx(statistics.stdev(values))
    numbers = {"parameters": 2017, "updates": 1000, "epochs": 1.6, "cpu_seconds": 1171.4, "tokens_per_second": 300}
    assert {key: float(gru[key]) for key in numbers} == pytest.approx(numbers), (
        "of the end of the run; the median speed"
    )
    assert float(gru["dev_bleu"]) == pytest.approx(5.2), "of the best validation"
    assert float(lrn["BLEU_p"]) < 0.05 and gru["BLEU_p"] == ""


def test_text_fits_a_terminal_and_tells_where_the_numbers_come_from(runs, capsys) -> None:
    assert main(runs) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "test text: text/test, 6 sentences" in text
    assert "trained: A CPU, 1 thread, fp32, torch 2.13, 2026-11-21" in text
    assert "against gru, 10,000 trials, seed 12345" in text.replace("\n", " ")
    assert [line.split()[0] for line in text.split("each run:\n")[1].splitlines()[1:6]] == [
        Path(run).name for run in runs
    ]
    assert main([*runs, "--format", "markdown"]) == 0
    markdown = capsys.readouterr().out
    assert " \N{PLUS-MINUS SIGN} " in markdown and "+-" not in markdown.split("\n", 1)[1]
    assert main([*runs, "--format", "latex"]) == 0
    assert r" $\pm$ " in capsys.readouterr().out


def test_records_give_the_same_tables_without_the_runs(runs, capsys, tmp_path) -> None:
    assert main([*runs, "--save", str(tmp_path / "saved")]) == 0
    text = capsys.readouterr().out
    records = [str(tmp_path / "saved" / f"{Path(run).name}.json") for run in runs]
    assert all(str(tmp_path) not in Path(record).read_text() for record in records), "no place of this machine"
    for run in runs:
        (Path(run) / "log.jsonl").unlink()
    assert main(records) == 0
    assert capsys.readouterr().out == text
    assert main([*records, "--metrics", "chrf", "--format", "csv"]) == 0
    assert "BLEU" not in capsys.readouterr().out


def test_one_run_each_is_tested_as_nmt_eval_does(runs, capsys) -> None:
    first, second = runs[0], runs[3]
    options = ["--baseline", f"{first}/test.de", "--significance", "approximate", "--samples", "500", "--seed", "7"]
    reference = str(Path(first).parent / "text" / "test.de")
    assert nmt_eval(["--hyp", f"{second}/test.de", "--ref", reference, "--json", *options]) == 0
    expected = {one["name"]: one["baselines"][0]["p_value"] for one in json.loads(capsys.readouterr().out)}
    assert main([first, second, "--samples", "500", "--seed", "7", "--format", "csv"]) == 0
    row = rows_of(capsys.readouterr().out)[1]
    assert float(row["BLEU_p"]) == expected["BLEU"] and float(row["chrF2_p"]) == expected["chrF2"]


def exact(first: list[Scored], second: list[Scored]) -> float:
    """The share of all ways to deal the translations of each sentence that differ by more."""
    scorer = build_metric(first[0].metric).scorer()
    tables = np.stack([one.counts for one in (*first, *second)])  # [R, N, C]
    size, sentences = len(tables), tables.shape[1]
    ways = list(itertools.combinations(range(size), len(first)))

    def difference(dealt) -> float:
        own = sum(tables[list(rows), place].sum(0) for place, rows in enumerate(dealt))
        rest = tables.sum((0, 1)) - own
        return abs(np.subtract(*(scorer._compute_score_from_stats(list(part)).score for part in (own, rest))))

    observed = difference([tuple(range(len(first)))] * sentences)
    found = [difference(dealt) for dealt in itertools.product(ways, repeat=sentences)]
    return float(np.mean([one > observed + 1e-9 for one in found]))


def test_several_seeds_are_dealt_anew_sentence_by_sentence() -> None:
    metric = build_metric("bleu")
    right = [line + " END OF THE LINE" for line in RIGHT[:4]]

    def of(*lines: str) -> Scored:
        return scored(metric, list(lines), [right])

    first = [of(*right[:3], "X Y"), of(right[0], "A", *right[2:])]
    second = [of(right[0], "B", "C D", right[3])]
    expected = exact(first, second)
    assert 0.02 < expected < 0.9
    assert p_value(first, second) == pytest.approx(expected, abs=0.02)
    assert p_value(second, first) == pytest.approx(expected, abs=0.02)
    assert p_value(first, list(reversed(first))) == 1.0, "no difference at all"
    assert p_value(first, second, trials=100, seed=3) == p_value(first, second, trials=100, seed=3)


def test_systems_are_told_apart_by_settings_and_named_by_runs_or_labels(runs, capsys, tmp_path) -> None:
    wide = Path(make_run(tmp_path, "gru-4", RIGHT, seed=4))
    config = (wide / "config.yaml").read_text()
    (wide / "config.yaml").write_text(config.replace("training: {", "training: {lr: 0.001, log_every: 7, "))
    given = [*runs, str(wide)]
    assert main([*given, "--format", "csv"]) == 0
    assert [row["system"] for row in rows_of(capsys.readouterr().out)] == ["gru-1", "lrn-1", "gru-4"], (
        "two are called gru"
    )
    assert main([*given, "--format", "csv", "--labels", "a", "b", "c", "--baseline", "c", "--sort"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [row["system"] for row in rows] == ["c", "a", "b"], "best first"
    assert [bool(row["BLEU_p"]) for row in rows] == [False, True, True]
    (wide / "config.yaml").write_text(config.replace("training: {", "training: {log_every: 7, "))
    assert main([*given, "--format", "csv"]) == 0
    assert [row["seeds"] for row in rows_of(capsys.readouterr().out)] == ["1 2 3 4", "1 2"], "what decides nothing"


def test_another_text_is_translated_as_by_nmt_eval(runs, capsys, tmp_path) -> None:
    (tmp_path / "new.en").write_text("one two\nthree four five\nsix\n")
    (tmp_path / "new.de").write_text("ONE TWO\nTHREE FOUR FIVE\nSIX one\n")
    files = ["--source", str(tmp_path / "new.en"), "--ref", str(tmp_path / "new.de"), "--metrics", "chrf"]
    for options in ([], ["--beam-size", "1"]):
        assert nmt_eval([runs[0], *files, "--json", *options]) == 0
        (expected,) = json.loads(capsys.readouterr().out)
        assert main([runs[0], runs[3], *files, "--format", "csv", *options]) == 0
        assert float(rows_of(capsys.readouterr().out)[0]["chrF2"]) == expected["score"]
    assert main([runs[0], *files[:4], "--tokenize", "char", "--save", str(tmp_path / "saved")]) == 0
    assert "tok:char" in capsys.readouterr().out
    assert "new.en" in (tmp_path / "saved" / "gru-1.json").read_text()


def test_runs_without_a_test_text_or_an_end(runs, capsys, tmp_path) -> None:
    killed = make_run(tmp_path, "atr-1", None, cell="atr", log=events()[:7])
    assert main([runs[0], killed, "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    row = rows_of(out)[1]
    assert (row["updates"], row["cpu_seconds"], row["BLEU"], row["dev_bleu"]) == ("800.0", "80.0", "", "5.0")
    assert f"{killed}: is still training, or was killed" in err and f"{killed}: has no translated test text" in err
    stopped = make_run(tmp_path, "sru-1", None, cell="sru", log=[{**e, "finished": False} for e in events()])
    assert main([stopped]) == 0
    assert "was stopped before its end: enough" in capsys.readouterr().err


def test_a_log_of_an_older_version_has_no_cpu_seconds_and_no_name_of_the_cpu(capsys, tmp_path) -> None:
    old = [{key: value for key, value in e.items() if key not in ("cpu", "cpu_seconds", "torch")} for e in events()]
    assert main([make_run(tmp_path, "old", RIGHT, log=old), "--format", "csv"]) == 0
    (row,) = rows_of(capsys.readouterr().out)
    assert row["cpu_seconds"] == row["cpu_seconds_sd"] == "" and row["updates"] == "1000.0"


def test_pictures(runs, capsys, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")
    curves, costs, again = (tmp_path / name for name in ("curves.svg", "costs.svg", "again.pdf"))
    assert main([*runs, "--curves", str(curves), "--scatter", str(costs), "--over", "cpu"]) == 0
    drawn = curves.read_text(encoding="utf-8")
    assert all(f">{text}</text>" in drawn for text in ("gru", "lrn", "Loss", "BLEU", "CPU seconds"))
    assert all(f">{text}</text>" in costs.read_text(encoding="utf-8") for text in ("gru", "lrn", "BLEU", "CPU seconds"))
    assert main([*runs, "--scatter", str(again)]) == 0
    assert again.read_bytes().startswith(b"%PDF")
    capsys.readouterr()
    assert main([*runs, "--curves", "x.jpg"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "x.jpg: ends in none of .png, .svg, .pdf" in err
    assert main([make_run(tmp_path, "none", None), "--scatter", str(costs)]) == 1
    assert "--scatter: no run has a score of a test text" in capsys.readouterr().err
    assert main([*runs, "--curves", f"{runs[0]}/log.jsonl"]) == 2


def test_mistakes_are_one_line(runs, capsys, tmp_path) -> None:
    def said(code: int, *arguments: str) -> str:
        assert main(list(arguments)) == code
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        return err

    saved = tmp_path / "saved"
    assert main([*runs, "--save", str(saved)]) == 0
    capsys.readouterr()
    record = str(saved / "gru-1.json")
    assert "given twice" in said(2, runs[0], runs[0])
    assert f"{record}: is the run of {runs[0]}; give each run once" in said(1, runs[0], record)
    assert "--labels: 1 label for 2 systems (gru, lrn)" in said(2, *runs, "--labels", "a")
    assert "--labels: two labels are equal" in said(2, *runs, "--labels", "a", "a")
    assert "--baseline: 'ggru' is no system. Did you mean 'gru'? Allowed: gru, lrn." in said(
        2, *runs, "--baseline", "ggru"
    )
    assert "--source: needs --ref" in said(2, runs[0], "--source", "x")
    assert "--ref: needs --source" in said(2, runs[0], "--ref", "x")
    assert "--beam-size: allowed only with --source" in said(2, runs[0], "--beam-size", "2")
    assert "is a record, which cannot translate" in said(2, record, "--source", "x", "--ref", "y")
    assert "--tokenize: " in said(2, record, "--tokenize", "zh")
    assert "--no-dash-splits: no requested metric has this option" in said(2, runs[0], "--no-dash-splits")
    assert "'ter' is not in the record. Allowed: bleu, chrf." in said(2, record, "--metrics", "ter")
    assert "no such file" in said(1, str(tmp_path / "nothing"))
    assert "log.jsonl" in said(1, str(tmp_path / "text"))
    (tmp_path / "twins").mkdir()
    twin = make_run(tmp_path / "twins", "gru-1", RIGHT, seed=5)
    assert "--save: two runs are called gru-1" in said(2, runs[0], twin, "--save", str(saved))
    assert "was computed in different ways: " in said(1, record, make_and_save(tmp_path, capsys, "--tokenize", "char"))
    (tmp_path / "text" / "test.de").write_text("".join(f"{line}!\n" for line in RIGHT))
    assert "was scored on text/test, but" in said(1, record, runs[1])
    (tmp_path / "text" / "test.de").write_text("one line\n")
    (tmp_path / "text" / "test.en").write_text("one line\n")
    assert "test.de: has 6 lines, but data.test now has 1 line" in said(1, runs[0])
    (Path(runs[0]) / "log.jsonl").write_text("")
    assert "nothing was trained yet" in said(1, runs[0])


def make_and_save(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    run = make_run(folder, "other-1", RIGHT, cell="sru")
    assert main([run, *options, "--save", str(folder / "others")]) == 0
    capsys.readouterr()
    return str(folder / "others" / "other-1.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("format"),
        lambda fields: fields.update(format=2),
        lambda fields: fields.update(surprise=1),
        lambda fields: fields.pop("seed"),
        lambda fields: fields.update(updates="many"),
        lambda fields: fields["test"].update(sentences=5),
        lambda fields: fields["test"]["scores"][0].update(score=None),
        lambda fields: fields["test"]["scores"][0]["counts"].update(zlib="AAAA"),
        lambda fields: fields["test"]["scores"][0]["counts"].update(type="O"),
        lambda fields: fields["test"]["scores"][0]["counts"].update(shape=[60]),
    ],
)
def test_a_damaged_record_is_refused(change, capsys, tmp_path) -> None:
    assert main([make_run(tmp_path, "gru-1", RIGHT), "--save", str(tmp_path)]) == 0
    file = tmp_path / "gru-1.json"
    assert read_record(file).seed == 1
    fields = json.loads(file.read_text())
    change(fields)
    file.write_text(json.dumps(fields))
    capsys.readouterr()
    assert main([str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and f"{file}: is no record of a run" in err and err.count("\n") == 1


def test_counts_that_are_not_whole_numbers_are_kept() -> None:
    table = np.array([[0.5, 2.0], [1.25, 3.0]])
    one = Scored(metric="own", name="own", score=1.0, counts=table)
    test = Measured(text="x", digest="y", sentences=2, scores=[one])
    record = Record(name="a", architecture="b", unit="c", seed=1, settings={}, test=test)
    assert b'"type": "f8"' in written(record)


def test_a_run_that_was_resumed_and_killed_has_no_end(capsys, tmp_path) -> None:
    later = {"event": "train", "step": 1400, "epoch": 2.0, "seconds": 130, "cpu_seconds": 1300, "loss": 2.0}
    assert main([make_run(tmp_path, "gru-1", RIGHT, log=[*events(), later]), "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert (rows_of(out)[0]["updates"], rows_of(out)[0]["cpu_seconds"]) == ("1400.0", "1300.0")
    assert "is still training, or was killed" in err
