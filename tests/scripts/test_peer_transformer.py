"""scripts/peer_transformer.py: the size it is published with, losses that a seed repeats, its search, its export."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from nmt.cli.common import execute
from tests.conftest import REPOSITORY
from tests.tiny_training import write_corpus

pytestmark = pytest.mark.slow

EOS, PIECES = 3, 20
SMALL = {"width": 32, "layers": 2, "heads": 2, "inner": 64}


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    before, threads = list(sys.path), torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are slower with more
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    yield import_module("peer_transformer")
    sys.path[:] = before
    torch.set_num_threads(threads)


def copying(count: int) -> list[tuple[list[int], list[int]]]:
    """Sentences that are translated by themselves, of one to four pieces."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 5, (count,), generator=generator).tolist()
    rows = [torch.randint(4, PIECES, (length,), generator=generator).tolist() + [EOS] for length in lengths]
    return [(row, row) for row in rows]


@pytest.fixture(scope="module")
def learned(script: ModuleType) -> Any:
    """A small model that can copy most sentences."""
    torch.manual_seed(1)
    model = script.Transformer(PIECES, **SMALL, dropout=0.0)
    average = copy.deepcopy(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "WARM_UP", 50)
        for _ in itertools.islice(script.updates(model, average, copying(120), seed=1), 150):
            pass
    return average


def test_size_of_the_published_row(script: ModuleType) -> None:
    count = sum(parameter.numel() for parameter in script.Transformer(5000).parameters())
    text = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
    assert f"Transformer-Tiny with 4+4 layers of 128 ({count:,} parameters)" in text


def test_the_command_of_the_page_has_options_that_exist(script: ModuleType) -> None:
    text = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"^scripts/peer_transformer.py (.*)$", text, flags=re.M)
    assert script.build_parser().parse_args(words.split()).cpu_seconds == 805


def test_a_batch_has_similar_lengths_and_all_sentences_are_in_one(script: ModuleType) -> None:
    pairs = [([number] * (number % 90 + 1), [number]) for number in range(300)]
    found = list(script.batches(pairs))
    assert sorted(pair for batch in found for pair in batch) == sorted(pairs)
    sizes = [(len(batch), max(len(source) for source, _ in batch)) for batch in found]
    assert all(rows * longest <= 2000 < (rows + 1) * (longest + 1) * 1.2 for rows, longest in sizes[:-1])


def test_a_seed_repeats_the_losses(script: ModuleType) -> None:
    def losses(seed: int) -> list[float]:
        torch.manual_seed(seed)
        model = script.Transformer(PIECES, **SMALL)
        return [loss for _, loss in itertools.islice(script.updates(model, model, copying(60), seed=seed), 5)]

    assert losses(1) == losses(1) != losses(2)


def test_it_learns_and_padding_has_no_effect(script: ModuleType, learned: Any) -> None:
    pairs = copying(60)
    assert script.validation_loss(learned, pairs) < 0.25 * math.log(PIECES)
    one_by_one = sum(script.loss_of(learned, [pair], reduction="sum").item() for pair in pairs)
    assert script.loss_of(learned, pairs, reduction="sum").item() == pytest.approx(one_by_one, rel=1e-4)


@torch.inference_mode()
def test_greedy_search_takes_the_best_piece_at_each_step(script: ModuleType, learned: Any) -> None:
    sources = [source for source, _ in copying(12)]
    for source, found in zip(sources, script.translate(learned, sources, beam=1, batch=5), strict=True):
        ids: list[int] = []
        while len(ids) < 100:
            states = learned.decode(torch.tensor([[2, *ids]]), *learned.encode(torch.tensor([source])))
            if (best := int(learned.logits(states)[0, -1].argmax())) == EOS:
                break
            ids.append(best)
        assert found == ids


