"""Text in, results out: what a sentence is, options, streams, scores."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import nmt
from nmt.cli import translate
from nmt.config.schema import DecodingConfig
from nmt.interop.model_dir import load_model
from nmt.library import engine
from nmt.library.values import OWN, WISHES, Options, PairScore
from nmt.scoring import command as score
from nmt.search.translator import Translator
from tests.library.conftest import SENTENCES


def texts(results: list[nmt.Result]) -> list[str]:
    return [result.text for result in results]


def test_it_translates_as_the_search_does(tiny_run: Path, local: nmt.Translator) -> None:
    loaded = load_model(tiny_run)
    wanted = list(Translator(loaded.model, loaded.tokenizer, loaded.config.decoding).translations(SENTENCES))
    found = local.translate(SENTENCES)
    assert [result.source for result in found] == SENTENCES
    assert texts(found) == [translation.best for translation in wanted]
    assert [result.score for result in found] == [translation.hypotheses[0].score for translation in wanted]
    assert len({*texts(found)}) > 3


def test_a_string_is_one_sentence_and_gives_one_result(local: nmt.Translator) -> None:
    result = local.translate("a b c")
    assert isinstance(result, nmt.Result)
    assert str(result) == result.text == local.translate(["a b c"])[0].text
    assert repr(result).startswith(f"Result({result.text!r}, score=-")
    assert local.translate([]) == []
    assert local.translate(("c",))[0].text == local.translate("c").text


def test_a_line_end_is_a_space(local: nmt.Translator) -> None:
    result = local.translate("a\nb\r\nc")
    assert result.source == "a\nb\r\nc"
    assert result.text == local.translate("a b c").text
    assert result.unknown == 0


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_sentence_has_an_empty_translation(local: nmt.Translator, text: str) -> None:
    result = local.translate(text)
    assert (result.source, result.text, result.score, result.source_tokens) == (text, "", 0.0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a", "text must be a string, or a list or tuple of strings, not bytes b'a'; decode it first"),
        (None, "text must be a string, or a list or tuple of strings, not None"),
        (3, "text must be a string, or a list or tuple of strings, not int 3"),
        ({"a": "b"}, "text must be a string, or a list or tuple of strings, not dict {'a': 'b'}"),
        ({"a"}, "text must be a string, or a list or tuple of strings, not set {'a'}"),
        (["a", 4], "text[1] must be a string, not int 4"),
        (["a", ["b"]], "text[1] must be a string, not list ['b']"),
        ([b"a"], "text[0] must be a string, not bytes b'a'; decode it first"),
    ],
)
def test_anything_else_is_a_type_error_of_one_line(local: nmt.Translator, text: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        local.translate(text)
    assert str(caught.value) == message


def test_a_generator_is_for_stream(local: nmt.Translator) -> None:
    with pytest.raises(TypeError, match="`stream` takes any iterable"):
        local.translate(iter("ab"))  # type: ignore[call-overload]


def test_half_of_a_surrogate_pair_is_no_text(local: nmt.Translator) -> None:
    with pytest.raises(nmt.DataError) as caught:
        local.translate(["a", "b \ud83d"])
    assert str(caught.value) == "text[1] holds half of a surrogate pair ('\\ud83d' at character 2), which is not text"


def test_options_are_those_of_the_command(tiny_run: Path, local: nmt.Translator, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    options = ["--beam-size", "5", "--n-best", "2", "--length-penalty", "1.5", "--max-length-offset", "2"]
    assert translate.main([str(tiny_run), "-i", str(source), "-o", str(output), "--device", "cpu", *options]) == 0
    found = local.translate(SENTENCES, beam_size=5, n_best=2, length_penalty=1.5, max_length_offset=2)
    filled = [[*(hypothesis.text for hypothesis in result.n_best), ""][:2] for result in found]
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == [*itertools.chain(*filled)]
    assert texts(local.translate(SENTENCES, beam_size=1)) != texts(found)


def test_more_translations_than_the_beam_holds_widen_it_which_is_logged_once(
    local: nmt.Translator, caplog: pytest.LogCaptureFixture
) -> None:
    found = [local.translate(SENTENCES, n_best=6) for _ in range(2)][1]
    assert [record.getMessage() for record in caplog.records] == ["n_best 6 widens the beam from 3 to 6"]
    assert found == local.translate(SENTENCES, n_best=6, beam_size=6)


def test_a_translation_that_is_cut_says_so(local: nmt.Translator) -> None:
    results = local.translate(SENTENCES, max_length_offset=0, split_long=2)
    assert any("length_limit" in result.notes for result in results)
    assert [result.source for result in results if "split" in result.notes] == [
        line for line in SENTENCES if len(line.split()) > 2
    ]


def test_scores_can_be_left_out(local: nmt.Translator) -> None:
    result = local.translate("a b c", beam_size=1, scores=False)
    assert math.isnan(result.score)
    assert result.text == local.translate("a b c", beam_size=1).text


def test_details_are_there_where_they_are_asked_for(local: nmt.Translator) -> None:
    plain = local.translate("a b c", beam_size=1)
    assert (plain.tokens, plain.token_scores, plain.attention, plain.alignment, plain.source_pieces) == (None,) * 5
    result = local.translate("a b c", beam_size=1, details=["tokens", "scores", "attention", "alignment"])
    assert result.text == plain.text
    assert result.tokens is not None and result.token_scores is not None and result.attention is not None
    assert result.attention.shape == (len(result.tokens), 4) and result.attention.dtype.name == "float32"
    assert result.attention.sum(1) == pytest.approx(1, abs=1e-5)
    assert len(result.token_scores) == len(result.tokens)
    assert result.source_pieces is not None and result.source_pieces[:3] == ("a", "b", "c")
    assert result.alignment is not None and all(0 <= source < 3 for source, _ in result.alignment)
    assert local.translate("a", details="tokens").tokens is not None  # type: ignore[typeddict-item]


def test_wishes_of_a_call_and_of_a_sentence(local: nmt.Translator) -> None:
    free = local.translate("a b c", beam_size=4).text.split()[0]
    wanted = "u" if free != "u" else "v"
    assert local.translate("a b c", prefix=wanted).text.startswith(wanted)
    first, second = local.translate(["a b c", nmt.Request("a b\nc", forbidden=[free])], prefix=f"{wanted} ")
    assert first.text.split()[0] == wanted
    assert second.source == "a b\nc"
    assert free not in second.text.split()
    beginnings = [wanted, "x", free]
    several = local.translate(["a b", "b", "a b"], prefix=[f"{word} " for word in beginnings])
    assert [result.text.split()[0] for result in several] == beginnings
    assert local.translate([], prefix=[]) == [] and local.translate(["a"], prefix=[""]) == local.translate(["a"])
    with pytest.raises(nmt.DataError, match=r"prefix: 1 for 2 texts; give one for each"):
        local.translate(["a", "b"], prefix=["x"])
    with pytest.raises(TypeError, match="prefix must be a string, not"):
        local.translate("a", prefix=["x"])
    with pytest.raises(nmt.DataError, match=r"forbidden: 'x' is in the prefix"):
        local.translate("a", prefix="x", forbidden="x")
    for wrong in (lambda: nmt.Request("a", required=3), lambda: local.translate([], forbidden=[3])):  # type: ignore
        with pytest.raises(TypeError, match="must be a string or a list of strings, not"):
            wrong()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size: 0 must be greater than 0"),
        ({"beamsize": 2}, "beamsize: unknown key. Did you mean 'beam_size'?"),
        ({"search": "beem"}, "search: 'beem' is not a known search. Did you mean 'beam'?"),
        ({"details": ["gradients"]}, "details: 'gradients' is not known"),
        ({"details": 3}, "details: 3 is not a list of words"),
        ({"precision": "int8"}, "precision: is set once, as in nmt.load"),
        ({"shortlist": "none.safetensors"}, "none.safetensors: no such file"),
    ],
)
def test_wrong_options_are_named_in_one_line(local: nmt.Translator, options: dict[str, Any], message: str) -> None:
    for call in (lambda: local.translate("a", **options), lambda: local.translate([], **options)):
        with pytest.raises((nmt.ConfigError, nmt.DataError)) as caught:
            call()
        assert message.split(":")[0] in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises((nmt.ConfigError, nmt.DataError)):
        local.stream(["a"], **options)  # at once, not with the first result


def test_every_key_of_the_section_is_an_option_with_a_type() -> None:
    keys = {name for name in vars(DecodingConfig)["__dataclass_fields__"] if name != "precision"}
    assert keys | set(OWN) | set(WISHES) == set(get_type_hints(Options))


def test_a_stream_is_lazy_and_keeps_the_order(local: nmt.Translator) -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in itertools.cycle(SENTENCES):
            taken += 1
            yield line

    stream = local.stream(lines(), window=5)
    assert taken == 0
    found = [next(stream)]
    assert taken == 5
    found += itertools.islice(stream, 11)
    assert taken == 15
    wanted = local.translate([*itertools.islice(itertools.cycle(SENTENCES), 12)])
    assert texts(found) == texts(wanted)
    assert [*local.stream([])] == []


def test_what_the_iterable_raises_comes_after_the_results_before_it(local: nmt.Translator) -> None:
    def lines() -> Iterator[str]:
        yield from SENTENCES[:3]
        raise ZeroDivisionError("of the iterable")

    stream = local.stream(lines(), window=2)
    assert texts([next(stream) for _ in range(3)]) == texts(local.translate(SENTENCES[:3]))
    with pytest.raises(ZeroDivisionError, match="of the iterable"):
        next(stream)
    items: list[Any] = ["a", ("b", "c"), "d"]
    stream = local.stream(items)
    assert next(stream).source == "a"
    with pytest.raises(TypeError, match=r"sentences\[1\] must be a string, not tuple"):
        next(stream)


@pytest.mark.parametrize("sentences", ["a b", b"a", None, 3])
def test_a_stream_of_no_iterable_of_strings_is_refused(local: nmt.Translator, sentences: Any) -> None:
    with pytest.raises(TypeError, match="sentences must be an iterable of strings"):
        local.stream(sentences)


def test_scores_are_those_of_the_command(
    tiny_run: Path, local: nmt.Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ["x y", "z", "x", "", "u v w", "y", "z z", "x"]
    for name, lines in (("source", SENTENCES), ("target", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    arguments = [str(tiny_run), "--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    assert score.main([*arguments, "--device", "cpu"]) == 0
    found = local.score(SENTENCES, targets)
    assert [f"{pair.mean_nll:.6f}" for pair in found] == capsys.readouterr().out.split()
    assert [pair.tokens for pair in found] == [len(line.split()) + 1 for line in targets]
    assert found[0].perplexity == pytest.approx(math.exp(-found[0].score))
    assert local.score("a b c", "x y").score == pytest.approx(found[0].score)


def test_the_perplexity_of_what_is_all_but_impossible_is_infinite() -> None:
    assert PairScore(-1000.0, 3, 0).perplexity == PairScore(-math.inf, 3, 0).perplexity == math.inf
    assert math.isnan(PairScore(math.nan, 3, 0).perplexity)


def test_pairs_to_score_are_two_strings_or_two_lists(local: nmt.Translator) -> None:
    with pytest.raises(nmt.DataError, match="2 sources but 1 targets"):
        local.score(["a", "b"], ["x"])
    with pytest.raises(TypeError, match=r"targets\[0\] must be a string, not None"):
        local.score(["a"], [None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="sources must be a string, or a list or tuple of strings, not int 1"):
        local.score(1, ["x"])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="batch_tokens must be a whole number of 1 or more, not 0"):
        local.score(["a"], ["x"], batch_tokens=0)


def test_it_says_what_it_is(tiny_run: Path, local: nmt.Translator) -> None:
    assert local.models == [tiny_run / "checkpoints/step-10"]
    assert (local.source_language, local.target_language, local.device) == ("en", "de", "cpu")
    assert local.precision in ("fp32", "bf16")
    assert local.config.model.cell == "gru"
    assert repr(local) == f"<nmt.Translator {local.models[0]}, en-de, cpu, {local.precision}, in this process>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(local)


def test_a_search_is_built_once_for_equal_options_and_a_glossary_is_read_by_each_call(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    original = engine.Translator.__init__

    def counted(self: Any, model: Any, tokenizer: Any, decoding: Any, **options: Any) -> None:
        built.append(decoding.beam_size)
        original(self, model, tokenizer, decoding, **options)

    monkeypatch.setattr(engine.Translator, "__init__", counted)
    terms = tmp_path / "terms"
    with nmt.load(tiny_run, device="cpu") as translator:
        for _ in range(2):
            translator.translate("a b", beam_size=3)
            translator.translate("a", beam_size=2, details=["tokens"])
            translator.hypotheses(beam_size=3)
        assert built == [3, 2]
        for target in ("x y", "z"):
            terms.write_text(f"d\t{target}\n")
            assert translator.translate("d", glossary=terms).text == target
        read = len(built)
        for _ in range(2):
            assert translator.translate("d", glossary={"d": "x  y"}).text == "x y"
        assert len(built) == read + 1


@pytest.mark.parametrize(
    ("glossary", "kind", "said"),
    [
        ({"d": 5}, TypeError, "glossary: the translation of 'd' must be a string, not int 5"),
        ({5: "d"}, TypeError, "glossary: a term must be a string, not int 5"),
        ({"d": "\ud800"}, nmt.DataError, "glossary: the translation of 'd' holds half of a surrogate pair"),
        ({"a": "b", "d": " \n"}, nmt.ConfigError, "glossary: 'd': the term or its translation is empty"),
        ({"d": "a", "d ": "b"}, nmt.DataError, "glossary, line 2: 'd' has two translations, 'a' and 'b'"),
        ({}, nmt.ConfigError, "glossary: has no term. Allowed: one or more with their translations, or none."),
    ],
)
def test_terms_that_cannot_be_a_glossary_are_named(
    tiny_run: Path, glossary: Any, kind: type[Exception], said: str
) -> None:
    with nmt.load(tiny_run, device="cpu") as translator, pytest.raises(kind, match=f"^{re.escape(said)}"):
        translator.translate("d", glossary=glossary)


def test_a_term_that_begins_with_a_number_sign_is_one(tiny_run: Path) -> None:
    with nmt.load(tiny_run, device="cpu") as translator:
        assert "7" in translator.translate("#d", glossary={"#d": "7"}).text.split()
