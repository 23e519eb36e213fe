"""Warnings that save a night: each comes where it should, and none for the shipped configurations."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece
import yaml

from nmt.config import load_config
from nmt.config.load import bundled_names
from nmt.config.schema import EvaluationConfig
from nmt.data.prepare import prepare
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.doubts import training as doubts
from nmt.doubts.chance import chance_of
from nmt.doubts.training import (
    equal_translations,
    few_updates,
    large_vocabularies,
    never_learned,
)
from nmt.evaluation.metrics import build_metrics
from nmt.tasks.translation import build_batches
from nmt.training import update
from nmt.training.state import Ranking
from nmt.training.update import StartingGradient
from tests.conftest import REPOSITORY
from tests.tiny_training import events, nmt_train, write_config, write_corpus

MULTI30K = REPOSITORY.parent / "shared" / "data" / "multi30k"


class Ids:
    """What is looked at of a corpus: the ids of both sides."""

    def __init__(self, source: dict[int, int], target: dict[int, int]) -> None:
        """Ids with how often they occur."""
        ids = (np.repeat(np.array(list(counts), np.int64), list(counts.values())) for counts in (source, target))
        self.sides = [SimpleNamespace(ids=own) for own in ids]


def pieces(*counts: int) -> dict[int, int]:
    return {len(SPECIAL_TOKENS) + place: count for place, count in enumerate(counts)} | {2: 5000}


def found(source: dict[int, int], target: dict[int, int], *, size: int = 103, **options: Any) -> list[str]:
    config = load_config("demo.yaml", [f"data.tokenizer_options.{name}={value}" for name, value in options.items()])
    return large_vocabularies(config, Ids(source, target), sizes=(size, size))  # type: ignore[arg-type]


def test_a_vocabulary_is_too_large_where_most_pieces_are_seldom() -> None:
    (line,) = found(pieces(*[20] * 4, *[19] * 6), {}, joint="true")
    assert line == (
        "the vocabulary is too large for this text: 6 of the 10 pieces in it occur fewer than 20 times, so little can "
        "be learned about them; possible remedies: data.tokenizer_options.vocab_size: 97"
    )
    assert found(pieces(*[20] * 5, *[19] * 5), {}, joint="true") == []
    assert found(pieces(*[10] * 9), pieces(*[10] * 9), joint="true") == [], "a joint one counts in both languages"


def test_each_of_two_vocabularies_is_looked_at() -> None:
    seldom, frequent = pieces(*[19] * 9), pieces(*[20] * 9)
    assert [line.split(" is ")[0] for line in found(frequent, seldom, joint="false")] == ["the target vocabulary"]
    assert [line.split(" is ")[0] for line in found(seldom, frequent, joint="false")] == ["the source vocabulary"]


def test_pieces_of_much_text_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts.np, "bincount", None)
    assert found({2: 103_000}, {}, joint="true") == []


@pytest.mark.parametrize(
    ("settings", "updates", "cure"),
    [
        (["batch_tokens=4096"], 50, "training.batch_tokens: 2000 instead of 4096"),
        (["batch_tokens=4096"], 1, "training.batch_tokens: 256 instead of 4096"),
        (["batch_tokens=200"], 1, "more text"),
        (["batch_tokens=null", "batch_sentences=64"], 50, "training.batch_sentences: 32 instead of 64"),
        (["batch_tokens=1000", "accumulate=4"], 99, "training.accumulate: 1 instead of 4"),
        (
            ["batch_tokens=1000", "accumulate=4"],
            20,
            "training.batch_tokens: 800 instead of 1000, training.accumulate: 1",
        ),
    ],
)
def test_few_updates_an_epoch_come_with_the_batch_that_makes_more(settings: list[str], updates: int, cure: str) -> None:
    config = load_config("multi30k_lrn.yaml", [f"training.{setting}" for setting in settings])
    (line,) = few_updates(config, updates)
    assert line.endswith(f"so many epochs are needed; possible remedies: {cure}")
    assert line.startswith(f"an epoch has only {updates} update")
    assert few_updates(config, 100) == []


def test_translations_that_are_all_the_same() -> None:
    assert "all 3 translations are the same: 'Ein Mann .'; this is" in str(equal_translations(["Ein Mann ."] * 3))
    assert "all 1,200 translations are empty; this is usual at the start" in str(equal_translations([""] * 1200))
    for fine in (["a", "a", "b"], ["", "a"], ["a"], []):
        assert equal_translations(fine) is None


def said_of(norms: list[float]) -> list[tuple[int, str]]:
    watch = StartingGradient()
    lines = [(step, watch.see(norm, step=step)) for step, norm in enumerate(norms, start=1)]
    return [(step, line) for step, line in lines if line is not None]


def test_a_gradient_that_grows_at_the_start_is_said_once() -> None:
    ((step, line),) = said_of([2.0] * 10 + [1.5**exponent for exponent in range(30)])
    assert line.startswith("the gradient explodes: its norm was 2 at the start and is 2") and step == 23
    assert said_of([0.1] * 10 + [9.0] * 50) == [], "it may grow while it is small"
    assert said_of([30.0] * 10 + [200.0] * 50) == [], "and where it was large"
    assert said_of([2.0] * 15 + [1e5] * 3 + [2.0] * 50) == [], "and now and then"
    assert said_of([2.0] * 200 + [100.0] * 50) == [], "later it is no bad start"


def validations(*beaten: bool, name: str = "bleu", score: float = 0.45) -> list[dict[str, Any]]:
    return [
        {"step": 10 * place, "loss": 5.5, name: score, "chance": {name: 0.38}, "beats_chance": one}
        for place, one in enumerate(beaten, start=1)
    ]


def test_a_model_that_never_learned() -> None:
    line = str(never_learned(validations(False, False, False)))
    assert "at 3 of 3 validations its output was no better than beside the references of other lines" in line
    assert "(bleu 0.45, by chance 0.38 at the last one), and the loss is still 5.50. Check" in line
    assert "the number of updates, 30 so far" in line
    assert "at the only validation" in str(never_learned(validations(False, name="chrf")))
    assert never_learned(validations(False, True, False)) is None
    once = [False, True, *[False] * 8]
    assert "9 of 10" in str(never_learned(validations(*once))), "one of ten was luck"
    assert never_learned(validations(*sorted(once))) is None, "unless it is the last one"
    assert never_learned([{"step": 3, "loss": 5.5}]) is None and never_learned([]) is None


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_chance_is_the_score_beside_the_references_of_other_lines(name: str) -> None:
    (metric,) = build_metrics(EvaluationConfig(metrics=[name]), language="de")

    def score(hypotheses: list[str], references: list[str]) -> Callable[[Sequence[int]], float]:
        return lambda places: metric.compute([hypotheses[place] for place in places], [references]).score

    def is_beaten(hypotheses: list[str], references: list[str]) -> bool:
        found = chance_of(
            name,
            score(hypotheses, references),
            lines=len(references),
            higher_is_better=metric.higher_is_better,
        )
        assert found.metric == name
        return found.is_beaten

    good = [f"a{i} b{i} c{i} d{i} e{i} ." for i in range(30)]
    assert is_beaten(good, good) and is_beaten(good[:2], good[:2])
    twice = sorted(good[:15] * 2)
    assert is_beaten(twice, twice), "also where neighbours are the same"
    assert not is_beaten(["a1 b1 c1 d1 e1 ."] * 30, good) and not is_beaten([""] * 30, good)
    lucky = []
    for seed in range(20):
        draw = random.Random(seed)
        outputs, references = (
            [" ".join(draw.choices("abcdefghij", k=draw.randint(3, 9))) for _ in range(20)] for _ in "12"
        )
        lucky.append(is_beaten(outputs, references))
    assert sum(lucky) <= 2, "noise is not learned"


def test_patience_does_not_count_scores_of_chance_while_the_loss_falls() -> None:
    """The first one was lucky; later ones are counted, also those by chance whose loss does not fall any more."""
    ranking = Ranking("bleu", higher_is_better=True)
    ranking.add(1, 0.45, regular=True, loss=5.0, by_chance=True)
    for step, loss in ((2, 4.0), (3, 3.0)):
        ranking.add(step, 0.2, regular=True, loss=loss, by_chance=True)
    assert ranking.without_best == 0
    ranking.add(4, 0.1, regular=True, loss=3.5, by_chance=True)
    ranking.add(5, 0.1, regular=True, loss=2.9999, by_chance=True)
    assert ranking.without_best == 2, "nor is rounding learning"
    ranking.add(6, 0.4, regular=True, loss=2.0, by_chance=False)
    assert ranking.without_best == 0, "better than the last one by chance, if not than the lucky one"
    again = Ranking("bleu", higher_is_better=True)
    again.load_state_dict(ranking.state_dict())
    again.add(7, 0.3, regular=True, loss=2.5, by_chance=True)
    assert again.without_best == 1, "the lowest loss is kept"


def test_patience_waits_for_a_loss_that_can_be_measured() -> None:
    ranking = Ranking("loss", higher_is_better=False)
    for step in (1, 2, 3):
        ranking.add(step, float("nan"), regular=True, loss=float("nan"))
    assert ranking.without_best == 0 and ranking.ranked() == []
    ranking.add(4, 2.0, regular=True, loss=2.0)
    ranking.add(5, float("nan"), regular=True, loss=float("nan"))
    assert ranking.without_best == 1, "a model that breaks later does not get better"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus."""
    write_corpus(tmp_path)
    return tmp_path


