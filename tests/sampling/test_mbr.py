"""Minimum Bayes risk against sacreBLEU, pair by pair, and through the translator and the command."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from nmt.cli import translate
from nmt.config import DecodingConfig
from nmt.errors import ConfigError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.sampling.search import bleu, by_expected_utility, chrf
from nmt.search import Hypothesis
from nmt.search.base import build_search
from nmt.search.ruled import RuledModel
from nmt.search.shortlist import Shortlist
from nmt.search.translator import Translator
from tests.search.table_model import TableModel, random_sources
from tests.tiny_run import make_run

TEXTS = [
    "Ein Mann f\u00e4hrt Rad.", "Ein Mann f\u00e4hrt mit dem Rad.", "ein mann", "", "Rad", "aaaa aaaa aaaa", "aaaa",
    "Zwei \u732b, ein Hund!", "a  b", "ein ein ein ein Mann", "Ein Mann f\u00e4hrt Rad.",
]  # fmt: skip


def test_utilities_are_those_of_sacrebleu() -> None:
    dice = random.Random(1)
    texts = TEXTS + [" ".join(dice.choices(["der", "die", "Haus", "Katze", "l\u00e4uft", "."], k=k)) for k in range(12)]
    for found, of_pair in ((chrf(texts), sacrebleu.sentence_chrf), (bleu(texts), sacrebleu.sentence_bleu)):
        expected = [[of_pair(one, [other]).score for other in texts] for one in texts]
        assert torch.equal(found.isnan(), torch.zeros_like(found, dtype=torch.bool))
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_bleu_of_scripts_without_spaces_is_that_of_characters() -> None:
    texts = ["我们明天喝咖啡。", "我们今天喝咖啡。", "他不在家。"]
    expected = [[sacrebleu.sentence_bleu(one, [other], tokenize="char").score for other in texts] for one in texts]
    torch.testing.assert_close(bleu(texts), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_candidates_are_ordered_by_their_expected_utility() -> None:
    candidates = [Hypothesis([place], -float(place)) for place in range(len(TEXTS))]
    candidates.append(Hypothesis([0], float("-inf"), is_finite=False))
    weights = [float(place % 3 + 1) for place in range(len(candidates))]
    found = by_expected_utility(candidates, weights, decode=lambda ids: TEXTS[ids[0]], utility="chrf")
    usable = list(zip(TEXTS, weights, strict=False))
    expected = {
        text: sum(weight * sacrebleu.sentence_chrf(text, [other]).score for other, weight in usable)
        / sum(weight for _, weight in usable)
        for text in TEXTS
    }
    best_first = sorted(expected, key=lambda text: -expected[text])
    assert [TEXTS[one.ids[0]] for one in found] == best_first
    assert [one.score for one in found] == pytest.approx([expected[text] for text in best_first])
    lost = Hypothesis([], float("-inf"), is_finite=False)
    assert by_expected_utility([lost], [1.0], decode=str, utility="bleu") == [lost]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


def translator(loaded: LoadedModel, *, search_options: dict[str, Any], **changes: Any) -> Translator:
    settings = {"search": "mbr", "search_options": search_options, "precision": "fp32", "batch_tokens": 4096, **changes}
    return Translator(loaded.model, loaded.tokenizer, dataclasses.replace(loaded.config.decoding, **settings))


LINES = ["a b c", "d", "a a b c d"]


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_samples_are_those_of_the_search_sample(loaded: LoadedModel, utility: str) -> None:
    drawn = {"temperature": 0.8, "top_k": 5, "seed": 3}
    samples = translator(loaded, search="sample", search_options=drawn, n_best=12)
    metric = sacrebleu.sentence_chrf if utility == "chrf" else sacrebleu.sentence_bleu
    options = {"number": 12, "utility": utility, **drawn}
    found = list(translator(loaded, search_options=options, n_best=12).translations(LINES))
    for one, of_line in zip(found, samples.translations(LINES), strict=True):
        texts = [sample.text for sample in of_line.hypotheses]
        expected = {text: sum(metric(text, [other]).score for other in texts) / 12 for text in texts}
        assert {h.text: h.score for h in one.hypotheses} == pytest.approx(expected)
        assert [h.score for h in one.hypotheses] == sorted((h.score for h in one.hypotheses), reverse=True)
    best = list(translator(loaded, search_options=options).translations(LINES))
    assert [one.best for one in best] == [one.best for one in found]


def test_candidates_of_a_beam_weigh_what_their_probabilities_do() -> None:
    model = TableModel(1, vocabulary=9, dtype=torch.float64)
    source = random_sources(2, sentences=6, longest=4, vocabulary=9)
    settings: dict[str, Any] = {"length_penalty": 0.0, "max_length_offset": 3, "scores": True, "n_best": 6}
    beam = build_search(DecodingConfig(beam_size=6)).search(RuledModel(model), source, beam_size=6, **settings)
    mbr: Any = build_search(DecodingConfig(search="mbr", search_options={"candidates": "beam", "number": 6}))

    def decode(ids: Sequence[int]) -> str:
        return " ".join("abcdefghi"[i] * 3 for i in ids)

    found = mbr.search(RuledModel(model), source, beam_size=4, decode=decode, **settings)
    for hypotheses, of_beam in zip(found, beam, strict=True):
        total = torch.tensor([one.score for one in of_beam], dtype=torch.float64).softmax(0).tolist()
        for one in hypotheses:
            utilities = [sacrebleu.sentence_chrf(decode(one.ids), [decode(other.ids)]).score for other in of_beam]
            assert one.score == pytest.approx(sum(u * p for u, p in zip(utilities, total, strict=True)))


def test_companions_and_a_list_of_words(loaded: LoadedModel) -> None:
    options = {"number": 8, "seed": 2}
    together = list(translator(loaded, search_options=options).translations(LINES))
    assert together == list(translator(loaded, search_options=options, batch_tokens=1).translations(LINES))
    listed = translator(loaded, search_options=options, n_best=8)
    tokenizer = loaded.tokenizer
    listed._shortlist = Shortlist(
        frequent=torch.tensor([5, 7]),
        partners=torch.empty(0, dtype=torch.int32),
        starts=torch.zeros(tokenizer.source_size + 1, dtype=torch.int64),
        target_size=tokenizer.target_size,
    )
    for one in listed.translations(LINES):
        texts = [h.text for h in one.hypotheses]
        assert set(" ".join(texts).split()) <= {"z", "v", "<unk>"}
        assert len(set(texts)) == len(texts)
        assert one.hypotheses[0].score >= chrf(texts).min()


def test_it_is_a_search_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], loaded: LoadedModel) -> None:
    run = make_run(tmp_path / "run")
    text = tmp_path / "text"
    text.write_text("a b c\n\nd\n")
    command = [str(run), "-i", str(text), "--search", "mbr", "--n-best", "9"]
    assert translate.main(command) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 27
    assert "widens" not in err, "samples are not hypotheses of a beam"
    assert translate.main([*command[:-1], "33"]) == 2
    assert "--n-best 33: search 'mbr' finds at most 32 per sentence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 1}, "number: must be from 2 to 10000, not 1"),
        ({"utility": "ter"}, "search_options.utility: 'ter' is not allowed"),
        ({"temperature": 0.0}, "temperature: must be above 0"),
        ({"candidates": "beam", "top_p": 0.9}, "top_p: has no effect with candidates: beam"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_search(DecodingConfig(search="mbr", search_options=options))


def test_a_coverage_penalty_is_refused() -> None:
    with pytest.raises(ConfigError, match="decoding.coverage_penalty: 'mbr' has none; beam, diverse_beam, noisy_beam"):
        build_search(DecodingConfig(search="mbr", coverage_penalty=0.2))


def test_the_status_line_counts_candidates_not_the_beam() -> None:
    decoding = DecodingConfig(search="mbr", beam_size=5, search_options={"number": 7})
    assert type(build_search(decoding)).size(decoding) == "7 candidates a line"
