"""The score of each sentence, as a table of numbers (.tsv) or with the texts (.jsonl)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from nmt.errors import ConfigError
from nmt.evaluation import Metric
from nmt.evaluation.metrics import of_sentences

ENDINGS: Final = (".tsv", ".jsonl")


def check_ending(path: str) -> None:
    """Raise ConfigError for a file of another form."""
    if PurePath(path).suffix not in ENDINGS:
        raise ConfigError(f"--sentences {path}: must end in {' or '.join(ENDINGS)}")


def rows(
    path: str,
    metrics: Sequence[Metric],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
) -> Iterator[str]:
    """The lines of `path`: in a .tsv a head, and for each sentence its number from 1 and the scores of each system; in
    a .jsonl an object with `line`, `source`, `references` and `systems`: by their names `text` and `scores`.

    Scores have the names of metrics, and BLEU of a sentence is that of the n-grams it is long enough for. Raises
    ConfigError for a metric without scores of sentences.
    """
    found = {
        name: {metric.name: of_sentences(metric, lines, references, sources=sources) for metric in metrics}
        for name, lines in systems.items()
    }
    if path.endswith(".tsv"):
        columns = [(name, metric.name) for name in systems for metric in metrics]
        yield "\t".join(["line", *(f"{name} {metric}".replace("\t", " ") for name, metric in columns)]) + "\n"
        for place in range(len(references[0])):
            yield "\t".join([str(place + 1), *(f"{found[name][metric][place]:.4f}" for name, metric in columns)]) + "\n"
        return
    for place in range(len(references[0])):
        own = {"line": place + 1, "source": None if sources is None else sources[place]}
        scored = {
            name: {"text": lines[place], "scores": {metric: scores[place] for metric, scores in found[name].items()}}
            for name, lines in systems.items()
        }
        entry = own | {"references": [stream[place] for stream in references], "systems": scored}
        yield json.dumps(entry, ensure_ascii=False) + "\n"
