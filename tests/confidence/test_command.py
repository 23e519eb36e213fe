"""nmt-confidence, and what it has stored in the answers of commands, the library and the server."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

import nmt
from nmt.cli.across_processes import _packed, _unpacked
from nmt.confidence.rating import FEATURES, Rater, place_of
from nmt.errors import CheckpointError, ConfigError
from nmt.serving.app import create_app
from nmt.serving.limits import Settings
from nmt.serving.service import Service
from tests.console import call
from tests.exported_run import Exported, make_exported
from tests.tiny_training import nmt_train, write_config, write_corpus

SOURCES = [f"{a} long{b}er sentence of {a}{c}" for a, b, c in itertools.product("abcd", "xyzuv", "xyz")]
GREEK = "\u03b4\u03b5\u03bd \u03b5\u03af\u03bd\u03b1\u03b9 \u03b5\u03b4\u03ce \u03c3\u03ae\u03bc\u03b5\u03c1\u03b1"
LINES = ["a longxer sentence of ax", "", GREEK, "d longver sentence of b"]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A run and a file for the engine with estimates: translations whose tokens are probable have good references."""
    folder = tmp_path_factory.mktemp("confidence")
    made = make_exported(folder)
    with nmt.load(made.file) as translator:
        found = translator.translate(SOURCES, details=["scores"])
    means = [math.fsum(one.token_scores or ()) / len(one.token_scores or (1,)) for one in found]
    middle = sorted(means)[len(means) // 2]
    right = [
        one.text if mean > middle or place % 9 == 0 else "q"
        for place, (one, mean) in enumerate(zip(found, means, strict=True))
    ]
    texts = [write(folder / "source", SOURCES), write(folder / "ref", right)]
    fit = ["--source", texts[0], "--ref", texts[1], "--train", texts[0]]
    for model in (made.file, made.run):
        assert (
            call("nmt-confidence", model, *fit, "--test-source", texts[0], "--test-ref", texts[1], "--device", "cpu")
            == 0
        )
    return made


def stored(model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(place_of(Path(model)).read_text(encoding="utf-8"))
    return found


def test_what_it_stores_and_prints(exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert place_of(Path(exported.run)) == Path(exported.run) / "confidence.json"
    assert place_of(Path(exported.run) / "checkpoints/step-20") == Path(exported.run) / "confidence.json"
    assert place_of(Path(exported.file)) == Path(exported.file).with_name("run.confidence.json")
    for model in (exported.run, exported.file):
        record = stored(model)
        assert record["format"] == 1 and record["good"] == "chrF2 >= 60"
        assert [*record["weights"]] == ["intercept", *FEATURES]
        assert record["measured"]["test"]["auc"] > 0.8 and record["measured"]["dev"]["ece"] < 0.4
        assert record["measured"]["test"]["lines"] == len(SOURCES)
    source, ref = (str(Path(exported.run).parent / name) for name in ("source", "ref"))
    other = write(tmp_path / "greek", [GREEK] * 4)
    given = [exported.run, "--source", source, "--ref", ref, "--train", source, "--other", other, "--device", "cpu"]
    assert call("nmt-confidence", *given) == 0
    output = capsys.readouterr().out
    assert "dev (5 folds)     60" in output and "confidence  lines" in output
    (line,) = [line for line in output.splitlines() if line.startswith(other[-20:]) or " 4 " in line]
    assert line.split()[-3:] == ["4", "100.00", "1.0000"]


def by_hand(record: dict[str, Any], result: nmt.Result) -> float:
    scores, weights = result.token_scores or (), record["weights"]
    values = {
        "mean": sum(scores) / len(scores),
        "lowest": min(scores),
        "target_length": math.log(len(scores)),
        "source_length": math.log(result.source_tokens + 1),
        "unknown": result.unknown / result.source_tokens,
    }
    return 1 / (1 + math.exp(-weights["intercept"] - sum(weights[name] * values[name] for name in FEATURES)))


def test_the_library_gives_the_logistic_of_the_features(exported: Exported) -> None:
    for model in (exported.run, exported.file):
        with nmt.load(model, **({"device": "cpu"} if model == exported.run else {})) as translator:
            plain = translator.translate(LINES)
            assert [one.confidence for one in plain] == [None] * 4
            assert ["unlike_training" in one.notes for one in plain] == [False, False, True, False]
            rated = translator.translate(LINES, details="confidence")
            full = translator.translate(LINES, details=["scores", "confidence"])
        assert [one.token_scores for one in rated] == [None] * 4, "nothing that was not asked for"
        assert [one.text for one in rated] == [one.text for one in plain]
        assert rated[1].confidence is None
        for one, other in zip(rated, full, strict=True):
            if one.source:
                assert one.confidence == other.confidence == pytest.approx(by_hand(stored(model), other))
        assert full[2].confidence != full[0].confidence
        assert _unpacked(_packed(full[0])) == full[0]


def test_the_test_text_is_measured_by_what_is_stored(exported: Exported) -> None:
    """Not by fits to parts of it, as the development text is, which here is the same."""
    references = (Path(exported.run).parent / "ref").read_text(encoding="utf-8").splitlines()
    with nmt.load(exported.file) as translator:
        rated = translator.translate(SOURCES, details=["confidence"])
    good, bad = (
        [one.confidence or 0 for one, ref in zip(rated, references, strict=True) if (one.text == ref) is is_right]
        for is_right in (True, False)
    )
    above = sum((one > other) + (one == other) / 2 for one in good for other in bad)
    measured = stored(exported.file)["measured"]
    assert measured["test"]["auc"] == pytest.approx(above / len(good) / len(bad))
    assert measured["dev"]["auc"] != pytest.approx(measured["test"]["auc"])


def test_commands_and_the_server_give_what_the_library_gives(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write(tmp_path / "text", LINES)
    for model in (exported.run, exported.file):
        with nmt.load(model) as translator:
            wanted = translator.translate(LINES, details=["confidence"])
            given = [model, "-i", text, "--format", "jsonl", "--with", "confidence"]
            assert call("nmt-translate", *given) == 0
            output = capsys.readouterr()
            records = [json.loads(line) for line in output.out.splitlines()]
            assert "1 line unlike the training text, such as in another language: 3" in output.err
            answers = asked(translator, {"text": LINES, "details": ["confidence"]})
        for one, record, answer in zip(wanted, records, answers, strict=True):
            assert record.get("notes", []) == answer.get("notes", []) == [*one.notes]
            if one.confidence is None:
                assert "confidence" not in record and "confidence" not in answer
            else:
                assert record["confidence"] == pytest.approx(one.confidence, abs=2e-4)
                assert answer["confidence"] == pytest.approx(one.confidence, abs=2e-4)
            assert "token_scores" not in record["translations"][0]


def asked(translator: nmt.Translator, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of a server."""
    service = Service(Settings(), name="model")

    async def run() -> list[dict[str, Any]]:
        service.start(translator, {})
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            found = await asyncio.wait_for(client.post("/translate", json=body), 60)
        for model in service._models:
            model.batcher.close()
        assert found.status_code == 200, found.text
        answers: list[dict[str, Any]] = found.json()["translations"]
        return answers

    return asyncio.run(run())


def test_what_is_not_finite_has_no_confidence(exported: Exported) -> None:
    rater = Rater([Path(exported.run)])
    dead = nmt.Result("a b", [nmt.Hypothesis("", -math.inf, token_scores=())], source_tokens=3)
    cut = nmt.Result("a b", [nmt.Hypothesis("x", -9.0, token_scores=(-1.0, -math.inf))], source_tokens=3)
    odd = nmt.Result("a b", [nmt.Hypothesis("x", math.nan, token_scores=(math.nan,))], source_tokens=3)
    found = rater.rated([dead, cut, odd], ["confidence"])
    assert [one.confidence for one in found] == [0.0, 0.0, None]


def test_what_cannot_be_is_one_line(exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(tmp_path / "text", LINES)
    run = tmp_path / "run"
    shutil.copytree(exported.run, run)
    place = run / "confidence.json"
    with_it = ["-i", text, "--format", "jsonl", "--with", "confidence", "--device", "cpu", "-q"]

    def failed(*models: str | Path) -> tuple[int, str]:
        code = call("nmt-translate", *map(str, models), *with_it)
        (line,) = capsys.readouterr().err.strip().splitlines()
        return code, line

    assert failed(run, exported.run) == (
        2, "nmt-translate: confidence: is fitted for one model, not for an ensemble of 2"
    )  # fmt: skip
    code, line = failed(run / "checkpoints/step-20")
    assert code == 2 and line.endswith(f"confidence: {place} is for other weights; nmt-confidence fits it anew")
    record = json.loads(place.read_text())
    for damaged in ("{", json.dumps(record | {"format": 2}), json.dumps(record | {"weights": {"intercept": "1"}})):
        place.write_text(damaged)
        code, line = failed(run)
        assert code == 1 and f"{place}: cannot be used (" in line and "delete it, and nmt-confidence makes it" in line
    place.unlink()
    assert failed(run)[0] == 2 and call("nmt-translate", str(run), "-i", text, "--device", "cpu", "-q") == 0
    capsys.readouterr()
    with nmt.load(run, device="cpu") as translator, pytest.raises(ConfigError, match="confidence: .* no such file"):
        translator.translate("a", details=["confidence"])
    with pytest.raises(ConfigError, match="nmt-confidence makes it"):
        Rater([tmp_path / "x.nmt"]).needs(["confidence"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no text to fit to; give --source FILE and --ref FILE"),
        (["--source", "source"], 2, "--source: needs --ref FILE"),
        (["--source", "source", "--ref", "ref", "--test-ref", "ref"], 2, "--test-ref: needs --test-source FILE"),
        (["--source", "source", "--ref", "short"], 1, "has 60 lines but"),
        (["--source", "source", "--ref", "ref", "--train", "absent"], 1, "--train: "),
        (["--source", "source", "--ref", "ref", "--other", "absent"], 1, "no such file"),
        (["--source", "source", "--ref", "short", "--at-least", "0"], 2, "--at-least"),
        (["--source", "few", "--ref", "few"], 1, "0 of 3 translations have a chrF of 60 or more; at least 10"),
    ],
)
def test_arguments_that_cannot_be(
    exported: Exported,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    folder = Path(exported.run).parent
    names = {"source": str(folder / "source"), "ref": str(folder / "ref"), "absent": str(tmp_path / "absent")}
    names |= {"short": write(tmp_path / "short", ["x"]), "few": write(tmp_path / "few", SOURCES[:3])}
    try:
        found = call("nmt-confidence", exported.file, *(names.get(word, word) for word in arguments))
    except SystemExit as error:
        found = int(str(error.code))
    assert found == code
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_run_has_its_own_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fitted to data.dev, measured on data.test, with the letters of data.train; without that it says so."""
    write_corpus(tmp_path, dev=60)
    config = write_config(
        tmp_path, data={"test": str(tmp_path / "dev")}, training={"max_steps": 60, "validate_every": 60}
    )
    assert nmt_train(config) == 0
    capsys.readouterr()
    run = tmp_path / "run"
    assert call("nmt-confidence", str(run), "--at-least", "12", "--device", "cpu") == 0
    output = capsys.readouterr().out
    record = json.loads((run / "confidence.json").read_text())
    assert record["measured"]["dev"]["lines"] == record["measured"]["test"]["lines"] == 60
    assert record["letters"] is not None and "lines that are noted:" in output
    (tmp_path / "train.en").unlink()
    assert call("nmt-confidence", str(run), "--at-least", "12", "--device", "cpu") == 0
    assert "No line will be noted as unlike_training: no training text is known" in capsys.readouterr().out
    assert json.loads((run / "confidence.json").read_text())["letters"] is None
    with nmt.load(run, device="cpu") as translator:
        assert translator.translate(GREEK).notes in ((), ("longer_than_training",))
    text = write(tmp_path / "text", ["ba"])
    assert call("nmt-translate", str(run), "-i", text, "-o", str(run / "confidence.json"), "--device", "cpu") == 1
    assert "is a part of the model" in capsys.readouterr().err


def test_an_estimate_that_is_too_large_is_not_read(exported: Exported, tmp_path: Path) -> None:
    file = tmp_path / "run.nmt"
    shutil.copy(exported.file, file)
    with (tmp_path / "run.confidence.json").open("wb") as stream:
        stream.truncate(17 << 20)
    with nmt.load(file) as translator, pytest.raises(CheckpointError, match=r"more than 16,777,216 bytes"):
        translator.translate("a")
