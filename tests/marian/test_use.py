"""Models of Marian and OPUS-MT trained on, as teachers, scoring, searched with constraints and looked into."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.compiling import own_directory
from nmt.library.loading import load
from tests.console import call
from tests.starting.test_start import weights


@pytest.fixture(scope="module")
def text(multi30k: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train and dev of 600 and 40 pairs of Multi30k."""
    folder = tmp_path_factory.mktemp("text")
    for name, file, count in (("train", "train", 600), ("dev", "val", 40)):
        for language in ("en", "de"):
            with gzip.open(multi30k / f"{file}.{language}.gz", "rt", encoding="utf-8") as stream:
                (folder / f"{name}.{language}").write_text("".join(islice(stream, count)), encoding="utf-8")
    return folder


def configuration(folder: Path, text: Path, start: Path, **training: Any) -> str:
    """Fine-tuning that names nothing but text and model; its run is folder/run."""
    sections: dict[str, Any] = {
        "run_dir": str(folder / "run"),
        "data": {"train": str(text / "train"), "dev": str(text / "dev"), "workers": 1},
        "training": {
            "init_from": str(start),
            "batch_tokens": 1024,
            "schedule": "constant",
            "precision": "fp32",
            "label_smoothing": 0.0,
            "max_steps": 1,
            **training,
        },
        "model": {"dropout": 0.0},
        "decoding": {"beam_size": 1},
        "evaluation": {"metrics": []},
    }
    path = folder / "fine.yaml"
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return str(path)


def dev_losses(run: Path) -> list[float]:
    lines = (json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if line["event"] == "validation"]


@pytest.fixture
def student(ssru: Path, tmp_path: Path) -> Path:
    """The golden student as a model directory."""
    options = ("--vocab", str(ssru / "vocab.spm"), "--languages", "en", "de", "-o", str(tmp_path / "student"))
    assert call("nmt-convert", "marian", str(ssru / "model.npz"), *options) == 0
    return tmp_path / "student"


