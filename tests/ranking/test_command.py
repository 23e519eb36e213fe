"""nmt-score --n-best adds features to the lists that nmt-translate writes; nmt-rank ranks them and finds weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from sacrebleu.metrics.chrf import CHRF

from nmt.cli import translate
from nmt.interop.model_dir import load_model
from nmt.ranking import command as rank
from nmt.ranking.n_best import Entry, read_n_best
from nmt.scoring import command as score
from tests.tiny_language_model import log_q, make_language_model, target_words
from tests.tiny_run import make_run

TEXT = ["a b c", "d", "a b c d a b", "", "b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, another one, a language model, a text and the n-best list of the first."""
    folder = tmp_path_factory.mktemp("rank")
    make_run(folder / "run")
    make_run(folder / "other", steps=(30,), best=(30,))
    make_language_model(folder / "lm", target_words())
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT))
    arguments = ["-i", str(folder / "text"), "-o", str(folder / "list"), "--format", "moses", "--n-best", "3", "-q"]
    arguments += ["--precision", "fp32"]  # as nmt-score computes
    assert translate.main([str(folder / "run"), *arguments]) == 0
    return folder


def entries(text: str) -> list[Entry]:
    return list(read_n_best(text.splitlines(), name="list"))


def test_a_language_model_scores_each_translation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([str(folder / "lm"), "--n-best", str(folder / "list")]) == 0
    out, said = capsys.readouterr()
    found, before = entries(out), entries((folder / "list").read_text())
    assert [(one.text, one.rest) for one in found] == [(one.text, one.rest) for one in before]
    loaded = load_model(folder / "lm", task="language_model")
    model, tokenizer = loaded.model, loaded.tokenizer
    for one in found:
        own = float(log_q(model, [*tokenizer.encode_target([one.text])[0], 2]).sum())  # type: ignore[arg-type]
        assert one.features["lm"] == pytest.approx(own, abs=1e-4)
    assert f"nmt-score: {len(found)} translations; lm -" in said


