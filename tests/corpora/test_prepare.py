"""nmt-data prepare and filter: no leak, nothing lost without a count, sizes that fit, and the best share kept."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path

import pytest

from nmt.cli import train
from nmt.config import load_config
from nmt.corpora.command import main
from nmt.corpora.filter import REASONS
from nmt.corpora.prepare import outline
from nmt.corpora.sizes import SIZES, sizes_for
from nmt.data.text import read_lines
from tests.conftest import REPOSITORY

NOUNS = ["dog", "cat", "man", "boy", "girl", "bird", "fish", "horse", "child", "king"]
VERBS = ["sees", "likes", "hears", "calls", "finds", "follows", "helps", "feeds", "greets", "draws"]


def text(count: int) -> list[tuple[str, str]]:
    """Different pairs of five words, in an order of their own."""
    found = [
        (f"The {one} {verb} the {other}.", f"Das {one[::-1]} {verb[::-1]} das {other[::-1]}.")
        for one in NOUNS
        for verb in VERBS
        for other in NOUNS
    ]
    random.Random(3).shuffle(found)
    return found[:count]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, rows: list[tuple[str, str]]) -> str:
    Path(name).write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return name


def read(prefix: str) -> list[tuple[str, str]]:
    return [*zip(*(Path(f"{prefix}.{code}").read_text("utf-8").splitlines() for code in ("en", "de")), strict=True)]


def prepare(*arguments: str) -> int:
    return main(["prepare", *arguments, "--languages", "en", "de"])


def test_parts_share_no_sentence_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = text(400)
    odd = [
        # Near duplicates of what may be held out, of one side each.
        *((source.upper(), f"Nummer {number}: {target} Und mehr.") for number, (source, target) in enumerate(pairs)),
        pairs[5],
        ("", "Nichts."),
        (f"\ufeff{pairs[9][0]} 7", f"{pairs[9][1]} 7"),
    ]
    Path("b.jsonl").write_text("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in odd), encoding="utf-8")
    with Path(write("a.tsv", pairs)).open("a", encoding="utf-8") as stream:
        stream.write("only one side\n")
    assert prepare("a.tsv", "b.jsonl", "-o", "data/mine", "--dev", "30", "--hold-out", "20") == 0
    told = capsys.readouterr().out
    parts = {part: read(f"data/mine/{part}") for part in ("train", "dev", "test")}
    assert [len(parts[part]) for part in ("dev", "test")] == [30, 20]
    for side in (0, 1):
        seen = [{outline(pair[side]) for pair in part} for part in parts.values()]
        assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
        assert len(seen[1]) == 30
        assert len(seen[2]) == 20
    dropped = [json.loads(line) for line in Path("data/mine/dropped.jsonl").read_text("utf-8").splitlines()]
    assert sum(map(len, parts.values())) + len(dropped) == 803
    assert len(parts["train"]) == 801 - 2 * 50
    assert {fault for record in dropped for fault in record["faults"]} <= {"empty", "duplicate", "held_out"}
    assert "803 pairs read" in told
    assert "a.tsv: 1 line without a pair (has 1 column, but column 2 is needed): 401" in told
    assert "1 byte order mark at the beginning of lines taken away" in told
    assert told.endswith("now: nmt-train data/mine/train.yaml\n")
    assert max(map(len, told.splitlines())) <= 100
    report = json.loads(Path("data/mine/report.json").read_text("utf-8"))
    assert report["written"] == {part: len(found) for part, found in parts.items()}
    assert report["pairs"] == 803


def test_held_out_sentences_do_not_depend_on_the_order() -> None:
    pairs = text(300)
    assert prepare(write("a.tsv", pairs), "-o", "one", "--dev", "20", "--hold-out", "20") == 0
    assert prepare(write("b.tsv", pairs[::-1]), "-o", "two", "--dev", "20", "--hold-out", "20") == 0
    assert read("one/dev") == read("two/dev")
    assert read("one/test") == read("two/test")
    assert sorted(read("one/train")) == sorted(read("two/train"))


def test_held_out_are_different_sentences_with_the_smallest_hashes() -> None:
    pairs = [(source, f"Satz {number // 3}, Wort {'abc'[number // 3 % 3] * (number // 9)}.") for number, (source, _) in
             enumerate(text(300))]  # fmt: skip
    assert prepare(write("a.tsv", pairs), "-o", "one", "--dev", "10", "--hold-out", "10") == 0

    def rank(pair: tuple[str, str]) -> bytes:
        return hashlib.blake2b(outline(pair[0]).encode(), digest_size=8).digest()

    expected: list[tuple[str, str]] = []
    for pair in sorted(pairs, key=rank):
        if outline(pair[1]) not in {outline(target) for _, target in expected}:
            expected.append(pair)
    assert read("one/dev") + read("one/test") == expected[:20]


def test_without_held_out_text_the_configuration_is_complete() -> None:
    assert prepare(write("a.tsv", text(100)), "-o", "all", "--dev", "0", "--hold-out", "0") == 0
    assert sorted(path.name for path in Path("all").iterdir()) == [
        "dropped.jsonl", "report.json", "train.de", "train.en", "train.yaml",
    ]  # fmt: skip
    config = load_config("all/train.yaml")
    assert (config.data.train, config.data.dev, config.data.test) == ("all/train", None, None)


def test_what_an_earlier_call_held_out_does_not_stay() -> None:
    made = write("a.tsv", text(100))
    assert prepare(made, "-o", "all", "--dev", "5", "--hold-out", "5") == 0 and Path("all/dev.en").exists()
    assert prepare(made, "-o", "all", "--dev", "0", "--hold-out", "0", "--overwrite") == 0
    assert not [path.name for path in Path("all").iterdir() if path.name.startswith(("dev", "test"))]
    assert len(read("all/train")) == 100


def test_the_text_that_is_read_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare(write("a.tsv", text(100)), "-o", "one", "--dev", "5", "--hold-out", "5") == 0
    before = read("one/train")
    assert prepare("one/train", "-o", "one", "--dev", "5", "--hold-out", "5", "--overwrite") == 2
    assert "one/train.en: is the text to read; give another folder" in capsys.readouterr().err
    assert read("one/train") == before


def test_line_breaks_are_read_as_spaces_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*text(40), ("A first line\nand a second.", "Eine\r\nZeile.")]
    Path("a.jsonl").write_text("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in rows), encoding="utf-8")
    assert prepare("a.jsonl", "-o", "one", "--dev", "0", "--hold-out", "0") == 0
    assert "line breaks within 1 pair are read as spaces" in capsys.readouterr().out
    assert read("one/train")[-1] == ("A first line and a second.", "Eine Zeile.")


def test_cleaned_as_asked() -> None:
    pairs = [*text(100), ("A copied text here.", "A copied text here."), ("A tab\x01 here now.", "Ein Tab ist hier.")]
    for name, arguments in (("all", []), ("clean", ["--clean"])):
        assert prepare(write("a.tsv", pairs), "-o", name, "--dev", "5", "--hold-out", "0", *arguments) == 0
    assert len(read("all/train")) == 97
    assert len(read("clean/train")) == 95
    assert not Path("clean/test.en").exists()


@pytest.mark.parametrize("count", [2_400, 9_000])
def test_the_configuration_leaves_no_doubt(count: int, multi30k: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [[*read_lines(multi30k / f"train.{code}.gz")][:count] for code in ("en", "de")]
    assert prepare(write("a.tsv", [*zip(*sides, strict=True)]), "-o", "mine") == 0
    assert [*Path("mine").glob("*.yaml")] == [Path("mine/train.yaml")]
    config = load_config("mine/train.yaml")
    assert (config.data.train, config.data.test, config.run_dir) == ("mine/train", "mine/test", "runs/mine")
    assert train.main(["mine/train.yaml", "--dry-run", "--device", "cpu"]) == 0
    assert "warning" not in capsys.readouterr().err.lower()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["a.tsv", "-o", "d", "--dev", "300"], "30 pairs can be held out, but --dev and --hold-out need 500", 1),
        (["no.tsv", "-o", "d"], "no.tsv: no such file", 1),
        (["b", "-o", "d"], "neither b.en nor b.en.gz exists", 1),
        (["empty.tsv", "-o", "d"], "empty.tsv: no pair of en and de", 1),
        (["a.tsv", "-o", "there"], "there/train.en: exists already; give another folder or --overwrite", 1),
        (["a.tsv", "-o", "d", "--dev", "-1"], "--dev", 2),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.tsv", text(30))
    write("empty.tsv", [])
    Path("there").mkdir()
    Path("there/train.en").write_text("mine")
    try:
        found = prepare(*arguments)
    except SystemExit as stopped:
        found = int(str(stopped.code))
    told = capsys.readouterr().err
    assert found == code
    assert message in told
    assert Path("there/train.en").read_text() == "mine"
    assert not [*Path().glob("**/*prepare-*")]


def test_the_table_of_the_guide_has_these_sizes() -> None:
    page = (REPOSITORY / "docs" / "getting_started.md").read_text(encoding="utf-8").split("## Sizes")[1]
    rows = {line.split("`")[1].split(".")[-1]: line.split("|")[2:-1] for line in page.splitlines() if line[:3] == "| `"}
    for place, row in enumerate(SIZES):
        for name, value in row._asdict().items():
            if name != "pairs":
                assert float(rows[name][place]) == value, (name, row.pairs)
    assert [sizes_for(pairs).pairs for pairs in (0, 7_000, 8_000, 100_000, 10**6, 10**9)] == [
        2_000, 2_000, 30_000, 200_000, 200_000, 5_000_000,
    ]  # fmt: skip


def test_the_best_share_of_two_scores_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = text(6)
    near = (pairs[1][0].upper(), pairs[1][1].replace(".", " 3"))
    write("a.tsv", [*pairs, near])
    # |a - b| + (a + b) / 2: 1, 3.5, 2, 1, 9, inf; the last one is a near duplicate and has the best scores.
    Path("a.scores").write_text("1\n1\n2\n1\n9\ninf\n0\n")
    Path("b.scores").write_text("1\n2.6667\n2\n1\n9\n1\n0\n")
    arguments = ["filter", "a.tsv", "--languages", "en", "de", "-o", "best", "--near-duplicates"]
    assert main([*arguments, "--scores", "a.scores", "b.scores", "--keep-share", "0.45", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts == {"pairs": 7, "kept": 2, "near_duplicate": 1, "language": 0, "score": 4}
    assert read("best") == [pairs[0], pairs[3]]
    dropped = [json.loads(line) for line in Path("best.dropped.jsonl").read_text("utf-8").splitlines()]
    assert [(record["line"], record["reason"]) for record in dropped] == [
        (2, "score"), (3, "score"), (5, "score"), (6, "score"), (7, "near_duplicate"),
    ]  # fmt: skip
    assert main([*arguments, "--overwrite"]) == 0
    told = capsys.readouterr().out
    assert "a.tsv: 7 pairs, 6 kept" in told
    assert [line.split()[0] for line in told.splitlines()[1:]] == list(REASONS)


def test_a_share_of_nothing_is_not_everything(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.tsv", text(5))
    Path("scores").write_text("3\n1\n2\n5\n4\n")
    given = ["filter", "a.tsv", "--languages", "en", "de", "-o", "best", "--scores", "scores", "--json"]
    assert main([*given, "--keep-share", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 1
    assert read("best") == [text(5)[1]]


def test_other_languages_are_left_out() -> None:
    pytest.importorskip("py3langid")
    good = ("The weather is beautiful this afternoon.", "Das Wetter ist heute Nachmittag sehr schön.")
    bad = ("The weather is beautiful this afternoon.", "Le temps est très beau cet après-midi.")
    short = ("Berlin", "Paris")
    write("a.tsv", [good, bad, short])
    assert main(["filter", "a.tsv", "--languages", "en", "de", "-o", "own", "--identify-languages"]) == 0
    assert read("own") == [good, short]


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        ([], "nothing to filter by: give --scores with --keep-share, --near-duplicates or --identify-languages", 2),
        (["--scores", "s"], "--scores and --keep-share: give both or neither", 2),
        (["--scores", "s", "s", "s", "--keep-share", "0.5"], "--scores: 3 files; give one or two", 2),
        (["--scores", "s", "--keep-share", "0.5"], "s has 1 score, but the corpus has 2 pairs", 1),
        (["--scores", "t", "--keep-share", "0.5"], "t, line 2: 'nan' is not a number; nmt-score writes one a line", 1),
    ],
)
def test_mistakes_of_the_filter_are_one_line(
    arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.tsv", text(2))
    Path("s").write_text("1\n")
    Path("t").write_text("1\nnan\n")
    given = ["filter", "a.tsv", "--languages", "en", "de", "-o", "x", *arguments]
    assert main(given) == code
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert not Path("x.en").exists()


def test_a_pair_of_unknown_codes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("py3langid")
    write("a.tsv", text(2))
    assert main(["filter", "a.tsv", "--languages", "en", "xx", "-o", "x", "--identify-languages"]) == 2
    assert re.search(
        "--identify-languages: 'xx' is not known to py3langid\\. Did you mean 'zxx'", capsys.readouterr().err
    )