@pytest.fixture(params=["student", "opus_mt"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted student, and a folder of OPUS-MT as it is, with a cache that has the compiled kernels alone."""
    (tmp_path / "cache").mkdir(mode=0o700)
    for library in own_directory().glob("*.so"):
        shutil.copy(library, tmp_path / "cache")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    found: Path = request.getfixturevalue(request.param)
    return found


def test_fine_tuning_begins_where_the_model_stands_and_goes_on(model: Path, text: Path, tmp_path: Path) -> None:
    lines = (text / "dev.en").read_text(encoding="utf-8").splitlines()
    before = [str(one) for one in load(model, precision="fp32").translate(lines, beam_size=1)]
    assert call("nmt-train", configuration(tmp_path, text, model, lr=1e-30)) == 0
    assert [str(one) for one in load(tmp_path / "run", precision="fp32").translate(lines, beam_size=1)] == before
    (first,) = dev_losses(tmp_path / "run")
    more = configuration(tmp_path, text, model, lr=3e-4, max_steps=24)
    assert call("nmt-train", more, "--overwrite") == 0
    assert dev_losses(tmp_path / "run")[-1] < first - 0.004
    file = tmp_path / "made.nmt"
    assert call("nmt-export", str(tmp_path / "run"), "-o", str(file), "--precision", "fp32") == 0
    after = [str(one) for one in load(tmp_path / "run", precision="fp32").translate(lines, beam_size=1)]
    assert [str(one) for one in load(file).translate(lines, beam_size=1)] == after != before


def test_a_fine_tuned_student_goes_back_to_marian(student: Path, text: Path, tmp_path: Path) -> None:
    assert call("nmt-train", configuration(tmp_path, text, student, lr=1e-3)) == 0
    back = tmp_path / "back"
    assert call("nmt-convert", "to-marian", str(tmp_path / "run"), "-o", str(back)) == 0
    again = tmp_path / "again"
    options = ("--vocab", str(back / "vocab.spm"), "-o", str(again))
    assert call("nmt-convert", "marian", str(back / "model.npz"), *options) == 0
    lines = (text / "dev.en").read_text(encoding="utf-8").splitlines()
    texts = [
        [str(one) for one in load(folder, precision="fp32").translate(lines, beam_size=1)]
        for folder in (tmp_path / "run", again)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model.embedding_size", "128", "model.embedding_size: 128 is not what training.init_from has, 64"),
        (
            "model.architecture_options.form",
            "opus_mt",
            "model.architecture_options.form: 'opus_mt' is not what training.init_from has, 'marian'",
        ),
        ("data.tokenizer", "whitespace", "data.tokenizer: 'whitespace' is not what training.init_from has"),
        (
            "data.tokenizer_options.vocab_size",
            "500",
            "data.tokenizer_options.vocab_size: 500 is not what training.init_from has, 601",
        ),
    ],
)
def test_what_contradicts_the_model_is_refused(
    student: Path, text: Path, tmp_path: Path, key: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("nmt-train", configuration(tmp_path, text, student), "--set", f"{key}={value}") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_fine_tuning_resumes_without_the_model(student: Path, text: Path, tmp_path: Path) -> None:
    config = configuration(tmp_path, text, student, lr=1e-30)
    dropout = ("--set", "model.dropout=0.0")
    assert call("nmt-train", config, *dropout) == 0
    first = weights(tmp_path / "run", 1)
    (tmp_path / "student").rename(tmp_path / "elsewhere")
    assert call("nmt-train", config, *dropout, "--set", "training.max_steps=2") == 0
    second = weights(tmp_path / "run", 2)
    assert first.keys() == second.keys()


def some(text: Path, tmp_path: Path, *, lines: int = 6) -> list[str]:
    """The first lines of the dev text, in source.en and target.de as well."""
    for name, file in (("source.en", "dev.en"), ("target.de", "dev.de")):
        found = (text / file).read_text(encoding="utf-8").splitlines()[:lines]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    return (tmp_path / "source.en").read_text(encoding="utf-8").splitlines()


def test_a_teacher_of_a_student_with_another_vocabulary(model: Path, text: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    options = ("--beam-size", "1", "--precision", "fp32", "--alignment")
    assert call("nmt-distill", str(model), "--train", str(text / "dev"), "-o", str(made), *options) == 0
    sources, targets, links = (
        Path(f"{made}.{end}").read_text(encoding="utf-8").splitlines() for end in ("en", "de", "alignment")
    )
    assert sources == (text / "dev.en").read_text(encoding="utf-8").splitlines()
    translations = load(model, precision="fp32").translate(sources, beam_size=1, details=["alignment"])
    ended = [place for place, one in enumerate(translations) if "length_limit" not in one.notes]
    assert len(ended) > 20
    assert [targets[place] for place in ended] == [str(translations[place]) for place in ended]
    for place in ended:
        aligned = translations[place].alignment
        assert links[place] == " ".join(f"{source}-{target}" for source, target in aligned or ())
    student = {
        "run_dir": str(tmp_path / "run"),
        "data": {
            "train": str(made),
            "workers": 1,
            "tokenizer_options": {"model_type": "unigram", "vocab_size": 150, "byte_fallback": False},
        },
        "model": {
            "architecture": "transformer",
            "cell": "ssru",
            "embedding_size": 16,
            "architecture_options": {"form": "marian", "encoder_layers": 1, "decoder_layers": 1, "heads": 2},
        },
        "training": {"max_steps": 2, "guided_alignment": f"{made}.alignment"},
    }
    path = tmp_path / "student.yaml"
    path.write_text(yaml.safe_dump(student), encoding="utf-8")
    assert call("nmt-train", str(path)) == 0
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert "vocabularies: source 150, target 150" in log and "guide attention" in log


def test_scores_are_those_of_the_search(
    model: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = some(text, tmp_path)
    found = load(model, precision="fp32").translate(lines, beam_size=1, details=["scores"])
    (tmp_path / "target.de").write_text("".join(f"{one}\n" for one in found), encoding="utf-8")
    capsys.readouterr()
    files = ("--source", str(tmp_path / "source.en"), "--target", str(tmp_path / "target.de"))
    assert call("nmt-score", str(model), *files) == 0
    scores = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert len(scores) == len(lines)
    same = 0
    for one, score in zip(found, scores, strict=True):
        (values,) = (hypothesis.token_scores for hypothesis in one.n_best)
        assert values is not None
        same += score == pytest.approx(-sum(values) / len(values), abs=1e-4)
    assert same >= 4, "other pieces may spell the same text"


def test_n_best_and_constraints(model: Path, text: Path, tmp_path: Path) -> None:
    lines = some(text, tmp_path)
    translator = load(model, precision="fp32")
    several = translator.translate(lines, beam_size=4, n_best=3)
    for one in several:
        scores = [hypothesis.score for hypothesis in one.n_best]
        assert len({hypothesis.text for hypothesis in one.n_best}) == 3 and scores == sorted(scores, reverse=True)
    assert all(str(one).startswith("Zwei Hunde") for one in translator.translate(lines, prefix="Zwei Hunde"))
    word = str(several[0]).split()[0]
    assert all(word not in str(one).split() for one in translator.translate(lines, forbidden=[word]))
    with_required = translator.translate(lines, required=["Hunde"], beam_size=4)
    assert all("Hunde" in str(one) or "required_missing" in one.notes for one in with_required)
    assert sum("Hunde" in str(one) for one in with_required) >= len(lines) // 2


def test_alignments_and_a_glossary(model: Path, text: Path, tmp_path: Path) -> None:
    lines = some(text, tmp_path)
    (tmp_path / "terms.tsv").write_text("man\tHerr\nwomen\tDamen\nboys\tJungs\n", encoding="utf-8")
    terms = {"man": "Herr", "women": "Damen", "boys": "Jungs"}
    files = ("-i", str(tmp_path / "source.en"), "-o", str(tmp_path / "out"), "--alignment", str(tmp_path / "links"))
    assert call("nmt-translate", str(model), *files, "--glossary", str(tmp_path / "terms.tsv")) == 0
    texts, links = ((tmp_path / name).read_text(encoding="utf-8").splitlines() for name in ("out", "links"))
    assert len(texts) == len(links) == len(lines)
    asked = 0
    for source, target, line in zip(lines, texts, links, strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert {word for _, word in pairs} == set(range(len(target.split())))
        assert all(word < len(source.split()) for word, _ in pairs)
        for term, translation in terms.items():
            if term in source.split():
                asked += 1
                assert translation in target
                places = [place for place, word in enumerate(target.split()) if translation in word]
                assert any((source.split().index(term), place) in pairs for place in places)
    assert asked


def test_a_look_inside_and_a_report(model: Path, text: Path, tmp_path: Path) -> None:
    lines = some(text, tmp_path)
    found = load(model, precision="fp32").inspect(lines[0])
    size = len(found.target_tokens), len(found.source_tokens)
    assert found.attention["decoder.1"].shape[1:] == size
    assert found.attention["encoder.1.self"].shape[1:] == (size[1], size[1])
    page, picture = tmp_path / "report.html", tmp_path / "map.svg"
    files = ("--source", str(tmp_path / "source.en"), "--ref", str(tmp_path / "target.de"))
    assert call("nmt-report", "-o", str(page), "--model", str(model), *files) == 0
    assert str(load(model, precision="fp32").translate(lines[0]))[:12] in page.read_text(encoding="utf-8")
    assert call("nmt-plot", "attention", str(model), "--text", lines[0], "-o", str(picture)) == 0
    assert picture.stat().st_size > 1000