def test_what_a_run_makes_doubtful_is_said_and_logged_and_it_ends_well(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dev.de").write_text("".join(f"zz{i} zz zz{i} zz\n" for i in range(8)), encoding="utf-8")
    config = write_config(folder, training={"lr": 1e-9, "max_steps": 2, "validate_every": 1})
    assert nmt_train(config) == 0
    said = capsys.readouterr().err
    logged = [event["text"] for event in events(folder / "run", kinds=("warning",))]
    assert all(f"warning: {text}\n" in said for text in logged)
    starts = ["an epoch has only 15 updates", "this model has not learned its task: at 2 of 2"]
    assert all(any(text.startswith(start) for text in logged) for start in starts)


def test_an_explosion_and_equal_translations_are_said_in_a_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "EXPLODED", 0.0)
    monkeypatch.setattr(update, "GROWTH", 0.0)
    config = write_config(folder, training={"max_steps": 22, "validate_every": 22}, decoding={"max_length_offset": 0})
    data = folder / "dev.en"
    data.write_text("ba\n" * 8, encoding="utf-8")  # the same translation for the same line
    assert nmt_train(config) == 0
    said = capsys.readouterr().err
    assert said.count("warning: the gradient explodes: its norm was") == 1 and "at update 20; possible remedies" in said
    assert said.count("warning: all 8 translations are ") == 1


