"""Lexical shortlists: what a sentence may choose from, on its own and in a batch; files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import ModelConfig
from nmt.data import EOS, PAD, UNK, Vocabulary
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import DataError
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.search import Hypothesis
from nmt.search.shortlist import RestrictedModel, Shortlist, load_shortlist
from nmt.search.translator import Translator
from nmt.zero.search import beam_search, greedy_search
from tests.tiny_run import make_run

V = 40
OPTIONS = {"length_penalty": 0.6, "max_length_offset": 4}
SEARCHES = [(beam_search, 4), (greedy_search, 1)]


def random_model() -> Seq2Seq:
    torch.manual_seed(2)
    config = ModelConfig(cell="lrn", hidden_size=16, embedding_size=12, tie_embeddings="none", init_range=0.6)
    return build_model(config, V, V).double().eval()


def sentences() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 10, (64, 1), generator=generator)
    source = torch.randint(3, V, (64, 10), generator=generator)
    places = torch.arange(10)
    return source.masked_fill(places >= lengths, PAD).masked_fill(places == lengths - 1, EOS)


def random_shortlist(*, best: int = 3) -> Shortlist:
    """Source tokens with 0 to `best` partners each."""
    generator = torch.Generator().manual_seed(5)
    counts = torch.randint(0, best + 1, (V,), generator=generator)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    partners = torch.randint(3, V, (int(starts[-1]),), generator=generator, dtype=torch.int32)
    return Shortlist(frequent=torch.tensor([7, 30], dtype=torch.int32), partners=partners, starts=starts, target_size=V)


def own_list(shortlist: Shortlist, row: torch.Tensor) -> set[int]:
    found = {PAD, UNK, EOS, *shortlist.frequent.tolist()}
    for token in row.tolist():
        found.update(shortlist.partners[shortlist.starts[token] : shortlist.starts[token + 1]].tolist())
    return found


def search(method, size: int, model: Seq2Seq, source: torch.Tensor, shortlist: Shortlist) -> list[list[Hypothesis]]:
    with torch.inference_mode():
        restricted = RestrictedModel(model, shortlist.words(source))
        return restricted.with_ids(method(restricted, source, beam_size=size, **OPTIONS))


def test_the_lists_of_a_batch() -> None:
    shortlist, source = random_shortlist(), sentences()
    words = shortlist.words(source)
    assert words.ids[:3].tolist() == [PAD, UNK, EOS]
    assert words.ids.tolist() == sorted({token for row in source for token in own_list(shortlist, row)})
    for row, forbidden in zip(source, words.forbidden, strict=True):
        assert set(words.ids[~forbidden].tolist()) == own_list(shortlist, row)


@pytest.mark.parametrize(("method", "size"), SEARCHES)
def test_a_sentence_gets_its_own_words_whatever_its_companions(method, size: int) -> None:
    model, source, shortlist = random_model(), sentences(), random_shortlist()
    together = search(method, size, model, source, shortlist)
    used = set()
    for row, found in zip(source, together, strict=True):
        alone = search(method, size, model, row.unsqueeze(0), shortlist)[0]
        assert [h.ids for h in found] == [h.ids for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-12)
        words = {token for h in found for token in h.ids}
        assert words <= own_list(shortlist, row)
        used |= words
    assert not used <= {UNK, 7, 30}


@pytest.mark.parametrize(("method", "size"), SEARCHES)
def test_all_words_listed_is_no_restriction(method, size: int) -> None:
    model, source = random_model().float(), sentences()
    everything = Shortlist(
        frequent=torch.arange(V, dtype=torch.int32),
        partners=torch.empty(0, dtype=torch.int32),
        starts=torch.zeros(V + 1, dtype=torch.int64),
        target_size=V,
    )
    assert search(method, size, model, source, everything) == method(model, source, beam_size=size, **OPTIONS)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_run(tmp_path_factory.mktemp("runs") / "run"))


def write(
    path: Path,
    loaded: LoadedModel,
    *,
    frequent: list[int],
    source_size: int | None = None,
    partners: Sequence[int] = (),
    first: Sequence[int] = (0,),
) -> Path:
    """A shortlist whose `partners` begin at `first` for the first source tokens; the others have none."""
    starts = torch.full(((source_size or loaded.tokenizer.source_size) + 1,), len(partners), dtype=torch.int64)
    starts[: len(first)] = torch.tensor(first)
    shortlist = Shortlist(
        frequent=torch.tensor(frequent, dtype=torch.int32),
        partners=torch.tensor(partners, dtype=torch.int32),
        starts=starts,
        target_size=loaded.tokenizer.target_size,
    )
    path.write_bytes(shortlist.save_bytes(loaded.tokenizer))
    return path


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_translator_keeps_to_the_file(loaded: LoadedModel, tmp_path: Path, beam_size: int) -> None:
    path = write(tmp_path / "list", loaded, frequent=[4])
    decoding = dataclasses.replace(loaded.config.decoding, shortlist=str(path), beam_size=beam_size)
    translations = list(Translator(loaded.model, loaded.tokenizer, decoding).translate(["a b c", "d", "", "c b"]))
    words = {word for line in translations for word in line.split()}
    assert words <= {loaded.tokenizer.decode_target([i]) for i in (UNK, 4)}
    assert words


def test_a_file_that_is_exchanged_in_place_changes_nothing(loaded: LoadedModel, tmp_path: Path) -> None:
    path = write(tmp_path / "list", loaded, frequent=[3, 4], partners=[3])
    shortlist = load_shortlist(path, loaded.tokenizer)
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.write(b"\xff" * size)
    assert shortlist.frequent.tolist() == [3, 4] and shortlist.partners.tolist() == [3]


def test_a_file_that_does_not_fit(loaded: LoadedModel, tmp_path: Path) -> None:
    good = write(tmp_path / "good", loaded, frequent=[3, 4])
    assert load_shortlist(good, loaded.tokenizer).frequent.tolist() == [3, 4]
    with pytest.raises(DataError, match="missing: not a readable shortlist .*No such file"):
        load_shortlist(tmp_path / "missing", loaded.tokenizer)
    (tmp_path / "text").write_text("no shortlist")
    with pytest.raises(DataError, match="text: not a readable shortlist"):
        load_shortlist(tmp_path / "text", loaded.tokenizer)
    with pytest.raises(DataError, match="not a shortlist; nmt-shortlist"):
        load_shortlist(next(loaded.path.glob("*.safetensors")), loaded.tokenizer)
    mistakes: list[dict[str, Any]] = [{"frequent": [999]}, {"frequent": [-1]}, {"frequent": [3], "source_size": 4}]
    mistakes += [{"frequent": [3], "partners": [3, 4], "first": first} for first in ([0, 2, 1], [1], [0, 5, 2])]
    for changes in mistakes:
        with pytest.raises(DataError, match="bad: damaged"):
            load_shortlist(write(tmp_path / "bad", loaded, **changes), loaded.tokenizer)
    other = WhitespaceTokenizer(Vocabulary(["a"]), Vocabulary(["x"]), options=WhitespaceOptions())
    with pytest.raises(DataError, match="made with another tokenizer"):
        load_shortlist(good, other)
