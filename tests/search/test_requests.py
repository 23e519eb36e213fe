"""Requests through the translator: prefixes, forbidden phrases, least lengths, with subwords, lists and long lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, Tokenizer, Vocabulary
from nmt.data.matching import is_in_text
from nmt.data.sentencepiece import SentencePieceTokenizer
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import DataError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.search.constraints import ConstraintsMaker, ForbiddenPhrases, Phrases
from nmt.search.ruled import RuledModel, Step
from nmt.search.shortlist import Shortlist
from nmt.search.translator import Translator
from nmt.search.values import Request, Translation
from nmt.zero.search import beam_search
from tests.search.table_model import TableModel
from tests.search.test_rules import all_of
from tests.tiny_run import make_run, subwords, words

LINES = ["a b c", "d", "a a b c d", "c b", "b b b", "unknown"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model with subwords."""
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def translations(loaded: LoadedModel, lines: Sequence[str | Request], **changes: Any) -> list[Translation]:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", "batch_tokens": 4096, **changes})
    return list(Translator(loaded.model, loaded.tokenizer, decoding).translations(lines))


def texts(loaded: LoadedModel, lines: Sequence[str | Request], **changes: Any) -> list[list[str]]:
    return [[one.text for one in found.hypotheses] for found in translations(loaded, lines, **changes)]


def test_a_request_without_wishes_is_a_line(loaded: LoadedModel) -> None:
    plain = translations(loaded, LINES, n_best=2)
    assert translations(loaded, [Request(text=line) for line in LINES], n_best=2) == plain
    assert [one.source for one in plain] == LINES


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 1}, {"precision": "int8"}, {"precision": "bf16", "beam_size": 1}]
)
def test_translations_begin_with_their_prefix(loaded: LoadedModel, options: dict[str, Any]) -> None:
    requests = [
        Request(text=line, prefix=prefix)
        for line, prefix in zip(LINES, ["x", "", "w w w w", "u z", "t@@", "v x"], strict=True)
    ]
    together = texts(loaded, requests, **options)
    assert [
        found[0].startswith(start)
        for found, start in zip(together, ["x", "", "w w w w", "u z", "t", "v x"], strict=True)
    ] == [True] * 6
    assert texts(loaded, requests[:2] + requests[3:4], batch_tokens=1, **options) == [*together[:2], together[3]]
    assert texts(loaded, [LINES[1]], **options) == [together[1]], "who asks for nothing gets what he would get"


def test_a_prefix_with_subwords(pieces: LoadedModel) -> None:
    for prefix in ("senten", "sentence of", "longer", "\u00df", "sent\u00e9nce", "q \u4e16"):
        for found in texts(pieces, [Request(text="a longer sentence", prefix=prefix)], n_best=3, beam_size=3):
            assert found and all(text.startswith(prefix) for text in found)


def test_a_space_at_the_end_of_a_prefix_ends_its_word(pieces: LoadedModel) -> None:
    lines = [f"{a} long{b}er" for a in "abcd" for b in "xyz"]
    asked = [Request(text=line, prefix="long") for line in lines]
    spaced = [dataclasses.replace(request, prefix="long ") for request in asked]
    sampled = {"search": "sample", "n_best": 2}
    assert all(f"{text} ".startswith("long ") for found in texts(pieces, spaced, **sampled) for text in found)
    assert not all(f"{text} ".startswith("long ") for found in texts(pieces, asked, **sampled) for text in found)


def test_a_prefix_is_written_as_it_was_given(loaded: LoadedModel, pieces: LoadedModel) -> None:
    """Also where the vocabulary lacks it or the tokenizer normalises it."""
    assert texts(loaded, [Request(text="a", prefix="Quelle x")])[0][0].startswith("Quelle x ")
    assert texts(pieces, [Request(text="a", prefix="\ufb01ne\nline")])[0][0].startswith("\ufb01ne line")


def test_a_prefix_extends_the_limit(loaded: LoadedModel) -> None:
    prefix = " ".join("xyzuvw" * 4)
    (found,) = translations(loaded, [Request(text="a", prefix=prefix)], max_length_offset=3)
    assert found.best.startswith(prefix)
    assert len(prefix.split()) <= len(found.best.split()) <= 1 + 24 + 3
    assert (
        texts(loaded, ["a b"], max_length_offset=3)
        == texts(loaded, ["a b", Request(text="a", prefix=prefix)], max_length_offset=3)[:1]
    )


