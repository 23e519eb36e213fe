"""Models that are ready to translate: runs and folders by torch, files by the engine. Imports no torch by itself, so
that a command with files starts at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nmt.cli.arguments import DECODING, given, option_of, overridden
from nmt.errors import ConfigError, counted
from nmt.interop.engine.opened import are_engine_files
from nmt.interop.run_layout import LongestSource
from nmt.library.light import EngineFiles
from nmt.light.options import AUTO
from nmt.light.results import Result
from nmt.registry import RATERS, SEARCHES
from nmt.search.values import Details, Request
from nmt.system import is_one_of_several

if TYPE_CHECKING:
    from nmt.interop.model_dir import LoadedModel

Translate = Callable[[Sequence[str | Request], Details], list[Result]]
"""The n best translations of some lines, all at once and in order, with the details asked for."""


class Opened(NamedTuple):
    """One model or an ensemble, with the options of a command line."""

    translate: Translate
    n_best: int
    described: str
    """Models, place, search and number format, for people."""
    languages: tuple[str, str]
    longest: LongestSource
    """Longest source in training; at least one model has never seen a longer one."""
    joined: Callable[[str], str]
    """Target text in the form of written translations, with subwords joined to words."""


_ANY_LENGTH = LongestSource(2**31, False)


class Work(NamedTuple):
    """What models are opened for."""

    device: str
    """Where torch computes."""
    place: str
    """Its name, for people."""
    scores: bool
    """Whether scores are wanted."""
    on_batch: Callable[[int], object]
    """Is called with the number of sentences of each batch."""
    before_batch: Callable[[], object] | None = None
    say: Callable[[str], object] = lambda message: None
    """Is called with each change beyond the options."""


def open_models(arguments: argparse.Namespace, work: Work) -> Opened:
    """The models of a command line. ConfigError for an option that files for the engine do not have."""
    if not are_engine_files(arguments.models):
        return _open_runs(arguments, work)
    if is_one_of_several():
        raise ConfigError(f"WORLD_SIZE: {arguments.models[0]} is one file for the engine, which uses all cores itself")
    files = EngineFiles(
        arguments.models,
        device=arguments.device,
        precision=arguments.precision or "auto",
        checkpoint=arguments.checkpoint,
        plugins=arguments.plugins,
    )
    options = given(arguments, [name for name in (*DECODING, "details") if name != "precision"])
    chosen = {**files.chosen(options, say=work.say, named=option_of), "scores": work.scores}

    def translate(lines: Sequence[str | Request], details: Details) -> list[Result]:
        own = {**chosen, "details": files.rater.needs(details)}
        found = files.lines(lines, own, before_call=work.before_batch, on_call=work.on_batch)
        return files.rater.rated(found, details)

    listed = ", ".join(arguments.models)
    names = listed if len(arguments.models) == 1 else f"an ensemble of {len(arguments.models)} models ({listed})"
    search = "" if arguments.search in (None, "auto") else f"search {arguments.search}, "
    size = f"beam {chosen.get('beam_size', files.beam_size)}"
    if arguments.search == "sample":
        size = f"{counted(arguments.n_best or 1, 'sample')} a line"
    return Opened(
        translate,
        arguments.n_best or 1,
        f"{names} by the engine on {work.place}, {search}{size}, {files.precision} ({files.instructions})",
        (files.source_language, files.target_language),
        files.longest or _ANY_LENGTH,
        str,
    )


def shortest_training(models: Sequence[LoadedModel]) -> LongestSource:
    """The longest source that every model has seen in training."""
    return min((model.longest_source for model in models), key=lambda longest: longest.tokens)


def _open_runs(arguments: argparse.Namespace, work: Work) -> Opened:
    """Runs and model folders."""
    from nmt.data.sentences import lines_of_all
    from nmt.interop.model_dir import load_models, names_of
    from nmt.search.translator import translator_of

    models = load_models(
        arguments.models, plugins=arguments.plugins, device=work.device, checkpoint=arguments.checkpoint
    )
    loaded, *others = models
    decoding = overridden(loaded.config.decoding, arguments, say=work.say)
    lines_of = lines_of_all([model.lines for model in models])
    translator = translator_of(lines_of)(
        loaded.model,
        loaded.tokenizer,
        decoding,
        others=[other.model for other in others],
        scores=work.scores,
        before_batch=work.before_batch,
        on_batch=work.on_batch,
        lines=lines_of,
    )
    longest = shortest_training(models)
    named = "" if decoding.search == AUTO else f"search {decoding.search}, "
    size = SEARCHES.get(decoding.chosen_search).size(decoding)
    fused = "" if decoding.language_model is None else f", with the language model {decoding.language_model}"
    rater = RATERS.get("fitted")([model.path for model in models])

    def translate(lines: Sequence[str | Request], details: Details) -> list[Result]:
        found = translator.translate_window(lines, details=rater.needs(details))
        return rater.rated([one.result(longest.tokens) for one in found], details)

    return Opened(
        translate,
        decoding.n_best,
        f"{names_of(models)} on {work.place}, {named}{size}{fused}, {translator.precision}",
        (loaded.config.data.source_language, loaded.config.data.target_language),
        longest,
        loaded.tokenizer.joined_target,
    )
