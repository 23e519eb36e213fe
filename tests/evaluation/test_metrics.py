"""The metrics: equal to sacreBLEU's own classes, to Zero's reference figures, and strict about their input."""

from __future__ import annotations

from typing import Any

import pytest
from sacrebleu.metrics import BLEU

from nmt.config import component_options
from nmt.errors import ConfigError, DataError
from nmt.registry import METRICS

HYPOTHESES = ["The cat sat on the mat.", "A dog, quickly: it runs!", "two small red houses stand there"]
FIRST = ["The cat is on the mat.", "A dog runs quickly!", "Two small red houses are standing there"]
SECOND = ["the cat sat on a mat .", "The dog is quick: it runs!", "there stand two red houses"]

# What each variant of Zero's BLEU is called in sacreBLEU's terms; None: sacreBLEU has no such setting.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "closest": {"smooth_method": "none"},
    "bigrams": {"smooth_method": "none", "max_ngram_order": 2},
    "smoothed": {"smooth_method": "add-k", "smooth_value": 1},
    "shortest": {"smooth_method": "none"},
    "weighted": None,
}
# Add-k counts an order for which no translation has an n-gram as 1/1, Zero as zero precision.
WITHOUT_FOUR_GRAMS = {"two_word_candidates"}


def variant(args: dict[str, Any]) -> str:
    """The name in VARIANTS of a result's settings."""
    if args["weights"] is not None:
        return "weighted"
    if args["bp"] == "shortest":
        return "shortest"
    if args["smooth"]:
        return "smoothed"
    return "bigrams" if args["n"] == 2 else "closest"


def streams(corpus: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Lists of tokens as lines, references one stream each."""
    hypotheses = [" ".join(tokens) for tokens in corpus["candidates"]]
    references = [[" ".join(tokens) for tokens in stream] for stream in zip(*corpus["references"], strict=True)]
    return hypotheses, references


def coincides(name: str, corpus: dict[str, Any]) -> bool:
    """Whether sacreBLEU defines this variant of BLEU as Zero does, on this corpus."""
    if name == "shortest":  # sacreBLEU knows only the closest length: the same where there is one reference
        return all(len(references) == 1 for references in corpus["references"])
    return name != "smoothed" or corpus["name"] not in WITHOUT_FOUR_GRAMS


@pytest.mark.parametrize("name", VARIANTS)
def test_reference_bleu(golden, name):
    settings = VARIANTS[name]
    if settings is None:
        pytest.skip("sacreBLEU weighs the orders of n-grams equally; other weights cannot be set")
    config, arrays = golden("bleu")
    corpora = {corpus["name"]: corpus for corpus in config["corpora"]}
    compared = 0
    for result, expected in zip(config["results"], arrays["bleu"], strict=True):
        corpus = corpora[result["name"]]
        if variant(result["args"]) != name or not coincides(name, corpus):
            continue
        found = BLEU(tokenize="none", force=True, **settings).corpus_score(*streams(corpus)).score / 100
        assert found == pytest.approx(expected, abs=1e-12), result
        compared += 1
    assert compared == {"closest": 10, "bigrams": 10, "smoothed": 9, "shortest": 4}[name]


def test_tokenised_metric_is_the_reference_bleu(golden):
    config, _ = golden("bleu")
    corpora = {corpus["name"]: corpus for corpus in config["corpora"]}
    metric = METRICS.get("bleu_tok_lc")()
    for result in config["results"]:
        if variant(result["args"]) == "closest":
            score = metric.compute(*streams(corpora[result["name"]]))
            assert score.score / 100 == pytest.approx(result["bleu"], abs=1e-12)


def test_tokenised_metric_ignores_case_and_keeps_words_whole():
    metric = METRICS.get("bleu_tok_lc")()
    score = metric.compute(["der HUND läuft schnell , sagt er ."], [["Der Hund läuft schnell , sagt er ."]])
    assert score.name == "bleu_tok_lc"
    assert score.score == pytest.approx(100)
    assert "case:lc" in score.signature and "tok:none" in score.signature and "smooth:none" in score.signature
    glued = metric.compute(["der hund läuft schnell, sagt er."], [["Der Hund läuft schnell , sagt er ."]])
    assert glued.score < 100


@pytest.mark.parametrize(
    ("name", "label", "higher"),
    [("bleu", "BLEU", True), ("chrf", "chrF2", True), ("chrf++", "chrF2++", True), ("ter", "TER", False)],
)
def test_labels_signatures_and_direction(name, label, higher):
    metric = METRICS.get(name)()
    score = metric.compute(HYPOTHESES, [FIRST, SECOND])
    assert metric.name == name
    assert score.name == label
    assert score.higher_is_better is higher
    assert score.signature.startswith("nrefs:2|") and "version:" in score.signature
    better = metric.compute(FIRST, [FIRST, SECOND])
    assert (better.score > score.score) is higher


def test_bleu_takes_the_best_of_all_references():
    metric = METRICS.get("bleu")()
    assert metric.compute(HYPOTHESES, [FIRST, SECOND]).score > metric.compute(HYPOTHESES, [FIRST]).score


def test_bleu_options():
    member = METRICS.get("bleu")
    cased = member().compute(["A Small House stands here"], [["a small house stands here"]])
    lower = member(options=component_options(member, {"lowercase": True})).compute(
        ["A Small House stands here"], [["a small house stands here"]]
    )
    assert cased.score < lower.score == pytest.approx(100)
    assert "case:lc" in lower.signature


def test_unknown_tokenizer_has_a_near_miss():
    member = METRICS.get("bleu")
    with pytest.raises(ConfigError, match=r"^options\.tokenize: 'itnl'.*Did you mean 'intl'\?.*13a"):
        component_options(member, {"tokenize": "itnl"})
    with pytest.raises(ValueError, match="tokenize: 'itnl' is not a known tokenizer"):
        member.Options(tokenize="itnl")


def test_tokenizer_that_needs_a_missing_package_is_one_line(monkeypatch):
    def unavailable(**settings):
        raise RuntimeError("\nneeds extra packages\n\n    pip install them\n")

    monkeypatch.setattr("nmt.evaluation.metrics.BLEU.__init__", lambda self, **settings: unavailable(**settings))
    member = METRICS.get("bleu")
    with pytest.raises(ConfigError, match="'ja-mecab' cannot be used here: needs extra packages pip install them"):
        member(options=member.Options(tokenize="ja-mecab")).compute(HYPOTHESES, [FIRST])


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [[]], "no sentence"),
        (["a"], [], "no reference"),
        (["a", "b"], [["a", "b"], ["a"]], "2 translations but 1 line in reference 2"),
    ],
)
@pytest.mark.parametrize("name", ["bleu", "bleu_tok_lc", "chrf", "ter"])
def test_streams_that_do_not_fit(name, hypotheses, references, message):
    with pytest.raises(DataError, match=message):
        METRICS.get(name)().compute(hypotheses, references)
