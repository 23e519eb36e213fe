"""Lines of several sentences, by the run, its file for the engine and nmt-light: what is split, joined and noted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.cli import translate
from nmt.data.matching import is_in_text
from nmt.data.sentences import splitter_of
from nmt.errors import say_once
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.interop.run_layout import TrainingFacts, write_facts
from nmt.light import Translator
from nmt.optimization import average
from nmt.scoring import command as score
from tests.compiled import needed_engine
from tests.tiny_run import make_run

SENTENCES = ["a longaer sentence of ax.", "Dr. C sentence of by b longber?", "D longder."]
LINE = "  ".join(SENTENCES)
LONGEST = 40


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Runs and their files, by what is known of the training text."""
    needed_engine()
    folder = tmp_path_factory.mktemp("split")
    found: dict[str, Any] = {}
    first = make_run(folder / "one", sentencepiece=True)
    for name, facts in (
        ("one", TrainingFacts(LONGEST, 0.01)),  # sentence a line
        ("several", TrainingFacts(LONGEST, 0.6)),
        ("before", TrainingFacts(LONGEST)),  # by a version that did not keep it
        ("long", TrainingFacts(4)),
    ):
        run = folder / name
        if run != first:
            shutil.copytree(first, run)
        write_facts(run, facts)
        file = folder / f"{name}.nmt"
        assert export.main([str(run), "-o", str(file), "--precision", "fp32"]) == 0
        found[name] = nmt.load(run, precision="fp32")
        found[f"{name}.nmt"] = nmt.load(file)
        found[f"{name} light"] = Translator(file, library=needed_engine())
        found[f"{name} path"] = run
    return found


DOORS = ["", ".nmt", " light"]


def as_one(parts: list[Any], *, spaces: str = "  ") -> str:
    return spaces.join(part.text for part in parts if part.text)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "options", "splits"),
    [
        ("one", {}, True), ("one", {"split": "auto"}, True), ("one", {"split": "none"}, False),
        ("several", {}, False), ("several", {"split": "sentences"}, True),
        ("before", {}, False), ("before", {"split": "sentences"}, True), ("before", {"split": "none"}, False),
        ("long", {}, True), ("long", {"split": "none"}, False),
    ],
)  # fmt: skip
def test_a_line_is_split_where_the_training_text_had_one_sentence_a_line(
    models: dict[str, Any], name: str, options: dict[str, Any], splits: bool, door: str
) -> None:
    """And what no version has kept about the training: only lines that are longer than any in it."""
    model = models[name + door]
    each = model.translate(SENTENCES, split="none", n_best=2)
    whole = model.translate(LINE, split="none", n_best=2)
    found = model.translate(LINE, **options, n_best=2)
    assert found.text == (as_one(each) if splits else whole.text)
    assert (found.text == whole.text) != splits, "the two are told apart"
    if splits:
        for rank, one in enumerate(found.n_best):
            chosen = [part.n_best[min(rank, len(part.n_best) - 1)] for part in each]
            assert one.text == as_one(chosen)
            assert one.score == pytest.approx(sum(part.score for part in chosen), abs=1e-4)
        assert found.source_tokens == sum(part.source_tokens for part in each)
    assert ("several_sentences" in found.notes) == (name == "before" and not options)
    assert "split" not in found.notes


def test_all_doors_give_the_same(models: dict[str, Any]) -> None:
    lines = [LINE, *SENTENCES, "", " ", '"', ". ! ?", "a b.c d", "1. a. 2. B!\u3000C", "a.\tB.", "x\u00a0? Y"]
    for name in ("one", "several", "before", "long"):
        for options in ({}, {"split": "sentences"}, {"split": "sentences", "split_long": 3}):
            run, file, light = ([one.text for one in models[name + door].translate(lines, **options)] for door in DOORS)
            assert run == file == light, (name, options)
            notes = [[one.notes for one in models[name + door].translate(lines, **options)] for door in DOORS]
            assert [[note for note in own if note != "longer_than_training"] for own in notes[0]] == [
                [note for note in own if note != "longer_than_training"] for own in notes[1]
            ]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("text", "spaces"),
    [("A longaer. D longder.", " "), ("A longaer.\u3000D longder.", "\u3000"), ("A longaer.\t D longder.", "\t "),
     ("A longaer.Dax longder.", " "), ("A longaer.\nD longder.", " "), ("  A longaer. D longder.  ", " ")],
)  # fmt: skip
def test_sentences_are_joined_by_the_white_space_between_them(
    models: dict[str, Any], text: str, spaces: str, door: str
) -> None:
    model = models["one" + door]
    each = model.translate(["A longaer.", text.partition(".")[2].strip()])
    assert all(part.text for part in each)
    assert model.translate(text).text == as_one(each, spaces=spaces)


