"""nmt-shortlist, and the options that read what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import translate
from nmt.evaluating import command as evaluate
from nmt.interop.model_dir import load_model
from nmt.search.shortlist import load_shortlist
from nmt.shortlisting import command as shortlist
from tests.tiny_run import make_run
from tests.tiny_training import nmt_train, write_config, write_corpus

PAIRS = [("a b", "x y"), ("a c", "x z"), ("b d", "y u"), ("a", "x"), ("c", "z")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for language, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / f"text.{language}").write_text("".join(f"{line}\n" for line in lines))
    return make_run(tmp_path / "run")


def written(run: Path, *options: str) -> Path:
    path = run.parent / "list"
    assert shortlist.main([str(run), "-o", str(path), "--train", str(run.parent / "text"), *options]) == 0
    return path


def test_each_source_token_has_its_partners(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(run, "--best", "1", "--frequent", "2")
    assert "5 sentence pairs; 2 tokens for every sentence and 1.0 for each source token" in capsys.readouterr().err
    tokenizer = load_model(run).tokenizer
    found = load_shortlist(path, tokenizer)
    partners = {
        source: tokenizer.target_tokens(found.partners[found.starts[i] : found.starts[i + 1]].tolist())
        for source in "abcd"
        for i in tokenizer.encode_source([source])[0]
    }
    assert partners == {"a": ["x"], "b": ["y"], "c": ["z"], "d": ["u"]}
    assert found.frequent.tolist() == [2, *tokenizer.encode_target(["x"])[0]]


def test_translate_and_eval_choose_from_it(
    run: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "in.en").write_text("a b c\nd\n\nb\n")
    options = ["-i", str(tmp_path / "in.en"), "--batch-tokens", "1"]
    path = written(run, "--best", "1", "--frequent", "0")
    assert translate.main([str(run), *options]) == 0
    before = capfdbinary.readouterr().out
    assert translate.main([str(run), *options, "--shortlist", str(path)]) == 0
    chosen = capfdbinary.readouterr().out
    for line, allowed in zip(chosen.decode().split("\n"), ("xyz", "u", "", "y", ""), strict=True):
        assert set(line.split()) - {"<unk>", "⁇"} <= set(allowed)
    assert chosen != before
    assert translate.main([str(run), *options, "--shortlist", "none"]) == 0
    assert capfdbinary.readouterr().out == before
    evaluated = [str(run), "--source", str(tmp_path / "in.en"), "--ref", str(tmp_path / "in.en")]
    output = tmp_path / "out"
    assert evaluate.main([*evaluated, "-o", str(output), "--shortlist", str(path)]) == 0
    assert output.read_bytes() == chosen
    assert evaluate.main(["--hyp", "x", "--ref", "y", "--shortlist", str(path)]) == 2


def test_mistakes_are_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "list")
    assert shortlist.main([str(run), "-o", output]) == 1
    assert "data.train: neither corpus.en nor corpus.en.gz exists" in capsys.readouterr().err
    assert shortlist.main([str(run), "-o", output, "--best", "0"]) == 2
    assert not Path(output).exists()
    assert translate.main([str(run), "--shortlist", output]) == 1
    assert f"{output}: not a readable shortlist" in capsys.readouterr().err


def test_the_text_of_the_run_is_the_default_and_training_reads_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path, train=30, dev=4)
    config = write_config(tmp_path, training={"max_steps": 1})
    assert nmt_train(config) == 0
    path = tmp_path / "list"
    assert shortlist.main([str(tmp_path / "run"), "-o", str(path)]) == 0
    assert "30 sentence pairs" in capsys.readouterr().err
    assert nmt_train(config, "--set", f"decoding.shortlist={path}", "--set", "training.max_steps=2") == 0
    capsys.readouterr()
    assert nmt_train(config, "--set", "decoding.shortlist=missing", "--set", "training.max_steps=3") == 1
    assert "decoding.shortlist: missing: no such file" in capsys.readouterr().err


def test_a_dry_run_needs_the_shortlist_and_sees_whether_it_fits(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = written(run)
    (tmp_path / "new").mkdir()
    write_corpus(tmp_path / "new", train=30, dev=4)
    config = write_config(tmp_path / "new", decoding={"shortlist": "gone"})
    assert nmt_train(config, "--dry-run") == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("decoding.shortlist: gone: no such file")
    assert nmt_train(config, "--dry-run", "--set", "data.train=nowhere") == 1
    said = capsys.readouterr()
    assert "decoding.shortlist: gone" in said.err and "nowhere" not in said.err and said.out == ""
    (tmp_path / "damaged").write_bytes(b"?")
    for path, wrong in (tmp_path / "damaged", "not a readable shortlist"), (foreign, "made with another tokenizer"):
        assert nmt_train(config, "--dry-run", "--set", f"decoding.shortlist={path}") == 1
        assert f"{path}: " in (error := capsys.readouterr().err.splitlines()[-1]) and wrong in error