def test_a_dry_run_says_what_the_data_make_doubtful(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder), "--dry-run") == 0
    assert "warning: an epoch has only 15 updates" in capsys.readouterr().out


def vocabulary(path: Path, words: set[str]) -> str:
    path.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")
    return str(path)


def swapped(line: str) -> bool:
    return "seem to be swapped" in line


@pytest.mark.parametrize("arguments", [("--dry-run",), ()])
def test_a_vocabulary_that_does_not_know_its_text_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    source, target = (set((folder / f"train.{language}").read_text().split()) for language in ("en", "de"))
    english, german = vocabulary(folder / "v.en", source), vocabulary(folder / "v.de", target)
    some = vocabulary(folder / "v.some", {word for word in source if not word.startswith(("b", "d"))})
    few = vocabulary(folder / "v.few", {word for word in source if not word.startswith("b")})
    config = write_config(folder, training={"max_steps": 1})

    def said(options: str) -> list[str]:
        given = ("--set", f"data.tokenizer_options={options}", "--set", f"run_dir={folder / 'runs' / str(count)}")
        assert nmt_train(config, *given, *arguments) == 0
        output = capfd.readouterr()
        lines = [line.partition("warning: ")[2] for line in (output.out + output.err).splitlines()]
        return [line for line in lines if line.startswith("data.tokenizer_options")]

    both = "{{source_vocab: {}, target_vocab: {}}}"
    count = 1
    assert said(both.format(english, german)) == []
    count = 2
    first, second, third = said(both.format(german, english))
    assert first.startswith(f"data.tokenizer_options.source_vocab: {german}: 100.0% of the tokens ")
    assert second.startswith(f"data.tokenizer_options.target_vocab: {english}: 100.0% of the tokens ")
    assert swapped(third) and english in third and german in third and "0.0% instead of 100.0%" in third
    count = 3
    (alone,) = said(both.format(some, german))
    assert alone.startswith(f"data.tokenizer_options.source_vocab: {some}: ") and not swapped(alone)
    count = 4
    assert said(both.format(few, german)) == [], "an eighth of the words"
    count = 5
    (alone,) = said(f"{{target_vocab: {english}}}")
    assert alone.startswith(f"data.tokenizer_options.target_vocab: {english}: ")
    count = 6
    (source_side, target_side) = said(f"{{source_vocab: {vocabulary(folder / 'v.x', {'x'})}, joint: true}}")
    assert "source text" in source_side and "target text" in target_side


