"""How nmt-translate writes a translation: text, Moses n-best lists, JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from nmt.search import ScoredText, Translation


def as_text(number: int, translation: Translation, *, n_best: int, notes: Sequence[str] = ()) -> str:
    """Exactly `n_best` lines, best first; empty ones where there are not so many translations."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses]
    texts += [""] * (n_best - len(texts))
    return "".join(f"{text}\n" for text in texts)


def as_moses(number: int, translation: Translation, *, n_best: int, notes: Sequence[str] = ()) -> str:
    """`number ||| text ||| score= X ||| X` for each translation there is; lines are numbered from 0.

    "|||" inside a text is written as Moses escapes it, &#124;&#124;&#124;.
    """
    return "".join(
        f"{number} ||| {hypothesis.text.replace('|||', '&#124;' * 3)} ||| score= {hypothesis.score:.6f} "
        f"||| {hypothesis.score:.6f}\n"
        for hypothesis in translation.hypotheses
    )


def as_jsonl(number: int, translation: Translation, *, n_best: int, notes: Sequence[str] = ()) -> str:
    """One object: `line` (from 0), `source`, `translations` with `text` and `score`, best first.

    Where they are asked for, the object has `source_tokens`, and a translation `tokens`, `token_scores`, `attention` (a
    list for each token, of a number for each source token, in four decimals) and `alignment` (pairs of a word of the
    source and one of the translation, both from 0).

    `notes` is there where something is to be noted: `not_utf8`, `split`, `no_finite_translation`, `length_limit`,
    `longer_than_training`, `required_missing`.
    """
    record: dict[str, Any] = {
        "line": number,
        "source": translation.source,
        "translations": [_record(hypothesis) for hypothesis in translation.hypotheses],
    }
    if translation.source_pieces is not None:
        record["source_tokens"] = list(translation.source_pieces)
    if notes:
        record["notes"] = list(notes)
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _record(hypothesis: ScoredText) -> dict[str, Any]:
    record: dict[str, Any] = {"text": hypothesis.text, "score": _finite(hypothesis.score)}
    if hypothesis.tokens is not None:
        record["tokens"] = list(hypothesis.tokens)
    if hypothesis.token_scores is not None:
        record["token_scores"] = [_finite(score) for score in hypothesis.token_scores]
    rows = hypothesis.attention_rows
    if rows is not None:
        record["attention"] = [[round(weight, 4) for weight in row] for row in rows]
    if hypothesis.alignment is not None:
        record["alignment"] = [list(pair) for pair in hypothesis.alignment]
    return record


def _finite(score: float) -> float | None:
    """JSON has no infinity, the score of a line without a translation."""
    return score if math.isfinite(score) else None


FORMATS = MappingProxyType({"text": as_text, "moses": as_moses, "jsonl": as_jsonl})
