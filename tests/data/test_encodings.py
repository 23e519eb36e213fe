"""Files as other programs write them: a byte order mark is no text anywhere, other encodings are named everywhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import nmt
from nmt.cli import translate
from nmt.config import load_config
from nmt.corpora import command as data
from nmt.data import Vocabulary, read_lines
from nmt.errors import ConfigError, DataError
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.kept_text.lines import load_glossary
from nmt.light.lines import is_wide, looks_like
from nmt.other_tasks.vectors import read_vectors
from nmt.ranking import command as rank
from nmt.scoring import command as score
from nmt.tagging.labels import Columns, read_columns
from tests.compiled import needed_engine
from tests.quick_python import quick_python
from tests.tiny_run import make_run

MARK = "\ufeff"
OTHERS = {
    "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32", "utf-32-le": "UTF-32",
    "latin-1": "WINDOWS-1252", "cp1252": "WINDOWS-1252",
}  # fmt: skip
GERMAN = ["Der Bär schläft.", "Das Haus ist groß und schön.", "Ja."]


def write(path: Path, lines: list[str], *, encoding: str = "utf-8", mark: bool = True) -> Path:
    path.write_bytes((MARK * mark + "".join(line + "\n" for line in lines)).encode(encoding))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_recognised(encoding: str) -> None:
    for text in GERMAN[:2]:
        assert looks_like(text.encode(encoding)) == OTHERS[encoding]


SCRIPTS = [
    "Ja.", "“Ja”, sagte er – und…", "Příliš žluťoučký kůň", "Привет мир, как дела?", "ПРИВЕТ МИР", "Η αρκούδα ήρθε.",
    "הדוב זקן מאוד.", "الدب كبير في السن.", "भालू बूढ़ा है।", "หมีแก่แล้ว", "日本の先生です。", "那只熊很老，他知道。",
    "곰은 늙었다. 그렇다", "a b\tc d\tx", "Nice 😀 day 😀😀",
]  # fmt: skip


@pytest.mark.parametrize("text", SCRIPTS)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_each_line_of_any_script_tells_its_encoding_without_a_mark(encoding: str, text: str, tmp_path: Path) -> None:
    """Only a byte 0x0a ends a line, so that a line may begin or end with a part of a character."""
    content = "\n".join([text] * 3).encode(encoding)
    for line in content.split(b"\n"):
        assert looks_like(line) == encoding[:6].upper()
        (tmp_path / "t").write_bytes(line)
        with pytest.raises(DataError, match=f"line 1: not UTF-8 .*iconv -f {encoding[:6].upper()} "):
            list(read_lines(tmp_path / "t"))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Привет мир"), ("koi8-r", "Привет мир"), ("iso8859-7", "Η αρκούδα ήρθε."), ("cp1255", "הדוב זקן"),
        ("cp1256", "الدب كبير"), ("tis-620", "หมีแก่แล้ว"), ("shift-jis", "日本の先生です。"), ("euc-jp", "先生です"),
        ("gb18030", "那只熊很老，他知道。"), ("big5", "那隻熊很老，他知道。"), ("euc-kr", "곰은 늙었다. 그렇다"),
    ],
)  # fmt: skip
def test_an_encoding_that_nothing_tells_is_not_named_wrongly(encoding: str, text: str) -> None:
    assert looks_like(text.encode(encoding)) is None


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "\0" * 9,
        "the \0 cat \0",
        "\x1f\x1f\x1f\x1f",
        "a\tb\tc\td",
        "1\x0b2 \x1c",
        "",
        "c \t \0 \0 א",
        "\0 c \r \r \t",
        "Q nu" + "\x01" * 21,
        "d \t a \0 \t \0 \t",
        *SCRIPTS,
    ],
)
def test_text_in_utf8_is_no_other_encoding(text: str) -> None:
    assert not is_wide(text.encode())


@pytest.mark.parametrize("encoding", OTHERS)
def test_every_reader_names_them(run: Path, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.de", GERMAN, encoding=encoding, mark=False)
    good = write(tmp_path / "t.en", ["a", "b", "c"])
    said = f"{path}, line 1: not UTF-8 "
    for main, arguments in (
        (translate.main, [str(run), "-i", str(path)]),
        (evaluate.main, ["--hyp", str(path), "--ref", str(good)]),
        (evaluate.main, ["--hyp", str(good), "--ref", str(path)]),
        (score.main, [str(run), "--source", str(path), "--target", str(good)]),
        (data.main, ["split", "-i", str(path)]),
    ):
        assert main(arguments) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert said in error and f"iconv -f {OTHERS[encoding]} -t UTF-8" in error
    with pytest.raises(DataError) as caught:
        nmt.train({
            "run_dir": str(tmp_path / "run"), "model": {"cell": "lrn", "hidden_size": 8, "embedding_size": 8},
            "data": {"train": str(tmp_path / "t"), "tokenizer": "whitespace"}, "training": {"max_steps": 1},
        })  # fmt: skip
    assert str(caught.value).startswith(said) and f"iconv -f {OTHERS[encoding]}" in str(caught.value)
    assert not (tmp_path / "run/tokenizer").exists(), "before the vocabulary is made"


def test_a_corpus_in_another_encoding_is_named_and_checking_it_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "t.en", ["The bear sleeps.", "The house is big and nice.", "Yes."])
    path = write(tmp_path / "t.de", [*GERMAN[:2], "Schön."], encoding="latin-1", mark=False)
    assert data.main(["check", str(tmp_path / "t"), "--languages", "en", "de"]) == 1
    assert f"{path}, line 1: not UTF-8" in (out := capsys.readouterr().out) and "iconv -f WINDOWS-1252" in out
    write(path, GERMAN, encoding="utf-16", mark=False)
    assert data.main(["check", str(tmp_path / "t"), "--languages", "en", "de"]) == 1
    assert f"{path}, line 1: not UTF-8" in (error := capsys.readouterr().err) and "iconv -f UTF-16" in error
    write(tmp_path / "t.de", GERMAN)
    assert data.main(["check", str(tmp_path / "t"), "--languages", "en", "de"]) == 0


def test_text_with_zeros_is_text(tmp_path: Path) -> None:
    lines = ["a\0b", "\0\0\0\0\0\0", "the \0 cat \0", "\0"]
    assert list(read_lines(write(tmp_path / "t", lines, mark=False))) == lines


def test_a_mark_is_no_text_in_training_and_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mark in (False, True):
        for side, words in (("en", "the cat sees a dog"), ("de", "die Katze sieht einen Hund")):
            write(tmp_path / f"t{mark:d}.{side}", [words] * 40, mark=mark)
    found = {}
    for mark in (0, 1):
        nmt.train({
            "run_dir": str(tmp_path / f"run{mark}"), "model": {"cell": "lrn", "hidden_size": 8, "embedding_size": 8},
            "data": {"train": str(tmp_path / f"t{mark}"), "dev": str(tmp_path / f"t{mark}"), "tokenizer": "whitespace"},
            "training": {"max_steps": 2}, "decoding": {"beam_size": 1, "max_length_offset": 3},
        })  # fmt: skip
        run = tmp_path / f"run{mark}"
        found[mark] = [(run / "tokenizer" / name).read_bytes() for name in ("source.vocab", "target.vocab")]
        events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        found[mark] += [event["loss"] for event in events if event["event"] == "validation"]
    assert found[0] == found[1]
    for hypothesis, reference in ((0, 1), (1, 0)):
        files = ["--hyp", str(tmp_path / f"t{hypothesis}.de"), "--ref", str(tmp_path / f"t{reference}.de")]
        assert evaluate.main([*files, "--metrics", "bleu", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["score"] == pytest.approx(100)


def test_a_mark_is_no_text_in_any_other_file(
    tmp_path: Path,
) -> None:
    assert Vocabulary.from_file(write(tmp_path / "v", ["dog", "cat"])).tokens[-2:] == ("dog", "cat")
    assert [*read_vectors(write(tmp_path / "vec", ["the 1 2", "rome 3 4"]), ["the", "rome"], size=2).ids] == [0, 1]
    assert load_glossary(str(write(tmp_path / "g", ["dog\tHund"]))) is not None
    (sentence,) = read_columns(write(tmp_path / "c", ["x O", ""]), Columns())
    assert MARK not in str(sentence)


def outputs(run: Path, folder: Path, *, mark: bool, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What commands write for the same files, with and without a mark."""
    folder.mkdir()
    text = write(folder / "in", ["a b", "c d"], mark=mark)
    target = write(folder / "out", ["x y", "z"], mark=mark)
    prefix = write(folder / "prefix", ["w", "x"], mark=mark)
    wishes = write(folder / "wishes", ['{"prefix": "w"}', ""], mark=mark)
    table = write(folder / "tsv", ["a b\tw", "c\tx"], mark=mark)
    objects = write(folder / "jsonl", ['{"text": "a b"}'], mark=mark)
    lists = write(folder / "list", ["0 ||| x y ||| s= 1 ||| 1", "1 ||| z ||| s= 1 ||| 1"], mark=mark)
    found = []
    for main, arguments in (
        (translate.main, [str(run), "-i", str(text)]),
        (translate.main, [str(run), "-i", str(text), "--prefix", str(prefix)]),
        (translate.main, [str(run), "-i", str(text), "--constraints", str(wishes)]),
        (translate.main, [str(run), "-i", str(table), "--input-format", "tsv"]),
        (translate.main, [str(run), "-i", str(objects), "--input-format", "jsonl"]),
        (score.main, [str(run), "--source", str(text), "--target", str(target)]),
        (score.main, [str(run), "--source", str(text), "--n-best", str(lists)]),
        (rank.main, [str(lists), "--weights", "s=1"]),
        (data.main, ["split", "-i", str(text)]),
    ):
        assert main(arguments) == 0, arguments
        found.append(capsys.readouterr().out)
    for piped in ([*quick_python(), "-m", "nmt.cli.translate", str(run)],):
        done = subprocess.run(piped, input=text.read_bytes(), capture_output=True, check=True)
        found.append(done.stdout.decode())
    return found


