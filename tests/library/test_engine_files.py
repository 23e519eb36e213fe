"""`nmt.load` with files for the engine: the results of the run, what is refused, threads, processes that fork."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmt
from nmt.exporting import command as export
from nmt.kept_text.lines import find_placeholders
from nmt.library.values import Options
from nmt.light import binding
from nmt.light import lines as pace
from nmt.light.options import options_of
from nmt.scoring import command as score
from tests.conftest import HANGS
from tests.exported_run import LINES, Exported, make_exported
from tests.light.odd_placeholders import odd_lines

DETAILS = ("tokens", "scores", "entropies", "attention", "alignment")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return make_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def by_run(exported: Exported) -> Iterator[nmt.Translator]:
    with nmt.load(exported.run, device="cpu", precision="fp32") as translator:
        yield translator


@pytest.fixture(scope="module")
def by_file(exported: Exported) -> Iterator[nmt.Translator]:
    with nmt.load(exported.file) as translator:
        yield translator


def check_equal(found: nmt.Result, wanted: nmt.Result) -> None:
    """Equal in all but the rounding of scores and attention."""
    for field in dataclasses.fields(nmt.Result):
        if field.name != "n_best":
            assert getattr(found, field.name) == getattr(wanted, field.name), field.name
    for own, other in zip(found.n_best, wanted.n_best, strict=True):
        assert (own.text, own.tokens, own.alignment) == (other.text, other.tokens, other.alignment)
        assert own.score == pytest.approx(other.score, abs=1e-3, nan_ok=True)
        assert own.token_entropies == (
            None if other.token_entropies is None else pytest.approx(other.token_entropies, abs=1e-3)
        )
        assert own.token_scores == (None if other.token_scores is None else pytest.approx(other.token_scores, abs=1e-3))
        assert type(own.attention) is type(other.attention)
        if own.attention is not None:
            assert own.attention.dtype == np.float32 and own.attention.shape == other.attention.shape
            np.testing.assert_allclose(own.attention, other.attention, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1},
        {"search": "beam", "beam_size": 1, "length_penalty": 0.0},
        {"beam_size": 4, "n_best": 3, "details": DETAILS, "length_penalty": 2.0},
        {"search": "greedy", "beam_size": 1, "details": "alignment"},
        {"search": "greedy"},
        {"split_long": 6, "details": DETAILS, "max_length_offset": 1},
        {"split_long": 4, "beam_size": 4, "n_best": 4, "details": DETAILS},
        {"split_long": "none", "batch_tokens": 50},
        {"scores": False, "beam_size": 1, "shortlist": "none", "details": []},
        {"n_best": 5},
        {"repeat_penalty": 1.7, "beam_size": 1, "details": DETAILS},
        {"repeat_penalty": 3, "beam_size": 4, "n_best": 3, "details": DETAILS, "max_length_offset": 12},
        {"repeat_penalty": 0.5, "beam_size": 3, "split_long": 6},
        {"min_length": 0, "coverage_penalty": 0.0, "placeholders": False, "search_options": {}},
        {"min_length": 4, "no_repeat_ngram": 2, "n_best": 3, "details": DETAILS},
        {"no_repeat_ngram": 1, "beam_size": 1},
        {"coverage_penalty": 0.4, "n_best": 3, "details": DETAILS},
        {"coverage_penalty": 3, "max_length_offset": 0, "split_long": 4, "length_penalty": 0.0},
        {"search": "sample", "details": DETAILS[:-1]},
        {"search": "sample", "n_best": 7, "search_options": {"seed": -3, "temperature": 0.4}, "split_long": 4},
        {"search": "sample", "n_best": 3, "search_options": {"top_k": 5}, "min_length": 2, "max_length_offset": 9},
        {"search": "sample", "n_best": 4, "search_options": {"top_p": 0.3, "top_k": 20}, "no_repeat_ngram": 1},
        {
            "search": "sample",
            "n_best": 2,
            "repeat_penalty": 1.7,
            "details": DETAILS[:-1],
            "scores": False,
            "beam_size": 1,
        },
    ],
    ids=str,
)
def test_results_are_those_of_the_run(by_run: nmt.Translator, by_file: nmt.Translator, options: dict[str, Any]) -> None:
    for found, wanted in zip(by_file.translate(LINES, **options), by_run.translate(LINES, **options), strict=True):
        check_equal(found, wanted)
    check_equal(by_file.translate(LINES[0], **options), by_run.translate(LINES[0], **options))


def wished(texts: list[str]) -> list[nmt.Request]:
    """Lines with beginnings of `texts`, which end within and behind words, or with words that must not be there."""
    found = []
    for place, (line, text) in enumerate(zip(LINES * 6, texts * 6, strict=True)):
        words = text.split() or ["b"]
        last = words[0][::-1]
        beginnings = ["", text[: 2 * len(text) // 3], f"{words[0]} ", "x" + words[0][:1], f"\u3000{last}\u00a0", text]
        kept, excluded = beginnings[place // len(LINES)], [words[place % len(words)], "B\u00e4 b"]
        found.append(nmt.Request(line, prefix=kept, forbidden=excluded if excluded[0] not in kept else ["zz"]))
    return found


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1, "details": DETAILS}, {"n_best": 3}, {"scores": False}], ids=str
)
def test_prefixes_and_forbidden_phrases_are_kept_to_as_by_the_run(
    by_run: nmt.Translator, by_file: nmt.Translator, options: Any
) -> None:
    requests = wished([one.text for one in by_run.translate(LINES, max_length_offset=2)])
    for own in ({}, {"no_repeat_ngram": 3, "min_length": 2, "max_length_offset": 3}):
        wanted = by_run.translate(requests, **options, **own)
        for found, other in zip(by_file.translate(requests, **options, **own), wanted, strict=True):
            check_equal(found, other)
    assert sum(one.text.startswith(asked.prefix.strip()) for one, asked in zip(wanted, requests, strict=True)) > 30


def test_forbidden_words_of_a_single_token_are_not_there() -> None:
    """At the beginning, and behind a space, which belongs to their token."""
    lines = ["The dog runs in the house.", "My father is at work today."]
    with nmt.load("en-de") as translator:
        requests = [
            nmt.Request(line, forbidden=[word.strip(".,")])
            for line, plain in zip(lines, translator.translate(lines), strict=True)
            for word in plain.text.split()
        ]
        found = translator.translate(requests)
    assert len(found) > 8
    for one, asked in zip(found, requests, strict=True):
        assert one.text and asked.forbidden[0] not in re.findall(r"\w+", one.text)


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1}, {"n_best": 2, "details": DETAILS}, {"split_long": 4}], ids=str
)
def test_placeholders_and_terms_are_where_the_run_puts_them(
    by_run: nmt.Translator, by_file: nmt.Translator, options: Any, tmp_path: Path
) -> None:
    (tmp_path / "terms.tsv").write_text("longaer\tL\u00e4nger\nsentence of\tSatz von\n", encoding="utf-8")
    marked = [
        *LINES,
        "<b>a {name}</b> longaer sentence",
        "b %s of &amp; www.x.org/y",
        "{x}",
        "<i>sentence</i> of ax. {x}",
    ]
    requests = [nmt.Request(line, forbidden=["b"] if place % 2 else []) for place, line in enumerate(marked)]
    for own in (
        {"placeholders": True},
        {"glossary": tmp_path / "terms.tsv"},
        {"glossary": {"longaer": "L\u00e4nger", "sentence of": "Satz von"}},
        {"placeholders": True, "split": "sentences", "glossary": {"longaer": "L\u00e4nger", "of": "von"}},
    ):
        wanted = by_run.translate(requests, **options, **own)
        found = by_file.translate(requests, **options, **own)
        for one, other in zip(found, wanted, strict=True):
            check_equal(one, other)
        assert [len(part) for part in by_file.parts(marked, **own)] == [
            len(part) for part in by_run.parts(marked, **own)
        ]
    ended = "A sentence of {x}. Of {y}! {x} a longaer sentence"
    for translator in (by_run, by_file):
        assert len(translator.parts([ended], placeholders=True, split="sentences")[0]) == 3
    assert "{name}" in found[len(LINES)].text and "<b>" in found[len(LINES)].text
    with pytest.raises(nmt.DataError, match="missing.tsv"):
        by_file.translate("a", glossary="missing.tsv")
    with pytest.raises(nmt.DataError, match="^'a {x}': prefix: not allowed together with '{x}'"):
        by_file.translate(nmt.Request("a {x}", prefix="b"), placeholders=True)


def test_odd_lines_keep_their_placeholders_as_by_the_run(by_run: nmt.Translator, by_file: nmt.Translator) -> None:
    lines = odd_lines(30, seed=1, atoms=False) + odd_lines(30, seed=2)
    options: Options = {"placeholders": True, "details": ["alignment"], "split": "sentences"}
    same = 0
    for one, other in zip(by_file.translate(lines, **options), by_run.translate(lines, **options), strict=True):
        assert (one.text, one.unknown, one.source_tokens) == (other.text, other.unknown, other.source_tokens)
        if find_placeholders(one.source.replace("\r", " ")):
            assert one.alignment == other.alignment, one.source
            same += bool(one.alignment)
    assert same > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 12, "max_length_offset": 12},
        {"no_repeat_ngram": 2},
        {"coverage_penalty": 0.4},
        {"prefix": True},
        {"forbidden": True},
        {"prefix": True, "beam_size": 1},
        {"search": "sample", "n_best": 2, "search_options": {"seed": 5}},
        {"search": "sample", "search_options": {"temperature": 0.7, "top_k": 40, "top_p": 0.9}, "prefix": True},
        {"details": ("entropies",), "max_length_offset": 20},
        {"placeholders": True},
        {"glossary": "terms.tsv"},
        {"score": True},
    ],
    ids=str,
)
def test_a_thousand_lines_are_those_of_the_run(
    by_run: nmt.Translator, by_file: nmt.Translator, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal but for a few lines where two hypotheses are as good up to rounding."""
    monkeypatch.chdir(tmp_path)
    Path("terms.tsv").write_text("longaer\tL\u00e4nger\nof b\tvon B\n", encoding="utf-8")
    draw = random.Random(7)
    words = [
        "a",
        "b",
        "c",
        "longaer",
        "longber",
        "sentence",
        "of",
        "ax",
        "by",
        "dz.",
        "{name}",
        "<i>",
        "</i>",
        "%s",
        "of b",
    ]
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 8))) for _ in range(1000)]
    large: Options = {"batch_tokens": 8192}
    plain = [one.text for one in by_run.translate(lines, **large)]
    if "score" in options:
        found, wanted = by_file.score(lines, plain), by_run.score(lines, plain)
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-3)
        return
    requests: list[nmt.Request] = []
    for line, text, other in zip(lines, plain, plain[1:] + plain[:1], strict=True):
        beginning = text[: draw.randint(1, 5)] + draw.choice(["", " "]) if options.get("prefix") else ""
        excluded = [(text.split() or ["b"])[0], other[:2] or "b"] if options.get("forbidden") else []
        requests.append(nmt.Request(line, prefix=beginning, forbidden=[one for one in excluded if one.strip()]))
    own = {name: value for name, value in options.items() if name not in ("prefix", "forbidden")} | large
    results, expected = by_file.translate(requests, **own), by_run.translate(requests, **own)
    same = [one.text == other.text for one, other in zip(results, expected, strict=True)]
    scores = [(one.score, other.score) for one, other in zip(results, expected, strict=True)]
    assert all(
        found == pytest.approx(wanted, abs=1e-3) for kept, (found, wanted) in zip(same, scores, strict=True) if kept
    )
    for kept, one, other in zip(same, results, expected, strict=True):
        assert not kept or one.token_entropies == (
            None if other.token_entropies is None else pytest.approx(other.token_entropies, abs=1e-3)
        )
    assert sum(same) >= 998 and [one.text for one in expected] != plain


