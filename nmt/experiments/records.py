"""What a run has given, as one small JSON file: its settings, sizes, costs, learning curve and scores of the test text.

A record needs neither weights nor text. The counts from which sacreBLEU computes a score, a row for each sentence, are
in it, so that records alone tell whether two systems differ by chance.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt import __version__
from nmt.errors import DataError, printable, refused, shown
from nmt.evaluation import Metric
from nmt.evaluation.metrics import counting
from nmt.evaluation.significance import counted_by
from nmt.files import LARGEST_LOG, read_file

FORMAT: Final = 1
_LARGEST: Final = 1 << 28
"""Bytes of a table of counts."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The score of a test text by one metric."""

    metric: str
    """Name in the registry."""
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str
    """Label in tables, as sacreBLEU writes it."""
    score: float
    signature: str = ""
    higher_is_better: bool = True
    counts: NDArray[np.float64] | None = None
    """[sentences, n]: what sacreBLEU adds up; None for other metrics."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A test text and its scores."""

    text: str
    """Its name, for people."""
    digest: str
    """Of all references: scores are compared only where it is equal."""
    sentences: int
    sets: Mapping[str, int] = field(default_factory=dict)
    """Sentences of each set that has a name, whose scores are called `bleu@NAME`."""
    checkpoint: str = ""
    scores: Sequence[Scored] = ()


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run. Numbers that its log does not have are None."""

    name: str
    """That of its directory."""
    path: str = ""
    """Where it was read; not written."""
    architecture: str
    unit: str
    seed: int
    settings: Mapping[str, Any]
    """Each key of the configuration; of paths the last two parts."""
    parameters: int | None = None
    updates: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    tokens_per_second: float | None = None
    """Target tokens, the median of the log."""
    date: str | None = None
    """On which it ended."""
    cpu: str | None = None
    device: str | None = None
    threads: int | None = None
    precision: str | None = None
    torch: str | None = None
    version: str = __version__
    """Of nmt that has made the record."""
    ended: str | None = None
    """Why; None for a run that is still training or was killed."""
    finished: bool = False
    validation: Mapping[str, float] = field(default_factory=dict)
    """Step and scores of the best validation."""
    curve: Sequence[Mapping[str, float | None]] = ()
    """Places and scores of all validations."""
    test: Measured | None = None


def scored(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None = None,
) -> Scored:
    """The score of a text, with its counts where the metric has scores or counts of sentences."""
    metric = counting(metric)
    found, counts = metric.score(hypotheses, references, sources=sources), None
    if metric.scorer() is not None or found.segments is not None:
        counts = counted_by(metric, hypotheses, references, sources)[1]
    usual = dataclasses.asdict(type(metric.options)())
    return Scored(
        metric=metric.name,
        options={key: value for key, value in dataclasses.asdict(metric.options).items() if value != usual[key]},
        name=found.name,
        score=found.score,
        signature=found.signature,
        higher_is_better=found.higher_is_better,
        counts=None if counts is None else np.array(counts, dtype=np.float64),
    )


def digest_of(references: Sequence[Sequence[str]]) -> str:
    """The same for the same references."""
    return hashlib.sha256(json.dumps([list(stream) for stream in references]).encode()).hexdigest()[:16]


def written(record: Record) -> bytes:
    """The content of a file that `read_record` reads."""
    fields = {name: value for name, value in vars(record).items() if name not in ("path", "test")}
    fields["curve"] = [dict(event) for event in record.curve]
    if record.test is not None:
        own = dict(vars(record.test))
        own["scores"] = [{**vars(one), "counts": _packed(one.counts)} for one in record.test.scores]
        fields["test"] = own
    text = json.dumps({"format": FORMAT, **fields}, indent=1, ensure_ascii=False, allow_nan=False)
    # A validation, and the counts of a metric, on one line each.
    return (
        re.sub(r"\{\n +([^{}]*?)\n +\}", lambda found: "{" + re.sub(r"\n +", " ", found[1]) + "}", text) + "\n"
    ).encode()


def read_record(path: Path) -> Record:
    """The record in a file; DataError for what is none."""
    text = read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace")
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or "format" not in fields:
            raise ValueError("it has no 'format'")
        if fields.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        test = fields.pop("test", None)
        if test is not None:
            own = [Scored(**{**one, "counts": _unpacked(one.get("counts"))}) for one in test.pop("scores")]
            test = Measured(**test, scores=own)
            for one in test.scores:
                size = test.sets.get(one.metric.partition("@")[2], test.sentences)
                if type(one.score) not in (int, float) or (one.counts is not None and len(one.counts) != size):
                    raise ValueError(f"the score or the counts of {shown(one.metric)} are damaged")
        record = Record(**fields, path=str(path), test=test)
        if not (isinstance(record.name, str) and isinstance(record.settings, dict) and isinstance(record.curve, list)):
            raise ValueError("its name, settings or curve are damaged")
        for name in ("parameters", "updates", "epochs", "seconds", "cpu_seconds", "tokens_per_second", "seed"):
            if type(getattr(record, name)) not in (int, float, type(None)):
                raise ValueError(f"{name} is {shown(getattr(record, name))}, not a number")
        return record
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        problem = printable(str(error).split("\n")[0])[:200]
        raise DataError(f"{path}: is no record of a run, as nmt-compare --save writes it ({problem})") from None


def _packed(counts: NDArray[np.float64] | None) -> dict[str, Any] | None:
    """Whole numbers as text."""
    if counts is None:
        return None
    exact = counts.astype("<i4")
    kind = "i4" if np.array_equal(exact, counts) else "f8"
    data = zlib.compress((exact if kind == "i4" else counts.astype("<f8")).tobytes(), 9)
    return {"shape": list(counts.shape), "type": kind, "zlib": base64.b64encode(data).decode("ascii")}


def _unpacked(packed: Any) -> NDArray[np.float64] | None:
    if packed is None:
        return None
    shape, kind = packed["shape"], packed["type"]
    if kind not in ("i4", "f8"):
        raise ValueError(refused("type", kind, ["i4", "f8"]))
    opened = zlib.decompressobj()
    data = opened.decompress(base64.b64decode(packed["zlib"], validate=True), _LARGEST)
    table = np.frombuffer(data, dtype=f"<{kind}").reshape(shape).astype(np.float64)
    if table.ndim != 2 or opened.unconsumed_tail:
        raise ValueError(f"counts are of the shape {shown(shape)}")
    return table