@pytest.mark.parametrize("language", ["zh", "ja-JP", "th"])
def test_languages_without_spaces_get_none(tmp_path: Path, language: str) -> None:
    needed_engine()
    run = make_run(tmp_path / "run", sentencepiece=True)
    for file in run.rglob("config.yaml"):
        file.write_text(file.read_text().replace("target_language: de", f"target_language: {language}"))
    write_facts(run, TrainingFacts(LONGEST, 0.0))
    assert export.main([str(run), "-o", f"{run}.nmt", "--precision", "fp32"]) == 0
    for path in (str(run), f"{run}.nmt"):
        with nmt.load(path) as model:
            each = model.translate(["A longaer.", "Dax longder."])
            result = model.translate("A longaer.Dax longder.", details=["alignment"])
            assert result.text == as_one(each, spaces="")
            assert result.alignment is not None
            assert {target for _, target in result.alignment} == set(range(len(result.text.split())))


@pytest.mark.parametrize("door", DOORS)
def test_details_refer_to_the_whole_line(models: dict[str, Any], door: str) -> None:
    model = models["one" + door]
    details = ["tokens", "scores", "attention", "alignment"]
    each = model.translate(SENTENCES, details=details)
    found = model.translate(LINE, details=details)
    assert found.tokens == tuple(token for part in each for token in part.tokens)
    assert found.source_pieces == tuple(piece for part in each for piece in part.source_pieces)
    assert found.token_scores == pytest.approx([value for part in each for value in part.token_scores], abs=1e-4)
    assert len(found.attention) == len(found.tokens)
    assert all(len(row) == len(found.source_pieces) for row in found.attention)
    source = target = 0
    expected = []
    for sentence, part in zip(SENTENCES, each, strict=True):
        expected += [(origin + source, word + target) for origin, word in part.alignment]
        source += len(sentence.split())
        target += len(part.text.split())
    assert sorted(found.alignment) == sorted(expected)


def test_to_which_sentence_wishes_belong(models: dict[str, Any]) -> None:
    """A prefix: the first; a forbidden phrase: all; a required one: any, the one whose score it lowers least."""
    model = models["one"]
    each = model.translate(SENTENCES, search="beam")
    prefixed = model.translate(LINE, prefix="ax ", search="beam")
    assert prefixed.text.startswith("ax")
    assert prefixed.text.endswith(each[1].text + "  " + each[2].text)
    words = sorted({word for part in each for word in part.text.split() if word.isalpha()})
    found = model.translate(LINE, forbidden=words[:2], search="beam")
    assert words and not set(words[:2]) & set(found.text.split())
    for phrases in (["zx"], ["zx", "yz"], [words[0]], ["zx", words[-1], "dz by"]):
        found = model.translate(LINE, required=phrases, search="beam", n_best=2)
        assert "required_missing" not in found.notes and all(
            is_in_text(phrase, one.text) for one in found.n_best for phrase in phrases
        )
        forced = [
            [model.translate(sentence, required=phrase, search="beam").score for sentence in SENTENCES]
            for phrase in phrases
        ]
        if len(phrases) == 1:
            costs = [own - part.score for own, part in zip(forced[0], each, strict=True)]
            assert found.score == pytest.approx(sum(part.score for part in each) + max(costs), abs=1e-4)


@pytest.mark.parametrize("door", DOORS)
def test_a_sentence_that_is_too_long_is_noted(models: dict[str, Any], door: str) -> None:
    short = models["one" + door].translate(LINE, split_long=100)
    cut = models["one" + door].translate(LINE, split_long=5)
    assert "split" not in short.notes and "split" in cut.notes