def test_commands_do_the_same_with_a_mark(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_mark = outputs(run, tmp_path / "with", mark=True, capsys=capsys)
    assert with_mark == outputs(run, tmp_path / "without", mark=False, capsys=capsys)
    assert not any(MARK in text for text in with_mark)


def test_the_engine_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed_engine()
    run = make_run(tmp_path / "run", sentencepiece=True)
    assert export.main([str(run), "-o", f"{run}.nmt"]) == 0
    capsys.readouterr()
    text = write(tmp_path / "in", ["a longaer sentence", "c"])
    plain = write(tmp_path / "plain", ["a longaer sentence", "c"], mark=False)
    found = []
    for path in (text, plain):
        assert translate.main([f"{run}.nmt", "-i", str(path)]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]


def test_held_out_text_with_a_mark_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, first in (("en", "The bear is old."), ("de", "Der Bär ist alt.")):
        write(tmp_path / f"t.{side}", [first, "x y z"], mark=False)
        write(tmp_path / f"dev.{side}", [first])
    arguments = ["check", str(tmp_path / "t"), "--languages", "en", "de", "--held-out", str(tmp_path / "dev"), "--json"]
    assert data.main(arguments) in (0, 1)
    assert json.loads(capsys.readouterr().out)["faults"]["held_out"] == 1


@pytest.mark.parametrize("option", ["--prefix", "--constraints"])
def test_a_file_beside_the_input_is_named_before_its_lines_are_counted(
    run: Path, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write(tmp_path / "in", ["a b", "c d"])
    for encoding in ("utf-16", "utf-16-le", "utf-32-be"):
        path = write(tmp_path / "beside", ['{"prefix": "w"}', '{"prefix": "x"}'], encoding=encoding, mark=False)
        assert translate.main([str(run), "-i", str(text), option, str(path)]) == 1
        assert f"{path}, line 1: not UTF-8" in (error := capsys.readouterr().err)
        assert f"iconv -f {encoding[:6].upper()}" in error


def test_a_configuration_in_another_encoding_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for encoding, called, line in (("utf-16", "UTF-16", 1), ("latin-1", "WINDOWS-1252", 2)):
        path = write(tmp_path / "c.yaml", ["seed: 1", "run_dir: Übung"], encoding=encoding, mark=False)
        with pytest.raises(ConfigError, match=f"c.yaml, line {line}: not UTF-8 .*iconv -f {called} "):
            load_config(path)