def test_models_of_subwords_for_the_wrong_sides_are_noticed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They know all text, at least as bytes, but split it into more pieces."""
    files = {}
    for language in ("en", "de"):
        learned = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"train.{language}"), model_writer=learned, vocab_size=330, model_type="bpe",
            byte_fallback=True, pad_id=0, unk_id=1, eos_id=2, bos_id=-1, minloglevel=2,
        )  # fmt: skip
        files[language] = folder / f"{language}.model"
        files[language].write_bytes(learned.getvalue())
    for source, target, expected in (("en", "de", 0), ("de", "en", 1)):
        options = {"source_model": str(files[source]), "target_model": str(files[target]), "joint": False}
        data = {"tokenizer": "sentencepiece", "tokenizer_options": options}
        assert nmt_train(write_config(folder, data=data), "--dry-run") == 0
        assert len([line for line in capfd.readouterr().out.splitlines() if swapped(line)]) == expected


def test_a_language_model_names_a_vocabulary_of_another_text(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    german = vocabulary(folder / "v.de", set((folder / "train.de").read_text().split()))
    config = tiny_language_model(folder, german)
    assert nmt_train(config, "--dry-run") == 0
    assert f"warning: data.tokenizer_options.source_vocab: {german}: 100.0% of " in capfd.readouterr().out


def tiny_language_model(folder: Path, vocabulary: str) -> Path:
    path = folder / "lm.yaml"
    sections = {
        "run_dir": str(folder / "run"),
        "task": "language_model",
        "model": {"architecture": "language_model", "cell": "lrn", "hidden_size": 8, "embedding_size": 8},
        "data": {
            "train": str(folder / "train.en"),
            "tokenizer": "whitespace",
            "tokenizer_options": {"source_vocab": vocabulary},
        },
        "training": {"max_steps": 1, "batch_sentences": 4},
    }
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return path


def doubts_of(name: str, run: Path, *overrides: str) -> list[str]:
    """What the data of a bundled configuration let one fear."""
    config = load_config(name, overrides)
    data = prepare(config, run, progress=False)
    sizes = data.tokenizer.source_size, data.tokenizer.target_size
    updates = build_batches(config, data.train).updates_per_epoch()
    return [*large_vocabularies(config, data.train, sizes=sizes), *few_updates(config, updates)]


def test_the_demo_leaves_no_doubt(tmp_path: Path) -> None:
    assert doubts_of("demo.yaml", tmp_path) == []


@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"there is no {MULTI30K}")
def test_multi30k_leaves_no_doubt_with_shipped_configurations_and_with_the_defaults(tmp_path: Path) -> None:
    texts = [f"data.train={MULTI30K / 'train'}", f"data.dev={MULTI30K / 'val'}", "data.test=null"]
    cache = f"data.cache_dir={tmp_path}"
    assert doubts_of("multi30k_lrn.yaml", tmp_path / "shipped", *texts, cache) == []
    names = [name for name in bundled_names() if "multi30k" in name and "many" not in name]  # which has three languages
    tokenizers = {repr(load_config(name).data.tokenizer_options) for name in names}
    assert len(names) > 5 and len(tokenizers) == 1, "what holds for one of them holds for all"
    file = tmp_path / "mine.yaml"
    file.write_text(f"run_dir: {tmp_path}\ntraining: {{max_epochs: 1}}\n", encoding="utf-8")
    assert doubts_of(str(file), tmp_path / "mine", texts[0], cache) == []
    (line,) = doubts_of(str(file), tmp_path / "large", texts[0], cache, "data.tokenizer_options.vocab_size=16000")
    assert line.startswith("the vocabulary is too large for this text")


def test_wmt14_has_enough_updates_and_frequent_pieces() -> None:
    """By the size of its text, 4.5 million pairs: it is not here."""
    for name in bundled_names():
        if name.startswith("wmt14"):
            config = load_config(name)
            tokens = config.training.batch_tokens or 25 * (config.training.batch_sentences or 0)
            assert 4_500_000 * 25 / (tokens * config.training.accumulate) > 100
            assert doubts.SURELY_FREQUENT * config.data.tokenizer_options["vocab_size"] <= 4_500_000 * 25
