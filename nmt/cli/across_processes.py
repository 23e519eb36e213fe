"""Translation of lines by several processes: each translates a part, and rank 0 puts the parts together."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import torch

from nmt.cli.opened import Translating
from nmt.errors import ConfigError, DataError
from nmt.search import Request, ScoredText, Translation
from nmt.search.values import Details, as_request
from nmt.training.distributed import World, check_same, interleave

BLOCK = 1 << 20
_FACTS = tuple(field.name for field in dataclasses.fields(Translation) if field.name not in ("source", "hypotheses"))
"""The facts about a translation apart from its texts; every process has the source."""
_OF_TEXTS = ("text", "score", "tokens", "token_scores", "alignment", "token_entropies")
"""The fields of a text apart from its attention."""


def check_input(path: str | None, *, world: World) -> None:
    """Check that all processes read the same file; a single process may translate anything.

    Raises:
        ConfigError: no input file is given.
        DataError: the file is missing or cannot be read. RankError: the processes' files differ.
    """
    if world.size == 1:
        return
    if path is None or (os.path.exists(path) and not os.path.isfile(path)):
        raise ConfigError("several processes must read the same input file; give it with -i")
    check_same(world, "text to translate", lambda: _digest(path))


def translate_across_processes(
    translator: Translating, lines: Sequence[str | Request], details: Details = (), *, world: World
) -> list[Translation]:
    """The translations of `lines`, in order, on rank 0; each process has the same lines and translates its part.

    `details`: see `Translator.translate_window`.
    The other processes get an empty list.
    """
    if world.size == 1:
        return translator.translate_window(lines, details=details)
    # Every n-th line, so that in a sorted text no process gets all the long lines.
    mine = translator.translate_window(lines[world.rank :: world.size], details=details)
    parts = world.gather([_packed(translation) for translation in mine])
    if not world.is_main:
        return []
    return [_unpacked(as_request(line).text, packed) for line, packed in zip(lines, interleave(parts), strict=True)]


def _packed(translation: Translation) -> list[Any]:
    texts = [[getattr(hypothesis, name) for name in _OF_TEXTS] for hypothesis in translation.hypotheses]
    for text, hypothesis in zip(texts, translation.hypotheses, strict=True):
        parts = hypothesis.attention_of_parts
        text.append(None if parts is None else [*map(_packed_tensor, parts)])
        heads = hypothesis.heads_of_parts
        text.append(None if heads is None else [{name: _packed_tensor(own[name]) for name in own} for own in heads])
    return [texts, *(getattr(translation, name) for name in _FACTS)]


def _packed_tensor(tensor: torch.Tensor) -> list[list[Any]]:
    return [list(tensor.shape), tensor.flatten().tolist()]


def _unpacked_tensor(shape: list[int], values: list[float]) -> torch.Tensor:
    return torch.tensor(values).view(shape)


def _unpacked(line: str, packed: list[Any]) -> Translation:
    texts, *facts = packed
    hypotheses = [_unpacked_text(*text) for text in texts]
    translation = dataclasses.replace(Translation(line, hypotheses), **dict(zip(_FACTS, facts, strict=True)))
    pieces = translation.source_pieces
    return translation if pieces is None else dataclasses.replace(translation, source_pieces=tuple(pieces))


def _unpacked_text(
    text: str,
    score: float,
    tokens: list[str] | None,
    token_scores: list[float] | None,
    alignment: list[list[int]] | None,
    token_entropies: list[float] | None,
    parts: list[Any] | None,
    heads: list[dict[str, Any]] | None,
) -> ScoredText:
    return ScoredText(
        text,
        score,
        None if tokens is None else tuple(tokens),
        None if token_scores is None else tuple(token_scores),
        None if parts is None else tuple(_unpacked_tensor(*part) for part in parts),
        None if alignment is None else tuple((source, target) for source, target in alignment),
        token_entropies=None if token_entropies is None else tuple(token_entropies),
        heads_of_parts=None
        if heads is None
        else tuple({name: _unpacked_tensor(*packed) for name, packed in own.items()} for own in heads),
    )


def _digest(path: str) -> str:
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return found.hexdigest()