def written(path: Path, lines: list[str]) -> str:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def test_commands_have_the_option_and_count_what_was_not_split(
    models: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = written(tmp_path / "in", [LINE, "a", LINE, ""])
    said = "2 lines of several sentences translated as a whole (--split sentences translates each by itself): 1, 3"
    for model in (str(models["before path"]), f"{models['before path']}.nmt"):
        for options, noted in (([], True), (["--split", "sentences"], False), (["--split", "none"], False)):
            assert translate.main([model, "-i", text, *options]) == 0
            out, err = capsys.readouterr()
            assert out.count("\n") == 4 and (said in err) == noted
    assert translate.main([str(models["before path"]), "-i", text, "--format", "jsonl"]) == 0
    found = [json.loads(line).get("notes", []) for line in capsys.readouterr().out.splitlines()]
    assert ["several_sentences" in notes for notes in found] == [True, False, True, False]


def test_evaluation_splits_as_translation_does_and_scoring_never(
    models: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text = str(models["one path"]), written(tmp_path / "in", [LINE, "a"])
    reference = written(tmp_path / "ref", [one.text for one in models["one"].translate([LINE, "a"])])
    assert evaluate.main([run, "--precision", "fp32", "--source", text, "--ref", reference, "--metrics", "chrf"]) == 0
    assert "100.00" in capsys.readouterr().out
    assert score.main([run, "--source", text, "--target", reference]) == 0
    scored = float(capsys.readouterr().out.split()[0])
    pair = models["one"].score(LINE, Path(reference).read_text(encoding="utf-8").split("\n")[0])
    assert scored == pytest.approx(-pair.score, abs=1e-4)


def test_the_share_is_kept_by_averages_folders_and_files(models: dict[str, Any], tmp_path: Path) -> None:
    run = str(models["one path"])
    assert average.main([run, "--last", "2", "-o", str(tmp_path / "mean")]) == 0
    assert export.main([run, "-o", str(tmp_path / "folder")]) == 0
    assert export.main([str(tmp_path / "mean"), "-o", str(tmp_path / "mean.nmt")]) == 0
    for name in ("mean", "folder", "mean.nmt"):
        with nmt.load(tmp_path / name) as model:
            assert model.translate(LINE).text == as_one(model.translate(SENTENCES, split="none"))


def test_an_ensemble_splits_if_one_of_its_models_needs_it(models: dict[str, Any]) -> None:
    paths = {name: str(models[f"{name} path"]) for name in ("one", "several", "before")}
    for names, splits, noted in ((("several", "one"), True, False), (("several", "before"), False, True),
                                 (("before", "one"), True, False), (("several", "several"), False, False)):  # fmt: skip
        for suffix in ("", ".nmt"):
            with nmt.load([paths[name] + suffix for name in names]) as model:
                found = model.translate(LINE)
                each = model.translate(SENTENCES, split="none")
                assert (found.text == as_one(each)) == splits, (names, suffix)
                assert ("several_sentences" in found.notes) == noted


def corpus(folder: Path, sources: list[str]) -> Iterator[str]:
    yield written(folder / "t.en", sources)
    yield written(folder / "t.de", ["x y"] * len(sources))


def test_training_measures_the_share_and_keeps_it(tmp_path: Path) -> None:
    needed_engine()
    list(corpus(tmp_path, ["A dog runs. It is fast.", "Mr. Smith runs.", "no marks", "One. Two. Three."]))
    config = {
        "run_dir": str(tmp_path / "run"),
        "model": {"cell": "lrn", "hidden_size": 8, "embedding_size": 8},
        "data": {"train": str(tmp_path / "t"), "tokenizer": "whitespace"},
        "training": {"max_steps": 1},
    }
    nmt.train(config)
    facts = json.loads((tmp_path / "run/facts.json").read_text())
    assert facts["sources_of_several_sentences"] == 0.5
    assert splitter_of("en").splits(0.02) and not splitter_of("en").splits(0.5)


def test_without_a_c_compiler_lines_are_translated_as_a_whole_and_that_is_said(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(language: str = "", abbreviations: tuple[str, ...] = ()) -> Any:
        raise nmt.ConfigError("splitting text into sentences, which C does, cannot be compiled here: no compiler")

    monkeypatch.setattr("nmt.search.source.splitter_of", missing)
    say_once.cache_clear()
    with nmt.load(models["one path"]) as model:
        assert model.translate([LINE, LINE])[0].text == models["one"].translate(LINE, split="none").text
        assert sum("lines are not split into sentences" in record.message for record in caplog.records) == 1
        with pytest.raises(nmt.ConfigError, match=r"^decoding\.split: .*cannot be compiled"):
            model.translate(LINE, split="sentences")
