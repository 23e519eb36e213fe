"""Runs with `data.context: state`: training, validation, and translation that carries states from line to line."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import nmt
from nmt.cli import translate
from nmt.data.vocabulary import EOS
from nmt.errors import ConfigError
from nmt.evaluating import command as evaluate
from nmt.exporting import command as export
from nmt.interop.model_dir import load_model
from nmt.interop.run_layout import read_facts
from nmt.models.base import DecodingState
from nmt.search.translator import translator_of
from nmt.search.values import FIRST_EOS_PENALTY
from nmt.serving import command as serve
from tests.distributed.launch import Ranks
from tests.distributed.work import train_run
from tests.tiny_training import WORDS, events, nmt_train, write_config

DOCUMENT = ["ba be", "du fa le", "", "ga", "ba be", "mi no nu", "du fa le", "", "", "du fa le"]


def write_documents(folder: Path, *, documents: int = 40) -> None:
    """train and dev, documents of one to six lines; a word of the target depends on the line before."""
    generator = random.Random(7)
    for name, count in (("train", documents), ("dev", 4)):
        lines: list[tuple[str, str]] = []
        for _ in range(count):
            before = "x"
            for _ in range(generator.randint(1, 6)):
                words = [generator.choice(WORDS) for _ in range(generator.randint(1, 5))]
                lines.append((" ".join(words), " ".join([before, *(word[::-1] for word in words)])))
                before = words[0][::-1]
            lines.append(("", ""))
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in lines), encoding="utf-8")


def config_of(folder: Path, **changes: dict[str, Any]) -> Path:
    sections = {
        "data": {"context": "state", "context_sentences": 3},
        "model": {"init_range": 0.9, "dropout": 0.0},
        **changes,
    }
    return write_config(folder, **sections)


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    assert nmt_train(config_of(folder)) == 0
    return folder / "run"


def begun(state: DecodingState, before: Any) -> DecodingState:
    """The first state of a sentence after another one; positions are counted anew."""
    if before is None:
        return state
    pairs = zip(state.states, before, strict=True)
    states = (
        own if "words" in own._fields else type(own)(*(own[place] + other[place] for place in range(len(own))))
        for own, other in pairs
    )
    return state._replace(states=tuple(states))


def by_hand(run: Path, lines: Sequence[str]) -> list[str]:
    """Greedy translations, word by word; a blank line begins a document."""
    loaded = load_model(run)
    model, found, before = loaded.model, list[str](), None
    for line in lines:
        if not line.strip():
            before = None
            found.append("")
            continue
        source = [*loaded.tokenizer.encode_source([line])[0], EOS]
        with torch.no_grad():
            state = begun(model.start(torch.tensor([source])), before)
            ids: list[int] = []
            while len(ids) < len(source) + 3:
                logits, state = model.step(torch.tensor(ids[-1:]) if ids else None, state)
                logits[:, 0] = float("-inf")
                logits[:, EOS] -= 0 if ids else FIRST_EOS_PENALTY
                ids.append(int(logits.argmax()))
                if ids[-1] == EOS:
                    break
            else:  # the limit has cut it, and its last word has not been read
                _, state = model.step(torch.tensor(ids[-1:]), state)
        before = state.states
        found.append(loaded.tokenizer.decode_target([token for token in ids if token != EOS]))
    return found


def fp32(run: Path) -> nmt.Translator:
    return nmt.load(run, device="cpu", precision="fp32")


def texts(results: Sequence[nmt.Result]) -> list[str]:
    return [one.text for one in results]


def test_each_line_begins_with_the_states_after_the_line_before(run: Path) -> None:
    wanted = by_hand(run, DOCUMENT)
    assert wanted[1] != wanted[9], "the model makes no use of its states"
    with fp32(run) as translator:
        assert texts(translator.translate(DOCUMENT, beam_size=1)) == wanted
        # Each call begins anew, whatever the last one ended with.
        assert texts(translator.translate(DOCUMENT[4:7], beam_size=1)) == by_hand(run, DOCUMENT[4:7])
        assert translator.translate(DOCUMENT[1], beam_size=1).text == wanted[9]
        # A document continues from window to window of a call, and a batch of one is like a larger one.
        for window in (1, 2, 3):
            assert texts(list(translator.stream(DOCUMENT, window=window, beam_size=1))) == wanted
        assert texts(translator.translate(DOCUMENT, beam_size=1, batch_tokens=1)) == wanted


def test_documents_do_not_depend_on_each_other(run: Path) -> None:
    documents = [["ba be", "du fa le", "ga"], ["mi no nu"], ["ga", "ga"], ["du fa le", "ba be", "mi", "no nu"]]
    with fp32(run) as translator:
        alone = [texts(translator.translate(document, beam_size=3)) for document in documents]
        for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
            lines = [line for number in order for line in [*documents[number], " "]]
            found = texts(translator.translate(lines, beam_size=3))
            assert found == [text for number in order for text in [*alone[number], ""]]


def test_wishes_and_details_come_with_the_states_of_the_line(run: Path) -> None:
    wanted = by_hand(run, DOCUMENT)
    with fp32(run) as translator:
        plain = translator.translate(DOCUMENT[:2], beam_size=1, length_penalty=0.0)
        found = translator.translate(DOCUMENT[:2], beam_size=1, details=["scores", "attention", "heads"])
        assert texts(found) == wanted[:2]
        for one, other in zip(found, plain, strict=True):  # the scores of the tokens are those of the search
            assert sum(one.best.token_scores or ()) == pytest.approx(other.best.score, rel=1e-4)
            ((whole,), (heads,)) = one.best.attention_of_parts or (), one.best.heads_of_parts or ()
            (own,) = heads.values()
            assert whole == pytest.approx(own.mean(0), abs=1e-5)
        # A document of one line has no part in the next one.
        alone, (_, _, after) = (
            translator.translate(lines, beam_size=1, details=["scores"])
            for lines in ([DOCUMENT[0]], ["ga", "", DOCUMENT[0]])
        )
        assert after.best.token_scores == pytest.approx(alone[0].best.token_scores, rel=1e-4)
        word = wanted[1].split()[0]
        wishes = [DOCUMENT[0], nmt.Request(DOCUMENT[1], forbidden=(word,)), DOCUMENT[1]]
        first, second, third = texts(translator.translate(wishes, beam_size=4))
        assert first == translator.translate(DOCUMENT[0], beam_size=4).text
        assert word not in second.split()
        # The line after it follows what it has become.
        again = [DOCUMENT[0], nmt.Request(DOCUMENT[1], prefix=second), DOCUMENT[1]]
        assert texts(translator.translate(again, beam_size=4))[0] == first


def test_sinusoids_begin_anew_with_each_sentence(tmp_path: Path) -> None:
    write_documents(tmp_path)
    path = config_of(tmp_path)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    options = {"positions": "sinusoidal", "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    values["model"] = {
        **{"architecture": "transformer", "cell": "ssru", "embedding_size": 8, "dropout": 0.0},
        "architecture_options": options,
    }
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert nmt_train(path) == 0
    with fp32(tmp_path / "run") as translator:
        lines = ["ba be bo bu", "du fa le", "ga", "ba be bo bu"]
        assert texts(translator.translate(lines, beam_size=1)) == by_hand(tmp_path / "run", lines)


def test_what_follows_a_line_without_a_finite_translation_begins_anew(run: Path) -> None:
    loaded = load_model(run)
    (word,) = loaded.tokenizer.encode_source(["mi"])[0]
    table = loaded.model.embeddings.source
    assert table is not None
    table.data[word] = float("nan")
    decoding = dataclasses.replace(loaded.config.decoding, precision="fp32")
    translator = translator_of(loaded.lines)(loaded.model, loaded.tokenizer, decoding, lines=loaded.lines)
    found = translator.translate_window(["ba be", "mi", "ga", "ba be"])
    assert [one.is_finite for one in found] == [True, False, True, True]
    alone = translator_of(loaded.lines)(loaded.model, loaded.tokenizer, decoding, lines=loaded.lines)
    assert [one.best for one in found[2:]] == [one.best for one in alone.translate_window(["ga", "ba be"])]


def test_sentences_of_a_line_follow_each_other(run: Path) -> None:
    with fp32(run) as translator:
        lines = translator.translate(["ba be ba be", "du fa"], beam_size=1, split="none", split_long=2)
        parts = translator.translate(["ba be", "ba be", "du fa"], beam_size=1, split="none")
    assert lines[0].text.split() == [word for one in parts[:2] for word in one.text.split()]
    assert lines[1].text == parts[2].text


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_number_formats_carry_states_too(run: Path, precision: Any) -> None:
    with nmt.load(run, device="cpu", precision=precision) as translator:
        whole = texts(translator.translate(DOCUMENT, beam_size=2))
        alone = [translator.translate(line, beam_size=2).text for line in DOCUMENT]
    assert whole[0] == alone[0]
    assert whole != alone


def test_commands_write_a_line_for_each_line(run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    wanted = by_hand(run, DOCUMENT)
    source, output = tmp_path / "in.en", tmp_path / "out.de"
    source.write_text("".join(f"{line}\n" for line in DOCUMENT), encoding="utf-8")
    arguments = [str(run), "-i", str(source), "-o", str(output), "--beam-size", "1", "--precision", "fp32"]
    for window in (2000, 3):
        monkeypatch.setattr("nmt.search.values.WINDOW", window)
        assert translate.main(arguments) == 0
        assert output.read_text(encoding="utf-8").split("\n") == [*wanted, ""]
    assert evaluate.main([str(run), "--source", str(source), "--ref", str(output), *arguments[5:]]) == 0
    assert "BLEU    100.00" in capsys.readouterr().out


def test_validation_and_training_are_of_documents(run: Path) -> None:
    """The loss of validation is that of windows, and its translations those of documents."""
    last = [event for event in events(run) if event["event"] == "validation"][-1]
    loaded = load_model(run)
    lines = [(run.parent / f"dev.{language}").read_text(encoding="utf-8").split("\n")[:-1] for language in ("en", "de")]
    total, count, before, first = 0.0, 0, None, 0
    for number, (source, target) in enumerate(zip(*lines, strict=True)):
        if not source:
            before, first = None, number + 1
            continue
        if (number - first) % 3 == 0:  # a new window
            before = None
        state = loaded.model.start(torch.tensor([[*loaded.tokenizer.encode_source([source])[0], EOS]]))
        state = begun(state, before)
        word = None
        for token in [*loaded.tokenizer.encode_target([target])[0], EOS]:
            logits, state = loaded.model.step(word, state)
            total -= float(logits.log_softmax(-1)[0, token].detach())
            word, count = torch.tensor([token]), count + 1
        before = state.states
    assert last["loss"] == pytest.approx(total / count, rel=1e-4)


def test_a_resumed_run_is_the_same_run(run: Path, tmp_path: Path) -> None:
    write_documents(tmp_path)
    config = config_of(tmp_path)
    assert nmt_train(config, "--set", "training.max_steps=6") == 0
    assert nmt_train(config) == 0
    assert events(tmp_path / "run", kinds=("validation",)) == events(run, kinds=("validation",))


def test_a_pair_that_is_left_out_ends_a_document(tmp_path: Path, capsys: Any) -> None:
    write_documents(tmp_path)
    sides = [["ba", "be", "bi", "", "bo", "bu", "da de di do du fa fe fi", "fo fo", ""] for _ in range(2)]
    sides[1][1] = " "
    for language, lines in zip(("en", "de"), sides, strict=True):
        (tmp_path / f"train.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = config_of(tmp_path, data={"context": "state", "context_sentences": 3, "max_length": 7, "dev": None})
    assert nmt_train(config, "--set", "training.max_steps=1", "--set", "training.validate_every=null") == 0
    said = capsys.readouterr().err
    assert "1 with an empty side skipped" in said and "train.de, line 2" in said and "line 4" not in said
    assert read_facts(tmp_path / "run").longest == 2  # no window
    # ba | bi | bo bu | fo
    assert "4 windows of 1.25 sentences on average, at most 3; 2 blank lines between documents" in said


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"model": {"architecture": "transformer", "architecture_options": {"decoder_mixing": "attention"}}},
            "data.context: 'state' needs a recurrent decoder",
        ),
        ({"training": {"wait": 3}, "model": {"encoder_direction": "forward"}}, "training.wait: not together"),
        ({"training": {"guided_alignment": "links"}}, "training.guided_alignment: not together"),
        ({"training": {"sample_every": 3}}, "training.sample_every: not together"),
        ({"data": {"context": "state", "augmentation": [{"typos": 0.5}]}}, "data.augmentation: not together"),
        ({"data": {"context": "states"}}, "data.context"),
    ],
)
def test_what_does_not_go_together_is_named(changes: dict[str, Any], named: str, tmp_path: Path, capsys: Any) -> None:
    write_documents(tmp_path)
    path = config_of(tmp_path, **changes)
    if "architecture" in changes.get("model", {}):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        values["model"] = {**changes["model"], "embedding_size": 8}
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert nmt_train(path) == 2
    assert named in capsys.readouterr().err


def test_other_doors_refuse_such_a_model(run: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    assert export.main([str(run), "-o", str(tmp_path / "x.nmt")]) == 2
    assert "data.context: 'state' is not known to this format" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="data.context: 'state' is for one model, not for an ensemble"):
        nmt.load([run, run], device="cpu").translate("ba")
    with fp32(run) as translator:
        with pytest.raises(ConfigError, match="data.context: 'state' has no place in a live session"):
            translator.live()
        with pytest.raises(ConfigError, match="data.context: 'state' has no place where sentences"):
            nmt.backtranslate(translator, run.parent / "dev.en", tmp_path / "made")
    assert serve.main([str(run), "--device", "cpu", "--port", "0", "--quiet"]) == 2
    assert "data.context: 'state' has no place where sentences are translated alone" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="WORLD_SIZE"), fp32(run) as translator:
        translator.translate("ba")


def test_onnx_graphs_have_no_states_of_documents(run: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("onnx")
    assert export.main([str(run), "-o", str(tmp_path / "graphs"), "--format", "onnx"]) == 2
    assert "data.context: 'state' is not known to this format" in capsys.readouterr().err
    assert not (tmp_path / "graphs").exists()


def test_several_processes_do_not_train_on_parts_of_documents(tmp_path: Path) -> None:
    write_documents(tmp_path)
    ranks = Ranks(2, train_run, ["--config", str(config_of(tmp_path))], {}, folder=tmp_path / "said")
    assert ranks.wait() == [2, 2]
    assert any("WORLD_SIZE: several processes share out sentences" in line for line in ranks.said(0)), ranks.said(0)
