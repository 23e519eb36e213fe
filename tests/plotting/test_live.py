"""nmt-plot live: when words are written, and quality against lag."""

from __future__ import annotations

import json
import sys

import pytest

import nmt
from nmt.evaluating import command as evaluate
from nmt.live.lag import hear
from nmt.plotting import Measured, Written, lag_curves, read_measured, timeline
from nmt.plotting.command import main
from tests.tiny_run import make_run

pytest.importorskip("matplotlib", reason="matplotlib, of nmt-recurrent[plot], is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("live") / "run")


def placed(figure):
    """The texts of a picture with their places, from its left and its top."""
    return [(text.get_text(), text.get_position()[0], 1 - text.get_position()[1]) for text in figure.texts]


def test_words_are_below_the_word_after_which_they_were_written():
    source = ["Der", "$x$", "Hund", "bellt."]
    rows = {"wait_k,wait=1": Written(["The", "_big_", "dog", "barks."], [1, 2, 3, 4]),
            "whole": Written(["The", "dog", "barks", "and", "barks", "and", "barks."], [4] * 7)}  # fmt: skip
    found = placed(timeline(source, rows, title="A dog"))
    at = {text: (x, y) for text, x, y in found}
    assert [text for text, *_ in found] == [
        "A dog", "read", *source, "wait_k,wait=1", "The", "_big_", "dog", "barks.", "whole", "The dog barks and",
        "barks and barks.",
    ]  # fmt: skip
    for heard, written in zip(source, ("The", "_big_", "dog", "barks."), strict=True):
        assert at[heard][0] == at[written][0] and at[heard][1] < at[written][1]
    assert at["The"][1] == at["wait_k,wait=1"][1] < at["whole"][1] == at["The dog barks and"][1]
    assert at["The dog barks and"][0] == at["bellt."][0] and at["barks and barks."][1] > at["The dog barks and"][1]


def test_long_sentences_go_on_below():
    source = [f"word{number}" for number in range(40)]
    figure = timeline(source, {"wait_k": Written(["w"] * 40, range(1, 41))})
    found = placed(figure)
    assert figure.get_figwidth() < 11 and [text for text, *_ in found].count("read") == len(figure.axes) > 2
    ends = [(x, y) for text, x, y in found if text.startswith("word")]
    assert [place for place in ends if place[0] == ends[0][0]] != ends[:1], "each part begins at the left"
    assert [text for text, *_ in found if text.startswith("word")] == source


LIVE = [
    Measured("wait_k,wait=9", {"BLEU": 30.0, "chrF2": 60.0, "AL": 8.5, "DAL": 9.0}),
    Measured("wait_k,wait=1", {"BLEU": 20.0, "chrF2": 50.0, "AL": 1.5, "DAL": 1.7}),
    Measured("alignatt", {"BLEU": 25.0, "chrF2": 55.0, "AL": 4.0, "DAL": 5.0}),
    Measured("whole lines", {"BLEU": 33.0, "chrF2": 66.0, "AL": 12.0, "DAL": 12.0}),
]


def drawn(figure):
    (place,) = figure.axes
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in place.lines], [
        text.get_text() for text in figure.legends[0].get_texts()
    ]


def test_a_line_for_each_policy_in_the_order_of_lag():
    figure = lag_curves({"live": LIVE})
    lines, labels = drawn(figure)
    assert lines == [([1.5, 8.5], [20.0, 30.0]), ([4.0], [25.0]), ([0, 1], [33.0, 33.0])]
    assert labels == ["wait_k", "alignatt", "whole lines"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "9", ""]
    lines, labels = drawn(lag_curves({"a": LIVE, "b": LIVE[:2]}, axis="DAL", metric="chrF2"))
    assert lines[0] == lines[3] == ([1.7, 9.0], [50.0, 60.0]) and labels[-1] == "b, wait_k"


def test_of_what_nmt_eval_writes(run, tmp_path, capsys):
    for name, text in (("s", "a b c d\nd c b\n"), ("r", "x y z\nu v\n")):
        (tmp_path / name).write_text(text)
    given = [str(run), "--source", str(tmp_path / "s"), "--ref", str(tmp_path / "r"), "--json"]
    assert evaluate.main([*given, "--live", "wait_k,wait=1..2"]) == 0
    (tmp_path / "live.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert [one.name for one in read_measured(str(tmp_path / "live.json"))][-1] == "whole lines"
    picture = tmp_path / "x.svg"
    assert main(["live", str(tmp_path / "live.json"), "-o", str(picture), "--axis", "ms", "--metric", "TER"]) == 0
    assert ">TER</text>" in picture.read_text() and ">CPU milliseconds for a word" in picture.read_text()


def test_of_a_sentence(run, tmp_path, monkeypatch):
    import nmt.plotting.command as command

    asked = []
    monkeypatch.setattr(
        command, "timeline", lambda source, rows: asked.append((source, rows)) or timeline(source, rows)
    )
    output = tmp_path / "x.png"
    assert main(["live", str(run), "--text", "a  b c", "--live", "wait_k,wait=2..3", "-o", str(output)]) == 0
    with nmt.load(run) as translator:
        heard = [hear(translator, ["a b c"], "wait_k", wait=wait)[0] for wait in (2, 3)]
    rows = {
        f"wait_k,wait={wait}": Written(one.text.split(), one.delays) for wait, one in zip((2, 3), heard, strict=True)
    }
    assert asked == [(["a", "b", "c"], rows)] and output.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["live.json", "--live", "wait_k"], "--live: needs --text"),
        (["live.json", "--metric", "TER"], "--metric: 'TER' is not in live. Allowed: BLEU, chrF2."),
        (["live.json", "--labels", "a", "b"], "--labels: 2 for 1 result; give one for each"),
        (["live.json", "live.json"], "--labels: live, live: results need names of their own"),
        (["missing.json"], "missing.json: no such file"),
        (["scores.json"], "scores.json: is not what nmt-eval --live writes with --format json"),
        (["text.json"], "text.json: is not what nmt-eval --live writes with --format json"),
        (["run", "--text", "a", "--axis", "AL"], "--axis: does not go together with --text"),
        (["run", "run", "--text", "a"], "--text: needs one MODEL, not run run"),
        (["run", "--text", " "], "--text: is empty; give a sentence"),
        (["run", "--text", "a", "--live", "wait_k,wait=x"], "wait_k.wait"),
    ],
)
def test_mistakes(run, tmp_path, options, said, capsys, monkeypatch):
    monkeypatch.chdir(run.parent)
    entries = [{"system": one.name, "metrics": [{"name": key, "score": value} for key, value in one.values.items()]}
               for one in LIVE]  # fmt: skip
    (run.parent / "live.json").write_text(json.dumps(entries))
    (run.parent / "scores.json").write_text(json.dumps([{"name": "BLEU", "score": 3.0}]))
    (run.parent / "text.json").write_text("nothing")
    assert main(["live", *options, "-o", str(tmp_path / "x.png")]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == "" and said in err.splitlines()[-1] and list(tmp_path.iterdir()) == []


def test_without_matplotlib(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["live", str(run), "--text", "a", "-o", str(tmp_path / "x.png")]) == 1
    assert capsys.readouterr().err.endswith("matplotlib is not installed; pip install 'nmt-recurrent[plot]'\n")
