"""nmt-eval --live: policies with ranges of options, their tables, and logs in SimulEval's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.evaluating.command import main
from nmt.live.lag import hear, mean_lag
from nmt.live.settings import settings
from tests.tiny_run import make_run

SOURCES = ["a b c d", "long@@ er a", "", "d c b a a b"]
REFERENCES = ["x y z", "u v", "w", "x x y y"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its text, and references."""
    found = tmp_path_factory.mktemp("live")
    make_run(found / "run")
    for name, lines in (("source", SOURCES), ("reference", REFERENCES)):
        (found / name).write_text("".join(f"{line}\n" for line in lines))
    return found


def evaluated(folder: Path, *options: object) -> list[str]:
    return [str(folder / "run"), "--source", str(folder / "source"), "--ref", str(folder / "reference"),
            "--metrics", "bleu", "chrf", *map(str, options)]  # fmt: skip


def test_a_range_is_one_setting_for_each_number() -> None:
    assert [one.name for one in settings("wait_k,wait=9..11")] == ["wait_k,wait=9", "wait_k,wait=10", "wait_k,wait=11"]
    assert settings("local_agreement") == [("local_agreement", {})]
    assert settings("alignatt,unread=1")[0].options == {"unread": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wait-k", "'wait-k' is not a known policy of live translation"),
        ("wait_k,3", "--live wait_k,3: '3' is not an option with its value, such as wait_k,OPTION=3"),
        ("wait_k,wait=", "'wait=' is not an option with its value"),
        ("wait_k,wait=3,wait=4", "wait is given twice"),
        ("wait_k,wait=5..3", "5..3 is not a range of 1 to 100 numbers, such as 1..9"),
        ("wait_k,wait=1..101", "is not a range of 1 to 100 numbers"),
        ("wait_k,wait=0..2", "wait: must be at least 1, not 0"),
        ("wait_k,agree=2", "wait_k.agree"),
        ("alignatt,unread=x", "alignatt.unread"),
    ],
)
def test_settings_that_are_refused(folder: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(evaluated(folder, "--live", text)) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_scores_lags_and_logs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--live", "wait_k,wait=1..2", "local_agreement", "wait_k,wait=2", "-o", tmp_path / "logs", "--json"]
    assert main(evaluated(folder, *options)) == 0
    out, err = capsys.readouterr()
    found = {one["system"]: {metric["name"]: metric for metric in one["metrics"]} for one in json.loads(out)}
    assert [*found] == ["wait_k,wait=1", "wait_k,wait=2", "local_agreement", "whole lines"]
    assert "; the lag is of the others, as 1 line had no words in source, translation or reference" in err
    with nmt.load(folder / "run") as translator:
        for name, policy, own in (
            ("wait_k,wait=1", "wait_k", {"wait": 1}),
            ("wait_k,wait=2", "wait_k", {"wait": 2}),
            ("local_agreement", "local_agreement", {}),
        ):
            heard = hear(translator, SOURCES, policy, **own)
            lag = mean_lag(heard, REFERENCES)
            assert [found[name][key]["score"] for key in ("AL", "LAAL", "AP", "DAL")] == pytest.approx([*lag])
            texts = [one.text for one in heard]
            scores = nmt.evaluate(texts, REFERENCES, metrics=["bleu", "chrf"])
            assert (found[name]["BLEU"]["score"], found[name]["chrF2"]["score"]) == (scores["bleu"], scores["chrf"])
            assert found[name]["ms"]["score"] > 0
            rows = [json.loads(line) for line in (tmp_path / "logs" / name / "instances.log").open(encoding="utf-8")]
            assert rows == [
                {
                    "index": index,
                    "prediction": one.text,
                    "delays": [*one.delays],
                    "elapsed": [0] * len(one.delays),
                    "prediction_length": len(one.text.split()),
                    "reference": reference,
                    "source": source,
                    "source_length": len(source.split()),
                }
                for index, (one, source, reference) in enumerate(zip(heard, SOURCES, REFERENCES, strict=True))
            ]
        whole = [result.text for result in translator.translate(SOURCES)]
    assert found["whole lines"]["BLEU"]["score"] == nmt.evaluate(whole, REFERENCES, metrics=["bleu"])["bleu"]
    assert found["whole lines"]["AL"]["score"] == pytest.approx((4 + 3 + 6) / 3)
    config = (tmp_path / "logs" / "local_agreement" / "config.yaml").read_text(encoding="utf-8")
    assert config == "source_type: text\ntarget_type: text\n"
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "local_agreement", "wait_k,wait=1", "wait_k,wait=2",
    ]  # fmt: skip


def test_a_table_fits_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*evaluated(folder, "--live", "local_agreement,agree=2"), "--beam-size", "2"]) == 0
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert table[1].split() == ["system", "BLEU", "chrF2", "AL", "LAAL", "AP", "DAL", "ms"]
    assert [row.split("  ")[0] for row in table[2:]] == ["local_agreement,agree=2", "whole lines"]
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hyp", "reference"], "--live: allowed only with MODEL; --hyp is a translation already"),
        (["run", "--source", "source", "--robustness"], "--robustness: does not go together with --live"),
        (["run", "--source", "source", "--baseline", "reference"], "--baseline: does not go together with --live"),
        (["run", "--source", "source", "-o", "source"], "source/wait_k: "),
    ],
)
def test_what_does_not_go_with_it(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main([*options, "--ref", "reference", "--live", "wait_k"]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == "" and said in err.splitlines()[-1]


def test_lines_of_different_numbers(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    (tmp_path / "two").write_text("x\ny\n")
    assert main([str(folder / "run"), "--source", str(folder / "source"), "--ref", str(tmp_path / "two"),
                 "--live", "wait_k"]) == 1  # fmt: skip
    assert "two" in capsys.readouterr().err