def test_what_no_translation_can_keep_to_is_an_error_of_its_line(by_file: nmt.Translator) -> None:
    for request, problem in (
        (nmt.Request("a", prefix="the dog runs", forbidden=["Dog"]), "'a': forbidden: 'dog' is in the prefix"),
        (nmt.Request("a", forbidden=["x", " "]), "'a': forbidden: a phrase is empty"),
    ):
        with pytest.raises(nmt.DataError, match=f"^{problem}$"):
            by_file.translate([*LINES, request])


def test_streams_line_ends_and_what_is_no_text(by_run: nmt.Translator, by_file: nmt.Translator) -> None:
    found = list(by_file.stream(iter(LINES * 9), window=5))
    assert [one.text for one in found] == [one.text for one in by_run.translate(LINES)] * 9
    result = by_file.translate("a\nlongaer\r\nsentence")
    assert result.source == "a\nlongaer\r\nsentence" and result.text == by_file.translate("a longaer sentence").text
    with pytest.raises(nmt.DataError, match="half of a surrogate pair"):
        by_file.translate("\ud800")
    with pytest.raises(TypeError, match="must be a string"):
        by_file.translate(b"a")  # type: ignore[call-overload]


def test_what_is_known_of_it(exported: Exported, by_run: nmt.Translator, by_file: nmt.Translator) -> None:
    assert (by_file.source_language, by_file.target_language) == (by_run.source_language, by_run.target_language)
    assert (by_file.device, by_file.precision, by_file.models) == ("cpu", "fp32", [Path(exported.file)])
    assert repr(by_file) == f"<nmt.Translator {exported.file}, en-de, cpu, fp32, by the engine in this process>"
    assert by_file.joined(["a b"]) == by_run.joined(["a b"])
    with pytest.raises(
        nmt.ConfigError, match="config: .*run.nmt is one file for the engine, which has no configuration"
    ):
        _ = by_file.config


