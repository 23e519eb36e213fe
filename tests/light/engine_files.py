"""Engine files of small random models, with vocabularies as SentencePiece has them, opened by the compiled engine."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, c_int32, cast
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2

from nmt.data import EOS
from nmt.data.batching import pad
from nmt.light.binding import Library, Model, Results
from nmt.models.base import Seq2Seq
from nmt.registry import SEARCHES
from nmt.search.values import Hypothesis
from tests.compiled import needed_engine
from tests.interop.engine_models import content_of

NO_LIMIT = {"length_penalty": 0.8, "max_length_offset": 3}


def pieces(count: int) -> bytes:
    """A model of so many pieces: nmt's special ones, and characters."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.trainer_spec.model_type = 2  # BPE
    proto.normalizer_spec.name = "identity"
    kinds = {"<pad>": 3, "<unk>": 2, "<eos>": 3}  # control, unknown, control
    names = [*kinds, "\u2581", *(chr(0x4E00 + i) for i in range(count - 4))]
    for number, name in enumerate(names):
        proto.pieces.add(piece=name, score=-float(number), type=kinds.get(name, 1))
    content: bytes = proto.SerializeToString()
    return content


def library() -> Library:
    """The engine, compiled by the first test that asks for it; skips where there is no compiler."""
    return Library(needed_engine())


def opened(model: Seq2Seq, folder: Path, *, kernels: str | None = None, name: str = "model", **more: Any) -> Model:
    """The file of a model, written and opened."""
    path = folder / f"{name}.nmt"
    vocabularies = pieces(model.source_vocab_size), pieces(model.target_vocab_size)
    path.write_bytes(content_of(model, subwords=vocabularies, **more))
    return library().open([path], kernels=kernels)


def options(engine: Model, **changes: Any) -> Any:
    """Those of the file, with changes."""
    return engine.defaults()._replace(**changes)


def sentences(count: int, *, vocabulary: int, seed: int = 1, longest: int = 5) -> list[list[int]]:
    """Random ids without end symbols, of every length."""
    draw = torch.Generator().manual_seed(seed)
    lengths = [1 + i % longest for i in range(count)]
    return [torch.randint(1, vocabulary, (length,), generator=draw).tolist() for length in lengths]


def by_pytorch(
    model: Any, sources: list[list[int]], *, beam: int, n_best: int = 1, **more: Any
) -> list[list[Hypothesis]]:
    """What PyTorch finds, greedily for a beam of one."""
    batch = pad([[*source, EOS] for source in sources])
    search = SEARCHES.get("greedy" if beam == 1 else "beam")()
    return search.search(model, batch, beam_size=beam, n_best=n_best, **{"scores": True, **NO_LIMIT, **more})


def translated_ids(engine: Model, sources: Sequence[Sequence[int]], given: Any) -> Results:
    """Sentences in ids, without their end symbols."""
    arrays = [(c_int32 * max(1, len(one)))(*one) for one in sources]
    pointers = (POINTER(c_int32) * len(arrays))(*(cast(one, POINTER(c_int32)) for one in arrays))
    return engine.results("nmt_translate_ids", pointers, [*map(len, sources)], given)


def hypotheses(found: Results, line: int) -> list[Hypothesis]:
    """What the engine has found for a sentence, in PyTorch's terms."""
    result = []
    for i in range(found.translations(line)):
        ids = found.ids(line, i, 0)
        ended = bool(ids) and ids[-1] == EOS
        result.append(Hypothesis(ids[:-1] if ended else ids, found.score(line, i), has_ended=ended))
    return result