class Chain:
    """Probabilities of the next piece after the last one: EOS, A (4) and B (5); everything else has none."""

    def __init__(self, **after: tuple[float, float, float]) -> None:
        self.table = torch.full((6, 6), 1e-9)
        for name, row in {"start": 2, "a": 4, "b": 5}.items():
            self.table[row, [EOS, 4, 5]] = torch.tensor(after[name])

    def eval(self) -> None:
        pass

    def encode(self, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return source, source == 0

    def decode(self, prefix: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        return prefix

    def logits(self, last: torch.Tensor) -> torch.Tensor:
        return self.table[last].log()


def test_a_beam_finds_what_has_the_largest_mean_log_probability(script: ModuleType) -> None:
    """B has 0.306 = 0.553 ** 2, more than the 0.288 = 0.66 ** 3 of A B, EOS included."""
    chain = Chain(start=(0.0, 0.49, 0.51), a=(0.02, 0.0, 0.98), b=(0.6, 0.4, 0.0))
    sources = [[4, EOS], [5, 5, 5, EOS]]
    assert script.translate(chain, sources, beam=1) == [[5], [5]]
    assert script.translate(chain, sources, beam=2) == [[4, 5], [4, 5]]


def test_a_search_that_finds_no_end_stops(script: ModuleType) -> None:
    chain = Chain(start=(0.0, 1.0, 0.0), a=(0.0, 1.0, 0.0), b=(0.0, 1.0, 0.0))
    assert [script.translate(chain, [[4, EOS]], beam=beam) for beam in (1, 2)] == [[[4] * 100]] * 2


def test_ctranslate2_translates_as_pytorch_does(script: ModuleType, learned: Any, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    names = [f"piece{i}" for i in range(PIECES)]
    script.export(learned, names, tmp_path / "model", quantization="float32")
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32")
    sources = [source for source, _ in copying(30)]
    text = [[names[i] for i in source[:-1]] for source in sources]
    for beam in (1, 5):
        found = translator.translate_batch(text, beam_size=beam, max_decoding_length=100, length_penalty=1.0)
        ours = script.translate(learned, sources, beam=beam)
        assert [result.hypotheses[0] for result in found] == [[names[i] for i in ids] for ids in ours]


class Steps:
    """A clock that is a second later at each reading."""

    def __init__(self) -> None:
        self.read = 0

    def seconds(self) -> float:
        self.read += 1
        return self.read


@pytest.fixture
def corpus(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options for a small corpus; the model is small, and its translations are short."""
    write_corpus(tmp_path)
    monkeypatch.setattr(script, "Transformer", functools.partial(script.Transformer, **SMALL))
    monkeypatch.setattr(sys.modules["peer_model"], "LONGEST", 8)
    prefixes = {"train": "train", "dev": "dev", "test": "dev"}
    files = [word for option, name in prefixes.items() for word in (f"--{option}", str(tmp_path / name))]
    return [*files, "--pieces", "60", "-o", str(tmp_path / "out")]


def test_a_run_keeps_its_budget_and_writes_what_it_scores(
    script: ModuleType,
    corpus: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "CpuClock", Steps)
    monkeypatch.setattr(script, "LOG_EVERY", 1)
    monkeypatch.setattr(script, "VALIDATE_EVERY", 3)
    assert execute(script.build_parser(), script.main, [*corpus, "--cpu-seconds", "5"]) == 0
    *losses, summary, greedy, beam = capfd.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in losses] == [f"update {number}" for number in (1, 2, 3, 3, 4, 5, 5)]
    assert ["validation" in line for line in losses] == [False, False, False, True, False, False, True]
    assert " 5 updates, 5.0 epochs, 6 CPU seconds" in summary
    reference = (tmp_path / "dev.de").read_text(encoding="utf-8").splitlines()
    for name, line in (("greedy", greedy), ("beam", beam)):
        file = tmp_path / "out" / f"{name}.de"
        score = BLEU().corpus_score(file.read_text(encoding="utf-8").splitlines(), [reference]).score
        assert line.startswith(f"{file}: BLEU {score:.2f}, nrefs:1|case:mixed")


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["--pieces", "5000"], 2, "--pieces 5000: .*Vocabulary size too high"),
        (["--test", "none"], 1, "--test: neither none.en nor none.en.gz exists"),
        (["--cpu-seconds", "0"], 2, "a number of seconds above 0"),
        (["--export"], 2, r"--export needs CTranslate2 \(pip install ctranslate2\)"),
    ],
)
def test_mistakes_are_one_line(
    script: ModuleType,
    corpus: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    given: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert execute(script.build_parser(), script.main, [*corpus, *given]) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("peer_transformer.py: ") and re.search(message, line)
