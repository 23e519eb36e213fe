"""How nmt-translate writes a translation: text, Moses n-best lists, JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from nmt.search import ScoredText, Translation

Format = Callable[..., str]


def as_text(number: int, translation: Translation, *, n_best: int) -> str:
    """Exactly `n_best` lines, best first; empty ones where there are not so many translations."""
    texts = [hypothesis.text for hypothesis in translation.hypotheses]
    texts += [""] * (n_best - len(texts))
    return "".join(f"{text}\n" for text in texts)


def as_moses(number: int, translation: Translation, *, n_best: int) -> str:
    """`number ||| text ||| score= X ||| X` for each translation there is; lines are numbered from 0.

    "|||" inside a text is written as Moses escapes it, &#124;&#124;&#124;.
    """
    return "".join(
        f"{number} ||| {hypothesis.text.replace('|||', '&#124;' * 3)} ||| score= {hypothesis.score:.6f} "
        f"||| {hypothesis.score:.6f}\n"
        for hypothesis in translation.hypotheses
    )


def as_jsonl(number: int, translation: Translation, *, n_best: int) -> str:
    """One object: `line` (from 0), `source`, `translations` with `text` and `score`, best first."""
    record = {
        "line": number,
        "source": translation.source,
        "translations": [_record(hypothesis) for hypothesis in translation.hypotheses],
    }
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _record(hypothesis: ScoredText) -> dict[str, Any]:
    # JSON has no NaN or infinity, which a diverged model can give.
    return {"text": hypothesis.text, "score": hypothesis.score if math.isfinite(hypothesis.score) else None}


FORMATS = MappingProxyType({"text": as_text, "moses": as_moses, "jsonl": as_jsonl})
