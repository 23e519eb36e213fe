"""What a translation carries on request: tokens, their scores, attention and alignment; nothing unless asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data import EOS
from nmt.data.batching import pad
from nmt.errors import ConfigError
from nmt.inspection.record import record
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.models.decoder import Decoder
from nmt.models.graphed import GraphedModel
from nmt.search.ensemble import Ensemble
from nmt.search.reading import read_hypotheses, tokens_of
from nmt.search.shortlist import BatchWords, RestrictedModel
from nmt.search.texts import alignment_of
from nmt.search.translator import Translator
from nmt.search.values import DETAILS, Hypothesis, ScoredText
from tests.models.test_seq2seq import make
from tests.tiny_run import make_run

LINES = ["a b c", "", "d", "a b unknown c", "long@@ er a", "  "]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run", sentencepiece=True))


def translator(loaded: LoadedModel, *, others: Any = (), **changes: Any) -> Translator:
    decoding = dataclasses.replace(loaded.config.decoding, **{"precision": "fp32", **changes})
    return Translator(loaded.model, loaded.tokenizer, decoding, others=others)


def attention(found: ScoredText) -> Tensor | None:
    """Of all parts of a line, block by block [T, S]."""
    parts = found.attention_of_parts
    return None if parts is None else torch.block_diag(*parts) if parts else torch.zeros(0, 0)


def heads(found: ScoredText) -> dict[str, Tensor] | None:
    """The same of each layer [heads, T, S]."""
    parts = found.heads_of_parts
    if not parts:
        return None if parts is None else {}
    of_layers = {name: zip(*(part[name] for part in parts), strict=True) for name in parts[0]}
    return {name: torch.stack([torch.block_diag(*head) for head in own]) for name, own in of_layers.items()}


@pytest.mark.parametrize(
    "changes", [{}, {"n_best": 3}, {"beam_size": 1}, {"precision": "bf16"}, {"precision": "int8", "n_best": 2}]
)
def test_scores_of_tokens_make_the_score(subwords: LoadedModel, changes: dict[str, Any]) -> None:
    """Also of lines of unequal lengths read in one batch; in bf16 and int8 by the same weights."""
    lines = ["a longer sentence", "b", "of a c d", "longer longer longer a"]
    found = translator(subwords, **changes).translate_window(lines, details=("scores", "tokens"))
    tolerance = 1e-5 if changes.get("precision", "fp32") == "fp32" else 2e-2
    for translation in found:
        assert len(translation.hypotheses) == changes.get("n_best", 1)
        for hypothesis in translation.hypotheses:
            assert hypothesis.tokens is not None
            assert hypothesis.token_scores is not None
            assert len(hypothesis.tokens) == len(hypothesis.token_scores)
            total = sum(hypothesis.token_scores) / ((5 + len(hypothesis.tokens)) / 6) ** 0.6
            assert total == pytest.approx(hypothesis.score, abs=tolerance)


def test_tokens_make_the_text(loaded: LoadedModel) -> None:
    for translation in translator(loaded, n_best=3).translate_window(LINES, details=("tokens",)):
        for hypothesis in translation.hypotheses:
            assert hypothesis.tokens is not None
            text = " ".join(token for token in hypothesis.tokens if token != "<eos>").replace("@@ ", "")
            assert text.removesuffix("@@") == hypothesis.text
    assert translation.source_pieces == ()


def test_attention_is_that_of_the_model(loaded: LoadedModel) -> None:
    found = translator(loaded).translate_window(LINES, details=("attention", "tokens"))
    names = loaded.tokenizer.target_tokens(range(loaded.tokenizer.target_size))
    for line, translation in zip(LINES, found, strict=True):
        (hypothesis,) = translation.hypotheses
        assert attention(hypothesis) is not None
        assert translation.source_pieces is not None
        assert hypothesis.tokens is not None
        assert attention(hypothesis).shape == (len(hypothesis.tokens), len(translation.source_pieces))
        if hypothesis.tokens:
            source = [*loaded.tokenizer.encode_source([line])[0], EOS]
            target = [names.index(token) for token in hypothesis.tokens]
            wanted = loaded.model.attention(torch.tensor([source]), torch.tensor([target])).mean[0]
            torch.testing.assert_close(attention(hypothesis), wanted, atol=1e-5, rtol=0)
            assert translation.source_pieces[-1] == "<eos>"


@pytest.mark.parametrize(
    "changes", [{"n_best": 3}, {"precision": "bf16"}, {"precision": "int8", "n_best": 2}, {"split_long": 4}]
)
def test_heads_have_the_attention_as_their_mean(subwords: LoadedModel, changes: dict[str, Any]) -> None:
    lines = ["a longer sentence", "", "b", "longer longer longer a . b ."]
    for translation in translator(subwords, **changes).translate_window(lines, details=("heads", "attention")):
        assert translation.source_pieces is not None
        for hypothesis in translation.hypotheses:
            assert heads(hypothesis) is not None
            assert attention(hypothesis) is not None
            if translation.source == "":
                assert heads(hypothesis) == {}
                continue
            assert list(heads(hypothesis)) == ["decoder.0"]
            (weights,) = heads(hypothesis).values()
            assert weights.shape == (1, *attention(hypothesis).shape)
            torch.testing.assert_close(weights.mean(0), attention(hypothesis), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"deep_attention": True, "attention_heads": 2, "cell": "lrn"},
        {"architecture": "rnnsearch_deepatt", "attention_heads": 2, "cell": "sru"},
        {"architecture": "transformer", "embedding_size": 8, "architecture_options": {"heads": 4}},
        {
            "architecture": "transformer",
            "embedding_size": 8,
            "cell": "lrn",
            "architecture_options": {"heads": 2, "decoder_mixing": "attention"},
        },
    ],
    ids=lambda options: options.get("architecture", "deepnmt"),
)
def test_heads_of_every_layer(options: dict[str, Any]) -> None:
    """Of several hypotheses of two sentences, read at once, each is what the model tells of it alone."""
    model = make(**options).float()
    sources = [[4, 5, 6, 7, EOS], [8, EOS]]
    found = [[Hypothesis([3, 4, 5], -1.0), Hypothesis([6], -2.0)], [Hypothesis([7, 8], -1.0, has_ended=False)]]
    readings = read_hypotheses(model, pad(sources), found, heads_of=[model])
    assert [len(own) for own in readings] == [2, 1]
    for source, hypotheses, of_each in zip(sources, found, readings, strict=True):
        for hypothesis, own in zip(hypotheses, (reading.heads for reading in of_each), strict=True):
            assert own is not None
            target = torch.tensor([tokens_of(hypothesis)])
            wanted = record(model, torch.tensor(source), target[0]).attention
            assert list(own) == [name for name in wanted if not name.endswith(".self")]
            assert len(own) > 1
            for name, weights in own.items():
                torch.testing.assert_close(weights, wanted[name], atol=1e-5, rtol=0)


def test_hypotheses_of_no_token_have_layers_too(loaded: LoadedModel) -> None:
    empty = [[Hypothesis([], -1.0, has_ended=False)]]
    ((reading,),) = read_hypotheses(loaded.model, torch.tensor([[3, EOS]]), empty, heads_of=[loaded.model])
    assert reading.heads is not None
    assert {name: weights.shape for name, weights in reading.heads.items()} == {"decoder.0": (1, 0, 2)}


@pytest.mark.parametrize("beam", [1, 3])
def test_entropies_are_those_of_the_model(loaded: LoadedModel, beam: int) -> None:
    found = translator(loaded, beam_size=beam, n_best=beam).translate_window(LINES, details=("entropies", "tokens"))
    names = loaded.tokenizer.target_tokens(range(loaded.tokenizer.target_size))
    for line, translation in zip(LINES, found, strict=True):
        for hypothesis in translation.hypotheses:
            assert hypothesis.tokens is not None
            assert hypothesis.token_entropies is not None
            assert len(hypothesis.token_entropies) == len(hypothesis.tokens)
            if hypothesis.tokens:
                source = torch.tensor([[*loaded.tokenizer.encode_source([line])[0], EOS]])
                target = torch.tensor([[names.index(token) for token in hypothesis.tokens]])
                with torch.no_grad():
                    wanted = torch.distributions.Categorical(logits=loaded.model(source, target)).entropy()[0]
                assert hypothesis.token_entropies == pytest.approx(wanted.tolist(), abs=1e-5)


def test_entropies_with_a_shortlist_are_of_its_words(loaded: LoadedModel) -> None:
    """What cannot be chosen has no share: two words and the end symbol have an entropy of at most ln 3."""
    model, source = loaded.model, torch.tensor([[3, 4, EOS]])
    words = BatchWords(torch.tensor([2, 5, 6]), torch.zeros(1, 3, dtype=torch.bool))
    ((reading,),) = read_hypotheses(
        RestrictedModel(model, words), source, [[Hypothesis([6, 5], -1.0)]], words=words.ids, entropies=True
    )
    with torch.no_grad():
        logits = model(source, torch.tensor([[6, 5, EOS]]))[0][:, words.ids]
    assert reading.entropies == pytest.approx(
        torch.distributions.Categorical(logits=logits).entropy().tolist(), abs=1e-5
    )


def test_an_ensemble_has_the_mean(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = load_model(make_run(tmp_path_factory.mktemp("runs") / "run", steps=(30,), best=(30,))).model
    together = translator(loaded, others=[other]).translate_window(["a b c"], details=DETAILS)[0].hypotheses[0]
    assert together.tokens is not None
    assert attention(together) is not None
    assert together.token_scores is not None
    target = [*loaded.tokenizer.encode_target([" ".join(together.tokens[:-1])])[0], EOS]
    source = torch.tensor([[*loaded.tokenizer.encode_source(["a b c"])[0], EOS]])
    means = [model.attention(source, torch.tensor([target])).mean[0] for model in (loaded.model, other)]
    torch.testing.assert_close(attention(together), torch.stack(means).mean(0), atol=1e-5, rtol=0)
    assert heads(together) is not None
    assert list(heads(together)) == ["0.decoder.0", "1.decoder.0"]
    for weights, mean in zip(heads(together).values(), means, strict=True):
        torch.testing.assert_close(weights.mean(0), mean, atol=1e-5, rtol=0)
    with torch.no_grad():
        each = [model(source, torch.tensor([target]))[0].softmax(-1) for model in (loaded.model, other)]
    wanted = torch.distributions.Categorical(probs=torch.stack(each).mean(0)).entropy()
    assert together.token_entropies == pytest.approx(wanted.tolist(), abs=1e-5)
    total = sum(together.token_scores) / ((5 + len(target)) / 6) ** 0.6
    assert total == pytest.approx(together.score, abs=1e-5)


def test_a_line_in_parts(loaded: LoadedModel) -> None:
    """Each part as by itself: attention on the diagonal, words of the alignment counted on."""
    parts = ["a b c .", "d c a .", "b"]
    whole = translator(loaded, split_long=4, n_best=2).translate_window([" ".join(parts)], details=DETAILS)[0]
    alone = translator(loaded, n_best=2).translate_window(parts, details=DETAILS)
    assert whole.source_pieces == tuple(piece for part in alone for piece in part.source_pieces or ())
    for rank, hypothesis in enumerate(whole.hypotheses):
        own = [part.hypotheses[rank] for part in alone]
        assert hypothesis.tokens == tuple(token for part in own for token in part.tokens or ())
        scores = [score for part in own for score in part.token_scores or ()]
        assert hypothesis.token_scores == pytest.approx(scores, abs=1e-5)
        assert attention(hypothesis) is not None
        blocks = torch.block_diag(*(attention(part) for part in own if attention(part) is not None))
        torch.testing.assert_close(attention(hypothesis), blocks, atol=1e-5, rtol=0)
        assert heads(hypothesis) is not None
        torch.testing.assert_close(heads(hypothesis)["decoder.0"][0], blocks, atol=1e-5, rtol=0)
        entropies = [entropy for part in own for entropy in part.token_entropies or ()]
        assert hypothesis.token_entropies == pytest.approx(entropies, abs=1e-5)
        shifted, sources, targets = [], 0, 0
        for line, part in zip(parts, own, strict=True):
            shifted += [(source + sources, target + targets) for source, target in part.alignment or ()]
            sources, targets = sources + len(line.split()), targets + len(part.text.split())
        assert hypothesis.alignment == tuple(shifted)


def test_alignment_takes_the_heaviest_word() -> None:
    weights = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.5, 0.4], [0.2, 0.1, 0.7], [0.1, 0.2, 0.7]])
    # "ab cd e": the first word has two pieces, whose sum decides; "e" has one.
    assert alignment_of("ab cd e", [(0, 1), (1, 2), (2, 5), (5, 7)], weights) == ((1, 0), (2, 1), (2, 2))
    assert alignment_of("ab cd", [(0, 2)], weights[:1]) == ((0, 0),)
    assert alignment_of("a b c", [(0, 3), (3, 5)], weights[[0, 2]]) == ((0, 0), (0, 1), (2, 2))
    assert alignment_of("", [], weights[:0]) == ()


def test_subwords_of_both_sides_are_words(subwords: LoadedModel) -> None:
    line = "  a longer\tsentence  of c"
    for hypothesis in translator(subwords, n_best=3).translate_window([line], details=("alignment",))[0].hypotheses:
        assert hypothesis.alignment is not None
        assert [target for _, target in hypothesis.alignment] == list(range(len(hypothesis.text.split())))
        assert {source for source, _ in hypothesis.alignment} <= set(range(5))


def test_nothing_is_computed_unless_asked_for(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("not asked for")

    for owner in (type(loaded.model), GraphedModel, Ensemble):
        monkeypatch.setattr(owner, "attending_step", never)
    settings = {"placeholders": True, "replace_unknown": True}
    found = translator(loaded, **settings).translate_window(["a b c"], details=("tokens",))[0].hypotheses[0]
    assert (found.token_scores, attention(found), found.alignment) == (None, None, None)
    assert (found.token_entropies, heads(found)) == (None, None)
    assert found.tokens is not None
    with pytest.raises(AssertionError, match="not asked for"):
        translator(loaded).translate_window(["a"], details=("scores",))


def test_a_model_that_does_not_tell_its_attention(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "tells_attention", False)
    silent = translator(loaded)
    for detail in ("attention", "alignment"):
        with pytest.raises(ConfigError, match="^the attention of a translation: the decoder DeepDecoder"):
            silent.translate_window(["a"], details=(detail,))  # type: ignore[arg-type]
    for key in ("placeholders", "replace_unknown"):
        with pytest.raises(ConfigError, match=f"^decoding.{key}: the decoder DeepDecoder does not report"):
            translator(loaded, **{key: True})
    wanted = silent.translate_window(["a b"], details=("scores",))[0].hypotheses[0].token_scores
    monkeypatch.undo()
    assert wanted == translator(loaded).translate_window(["a b"], details=("scores",))[0].hypotheses[0].token_scores


def test_an_unknown_detail(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="details: 'words' is not known. Allowed: tokens, scores, entropies, att"):
        translator(loaded).translate_window(["a"], details=("words",))  # type: ignore[arg-type]
