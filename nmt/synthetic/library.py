"""`nmt.distill` and `nmt.backtranslate`: training text made by models, as with the commands of these names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nmt.errors import ConfigError, refused
from nmt.library.loading import before_torch, load, path_of, several
from nmt.library.translator import Translator
from nmt.light.options import OPTIONS, as_keys

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt.library.values import Options
    from nmt.synthetic.corpus import Progress, Work
    from nmt.synthetic.texts import Made

PathLike = str | os.PathLike[str]
Models = Translator | PathLike | Sequence[PathLike]

_NOT_FOR_TEXT = tuple(name for name, option in OPTIONS.items() if not option.is_key)
"""Options of a translation that have no effect here."""
_POLICIES = ("strict", "replace", "empty")


@dataclass(frozen=True)
class SyntheticText:
    """Files of training text that models have made."""

    files: tuple[Path, Path]
    """Files of the text that was read, and of its translations; both have the same number of lines."""
    lines: int
    """Lines read."""
    pairs: int
    """Pairs written."""
    skipped: int
    """Pairs with an empty side, which training skips, and which `keep_best_share` drops."""
    failed: int
    """Lines without a translation of finite probability."""
    dropped: int = 0
    """Other pairs that `keep_best_share` has dropped."""
    notes: dict[str, int] = field(default_factory=dict, repr=False)
    """Lines with a note, by the words of `Result.notes`, and `not_utf8`."""


def distill(
    model: Models,
    output: PathLike,
    *,
    train: PathLike | Sequence[PathLike] = (),
    source: PathLike | Sequence[PathLike] = (),
    nearest: str | None = None,
    keep_original: bool = False,
    alignment: bool = False,
    keep_best_share: float | None = None,
    scored_by: PathLike | None = None,
    errors: str = "strict",
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[Options],
) -> SyntheticText:
    """Translate training text with one or several teachers, for a student to learn from, as nmt-distill does.

    After an interruption, the same call resumes.

    Args:
        model: a translator, or an argument of `nmt.load`; several are an ensemble.
        output: prefix of the files to write; the model's languages are their suffixes.
        train: prefixes of parallel text whose source is translated; by default, if there is no `source`, the training
            text of the (first) model.
        source: files of further text in the source language.
        nearest: `bleu` or `chrf`: of the n best translations, keep only the one nearest to the reference.
        keep_original: also write each line of `train` with its reference.
        alignment: also write the file `output`.alignment, as nmt-distill does.
        keep_best_share: keep only this share of the pairs, those whose source is most probable given the translation.
        scored_by: the model that says so, an argument of `nmt.load`, of the other direction.
        errors: what to do with lines that are not UTF-8: `strict`, `replace`, `empty`.
        overwrite: start again, and replace existing files.
        progress: called with the number of finished lines and of all lines, before each window and at the end.
        options: search options, as of `Translator.translate`; with `n_best`, each line gives that many pairs.

    Raises:
        ConfigError: unknown options, options that do not go together, or files of other work.
        DataError: text is missing or cannot be used; files are in the way or cannot be written.
        CheckpointError: a model cannot be loaded.
    """
    return _make(
        model,
        output,
        train=_paths(train, "train"),
        source=_paths(source, "source"),
        nearest=nearest,
        keep_original=keep_original,
        alignment=alignment,
        keep_best_share=keep_best_share,
        scored_by=scored_by,
        errors=errors,
        overwrite=overwrite,
        progress=progress,
        options=dict(options),
    )


def backtranslate(
    model: Models,
    text: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    errors: str = "strict",
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[Options],
) -> SyntheticText:
    """Create a source side for text of the target language, by a model of the other direction, like nmt-backtranslate.

    The files are for `data.monolingual`, under the prefix `output`. `text`: files with one sentence per line; the other
    arguments are as in `distill`.
    """
    source = _paths(text, "text")
    if not source:
        raise ConfigError("text: no file is given")
    return _make(
        model, output, source=source, errors=errors, overwrite=overwrite, progress=progress, options=dict(options)
    )


def _make(
    model: Models,
    output: PathLike,
    *,
    source: Sequence[str],
    train: Sequence[str] = (),
    nearest: str | None = None,
    keep_original: bool = False,
    alignment: bool = False,
    keep_best_share: float | None = None,
    scored_by: PathLike | None = None,
    errors: str,
    overwrite: bool,
    progress: Callable[[int, int], object] | None,
    options: dict[str, Any],
) -> SyntheticText:
    prefix = path_of(output, "output")
    for name in _NOT_FOR_TEXT:
        if name in options:
            raise ConfigError(f"{name}: is not an option here, only of Translator.translate")
    if errors not in _POLICIES:
        raise ConfigError(refused("errors", errors, _POLICIES))
    before_torch()
    translator = model if isinstance(model, Translator) else load(model)
    try:
        from nmt.config.options import changed_decoding
        from nmt.interop.model_dir import find_model
        from nmt.registry import TOKENIZERS
        from nmt.synthetic.corpus import Work
        from nmt.synthetic.texts import Texts, files_to_translate, languages_of

        config = translator.config
        if config.data.context != "none":
            raise ConfigError(
                f"data.context: '{config.data.context}' has no place where sentences are translated alone"
            )
        given = {"n_best": 1, **{name: value for name, value in options.items() if value is not None}}
        decoding = changed_decoding(config.decoding, as_keys(given))
        work = Work(
            Texts(files_to_translate(config, train=train, source=source), policy=errors),  # type: ignore[arg-type]
            translator.models,
            decoding,
            languages_of(config.data, decoding),
            nearest=nearest,
            keep_original=keep_original,
            alignment=alignment,
            keep_best_share=keep_best_share,
            scored_by=None if scored_by is None else find_model(path_of(scored_by, "scored_by")),
            errors=errors,
            as_tokens=TOKENIZERS.get(config.data.tokenizer).splits_at_spaces,
        )
        return _done(work, translator, prefix, given, overwrite=overwrite, told=progress)
    finally:
        if translator is not model:
            translator.close()


def _done(
    work: Work,
    translator: Translator,
    prefix: str,
    options: dict[str, Any],
    *,
    overwrite: bool,
    told: Callable[[int, int], object] | None,
) -> SyntheticText:
    """Do the remaining work."""
    from nmt.synthetic.best import reverse_score
    from nmt.synthetic.corpus import Output, translate_corpus
    from nmt.synthetic.texts import made

    details: list[Literal["tokens", "alignment"]] = ["alignment"] if work.alignment else []
    details = ["tokens"] if work.as_tokens else details

    def translate(lines: Sequence[str]) -> list[Made]:
        return [
            made(one.n_best, notes=one.notes, source_tokens=one.source_tokens, as_tokens=work.as_tokens)
            for one in translator.translate(list(lines), scores=False, details=details, **options)
        ]

    def tell(lines: int = 0) -> None:
        if told is not None:
            told(progress.counts.lines, work.texts.lines)

    output = Output(prefix, work)
    progress: Progress = output.progress(overwrite=overwrite)
    with ExitStack() as stack:
        score = None
        if work.scored_by is not None and not progress.is_best:
            score = reverse_score(stack.enter_context(load(work.scored_by)), languages=work.languages)
        joined = lambda line: translator.joined([line])[0]  # noqa: E731
        translate_corpus(work, output, progress, translate, joined=joined, on_window=tell, score=score)
    tell()
    counts = progress.counts
    source, target = output.files[:2]
    return SyntheticText(
        (source, target),
        counts.lines,
        counts.pairs,
        counts.halves,
        counts.failed,
        counts.dropped,
        notes=dict(counts.noted),
    )


def _paths(value: PathLike | Sequence[PathLike], name: str) -> list[str]:
    return [path_of(item, name) for item in several(value)]
