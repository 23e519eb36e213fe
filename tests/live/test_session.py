"""Sessions of live translation: what they return, when, and that it stays."""

from __future__ import annotations

import gc
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import nmt
from nmt.cli import translate
from nmt.data.vocabulary import EOS, PAD
from nmt.exporting import command as export
from nmt.interop.model_dir import load_model
from nmt.live.encoding import Listener
from nmt.live.words import words_of
from nmt.registry import POLICIES as POLICIES_OF
from tests.compiled import needed_engine
from tests.quick_python import quick_python
from tests.tiny_training import nmt_train, write_config, write_corpus

SMALL: dict[str, Any] = {
    "architecture": "transformer",
    "cell": "lrn",
    "hidden_size": 512,
    "embedding_size": 32,
    "architecture_options": {"heads": 2, "encoder_layers": 1, "decoder_layers": 1},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A model that reads forward, one that reads both ways, and its file."""
    needed_engine()
    folder = tmp_path_factory.mktemp("live")
    write_corpus(folder)
    data = {
        "tokenizer": "sentencepiece",
        "tokenizer_options": {"vocab_size": 60, "byte_fallback": False},
        "target_language": "de",
    }
    for name, direction in (("forward", "forward"), ("both", "both")):
        training = {"max_steps": 300, "validate_every": 300}
        path = write_config(folder, model={**SMALL, "encoder_direction": direction}, data=data, training=training)
        assert nmt_train(path, "--set", f"run_dir={folder / name}") == 0
    assert export.main([str(folder / "both"), "-o", str(folder / "m.nmt"), "--precision", "fp32"]) == 0
    with nmt.load(folder / "forward") as one, nmt.load(folder / "both") as other, nmt.load(folder / "m.nmt") as file:
        yield {"forward": one, "both": other, "file": file, "folder": folder}


SOURCE = "ba de fi go ku la me ni bo du. fa ge ki lo mu"
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("wait_k", {"wait": 1}), ("wait_k", {"wait": 3}), ("wait_k", {"wait": 50}),
    ("local_agreement", {}), ("local_agreement", {"agree": 3, "beam_size": 1}), ("alignatt", {"unread": 1}),
]  # fmt: skip


@pytest.mark.parametrize("model", ["both", "file"])
@pytest.mark.parametrize("agree", [2, 3])
def test_agreement_needs_as_many_translations_as_are_asked_for(models: dict[str, Any], model: str, agree: int) -> None:
    session = models[model].live("local_agreement", agree=agree)
    returned = [session.feed(f"{word} ") for word in SOURCE.split()[:8]]
    assert returned[: agree - 1] == [""] * (agree - 1)
    assert any(returned)


def test_tokens_that_are_taken_back_leave_nothing(models: dict[str, Any]) -> None:
    """What is read after them is what it would be without them."""
    model = load_model(models["folder"] / "forward").model
    with torch.inference_mode():
        other, plain = Listener(model), Listener(model)
        other.read([5, 6, 7, 8, 9])
        assert other.take_back(3) and other.tokens == 2
        other.read([4])
        plain.read([5, 6, 4])
        assert other.tokens == plain.tokens == 3
        (found, _), (wanted, _) = (model.step(None, one.state(one.initial)) for one in (other, plain))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("model", ["forward", "both", "file"])
@pytest.mark.parametrize(("policy", "options"), POLICIES)
def test_what_was_returned_is_the_translation(
    models: dict[str, Any], model: str, policy: str, options: dict[str, Any]
) -> None:
    """In whatever pieces the text comes, and word by word as if it came at once."""
    found = []
    for size in (1, 3, 1000):
        session = models[model].live(policy, **options)
        parts = [session.feed(SOURCE[at : at + size]) for at in range(0, len(SOURCE), size)]
        parts.append(session.end())
        found.append("".join(parts))
        with pytest.raises(nmt.NmtError, match="has ended"):
            session.feed("x")
    assert found[0] == found[1] == found[2] != ""
    assert not found[0].startswith(" ") and "  " not in found[0]
    assert len({*found[0].split()}) > 2, "nothing is shown by a model that repeats itself"


def waited(translator: Any, source: str, *, wait: int) -> list[str]:
    """What is written of one sentence after each word and at the end, by encoding everything anew for each token."""
    model, tokenizer, _, decoding = translator._network()
    counts, words = words_of(tokenizer)[1].counts, source.split()
    ids: list[int] = []
    letters = words_of(tokenizer)[1].letters
    texts, begun, whole, sure = [], 0, 0, 0
    with torch.inference_mode():
        for count in range(1, len(words) + 2):
            is_complete = count > len(words)
            (own,) = tokenizer.encode_source([" ".join(words[:count])])
            own = [*own, EOS] if is_complete else own
            allowed, before = count - wait + 1, len(ids)
            while is_complete or allowed > 0:
                tokens = len(own) + (not is_complete)  # with the end symbol
                if len(ids) >= tokens * decoding.max_length_factor + decoding.max_length_offset:
                    if is_complete:
                        sure = len(ids)
                    else:  # the limit cuts a word, which is predicted again when more has been read
                        begun = whole
                        del ids[sure:]
                    break
                encoded = model.start(torch.tensor([own]))
                first = model.encode(torch.tensor([tokenizer.encode_source([" ".join(words[:wait])])[0]]))
                state = encoded._replace(states=first.initial)
                for token in [None, *ids]:
                    logits, state = model.step(None if token is None else torch.tensor([token]), state)
                logits[0, PAD] = -1e9
                logits[0, EOS] -= 1e9 * (not ids)
                if 0 < len(ids) == before:
                    logits[0, letters] = -1e9
                token = int(logits.argmax())
                if token == EOS or not ids or counts[token]:
                    sure, whole = len(ids), begun
                    if not is_complete and (token == EOS or begun >= allowed):
                        break
                    begun += 1
                if token == EOS:
                    break
                ids.append(token)
            texts.append(tokenizer.decode_target(ids[:sure]))
    return texts


def test_waiting_for_words_of_transformers_is_what_encoding_anew_gives(tmp_path: Path) -> None:
    """The decoder's first states do not depend on the source there, so that everything can be computed anew."""
    write_corpus(tmp_path)
    data = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 60, "byte_fallback": False}}
    model = {**SMALL, "encoder_direction": "forward"}
    training = {"max_steps": 300, "validate_every": 300, "wait": [1, 3]}
    path = write_config(tmp_path, model=model, data=data, training=training)
    assert nmt_train(path) == 0
    source = "ba de fi go ku la me ni bo du"
    with nmt.load(tmp_path / "run", precision="fp32") as translator:
        for wait in (1, 2, 4, 20):
            session, texts, text = translator.live(wait=wait), [], ""
            for word in source.split():
                text += session.feed(f"{word} ")
                texts.append(text)
            assert [*texts, text + session.end()] == waited(translator, source, wait=wait)
            assert wait > 4 or sum(map(bool, texts)) > 3
            assert wait < 2 or not any(texts[: wait - 1])


