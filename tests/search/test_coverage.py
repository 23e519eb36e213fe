"""The coverage penalty against its equation, and searches with it against exhaustive search and in batches."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli import translate
from nmt.config import DecodingConfig
from nmt.errors import ConfigError, DataError
from nmt.interop.model_dir import load_model
from nmt.registry import SEARCHES
from nmt.required_phrases.search import constrained_beam_search
from nmt.sampling.diverse import diverse_beam_search
from nmt.search import Hypothesis, Search
from nmt.search.base import Settings, build_search
from nmt.search.coverage import CoveringModel
from nmt.search.translator import Translator
from nmt.search.values import Request
from nmt.zero.search import beam_search
from tests.search.attending_table import AttendingTable
from tests.search.naive import Scored, log_probabilities
from tests.search.table_model import EOS, PAD, random_sources
from tests.search.test_constrained import required
from tests.tiny_run import make_run

SOURCE = [3, 4, EOS]


def penalty(model: AttendingTable, source: list[int], ids: list[int], *, beta: float) -> float:
    """Equation 14 of Wu et al. (2016) for the translation `ids`, its end symbol included."""
    sums = [0.0] * len(source)
    for t in range(len(ids)):
        weights = model.next_weights(source, [None, *ids[:t]]).tolist()
        sums = [before + weight for before, weight in zip(sums, weights, strict=True)]
    return beta * sum(math.log(min(value, 1.0)) for value in sums)


def exhaustive(model: AttendingTable, source: list[int], *, alpha: float, beta: float, limit: int) -> list[Scored]:
    """All sequences of 2 to `limit` tokens that end with EOS and have no PAD, best first."""
    found: list[Scored] = []
    stack: list[Scored] = [(0.0, [])]
    while stack:
        total, ids = stack.pop()
        for token, value in enumerate(log_probabilities(model, source, ids, zeros=[0])):
            if token == EOS and ids:
                score = (total + value) / ((6 + len(ids)) / 6) ** alpha
                found.append((score + penalty(model, source, [*ids, EOS], beta=beta), ids))
            elif token not in (PAD, EOS) and len(ids) + 1 < limit:
                stack.append((total + value, [*ids, token]))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("beta", [0.0, 0.2, 3.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(beta: float) -> None:
    model = AttendingTable(2, vocabulary=5, eos=1.0)
    settings: dict[str, Any] = {"length_penalty": 0.6, "max_length_offset": 1, "coverage_penalty": beta, "n_best": 3}
    expected = exhaustive(model, SOURCE, alpha=0.6, beta=beta, limit=4)
    assert len({tuple(exhaustive(model, SOURCE, alpha=0.6, beta=b, limit=4)[0][1]) for b in (0.0, 3.0)}) == 2
    source = torch.tensor([[*SOURCE, PAD]])
    free = required([[]], vocabulary=5)
    for found in (
        beam_search(model, source, beam_size=64, **settings),
        diverse_beam_search(model, source, beam_size=128, groups=2, diversity=0.5, **settings),
        constrained_beam_search(CoverableSteps(model), source, Settings(beam_size=64, required=free, **settings)),
    ):
        assert [one.ids for one in found[0]] == [ids for _, ids in expected[:3]]
        assert [one.score for one in found[0]] == pytest.approx([score for score, _ in expected[:3]], rel=1e-9)


class CoverableSteps:
    """With log-probabilities from `step`, too."""

    def __init__(self, model: AttendingTable) -> None:
        self._model = model
        self.start = model.start
        self.attending_step = model.attending_step

    def step(self, tokens: Any, state: Any) -> Any:
        log_probs, _, state = self._model.attending_step(tokens, state)
        return log_probs, state


def test_what_the_limit_cuts_is_ranked_with_it_too() -> None:
    model = AttendingTable(3, vocabulary=6, eos=-60.0)
    (found,) = beam_search(
        model, torch.tensor([SOURCE]), beam_size=2, length_penalty=1.0, max_length_offset=0, coverage_penalty=2.0
    )
    assert not any(one.has_ended for one in found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        total = sum(log_probabilities(model, SOURCE, one.ids[:t], zeros=[0])[one.ids[t]] for t in range(3))
        assert one.score == pytest.approx(total / (8 / 6) + penalty(model, SOURCE, one.ids, beta=2.0), rel=1e-9)


def test_padding_counts_nowhere_and_companions_change_nothing() -> None:
    model = AttendingTable(5, vocabulary=9)
    source = random_sources(4, sentences=16, longest=6, vocabulary=9)
    settings: dict[str, Any] = {"length_penalty": 0.6, "max_length_offset": 3, "coverage_penalty": 0.5, "beam_size": 4}

    def alone(search: Any) -> list[list[Hypothesis]]:
        return [search(row[row != PAD].unsqueeze(0))[0] for row in source]

    for search in (
        lambda rows: beam_search(model, rows, **settings),
        lambda rows: diverse_beam_search(model, rows, groups=2, diversity=0.5, **settings),
    ):
        together = search(source)
        for found, expected in zip(together, alone(search), strict=True):
            assert [one.ids for one in found] == [one.ids for one in expected]
            assert [one.score for one in found] == pytest.approx([one.score for one in expected], rel=1e-12)
    plain = beam_search(model, source, **(settings | {"coverage_penalty": 0.0}))
    assert [found[0].ids for found in plain] != [found[0].ids for found in beam_search(model, source, **settings)]


def test_attention_of_0_has_a_finite_penalty() -> None:
    model = AttendingTable(1, vocabulary=5)
    model.weights[:, 0] = 0.0
    covered = CoveringModel(model, strength=1.0)
    _, state = covered.step(None, covered.start(torch.tensor([SOURCE])))
    assert torch.isfinite(covered.penalties(state)).all()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "one"), make_run(folder / "other", steps=(30,), best=())]


def test_an_ensemble_of_one_model_twice_is_that_model(runs: list[Path]) -> None:
    loaded = load_model(runs[0])
    decoding = DecodingConfig(beam_size=3, n_best=3, max_length_offset=4, coverage_penalty=0.7, min_length=2)
    lines = ["a b c", "d", "a b c d a"]
    alone = list(Translator(loaded.model, loaded.tokenizer, decoding).translations(lines))
    twice = Translator(loaded.model, loaded.tokenizer, decoding, others=[loaded.model])
    for one, other in zip(alone, twice.translations(lines), strict=True):
        assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
        assert [h.score for h in one.hypotheses] == pytest.approx([h.score for h in other.hypotheses], abs=1e-4)


def test_it_is_an_option_of_the_command(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    text.write_text("a b c\nd a b\n")
    command = [*map(str, runs), "-i", str(text), "--format", "moses"]
    assert translate.main(command) == 0
    plain = capsys.readouterr().out
    assert translate.main([*command, "--coverage-penalty", "2"]) == 0
    scores, others = (
        [float(line.rpartition(" ")[2]) for line in out.splitlines()] for out in (plain, capsys.readouterr().out)
    )
    assert all(other < score for score, other in zip(scores, others, strict=True))
    assert translate.main([*command, "--coverage-penalty", "2", "--beam-size", "1"]) == 2
    message = "--coverage-penalty: 'greedy' has none; beam, diverse_beam"
    assert message in capsys.readouterr().err


def test_a_model_that_does_not_tell_its_attention_is_refused(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(runs[0])
    monkeypatch.setattr(type(loaded.model), "tells_attention", property(lambda _: False))
    with pytest.raises(ConfigError, match="decoding.coverage_penalty: the decoder DeepDecoder does not report"):
        Translator(loaded.model, loaded.tokenizer, DecodingConfig(coverage_penalty=0.1))


def test_a_search_without_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="decoding.coverage_penalty: 'sample' has none"):
        build_search(DecodingConfig(search="sample", coverage_penalty=0.1))


class Plain(Search):
    """A search of a plugin that knows nothing of what it could take part in."""

    def search(self, model: Any, source: Any, **_: Any) -> list[list[Hypothesis]]:  # type: ignore[override]
        return [[Hypothesis([3], 0.0)] for _ in source]


def test_a_search_of_a_plugin_is_refused_what_it_does_not_name(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SEARCHES._members, "plain", Plain)
    with pytest.raises(ConfigError, match="decoding.coverage_penalty: 'plain' has none"):
        build_search(DecodingConfig(search="plain", coverage_penalty=0.1))
    loaded = load_model(runs[0])
    translator = Translator(loaded.model, loaded.tokenizer, DecodingConfig(search="plain"))
    with pytest.raises(DataError, match="'a': required: not possible with the search 'plain'. Allowed: beam, noisy"):
        list(translator.translations([Request(text="a", required=("x",))]))
    assert [one.best for one in translator.translations([Request(text="a", forbidden=("y",))])] == ["x"]
