"""How translations are written: text, Moses n-best lists, JSON lines; nmt-translate and nmt-light write the same."""

from __future__ import annotations

from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from .results import Hypothesis, Result


def as_text(number: int, result: Result, *, n_best: int, notes: Sequence[str]) -> str:
    """Exactly `n_best` lines, best first; empty ones where there are not so many translations."""
    texts = [hypothesis.text for hypothesis in result.n_best]
    texts += [""] * (n_best - len(texts))
    return "".join(f"{text}\n" for text in texts)


def as_moses(number: int, result: Result, *, n_best: int, notes: Sequence[str]) -> str:
    """`number ||| text ||| score= X ||| X` for each translation there is; lines are numbered from 0.

    "|||" inside a text is written as Moses escapes it, &#124;&#124;&#124;.
    """
    return "".join(
        f"{number} ||| {hypothesis.text.replace('|||', '&#124;' * 3)} ||| score= {hypothesis.score:.6f} "
        f"||| {hypothesis.score:.6f}\n"
        for hypothesis in result.n_best
    )


def as_jsonl(number: int, result: Result, *, n_best: int, notes: Sequence[str]) -> str:
    """One object: `line` (from 0), `source`, `translations` with `text` and `score`, best first.

    If requested, the object has `source_tokens` and `confidence`, and a translation `tokens`, `token_scores`,
    `token_entropies`, `attention` (a list for each token, of a number for each source token, in four decimals), `heads`
    (by the name of an attending layer a list for each head, each like `attention`) and `alignment` (pairs of a word of
    the source and one of the translation, both from 0). Of a line that was translated in parts, a list is of the source
    tokens of the token's own part, and `attention_begins` has for each token the place of the first of them.

    `notes`, which replaces those of `result`, is present if there are any: words of `Result.notes`, and `not_utf8`.
    """
    import json  # late, as text needs none

    record: dict[str, Any] = {
        "line": number,
        "source": result.source,
        "translations": [hypothesis_record(hypothesis) for hypothesis in result.n_best],
    }
    if result.source_pieces is not None:
        record["source_tokens"] = list(result.source_pieces)
    if result.confidence is not None:
        record["confidence"] = round(result.confidence, 4)
    if notes:
        record["notes"] = list(notes)
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def as_pharaoh(result: Result) -> str:
    """The alignment of the best translation in Pharaoh's format, a line: `0-0 1-2`, source word first, both from 0."""
    return " ".join(f"{source}-{target}" for source, target in result.alignment or ()) + "\n"


def without_alignment(result: Result) -> Result:
    """The result without its alignment."""
    from dataclasses import replace  # late, as text needs none

    return replace(result, n_best=[replace(hypothesis, alignment=None) for hypothesis in result.n_best])


def hypothesis_record(hypothesis: Hypothesis) -> dict[str, Any]:
    """One of the `translations` of `as_jsonl`."""
    record: dict[str, Any] = {"text": hypothesis.text, "score": _finite(hypothesis.score)}
    if hypothesis.tokens is not None:
        record["tokens"] = list(hypothesis.tokens)
    if hypothesis.token_scores is not None:
        record["token_scores"] = [_finite(score) for score in hypothesis.token_scores]
    if hypothesis.token_entropies is not None:
        record["token_entropies"] = list(hypothesis.token_entropies)
    parts, heads = hypothesis.attention_of_parts, hypothesis.heads_of_parts
    if parts is not None:
        record["attention"] = [row for part in parts for row in _rounded(part)]
    if heads is not None:
        record["heads"] = {
            name: [[row for part in heads for row in _rounded(part[name][head])] for head in range(len(heads[0][name]))]
            for name in (heads[0] if heads else {})
        }
    several = parts or [next(iter(part.values()))[0] for part in heads or () if part]
    if len(several) > 1:
        begins = [0, *accumulate(len(part[0]) if len(part) else 0 for part in several)]
        record["attention_begins"] = [
            begin for part, begin in zip(several, begins, strict=False) for _ in range(len(part))
        ]
    if hypothesis.alignment is not None:
        record["alignment"] = [list(pair) for pair in hypothesis.alignment]
    return record


def _rounded(rows: Any) -> list[list[float]]:
    """`rows`: lists, or what can be made lists, such as an array."""
    return [[round(weight, 4) for weight in row] for row in (rows if isinstance(rows, list) else rows.tolist())]


def _finite(score: float) -> float | None:
    """JSON has no infinity, the score of a line without a translation."""
    return score if abs(score) < float("inf") else None


FORMATS: Final = {"text": as_text, "moses": as_moses, "jsonl": as_jsonl}
"""By what `--format` calls them."""