def test_lines_longer_than_any_in_training_are_noted(by_run: nmt.Translator, by_file: nmt.Translator) -> None:
    long = " ".join(["sentence"] * (by_run.config.data.max_length + 1))
    assert by_file.translate(long).notes == by_run.translate(long).notes
    assert "longer_than_training" in by_file.translate(long).notes


def test_a_line_is_noted_only_if_it_is_longer_than_the_longest_in_training(
    exported: Exported, by_file: nmt.Translator, tmp_path: Path
) -> None:
    run, file, tokens = tmp_path / "run", tmp_path / "run.nmt", by_file.translate(LINES[0]).source_tokens
    shutil.copytree(exported.run, run)
    for longest in (tokens - 1, tokens):
        (run / "facts.json").write_text(f'{{"longest_source": {longest}}}')
        assert export.main([str(run), "-o", str(file), "--precision", "fp32", "--overwrite"]) == 0
        with nmt.load(file) as files, nmt.load(run, device="cpu") as runs:
            for translator in (files, runs):
                assert ("longer_than_training" in translator.translate(LINES[0]).notes) == (longest < tokens)


NOT_THERE = {
    "search": "mbr",
    "ensemble_weights": [1.0],
    "ensemble_mean": "log_probabilities",
    "required": "x",
    "shortlist": "words.txt",
    "language_model": "lm",
    "language_model_weight": 0.2,
}


