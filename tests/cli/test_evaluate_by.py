"""nmt-eval --by: scores of parts of a text, in every form of the output, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.dataset import DATASETS

from nmt.evaluating.command import main
from nmt.registry import METRICS
from tests.tiny_training import nmt_train, write_config, write_corpus

REFERENCE = ["The cat sits.", "A dog barks at the cat.", "No one.", "The end of it all is near, said the dog."]
TRANSLATION = ["The cat sat.", "The dog barks at the cat.", "No one.", "the end of all is near, said a dog."]
TRAINING = ["the the the cat", "The dog, the end ."]
NAMES = [("old", "home"), ("old", "street"), ("new", "home"), ("new", "street")]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    lines = {"hyp": TRANSLATION, "ref": REFERENCE, "training": TRAINING}
    table = ["corpus\tdomain", *("\t".join(names) for names in NAMES)]
    lines |= {"table": table, "domains": [domain for _, domain in NAMES]}
    return {name: write(tmp_path / name, text) for name, text in lines.items()}


def found(capsys: pytest.CaptureFixture[str], files: dict[str, str], *arguments: str) -> Any:
    assert main(["--hyp", files["hyp"], "--ref", files["ref"], *arguments]) == 0
    output = capsys.readouterr().out
    return json.loads(output) if "json" in arguments else output


def test_lines_are_scored_by_the_names_of_a_table(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    by = [
        "--by",
        "domain",
        "corpus",
        "--groups",
        files["table"],
        "--metrics",
        "chrf",
        "--by-length",
        "--format",
        "json",
    ]
    (chrf,) = found(capsys, files, *by)
    assert [*chrf] == ["name", "score", "signature", "by_domain", "by_corpus", "by_length"]
    for kind, column in (("corpus", 0), ("domain", 1)):
        parts = {}
        for name in dict.fromkeys(names[column] for names in NAMES):
            rows = [place for place, names in enumerate(NAMES) if names[column] == name]
            parts[name] = METRICS.get("chrf")().compute([TRANSLATION[i] for i in rows], [[REFERENCE[i] for i in rows]])
        expected = [{"name": name, "sentences": 2, "score": score.score} for name, score in parts.items()]
        assert chrf[f"by_{kind}"] == expected
    assert [(part["first"], part["sentences"]) for part in chrf["by_length"]] == [(0, 4)]


def test_a_file_with_a_name_a_line_is_enough(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Also with a head, and the name that --by gives it is free."""
    plain = found(capsys, files, "--by", "domain", "--groups", files["domains"], "--format", "json")
    assert [part["name"] for part in plain[0]["by_domain"]] == ["home", "street"]
    lines = Path(files["domains"]).read_text(encoding="utf-8").splitlines()
    write(Path(files["domains"]), ["domain", *lines])
    assert found(capsys, files, "--by", "domain", "--groups", files["domains"], "--format", "json") == plain
    write(Path(files["domains"]), ["place", *lines])
    other = found(capsys, files, "--by", "place", "--groups", files["domains"], "--format", "json")
    assert other[1]["by_place"] == plain[1]["by_domain"]


