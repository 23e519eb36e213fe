"""What validation scores depend on besides the weights: checkpoints are ranked by scores of equal conditions only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt.config.schema import Config, DecodingConfig
from nmt.data.validation_facts import ValidationFacts
from nmt.interop.model_dir import weights_of
from nmt.registry import SEARCHES, TASKS

_SAME_TRANSLATIONS = ("n_best", "batch_tokens")
"""Keys of `decoding` that change no translation that is scored, except `n_best` with a search of `best_of_n`."""
_CONTENT = "sha256:"
"""Prefix of values that represent the content of a file or text."""


def conditions(config: Config, facts: ValidationFacts | None) -> dict[str, Any]:
    """By name, everything that determines the score of given weights by `training.early_stopping_metric`.

    Without `facts`, the validation text is left out. Values are numbers, text, None, or lists and
    mappings of these.
    """
    metric, task = config.training.early_stopping_metric, TASKS.known(config.task)
    if metric == "loss" or (task is not None and metric in task.scores):  # measured without a search
        return {} if facts is None else {"data.dev": f"{_CONTENT}{facts.source}{facts.target}"}
    found = _search(config.decoding)
    if facts is not None:
        limit = config.evaluation.max_sentences
        found |= {
            "data.dev": f"{_CONTENT}{facts.source}",
            "references of data.dev": f"{_CONTENT}{facts.references}",
            "evaluation.max_sentences": limit if limit is None or limit < facts.lines else None,
        }
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Each condition that has changed, in words; conditions missing on one side (older versions) are left out."""
    for name in new:
        if name in old and old[name] != new[name]:
            is_content = str(old[name]).startswith(_CONTENT) and str(new[name]).startswith(_CONTENT)
            yield f"{name} has different contents" if is_content else f"{name}: {old[name]!r} -> {new[name]!r}"


def _search(decoding: DecodingConfig) -> dict[str, Any]:
    search, without = SEARCHES.known(decoding.chosen_search), {*_SAME_TRANSLATIONS}
    if search is not None and search.best_of_n:
        without.remove("n_best")
    names = [field.name for field in dataclasses.fields(decoding) if field.name not in without]
    found = {f"decoding.{name}": getattr(decoding, name) for name in names}
    found["decoding.search"] = decoding.chosen_search
    for key in ("shortlist", "glossary"):
        if getattr(decoding, key) is not None:
            found[f"decoding.{key}"] = _content(Path(getattr(decoding, key)))
    if decoding.language_model is not None:
        found["decoding.language_model"] = _content(weights_of(decoding.language_model))
    return found


def _content(path: Path) -> str:
    try:
        return f"{_CONTENT}{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError:  # reported where it is used to translate
        return str(path)
