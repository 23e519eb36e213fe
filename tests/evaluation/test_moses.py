"""BLEU on Moses tokens: the tokens, a score by hand, published tokens of a corpus, what is said without sacremoses."""

from __future__ import annotations

import gzip
import html
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.config import load_config
from nmt.errors import ConfigError
from nmt.evaluating.command import main
from nmt.evaluation import build_metric, build_metrics, paired_test
from tests.tiny_training import events, nmt_train, write_config, write_corpus

NAME = "bleu_moses_lc"
HYPOTHESIS, REFERENCE = "Die Jazz-Band spielt heute in Berlin.", "die jazz-Combo spielt heute in Berlin ."
BY_HAND = 100 * (8 / 9 * 6 / 8 * 4 / 7 * 2 / 6) ** 0.25
"""Of "die jazz @-@ band spielt heute in berlin ." against the same with "combo": n-grams that match, of all."""


@pytest.fixture
def metric() -> Any:
    pytest.importorskip("sacremoses", reason="sacremoses is not installed")
    return build_metric(NAME, language="de")


def tokens(line: str, **options: Any) -> str:
    return build_metric(NAME, options, language="de").scorer()._preprocess_segment(line)


@pytest.mark.usefixtures("metric")
def test_tokens() -> None:
    line = "Das E-Mail-Konto kostet 3,50 € (ca. 4 $), z.B. für Dr. Müller's Hund & <Co>."
    expected = "das e @-@ mail @-@ konto kostet 3,50 € ( ca. 4 $ ) , z.b. für dr. müller ' s hund & < co > ."
    assert tokens(line) == expected
    assert tokens(line, dash_splits=False) == expected.replace(" @-@ ", "-")
    assert tokens("Am 3. Mai kam Dr. Haus.") == "am 3. mai kam dr. haus ."
    assert tokens("It's the dog's.", language="en") == "it 's the dog 's ."
    assert tokens("Er geht. Sie kommt.") == "er geht . sie kommt .", (
        "a capital letter after a full stop ends a sentence"
    )


def test_score_by_hand_and_signature(metric: Any) -> None:
    from sacremoses import __version__ as version

    score = metric.compute([HYPOTHESIS], [[REFERENCE]])
    assert (score.name, score.score) == (NAME, pytest.approx(BY_HAND, rel=1e-12))
    moses = f"tok:moses-de+dashes-split+unescaped+sacremoses-{version}"
    assert score.signature.startswith(f"nrefs:1|case:lc|eff:no|{moses}|smooth:none|version:")
    several = metric.compute([HYPOTHESIS], [[REFERENCE], [HYPOTHESIS.upper()]])
    assert several.score == pytest.approx(100) and several.signature.startswith("nrefs:2|")


def test_it_is_what_the_tokenised_metric_gives_on_the_tokens(metric: Any) -> None:
    hypotheses, references = [HYPOTHESIS, "Ein Hund läuft schnell."], [REFERENCE, "Ein Hund, der läuft ..."]
    cut = [[tokens(line) for line in lines] for lines in (hypotheses, references)]
    expected = build_metric("bleu_tok_lc").compute(cut[0], [cut[1]])
    assert metric.compute(hypotheses, [references]).score == pytest.approx(expected.score, rel=1e-12)


def test_resampling_cuts_the_text_too(metric: Any) -> None:
    comparison = paired_test(metric, [HYPOTHESIS] * 2, baseline=["Die"] * 2, references=[[REFERENCE] * 2], samples=9)
    assert comparison.system.score == pytest.approx(BY_HAND)
    assert "tok:moses-de" in comparison.signature


@pytest.mark.usefixtures("metric")
def test_published_tokens_of_multi30k(multi30k: Path) -> None:
    """Made without `-a`, from normalised text; sacremoses leaves the dot at a word that also is an abbreviation."""

    def lines(name: str) -> list[str]:
        return gzip.decompress((multi30k / name).read_bytes()).decode().split("\n")[:-1]

    cut = [tokens(line, dash_splits=False).split() for line in lines("test_2016_flickr.de.gz")]
    published = [html.unescape(line).split() for line in lines("test_2016_flickr.lc.norm.tok.de.gz")]
    assert len(cut) == len(published) == 1000
    assert sum(ours != theirs for ours, theirs in zip(cut, published, strict=True)) <= 3


@pytest.mark.usefixtures("metric")
def test_options_of_nmt_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, line in (("hyp", HYPOTHESIS), ("ref", REFERENCE)):
        (tmp_path / name).write_text(line + "\n")
    command = ["--hyp", str(tmp_path / "hyp"), "--ref", str(tmp_path / "ref"), "--metrics", NAME]
    assert main([*command, "--language", "en", "--no-dash-splits"]) == 0
    said = capsys.readouterr().out
    kept = 100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25
    assert f"{kept:.2f}" in said and "moses-en+dashes-kept" in said
    assert main(command) == 0
    assert f"{BY_HAND:.2f}" in (said := capsys.readouterr().out) and "moses-de+dashes-split" in said
    assert main([*command[:-1], "chrf", "--no-dash-splits"]) == 2
    assert (
        "--no-dash-splits: no requested metric has this option; it belongs to bleu_moses_lc" in capsys.readouterr().err
    )


@pytest.mark.usefixtures("metric")
def test_validation_and_test_text_in_the_target_language(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.de").rename(tmp_path / f"{name}.fr")
    data = {"target_language": "fr", "test": str(tmp_path / "dev")}
    config = write_config(tmp_path, data=data, evaluation={"metrics": [NAME]}, training={"max_steps": 1})
    assert nmt_train(config) == 0
    for event in events(tmp_path / "run", kinds=("validation", "test")):
        assert f"{NAME} nrefs:1|case:lc|eff:no|tok:moses-fr+" in event["signatures"][NAME]


def test_without_sacremoses_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any text is read: none of the files named is there."""
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    message = "metric bleu_moses_lc: sacremoses is not installed; pip install 'nmt-recurrent[moses]'"
    assert main(["--hyp", "nowhere", "--ref", "nowhere", "--metrics", NAME]) == 2
    assert capsys.readouterr().err == f"nmt-eval: {message}\n"
    config = write_config(tmp_path, evaluation={"metrics": [NAME]})
    assert nmt_train(config) == 2
    assert f": evaluation.metrics: {message}\n" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    loaded = load_config(config)  # a configuration itself loads, as a model made elsewhere must
    with pytest.raises(ConfigError, match="pip install"):
        build_metrics(loaded.evaluation, language=None)