def test_every_option_works_or_is_refused_by_name(by_file: nmt.Translator) -> None:
    tried = {option.name for option in options_of("file")}
    assert set(Options.__annotations__) == {*NOT_THERE, *tried} and "search" in tried
    for name, value in NOT_THERE.items():
        with pytest.raises(nmt.ConfigError) as caught:
            by_file.translate(LINES, **{name: value})  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{name}: ") and "\n" not in str(caught.value)
        assert "one file for the engine" in str(caught.value) and "run.nmt" in str(caught.value)
        assert "nmt-export" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_sise": 3}, "beam_sise: is not an option. Did you mean 'beam_size'?"),
        ({"beam_size": 0}, "beam_size: 0 is not allowed. Allowed: 1 to 1,000."),
        ({"beam_size": 2000}, "beam_size: 2000 is not allowed."),
        ({"n_best": 2000}, "n_best: 2000 is not allowed."),
        ({"length_penalty": float("nan")}, "length_penalty: nan is not allowed. Allowed: 0 to 10."),
        ({"max_length_offset": "x"}, "max_length_offset: 'x' is not allowed."),
        ({"split_long": 0}, "split_long: 0 is not allowed."),
        ({"batch_tokens": 0}, "batch_tokens: 0 is not allowed. Allowed: auto, or a number from 1."),
        ({"details": 3}, "details: 3 is not a list of words."),
        ({"details": ["token"]}, "details: 'token' is not known."),
        ({"search": "greedy", "beam_size": 2}, "search: 'greedy' follows one hypothesis: beam_size must be 1, not 2"),
        (
            {"coverage_penalty": 1, "beam_size": 1},
            "coverage_penalty: greedy search has none. Allowed: with beam search.",
        ),
        ({"min_length": 9}, "min_length must be 0 to 4, which a source of one word may have"),
        ({"search": "greedy", "n_best": 2}, "n_best 2: search 'greedy' finds at most 1 per sentence"),
        (
            {"search": "sample", "search_options": {"top_p": 2}},
            "search_options: top_p: 2 is not allowed. Allowed: 0.0001 to",
        ),
        (
            {"search": "sample", "search_options": {"to_k": 2}},
            "search_options: to_k: 2 is not an option. Allowed: temper",
        ),
        ({"search_options": {"seed": 2}}, "search_options: seed: only the search 'sample' has it"),
        ({"search_options": {"temperature": 2}}, "search_options: temperature: only the search 'sample' has it"),
        ({"search": "sample", "coverage_penalty": 1}, "coverage_penalty: 'sample' search has none. Allowed: with beam"),
        ({"precision": "int8"}, "precision: "),
        ({"threads": 2}, "threads: is not an option."),
    ],
)
def test_options_that_cannot_be_had(by_file: nmt.Translator, options: dict[str, Any], message: str) -> None:
    for call in (by_file.translate, by_file.stream):
        with pytest.raises(nmt.ConfigError) as caught:
            call([], **options)
        assert str(caught.value).startswith(message)