def test_a_translation_model_scores_them_given_their_sources(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it scores the pairs; of its own list that is the score without the length penalty."""
    arguments = ["--n-best", str(folder / "list"), "--source", str(folder / "text")]
    assert score.main([str(folder / "run"), *arguments, "--feature", "mine"]) == 0
    mine = entries(capsys.readouterr().out)
    for one in mine:
        if one.text:
            length = len(one.text.split()) + 1
            own = one.features["score"] * ((5 + length) / 6) ** 0.6
            if len(one.text.split()) < len(TEXT[one.number].split()) + 1 + 4:  # not cut by the limit
                assert one.features["mine"] == pytest.approx(own, rel=1e-3)
    (folder / "more").write_text("".join(one.line() for one in mine))
    assert score.main([str(folder / "other"), "--n-best", str(folder / "more"), "--source", str(folder / "text")]) == 0
    both = entries(capsys.readouterr().out)
    assert list(both[0].features) == ["score", "mine", "model"]
    assert [one.features["model"] for one in both] != [one.features["mine"] for one in both]


def ranking(*arguments: str) -> int:
    return rank.main([*arguments])


def test_the_best_of_each_line_is_written_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score.main([str(folder / "lm"), "--n-best", str(folder / "list")]) == 0
    (folder / "scored").write_text(capsys.readouterr().out)
    listed = entries((folder / "scored").read_text())
    assert ranking(str(folder / "scored"), "--weights", "score=1") == 0
    first = [next(one.text for one in listed if one.number == number) for number in range(len(TEXT))]
    assert capsys.readouterr().out.splitlines() == first
    assert ranking(str(folder / "scored"), "--weights", "lm=1,words=0.5", "-o", str(folder / "best")) == 0
    wanted = []
    for number in range(len(TEXT)):
        own = [one for one in listed if one.number == number]
        wanted.append(max(own, key=lambda one: one.features["lm"] + 0.5 * len(one.text.split())).text)
    assert (folder / "best").read_text().splitlines() == wanted != first
    assert f"nmt-rank: {len(listed)} translations of 5 lines; for " in capsys.readouterr().err
    assert ranking(str(folder / "scored"), "--weights", "lm=1,words=0.5", "--format", "moses") == 0
    whole = entries(capsys.readouterr().out)
    assert len(whole) == len(listed) and [one.number for one in whole] == [one.number for one in listed]
    for number in range(len(TEXT)):
        sums = [float(one.rest[0]) for one in whole if one.number == number]
        assert sums == sorted(sums, reverse=True)


def test_lines_without_a_translation_are_empty_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list").write_text("1 ||| a ||| score= 1 ||| 1\n4 ||| b ||| score= 1 ||| 1\n")
    assert ranking(str(tmp_path / "list"), "--weights", "score=1") == 0
    out, said = capsys.readouterr()
    assert out == "\na\n\n\nb\n" and "3 lines without a translation: 1, 3, 4" in said


def test_weights_are_tuned_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = ["the house is small and red", "two dogs run in the snow"]
    lines = []
    for number, text in enumerate(reference):
        lines += [f"{number} ||| {text.split()[0]} x y z ||| score= -1 lm= -9 ||| -1\n"]
        lines += [f"{number} ||| {text} ||| score= -2 lm= -3 ||| -2\n"]
    (tmp_path / "list").write_text("".join(lines))
    (tmp_path / "ref").write_text("".join(f"{text}\n" for text in reference))
    for more in ((), ("--metric", "chrf")):
        assert ranking(str(tmp_path / "list"), "--tune", "--ref", str(tmp_path / "ref"), *more) == 0
        weights, said = capsys.readouterr()
        assert " 100.00 with these weights, " in said and weights.count("\n") == 1
        assert ranking(str(tmp_path / "list"), "--weights", weights.strip()) == 0
        assert capsys.readouterr().out.splitlines() == reference


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{0}/list",), 2, "give one of --weights, --mbr and --tune"),
        (("{0}/list", "--weights", "score=1", "--tune"), 2, "give one of --weights, --mbr and --tune"),
        (("{0}/list", "--tune"), 2, "--tune: give the references in --ref"),
        (("{0}/list", "--weights", "score=1", "--ref", "{0}/text"), 2, "--ref: allowed only with --tune"),
        (("{0}/list", "--weights", "score=1", "--metric", "bleu"), 2, "--metric: allowed only with --tune"),
        (("{0}/list", "--weights", "score=1", "--plugin", "x.py"), 2, "--plugin: allowed only with --mbr and --tune"),
        (("{0}/list", "--tune", "--ref", "{0}/text", "--format", "text"), 2, "--format: not allowed with --tune"),
        (("{0}/list", "--weights", "score"), 2, "'score' is not NAME=NUMBER; write for example score=1,lm=0.3"),
        (("{0}/list", "--weights", "score=1,score=2"), 2, "'score=2' is given twice"),
        (("{0}/list", "--weights", "score=x"), 2, "'x' is not a number from -1e+30 to 1e+30"),
        (("{0}/list", "--weights", "score=1e31"), 2, "'1e31' is not a number from -1e+30 to 1e+30"),
        (("{0}/gap", "--tune", "--ref", "{0}/short"), 1, "gap: no translation of line 1; --tune needs one"),
        (
            ("{0}/list", "--weights", "scor=1"),
            1,
            "list, line 1: has no feature 'scor'. Did you mean 'score'? ",
        ),
        (("{0}/none", "--weights", "score=1"), 1, "none: no such file"),
        (("{0}/text", "--weights", "score=1"), 1, "text, line 1: not of the form 'number ||| text"),
        (("{0}/list", "--tune", "--ref", "{0}/short"), 1, "translations of 5 lines, but {0}/short has 1 line;"),
        (("{0}/list", "--tune", "--ref", "{0}/text", "--metric", "blue"), 2, "'blue'"),
        (("{0}/list", "--weights", "score=1", "-o", "{0}/list"), 2, "list: is also the input"),
        (("{0}/list", "--weights", "score=1", "--errors", "empty"), 2, "choose from 'strict', 'replace'"),
    ],
)
def test_mistakes_are_named_in_one_line(
    folder: Path, arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short").write_text("x\n")
    (folder / "gap").write_text("0 ||| x ||| score= 1 ||| 1\n2 ||| y ||| score= 1 ||| 1\n")
    assert ranking(*(argument.format(folder) for argument in arguments)) == code
    said = capsys.readouterr().err
    assert message.format(folder) in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("{0}/lm", "--n-best", "{0}/list", "--by-line"),
            2,
            "--by-line: not allowed with --n-best, which writes a list",
        ),
        (("{0}/lm", "--n-best", "{0}/list", "--text", "{0}/text"), 2, "--text: not allowed with --n-best"),
        (("{0}/lm", "--n-best", "{0}/list", "--errors", "empty"), 2, "never empty. Allowed: strict, replace."),
        (("{0}/lm", "--feature", "x", "--text", "{0}/text"), 2, "--feature: allowed only with --n-best"),
        (("{0}/lm", "--n-best", "{0}/list", "--feature", "a b"), 2, "'a b' is not a name"),
        (
            ("{0}/lm", "--n-best", "{0}/list", "--feature", "words"),
            2,
            "'words' is the name that nmt-rank gives to the number",
        ),
        (("{0}/lm", "--n-best", "{0}/list", "--feature", "score"), 1, "line 1: already has the feature 'score'"),
        (("{0}/lm", "--n-best", "{0}/text"), 1, "text, line 1: not of the form 'number"),
        (("{0}/run", "--n-best", "{0}/list"), 1, "a model of the task translation, but a model of language_model"),
        (("{0}/run", "--n-best", "{0}/list", "--source", "{0}/one"), 1, "line number 1, but {0}/one has 1 line, num"),
    ],
)
def test_mistakes_in_scoring_lists_are_named_in_one_line(
    folder: Path, arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one").write_text("a\n")
    assert score.main([argument.format(folder) for argument in arguments]) == code
    said = capsys.readouterr().err
    assert message.format(folder) in said and len(said.splitlines()) == 1


LISTED = ["0 ||| a b c ||| score= -1 ||| -1", "0 ||| a b d ||| score= -2 ||| -2", "0 ||| a b d ||| score= -3 ||| -3"]
LISTED += ["0 ||| x y z ||| score= -4 ||| -4", "2 ||| e ||| score= -1 ||| -1"]


@pytest.fixture
def samples(tmp_path: Path) -> str:
    """A list whose second line has no translation."""
    (tmp_path / "samples").write_text("".join(f"{line}\n" for line in LISTED))
    return str(tmp_path / "samples")


def test_the_translation_that_is_most_like_the_others(samples: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A text that is there twice weighs twice; chrF of two texts is not that of sampling's own computation."""
    assert rank.main([samples, "--mbr", "chrf"]) == 0
    out, err = capsys.readouterr()
    assert out == "a b d\n\ne\n"
    assert "5 translations of 3 lines; for 1 the best is not the first; 1 line without a translation: 2" in err
    assert rank.main([samples, "--mbr", "chrf", "--format", "moses"]) == 0
    best, same, other, worst, alone = (line.split(" ||| ") for line in capsys.readouterr().out.splitlines())
    scorer = CHRF()
    expected = [
        sum(scorer.sentence_score(one, [two]).score for two in ("a b c", "a b d", "a b d", "x y z")) / 4
        for one in ("a b d", "a b c", "x y z")
    ]
    assert [float(row[-1]) for row in (best, other, worst)] == pytest.approx(expected, abs=1e-6)
    assert best[1:3] == ["a b d", "score= -2"] and same[1] == "a b d" and float(alone[-1]) == pytest.approx(100)


def test_lower_is_better_by_ter(samples: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rank.main([samples, "--mbr", "ter"]) == 0
    assert capsys.readouterr().out == "a b d\n\ne\n"


PLUGIN = """
from nmt.evaluation import Metric, Score
from nmt.registry import METRICS

@METRICS.register("alike")
class Alike(Metric):
    name, needs_sources = "alike", True
    def compute(self, hypotheses, references, *, sources):
        rows = zip(hypotheses, references[0], sources, strict=True)
        found = [100.0 * (source in hypothesis and source in reference) for hypothesis, reference, source in rows]
        return Score("alike", sum(found) / len(found), "v:1", True, segments=found)
"""


def test_a_learned_metric_gets_the_sources(
    samples: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alike.py").write_text(PLUGIN)
    (tmp_path / "src").write_text("c\n-\ne\n")
    (tmp_path / "short").write_text("z\n")
    with open(samples, "a") as more:
        more.write("2 ||| c ||| score= -2 ||| -2\n2 ||| e c ||| score= -2 ||| -2\n2 ||| c ||| score= -3 ||| -3\n")
    arguments = [samples, "--mbr", "alike", "--plugin", str(tmp_path / "alike.py")]
    assert rank.main(arguments) == 2
    assert "--mbr alike: needs --source" in capsys.readouterr().err
    for pairs in (1, 4096):
        monkeypatch.setattr("nmt.ranking.utility.PAIRS", pairs)
        assert rank.main([*arguments, "--source", str(tmp_path / "src")]) == 0
        assert capsys.readouterr().out == "a b c\n\ne\n"
    (tmp_path / "odd").write_bytes(b"c \xff\n-\ne\n")
    assert rank.main([*arguments, "--source", str(tmp_path / "odd"), "--errors", "replace"]) == 0
    assert f"{tmp_path / 'odd'}: 1 line" in capsys.readouterr().err
    assert rank.main([*arguments, "--source", str(tmp_path / "short")]) == 1
    assert "line 3 has translations, but --source 1 line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--mbr", "chrf", "--weights", "score=1"], "give one of --weights, --mbr and --tune"),
        (["--weights", "score=1", "--source", "x"], "--source: allowed only with --mbr"),
        (["--mbr", "chrf", "--metric", "bleu"], "--metric: allowed only with --tune"),
        (["--mbr", "chr"], "'chr' is not a known metric. Did you mean 'chrf'"),
    ],
)
def test_what_does_not_go_with_it(
    samples: str, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert rank.main([samples, *arguments]) == 2
    assert problem in capsys.readouterr().err
