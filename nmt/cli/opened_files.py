"""Files for the engine that are ready to translate; imports no torch, so that a command with them starts at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nmt.cli.decoding_options import DECODING
from nmt.cli.opened import Opened
from nmt.cli.option_names import option_of
from nmt.errors import ConfigError
from nmt.interop.facts import LongestSource
from nmt.library.light import EngineFiles, Line, refused_wish
from nmt.light.translator import NOT_TOLD
from nmt.search import Request, ScoredText, Translation
from nmt.search.values import AT_LIMIT, NOT_FINITE, SEVERAL, SPLIT, Details, as_request

_WISHES = {"prefix": "prefix", "required": "require", "forbidden": "forbid"}
"""Wishes of a request, and their names in input lines."""
_ANY_LENGTH = LongestSource(2**31, False)


def open_files(
    arguments: argparse.Namespace,
    *,
    place: str,
    scores: bool,
    say: Callable[[str], object] | None,
    before_batch: Callable[[], object] | None,
    on_batch: Callable[[int], object],
) -> Opened:
    """The models of a command line; see `OpenModels`.

    Raises ConfigError for an option that the engine does not have.
    """
    _check(arguments)
    files = EngineFiles(
        arguments.models,
        device=arguments.device,
        precision=arguments.precision or "auto",
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
    )
    given = {name: getattr(arguments, name) for name in DECODING if name != "precision"}
    options = {name: value for name, value in given.items() if value is not None}
    chosen = {**files.chosen(options, say=say or _ignore, named=option_of), "scores": scores}
    listed = ", ".join(arguments.models)
    names = listed if len(arguments.models) == 1 else f"an ensemble of {len(arguments.models)} models ({listed})"
    search = "" if arguments.search in (None, "auto") else f"search {arguments.search}, "
    return Opened(
        FilesTranslator(files, chosen, before_batch=before_batch, on_batch=on_batch),
        len(arguments.models),
        arguments.n_best or 1,
        f"{names} by the engine on {place}, {search}beam {files.beam_size(chosen)}, {files.facts.precision}",
        files.facts.languages,
        files.longest or _ANY_LENGTH,
        str,
    )


class FilesTranslator:
    """Translates lines like `nmt.search.Translator`, except for what the engine does not have."""

    def __init__(
        self,
        files: EngineFiles,
        chosen: Mapping[str, Any],
        *,
        before_batch: Callable[[], object] | None,
        on_batch: Callable[[int], object],
    ) -> None:
        """`chosen`: the engine's own options."""
        self._files, self._chosen = files, chosen
        self._before, self._on = before_batch, on_batch

    def translate_window(self, lines: Sequence[str | Request], *, details: Details = ()) -> list[Translation]:
        """The n best translations of some lines, with what `details` asks for; DataError for a request with wishes."""
        texts = [self._text(as_request(line)) for line in lines]
        chosen = {**self._chosen, "details": tuple(details)}
        found = self._files.lines(texts, chosen, before_call=self._before, on_call=self._on)
        return [*map(_translation, found)]

    def _text(self, request: Request) -> str:
        for name, called in _WISHES.items():
            if getattr(request, name):
                raise request.error(refused_wish(called, self._files.file))
        return request.text


def _translation(line: Line) -> Translation:
    result, lengths = line
    return Translation(
        result.source,
        [
            ScoredText(
                found.text,
                found.score,
                found.tokens,
                found.token_scores,
                alignment=found.alignment,
                attention_of_parts=found.attention_of_parts,
            )
            for found in result.n_best
        ],
        source_tokens=result.source_tokens,
        unknown=result.unknown,
        parts=max(1, len(lengths)),
        sentences=max(1, len(lengths)) - (SPLIT in result.notes),
        several=SEVERAL in result.notes,
        longest_part=max(lengths, default=0),
        has_ended=AT_LIMIT not in result.notes,
        is_finite=NOT_FINITE not in result.notes,
        source_pieces=result.source_pieces,
    )


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options outside the search that a file cannot have."""
    file = arguments.models[0]
    if arguments.device == "cuda":
        raise ConfigError(f"--device cuda: {file} is one file for the engine, which computes on the CPU")
    if arguments.plugins:
        raise ConfigError(f"--plugin: {file} is one file for the engine, which needs and takes no plugins")
    for detail in getattr(arguments, "details", ()):
        if detail in NOT_TOLD:
            raise ConfigError(refused_wish(f"--with {detail}", file))
    for name in ("prefix", "constraints"):
        if getattr(arguments, name, None) is not None:
            raise ConfigError(refused_wish(f"--{name}", file))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(
            f"WORLD_SIZE: {file} is one file for the engine, which translates in one process with all cores"
        )


def _ignore(message: str) -> None:
    """A status line that is not shown."""