@pytest.mark.parametrize("policy", ["wait_k", "local_agreement", "alignatt"])
@pytest.mark.parametrize("model", ["forward", "both", "file"])
def test_a_word_that_was_written_becomes_no_other_word(models: dict[str, Any], model: str, policy: str) -> None:
    session, found = models[model].live(policy), ""
    for word in (SOURCE + " " + SOURCE[::-1]).split():
        for new in (session.feed(f"{word} "), session.end() if word == SOURCE[::-1].split()[-1] else ""):
            assert not (found[-1:].isalnum() and new[:1].isalnum()), (found, new)
            found += new
    assert found


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A model of whole sentences, all of which end with a full stop, and its file; one with commas within them."""
    needed_engine()
    folder = tmp_path_factory.mktemp("ending")
    write_corpus(folder)
    for path in folder.glob("*.??"):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "".join(f"{line.replace(' ', ', ', 1) if len(line) % 2 else line}.\n" for line in lines)
        path.write_text(text, encoding="utf-8")
    data = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 60, "byte_fallback": False}}
    for name in ("forward", "both"):
        model = {**SMALL, "encoder_direction": name}
        training = {"max_steps": 300, "validate_every": 300}
        path = write_config(folder, model=model, data=data, training=training)
        assert nmt_train(path, "--set", f"run_dir={folder / name}") == 0
    assert export.main([str(folder / "forward"), "-o", str(folder / "m.nmt"), "--precision", "fp32"]) == 0
    with nmt.load(folder / "forward") as one, nmt.load(folder / "both") as other, nmt.load(folder / "m.nmt") as file:
        yield {"forward": one, "both": other, "file": file}


@pytest.mark.parametrize("policy", ["wait_k", "local_agreement", "alignatt", "wait_k,beam_size"])
@pytest.mark.parametrize("model", ["forward", "both", "file"])
def test_nothing_ends_a_sentence_that_is_not_over(ending: dict[str, Any], model: str, policy: str) -> None:
    """Though each translation of its beginning has a full stop; it gets its own when it is over."""
    options = {"wait_k": {"wait": 1}, "wait_k,beam_size": {"wait": 1, "beam_size": 2}}.get(policy, {})
    written = 0
    for source in (SOURCE.partition(".")[0], "mo ka", "ta, li su", "ne"):
        session = ending[model].live(policy.partition(",")[0], **options)
        found = [session.feed(f"{word} ") for word in source.split()]
        assert "." not in "".join(found)
        written += len("".join(found))
        assert (session.feed("re. ") + session.end()).endswith(".")
    assert written > 10


@pytest.mark.parametrize("model", ["forward", "both", "file"])
def test_an_end_is_written_when_that_of_the_source_was_read(ending: dict[str, Any], model: str) -> None:
    """Before the next sentence says that this one is over; what follows it then begins another word."""
    ended = 0
    for source in (SOURCE.partition(".")[0], "mo ka", "su li ta", "ne", "de go la ni", "ku fi"):
        session = ending[model].live(wait=1)
        found = session.feed(f"{source}. ")
        ended += found.endswith(".")
        assert not found.endswith(".") or (session.feed("ba, du ") + session.end())[:1] in ("", " ")
    assert ended > 1


def test_no_comma_follows_a_full_stop(ending: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """That of an abbreviation, behind which the translation goes on, is written; then it gets no comma."""
    model, tokenizer, *_ = ending["forward"]._network()
    names = tokenizer.target_tokens(range(tokenizer.target_size))
    word = next(place for place, name in enumerate(names) if name[:1] == "\u2581" and name[1:].isalpha())
    stop, comma = names.index("."), names.index(",")
    plan, step = iter([[word], [stop], [word], [comma, word]]), model.step

    def planned(last: Any, state: Any) -> Any:
        logits, after = step(last, state)
        logits = torch.zeros_like(logits)
        for rank, token in enumerate(next(plan, [word])):
            logits[0, token] = 9 - rank
        return logits, after

    monkeypatch.setattr(model, "step", planned)
    session, name = ending["forward"].live(wait=1), names[word][1:]
    assert [session.feed("ba "), session.feed("de ")] == [f"{name}.", f" {name}"]


def test_a_translation_that_would_have_a_comma_behind_a_full_stop() -> None:
    """It is made again, with a space behind the full stop."""
    asked = list[str]()

    class Planned:
        def translate(self, request: Any, **_: Any) -> Any:
            asked.append(request.prefix)
            return SimpleNamespace(text={"": "usw. ab", "usw.": "usw., ab", "usw. ": "usw. cd"}[request.prefix])

    kind = POLICIES_OF.get("wait_k")
    policy = kind(Planned(), kind.Options(wait=1), search={}, network=None)
    policy.begin()
    policy.read("a", 1)
    policy.read("a b", 2)
    assert asked == ["", "usw.", "usw. "] and policy.written == "usw. cd"


def test_sentences_are_translated_one_by_one(models: dict[str, Any]) -> None:
    """By a policy that writes nothing before their ends."""
    for name in ("both", "file"):
        session = models[name].live(wait=50)
        found = [session.feed("Ba de fi. "), session.feed("Go "), session.feed("ku la! "), session.end()]
        first, second = models[name].translate(["Ba de fi.", "Go ku la!"])
        assert found == ["", first.text, "", f" {second.text}"]


def test_white_space_is_no_word(models: dict[str, Any]) -> None:
    session = models["forward"].live(wait=1)
    assert session.feed(" \n\t ") + session.feed("") + session.end() == ""


def test_a_sentence_that_is_found_late_is_translated_once(models: dict[str, Any]) -> None:
    """A quotation mark alone does not say that a sentence has begun; the word behind it does."""
    session = models["both"].live(wait=50)
    found = session.feed('Ba de fi. " ') + session.feed("Go ku ") + session.end()
    first, second = models["both"].translate(["Ba de fi.", '" Go ku'])
    assert found == f"{first.text} {second.text}"


def test_each_word_becomes_tokens_once(models: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    translator = models["forward"]
    tokenizer, given = translator._network()[1], list[str]()
    encode = tokenizer.encode_source
    session = translator.live(wait=2)
    session.feed("ba ")
    monkeypatch.setattr(tokenizer, "encode_source", lambda lines: given.extend(lines) or encode(lines))
    for word in SOURCE.replace(".", "").split() * 3:
        session.feed(f"{word} ")
    assert given == SOURCE.replace(".", "").split() * 3


def test_memory_does_not_grow(models: dict[str, Any]) -> None:
    with models["forward"].live(wait=2) as session:
        for place in range(40):
            if place == 5:
                tracemalloc.start()
            if place == 10:
                gc.collect()
                first = tracemalloc.get_traced_memory()[0]
            session.feed(SOURCE.capitalize() + ". ")
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - first
        tracemalloc.stop()
    assert grown < 100_000, "for 450 words"


def test_words_without_spaces_are_characters(models: dict[str, Any]) -> None:
    session = models["forward"].live(wait=3)
    session.feed("狗在ab")
    assert session.open_words == 2
    session.feed(" 柏")
    assert session.open_words == 4


def test_half_a_character_waits(models: dict[str, Any]) -> None:
    one, other = models["both"].live(wait=50), models["both"].live(wait=50)
    assert one.feed("ba \ud83d") + one.feed("\ude00 de") + one.end() == other.feed("ba \U0001f600 de") + other.end()
    session = models["both"].live(wait=50)
    with pytest.raises(nmt.DataError, match="half of a surrogate pair"):
        session.feed("ba \ude00 de")
    session.feed("\ud83d")
    with pytest.raises(nmt.DataError, match="half of a surrogate pair"):
        session.end()


@pytest.mark.parametrize("model", ["forward", "both"])
@pytest.mark.parametrize("revises", [False, True])
def test_text_that_only_grows_may_be_sent_again(models: dict[str, Any], model: str, revises: bool) -> None:
    """With the same translation as if what is new had been fed."""
    words = SOURCE.split()
    fed = models[model].live(wait=2)
    wanted = fed.feed(SOURCE + " ") + fed.end()
    session, found = models[model].live(wait=2, revise=revises), ""
    for count in range(1, len(words) + 1):
        found += session.revise(" ".join(words[:count]))
    assert found and wanted.startswith(found)
    assert found + session.end() == wanted or not revises
    if not revises:
        session = models[model].live(wait=2)
        assert session.revise(SOURCE, final=True) + session.end() == wanted


def test_a_changed_word_is_refused_by_name(models: dict[str, Any]) -> None:
    session = models["both"].live(wait=2)
    session.revise("ba de fi")
    session.revise("ba de go ku")  # the last word had not been read
    with pytest.raises(nmt.DataError, match="word 2 of the text, 'de', has become 'du' after it was read. Allowed: "):
        session.revise("ba du go ku la")
    with pytest.raises(nmt.DataError, match="word 2 of the text, 'de', is gone"):
        session.revise("ba x")
    with pytest.raises(nmt.ConfigError, match="revise: 'yes' is not allowed"):
        models["both"].live(revise="yes")


@pytest.mark.parametrize("model", ["forward", "both"])
def test_revisions_replace_what_is_not_written(models: dict[str, Any], model: str) -> None:
    """Of a policy that writes nothing yet all of the translation follows the last text."""
    translator = models[model]
    session = translator.live(wait=50, revise=True)
    for text in ("ba de", "ba du fi", "la", "la me ni go", ""):
        assert session.revise(text) == ""
        assert bool(session.tail) == bool(text)
    session.revise("go ku la", final=True)
    session.revise("me ne")
    session.revise("me ni")
    whole = translator.live(wait=50)
    whole.feed("go ku la me ni")
    assert session.end() == whole.end() != ""
    assert session.tail == "" and session.late == 0


@pytest.mark.parametrize("policy", ["wait_k", "local_agreement", "alignatt"])
@pytest.mark.parametrize("model", ["forward", "both", "file"])
def test_what_was_returned_stays_when_words_change(models: dict[str, Any], model: str, policy: str) -> None:
    with models[model].live(policy, revise=True) as session:
        found = ""
        for text in (SOURCE[:20], SOURCE[3:26], SOURCE[6:30], SOURCE[6:], SOURCE[8:20], SOURCE):
            new = session.revise(text)
            assert isinstance(new, str)
            found += new
        found += session.end()
        assert session.tail == "" and found and "  " not in found and not found.startswith(" ")


def test_words_of_done_sentences_come_too_late(models: dict[str, Any]) -> None:
    """They are counted, and what follows them is translated as before."""
    session = models["both"].live(wait=50, revise=True)
    found = session.revise("Ba de fi. Go ku")
    found += session.revise("Ba de me du fi. Go ku la")
    assert session.late == 1 and session.open_words == 3
    first, second = models["both"].translate(["Ba de fi.", "Go ku la"])
    assert found + session.end() == f"{first.text} {second.text}"


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("wait-k", {}, "'wait-k' is not a known policy of live translation"),
        ("wait_k", {"wait": 0}, "wait_k.*wait: must be at least 1, not 0"),
        ("wait_k", {"beam": 3}, "beam: "),
        ("local_agreement", {"agree": 1}, "agree: must be at least 2, not 1"),
        ("alignatt", {"unread": 0}, "unread: must be at least 1, not 0"),
        *((policy, {"prefix": "x"}, "prefix: a live session has no such option") for policy in ("wait_k", "alignatt")),
        ("alignatt", {"details": ["tokens"]}, "details: a live session has no such option"),
        (
            "wait_k",
            {"placeholders": True},
            "placeholders: has its place only when .* Allowed: false",
        ),
        ("local_agreement", {"glossary": {"ba": "be"}}, "glossary: has its place only when .* Allowed: none"),
    ],
)
def test_what_there_is_not_is_refused(models: dict[str, Any], policy: str, options: dict[str, Any], said: str) -> None:
    for name in ("forward", "both", "file"):
        translator = models[name]
        with pytest.raises(nmt.ConfigError, match=said):
            translator.live(policy, **options)


def test_a_pipe_gets_words_while_it_sends(models: dict[str, Any]) -> None:
    """The answer to a word comes before the next word is sent; a part of a character waits; a line for each line."""
    command = [*quick_python(), "-m", "nmt.cli.translate", str(models["folder"] / "forward"), "--live", "wait_k,wait=2"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, bufsize=0, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        for word in ("ba ", "de ", "fi "):
            process.stdin.write(word.encode())
            process.stdin.flush()
        first = process.stdout.read(1)
        raw = "go \u00e4 ku\n\nla me\n".encode()
        for place in range(0, len(raw), 4):
            process.stdin.write(raw[place : place + 4])
            process.stdin.flush()
        rest, err = process.communicate()
    session = models["forward"].live(wait=2)
    text = session.feed("ba de fi go \u00e4 ku") + session.end()
    session = models["forward"].live(wait=2)
    assert (first + rest).decode().split("\n") == [text, "", session.feed("la me") + session.end(), ""]
    assert process.returncode == 0 and b"3 lines live by wait_k" in err


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--live", "wait_k,3"], 2, "--live: '3' is not an option with its value"),
        (["--live", "wait_k,wait=1..3"], 2, "--live wait_k,wait=1..3: stands for 3 settings. Allowed: one"),
        (["--live", "wait_k", "--n-best", "2"], 2, "--n-best: does not go together with --live"),
        (["--live", "wait_k", "-o", "x"], 2, "--output: does not go together with --live"),
        (["--live", "wait_k", "-i", "missing.txt"], 1, "missing.txt: no such file"),
        (["--live", "wait_k", "-i", "raw.txt"], 1, "raw.txt: byte 0xff is not UTF-8"),
    ],
)
def test_what_the_command_refuses(
    models: dict[str, Any], given: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("raw.txt").write_bytes(b"ba \xff\n")
    assert translate.main([str(models["folder"] / "forward"), *given]) == code
    assert said in capfd.readouterr().err