def test_words_are_scored_by_their_frequency(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    by = ["--by", "frequency", "--frequency-of", files["training"], "--metrics", "bleu", "--format", "json"]
    bleu, precision, recall, f1 = found(capsys, files, *by, "--lowercase")
    assert precision["score"] == pytest.approx(bleu["precisions"][0]), "words are those of BLEU"
    # By hand: training has `the` 5 times, `.` and `,` and `cat`, `dog`, `end` once; all in small letters.
    times = {"the": 5, "cat": 1, "dog": 1, ",": 1, "end": 1, ".": 1}
    right = [METRICS.get("bleu")().scorer()._preprocess_segment(line.lower()).split() for line in REFERENCE]
    often = sum(times.get(word) == 5 for line in right for word in line)
    assert [(part["first"], part["last"], part["words"]) for part in recall["by_frequency"]] == [
        (0, 0, sum(word not in times for line in right for word in line)),
        (1, 1, sum(times.get(word) == 1 for line in right for word in line)),
        (5, 9, often),
    ]
    assert often == 4
    assert recall["by_frequency"][2] == {"first": 5, "last": 9, "written": 4, "words": 4, "score": 75.0}
    shares = precision["by_frequency"][2]["score"], recall["by_frequency"][2]["score"]
    assert f1["by_frequency"][2]["score"] == pytest.approx(2 * shares[0] * shares[1] / sum(shares))
    assert f1["signature"] == "nrefs:1|case:lc|tok:13a|training words:10"
    cased = found(capsys, files, *by, "--tokenize", "char")[1]
    assert cased["signature"].startswith("nrefs:1|case:mixed|tok:char|")


def test_several_systems_in_all_tables(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    by = ["--by", "corpus", "frequency", "--groups", files["table"], "--frequency-of", files["training"]]
    two = ["--hyp", files["hyp"], files["ref"], "--labels", "one", "two", "--metrics", "chrf", "--samples", "20"]
    assert main([*two, "--ref", files["ref"], *by, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    whole = {(row["system"], row["metric"]): row for row in rows if not row["by"]}
    assert [*whole] == [(system, name) for system in ("one", "two") for name in ("chrF2", "precision", "recall", "F1")]
    assert whole["two", "chrF2"]["baseline"] == "one" and 0 < float(whole["two", "chrF2"]["p_value"]) <= 1
    assert whole["one", "chrF2"]["baseline"] == whole["two", "F1"]["baseline"] == ""
    parts = [row for row in rows if row["by"] == "corpus" and row["system"] == "one"]
    assert [(row["metric"], row["group"], row["size"]) for row in parts] == [
        ("chrF2", "old", "2"),
        ("chrF2", "new", "2"),
    ]
    assert float(parts[0]["score"]) != float(whole["one", "chrF2"]["score"])
    assert {float(row["score"]) for row in rows if row["system"] == "two"} == {100.0}
    for form, marks in (
        ("text", ("by corpus, one:", "words by how often training has them, two:")),
        ("markdown", ("| old |",)),
        ("latex", (r"old & 2 &",)),
    ):
        assert main([*two, "--ref", files["ref"], *by, "--format", form]) == 0
        output = capsys.readouterr().out
        assert all(mark in output for mark in marks)


def test_the_sets_of_a_published_test_set_are_corpora(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lines in (("wmt14", REFERENCE), ("wmt15", REFERENCE[:1])):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name), raising=False)
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(tmp_path / name / "raw"), raising=False)
        (tmp_path / name).mkdir()
        for ending in ("src", "ref"):
            write(tmp_path / name / f"{name}.en-de.{ending}", lines)
    hyp = write(tmp_path / "both", [*TRANSLATION, TRANSLATION[0]])
    given = ["--hyp", hyp, "-t", "wmt14,wmt15", "-l", "en-de", "--metrics", "chrf", "--by", "corpus", "--json"]
    monkeypatch.setattr(
        "nmt.test_sets.sacrebleu._files",
        lambda dataset, pair: [
            str(tmp_path / dataset.name / f"{dataset.name}.{pair}.{ending}") for ending in ("src", "ref")
        ],
    )
    assert main(given) == 0
    (chrf,) = json.loads(capsys.readouterr().out)
    assert [(part["name"], part["sentences"]) for part in chrf["by_corpus"]] == [("wmt14", 4), ("wmt15", 1)]


def test_the_training_text_is_that_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path, training={"max_steps": 1, "validate_every": 1})) == 0
    given = [str(tmp_path / "run"), "--source", str(tmp_path / "dev.en"), "--ref", str(tmp_path / "dev.de")]
    given += ["--by", "frequency", "--metrics", "bleu", "--device", "cpu"]
    assert main(given) == 0
    first = capsys.readouterr().out
    assert "words by how often train.de has them" in first
    assert main([*given, "--frequency-of", str(tmp_path / "train.de")]) == 0
    assert capsys.readouterr().out == first
    (tmp_path / "train.de").rename(tmp_path / "gone.de")
    assert main(given) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"--by frequency: {tmp_path / 'run'}: data.train: neither" in said and said.endswith(
        "give --frequency-of FILE"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--by", "lenght"], 2, "--by lenght: needs --groups FILE, which names it for each line. Allowed without"),
        (["--by", "corpus"], 2, "with several sets of -t corpus"),
        (["--by", "topic", "--groups", "table"], 2, "--by: 'topic' is no column of "),
        (["--by", "corpus", "domain", "--groups", "domains"], 1, "needs a head that names its columns, for --by c"),
        (["--by", "domain", "--groups", "training"], 1, "has 2 lines; it needs one for each of the 4 lines"),
        (["--groups", "table"], 2, "--groups: needs --by corpus, domain or another column of it"),
        (["--by-length", "--groups", "table"], 2, "--groups: needs --by corpus"),
        (["--frequency-of", "training"], 2, "--frequency-of: needs --by frequency"),
        (["--by", "frequency"], 2, "--by frequency: needs --frequency-of FILE, the training text in the target"),
        (["--by", "frequency", "--frequency-of", "absent"], 1, "--frequency-of: "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    own = [
        files.get(word, word) if place and arguments[place - 1] != "--by" else word
        for place, word in enumerate(arguments)
    ]
    assert main(["--hyp", files["hyp"], "--ref", files["ref"], *own]) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("place", "row", "message"),
    [
        (2, "old", "table, line 3: has 1 column; allowed: 2, as the head"),
        (1, "old\t ", "table, line 2: the name is missing"),
    ],
)
def test_each_line_needs_a_name(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], place: int, row: str, message: str
) -> None:
    lines = Path(files["table"]).read_text(encoding="utf-8").splitlines()
    write(Path(files["table"]), [*lines[:place], row, *lines[place + 1 :]])
    assert main(["--hyp", files["hyp"], "--ref", files["ref"], "--by", "domain", "--groups", files["table"]]) == 1
    assert message in capsys.readouterr().err