def test_empty_lines_and_long_lines(loaded: LoadedModel) -> None:
    found = translations(loaded, [Request(text=" ", prefix="x y"), Request(text="", forbidden=("x",)), ""])
    assert [one.best for one in found] == ["x y", "", ""]
    line = "a b c d " * 4
    (parts,) = translations(loaded, [Request(text=line, prefix="w v")], split_long=4)
    assert parts.parts == 4 and parts.best.startswith("w v")
    (free,) = translations(loaded, [line], split_long=4)
    assert parts.best.split()[-3:] == free.best.split()[-3:], "only the first part has the prefix"


def test_least_length_and_ngrams_are_settings(loaded: LoadedModel) -> None:
    free = [found[0].split() for found in texts(loaded, LINES)]
    least = [found[0].split() for found in texts(loaded, LINES, min_length=4)]
    assert min(map(len, free)) < 4 <= min(map(len, least))
    unique = [found[0].split() for found in texts(loaded, LINES, no_repeat_ngram=1)]
    assert all(len(line) == len(set(line)) for line in unique) and not all(len(line) == len(set(line)) for line in free)


def occurs(phrase: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", " ".join(text.split())) is not None


def test_a_forbidden_phrase_does_not_occur(loaded: LoadedModel) -> None:
    free = [found[0] for found in texts(loaded, LINES)]
    requests, banned = [], []
    for line, text in zip(LINES, free, strict=True):
        phrases = [text.split()[0], " ".join(text.split()[:2])]
        requests += [Request(text=line, forbidden=(phrase,)) for phrase in phrases]
        banned += phrases
    together = texts(loaded, requests, n_best=3)
    for found, phrase in zip(together, banned, strict=True):
        assert found and not any(occurs(phrase, text) for text in found)
    assert texts(loaded, requests, n_best=3, batch_tokens=1) == together


def test_a_forbidden_word_is_kept_out_with_subwords(pieces: LoadedModel) -> None:
    lines = [f"{a} long{b}er" for a in "abcd" for b in "xy"]
    first = {line: found[0] for line, found in zip(lines, texts(pieces, lines), strict=True)}
    requests, banned = [], []
    for line, text in first.items():
        for word in sorted(set(re.findall(r"\w+", text))):
            requests.append(Request(text=line, forbidden=(word,)))
            banned.append(word)
    assert len(banned) > 5
    for found, word in zip(texts(pieces, requests, n_best=2), banned, strict=True):
        assert not any(occurs(form, text) for text in found for form in (word, word.capitalize()))


@pytest.fixture(scope="module")
def subword_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return subwords(tmp_path_factory.mktemp("pieces"))


def tokenizers(subword_tokenizer: Tokenizer) -> Iterator[Tokenizer]:
    yield subword_tokenizer
    yield words()
    tokens = ["das", "Haus", "Ha@@", "us", "u@@", "s", "haus", "H@@", "a@@", "aus", "\u732b", "\u732b@@", "-@@", "("]
    yield WhitespaceTokenizer(Vocabulary(tokens), Vocabulary(tokens), options=WhitespaceOptions())


def test_random_walks_never_spell_a_forbidden_phrase(subword_tokenizer: Tokenizer) -> None:
    """Words drawn at random from what is left, in every tokenisation that comes; each phrase would come without it."""
    generator = torch.Generator().manual_seed(1)
    phrases = ("x y", "a", "sentence of", "Haus", "das haus", "\u732b")
    excluded = 0
    for tokenizer in tokenizers(subword_tokenizer):
        assert isinstance(tokenizer, (SentencePieceTokenizer, WhitespaceTokenizer))
        rule = ForbiddenPhrases(Phrases(tokenizer.target_pieces(), tokenizer), [phrases], words=None)
        history = torch.empty(100, 0, dtype=torch.int64)
        for _ in range(12):
            log_probs = torch.zeros(100, tokenizer.target_size)
            log_probs[:, :3] = -torch.inf
            step = Step(history, torch.zeros(100, dtype=torch.int64), 100, None)
            rule(log_probs, step, original=log_probs)
            excluded += int(log_probs[:, 3:].isinf().sum())
            history = torch.cat([history, torch.multinomial(log_probs.exp(), 1, generator=generator)], dim=1)
            for row in history.tolist():
                text = tokenizer.decode_target([*row, EOS])
                for phrase in phrases:
                    for form in (phrase, phrase[0].upper() + phrase[1:]):
                        assert not occurs(form, text) and not (form == "\u732b" and form in text), (form, text)
    assert excluded > 1000


def test_only_what_completes_the_phrase_is_excluded() -> None:
    tokens = ["das", "Haus", "Ha@@", "us", "Haus@@", "t\u00fcr", "haus", "aus", "da@@", "sHaus"]
    tokenizer = WhitespaceTokenizer(Vocabulary(["q"]), Vocabulary(tokens), options=WhitespaceOptions())
    phrases = Phrases(tokenizer.target_pieces(), tokenizer)

    def left_out(text: str, *wanted: str) -> set[str]:
        return {tokenizer.target_tokens([i])[0] for i in phrases.excluded(text.encode(), wanted)}

    assert left_out("", "Haus") == {"Haus", "haus", "Haus@@"}
    assert left_out("das ", "Haus") == {"Haus", "haus", "Haus@@"}
    assert left_out("da", "Haus") == set(), "within a word another one does not begin"
    assert left_out("Ha", "Haus") == {"us"}
    assert left_out("das Ha", "das Haus") == {"us"}
    assert left_out("", "das Haus") == set()
    assert left_out("das ", "das Haus", "aus") == {"Haus", "Haus@@", "aus"}, "case is for the first letter alone"
    spaced = Phrases([b"", b" ", b" Haus", b"Haus", b" Hausboot"], tokenizer)
    assert spaced.excluded(b"das ", ["das Haus"]) == {2, 3}, "a second space adds nothing"
    assert spaced.excluded(b"das", ["das Haus"]) == {2}
    assert phrases.first_in("ein Haus.", ["das", "Haus"]) == "Haus"
    assert phrases.first_in("ein Haust\u00fcr", ["Haus"]) is None


def test_both_forms_of_unicode_are_forbidden_required_and_begun_with() -> None:
    tokens = ["caf\u00e9", "cafe\u0301", "caf@@", "\u00e9", "e\u0301", "cafe@@", "\u0301", "x", "\u00fc", "u\u0308b"]
    tokenizer = WhitespaceTokenizer(Vocabulary(["q"]), Vocabulary(tokens), options=WhitespaceOptions())
    phrases, generator = Phrases(tokenizer.target_pieces(), tokenizer), torch.Generator().manual_seed(1)
    for phrase in ("caf\u00e9", "cafe\u0301"):
        rule, history = ForbiddenPhrases(phrases, [[phrase]], words=None), torch.empty(100, 0, dtype=torch.int64)
        for _ in range(8):
            log_probs = torch.zeros(100, tokenizer.target_size)
            log_probs[:, :3] = -torch.inf
            step = Step(history, torch.zeros(100, dtype=torch.int64), 100, None)
            rule(log_probs, step, original=log_probs)
            history = torch.cat([history, torch.multinomial(log_probs.exp(), 1, generator=generator)], dim=1)
        assert not any(is_in_text(phrase, tokenizer.decode_target(row)) for row in history.tolist())
        assert phrases.first_in("x cafe\u0301", [phrase]) == phrases.first_in("x caf\u00e9", [phrase]) == phrase
    maker = ConstraintsMaker(tokenizer, DecodingConfig())
    for known, given in (("\u00fc", "u\u0308"), ("u\u0308b", "\u00fcb")):
        (ids,) = tokenizer.encode_target([known])
        found = maker.of(Request(text="q", prefix=given, required=(given,)))
        assert found.prefix == found.required[0] == tuple(ids)
        assert maker.with_prefix(Request(text="q", prefix=given), f"{known} x") == f"{given} x"
        assert maker.missing(Request(text="q", required=(given,)), f"x {known} x") == 0


def test_korean_particles_do_not_hide_a_forbidden_phrase() -> None:
    tokens = ["\ud559\uad50", "\ud559\uad50\uc5d0", "\ud559\uad50\uc885", "\ud559@@", "\uad50\ub294"]
    tokenizer = WhitespaceTokenizer(Vocabulary(["q"]), Vocabulary(tokens), options=WhitespaceOptions())
    phrases = Phrases([piece.strip() for piece in tokenizer.target_pieces()], tokenizer)
    assert phrases.excluded(b"", ["\ud559\uad50"]) == {3, 4}
    assert phrases.excluded("\ud559".encode(), ["\ud559\uad50"]) == {7}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(text="a", prefix="x y z", forbidden=("u", "y z")), "'a': forbidden: 'y z' is in the prefix, 'x y z'"),
        (Request(text="a", forbidden=("u", " ")), "'a': forbidden: a phrase is empty"),
        (Request(text="a", required=(" ",), where="FILE, line 3"), "FILE, line 3: required: a phrase is empty"),
    ],
)
def test_wishes_that_cannot_be_fulfilled_are_named(loaded: LoadedModel, request_: Request, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        translations(loaded, ["a", request_])


def test_a_tokenizer_that_does_not_say_its_pieces(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(loaded.tokenizer), "target_pieces", lambda self: None)
    with pytest.raises(DataError, match="'a': forbidden: the tokenizer WhitespaceTokenizer does not tell"):
        translations(loaded, [Request(text="a", forbidden=("x",))])
    assert texts(loaded, [Request(text="a", prefix="x")])[0][0].startswith("x")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_list_of_words_gets_those_of_the_prefix(loaded: LoadedModel, tmp_path: Path, beam_size: int) -> None:
    size = loaded.tokenizer.source_size
    shortlist = Shortlist(
        frequent=torch.tensor([4, 5], dtype=torch.int32),
        partners=torch.empty(0, dtype=torch.int32),
        starts=torch.zeros(size + 1, dtype=torch.int64),
        target_size=loaded.tokenizer.target_size,
    )
    path = tmp_path / "list"
    path.write_bytes(shortlist.save_bytes(loaded.tokenizer))
    requests = [Request(text="a b", prefix="w x"), Request(text="a b"), Request(text="a b", forbidden=("y",))]
    options = {"shortlist": str(path), "beam_size": beam_size, "no_repeat_ngram": 3}
    found = [lines[0] for lines in texts(loaded, requests, **options)]
    assert found[0].startswith("w x")
    assert "w" not in " ".join(found[1:]) and "x" not in " ".join(found[1:]), "the words are that sentence's alone"
    assert "y" not in found[2].split()
    assert [lines[0] for lines in texts(loaded, requests, batch_tokens=1, **options)] == found


def test_forbidden_phrases_beside_an_exhaustive_search() -> None:
    """The widest beam against all sequences none of whose beginnings has the phrase; tokens begin and go on words."""
    tokens = ["a", "b@@", "c", "a@@"]
    tokenizer = WhitespaceTokenizer(Vocabulary(tokens), Vocabulary(tokens), options=WhitespaceOptions())
    model = TableModel(2, vocabulary=tokenizer.target_size, eos=-1.0)
    for phrase in ("a", "bc", "a c", "c c", "ba"):

        def allowed(ids: list[int], phrase: str = phrase) -> bool:
            return not any(occurs(form, tokenizer.decode_target(ids)) for form in (phrase, phrase.capitalize()))

        rule = ForbiddenPhrases(Phrases(tokenizer.target_pieces(), tokenizer), [[phrase]], words=None)
        source = torch.tensor([[3, 4, EOS]])
        expected = all_of(model, [3, 4, EOS], allowed, limit=5)
        found = beam_search(
            RuledModel(model, rules=[rule]), source, beam_size=400, length_penalty=0.7, max_length_offset=2, n_best=20
        )[0]
        finished = [one for one in found if one.has_ended]
        assert len(finished) > 3
        assert [one.ids for one in finished] == [ids[:-1] for _, ids in expected[: len(finished)]], phrase
        assert [one.score for one in finished] == pytest.approx([score for score, _ in expected[: len(finished)]])