def test_a_wider_beam_for_n_best_is_logged_once(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    with nmt.load(exported.file) as translator:
        for _ in range(2):
            assert len(translator.translate("a longaer sentence", n_best=7).n_best) == 7
    assert [record.message for record in caplog.records] == ["n_best 7 widens the beam from 3 to 7"]


def test_looking_inside_is_refused(by_file: nmt.Translator) -> None:
    for detail in ("heads",):
        with pytest.raises(
            nmt.ConfigError, match=f"details: {detail}: .*run.nmt is one file for the engine, which does"
        ):
            by_file.translate("a", details=["tokens", detail])  # type: ignore[list-item]
    with pytest.raises(
        nmt.ConfigError, match=r"inspect: .*run.nmt is one file for the engine.*; use the run, or a folder"
    ):
        by_file.inspect("a")


def test_given_translations_are_scored_as_by_the_run(
    exported: Exported, by_run: nmt.Translator, by_file: nmt.Translator, tmp_path: Path, capsys: Any
) -> None:
    sources, targets = LINES * 2, [*LINES[1:], "a b c d", *LINES]
    found, wanted = by_file.score(sources, targets), by_run.score(sources, targets)
    assert [dataclasses.replace(one, score=0.0) for one in found] == [
        dataclasses.replace(one, score=0.0) for one in wanted
    ]
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-4)
    assert by_file.score("a", "") == by_file.score(["a"], [""])[0]
    for name, lines in (("source", sources), ("target", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    texts = [f"--source={tmp_path / 'source'}", f"--target={tmp_path / 'target'}"]
    assert score.main([exported.file, *texts]) == 0
    own = capsys.readouterr()
    assert [float(line) for line in own.out.split()] == pytest.approx([one.mean_nll for one in found], abs=1e-5)
    assert score.main([exported.run, *texts, "--device", "cpu"]) == 0
    assert own.err.partition("nats")[2] == capsys.readouterr().err.partition("nats")[2]


def test_an_ensemble_is_that_of_the_runs(exported: Exported, tmp_path: Path) -> None:
    other = tmp_path / "other.nmt"
    assert export.main([exported.run, "--checkpoint", "20", "-o", str(other), "--precision", "fp32"]) == 0
    folders = [Path(exported.run) / "checkpoints" / name for name in ("step-10", "step-20")]
    with (
        nmt.load([exported.file, other]) as files,
        nmt.load(folders, device="cpu", precision="fp32") as runs,
    ):
        assert files.models == [Path(exported.file), other] and "ensemble of 2 models" in repr(files)
        results = files.translate(LINES, details=DETAILS)
        for found, wanted in zip(results, runs.translate(LINES, details=DETAILS), strict=True):
            check_equal(found, wanted)
        penalty: Options = {"repeat_penalty": 2.0, "details": DETAILS}
        for found, wanted in zip(files.translate(LINES, **penalty), runs.translate(LINES, **penalty), strict=True):
            check_equal(found, wanted)
    assert [one.text for one in results] != [one.text for one in nmt.load(exported.file).translate(LINES)]


def test_files_of_an_ensemble_are_opened_once(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, opened = str(tmp_path / "other.nmt"), list[Any]()
    assert export.main([exported.run, "-o", other, "--precision", "int8"]) == 0
    first_open = binding.Library.open

    def noted(library: binding.Library, files: Any, **options: Any) -> binding.Model:
        opened.append(files)
        return first_open(library, files, **options)

    monkeypatch.setattr(binding.Library, "open", noted)
    with nmt.load([exported.file, other]) as translator:
        assert translator.precision == "fp32+int8"
    assert opened == [[exported.file, other]]
    for precision, wrong, own in (("fp32", other, "int8"), ("int8", exported.file, "fp32")):
        with pytest.raises(nmt.ConfigError, match=f"precision: {precision} was asked for, but {wrong} is in {own}"):
            nmt.load([exported.file, other], precision=precision)


def test_arguments_that_a_file_does_not_take(exported: Exported, tmp_path: Path) -> None:
    file, damaged, later = exported.file, tmp_path / "damaged.nmt", tmp_path / "content"
    content = Path(file).read_bytes()
    damaged.write_bytes(content[:-1])
    later.write_bytes(content[:8] + b"\x09" + content[9:])
    is_file = "is one file for the engine"
    for arguments, kind, message in (
        ({"device": "cuda"}, nmt.ConfigError, f"device: 'cuda': {file} {is_file}. Allowed: auto, cpu."),
        ({"precision": "int8"}, nmt.ConfigError, f"precision: int8 was asked for, but {file} is in fp32."),
        ({"checkpoint": "last"}, nmt.ConfigError, f"{file}: is a single model; a checkpoint ('last')"),
        ({"plugins": ["x.py"]}, nmt.ConfigError, f"plugins: {file} {is_file}"),
        ({"path": [file, exported.run]}, nmt.ConfigError, f"{file}: {is_file}, but {exported.run} is not"),
        ({"path": "missing.nmt"}, nmt.CheckpointError, "missing.nmt: No such file"),
        ({"path": damaged}, nmt.CheckpointError, f"{damaged}: "),
        ({"path": [file, damaged]}, nmt.CheckpointError, f"{damaged}: "),
        ({"path": later}, nmt.CheckpointError, f"{later}: "),
    ):
        with pytest.raises(kind) as caught:
            nmt.load(**{"path": file, **arguments})  # type: ignore[arg-type]
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    for arguments in ({"device": "cpu"}, {"precision": "fp32"}, {"worker": True}):
        nmt.load(file, **arguments).close()  # type: ignore[arg-type]
    shutil.copyfile(file, tmp_path / "named_otherwise")
    assert nmt.load(tmp_path / "named_otherwise").precision == "fp32"


def test_what_needs_a_run_says_so(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(nmt.ConfigError, match="config: .* is one file for the engine"):
        nmt.distill(exported.file, tmp_path / "out", source=[__file__])
    evaluation = nmt.evaluate(model=exported.file, source=LINES, references=LINES, metrics=["chrf"], beam_size=2)
    assert evaluation.translations is not None and len(evaluation.translations) == len(LINES)


def test_any_number_of_threads_use_one_translator(by_file: nmt.Translator) -> None:
    wanted = {beam: [one.text for one in by_file.translate(LINES, beam_size=beam)] for beam in (1, 2, 5)}
    beams = [1, 2, 5] * 20
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda beam: [one.text for one in by_file.translate(LINES, beam_size=beam)], beams)
        assert list(found) == [wanted[beam] for beam in beams]


def test_lines_do_not_depend_on_how_many_are_translated_at_once(
    by_file: nmt.Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [one.text for one in by_file.translate(LINES)]
    for seconds in ((0.0, 0.0), (9.0, 9.0)):  # every call is too long, or too short
        monkeypatch.setattr(pace, "SHORT", seconds[0])
        monkeypatch.setattr(pace, "LONG", seconds[1])
        assert [one.text for one in by_file.translate(LINES * 12)] == wanted * 12


def test_closing_waits_for_calls_of_other_threads(exported: Exported) -> None:
    translator = nmt.load(exported.file)
    begun, outcomes = threading.Event(), list[str]()

    def work() -> None:
        while True:
            try:
                translator.translate(LINES * 3)
            except nmt.NmtError as error:
                outcomes.append(str(error))
                return
            begun.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(HANGS)
    translator.close()
    translator.close()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["this translator is closed"] * 4


def by_itself(program: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_nothing_heavy_is_imported(exported: Exported) -> None:
    program = (
        "import sys, nmt; translator = nmt.load(sys.argv[1]); result = translator.translate('a longaer'); "
        "result = translator.translate(['a', 'b'], n_best=3, details=['tokens', 'scores', 'alignment']); "
        "print([name for name in ('torch', 'numpy', 'pydantic', 'yaml', 'sentencepiece') if name in sys.modules])"
    )
    assert by_itself(program, exported.file) == "[]\n"


def test_a_process_that_forks_says_so_and_does_not_hang(exported: Exported) -> None:
    program = """
import os, sys, threading, nmt
translator = nmt.load(sys.argv[1])
threads = [threading.Thread(target=lambda: translator.translate(["a longaer sentence of ax"] * 3000)) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        try:
            translator.translate("a")
        except nmt.NmtError as error:
            translator.close()
            own = nmt.load(sys.argv[1])
            os._exit(0 if "call nmt.load after forking" in str(error) and own.translate(["a", "b"])[0].text else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
print("done")
"""
    assert by_itself(program, exported.file) == "done\n"


def test_another_thread_ends_a_search(by_file: nmt.Translator) -> None:
    stop, text = nmt.Stop(), [" ".join(LINES)] * 100_000
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with pytest.raises(nmt.StoppedError):
        by_file.translate(text, stop=stop, beam_size=50)
    timer.join()
    assert by_file.translate("a b", stop=nmt.Stop()).text == by_file.translate("a b").text
    with pytest.raises(nmt.StoppedError):  # which has been set before
        by_file.translate("a b", stop=stop)


def test_parts_are_those_of_the_run(by_run: nmt.Translator, by_file: nmt.Translator) -> None:
    lines = [*LINES, "a b. c d. " * 3]
    for options in ({}, {"split": "sentences"}, {"split_long": 3}):
        assert by_file.parts(lines, **options) == by_run.parts(lines, **options)  # type: ignore[arg-type]
    assert by_file.hypotheses(n_best=9) == 9 and by_file.hypotheses(search="greedy") == 1
