"""Attention and memory maps of some sentences: which ones, and how the page holds them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nmt.report.contents import Sentences, shortest_first

if TYPE_CHECKING:
    from nmt.inspection.values import Inspection

LONGEST = 50
"""Words of the longest sentence whose maps are chosen."""
MOST_TOKENS = 160
"""Of a source or a translation whose maps are shown; text without spaces has many in a word."""
MOST_HEADS = 8
"""Most maps of single heads per sentence and model; above that, only the mean of each layer is shown."""
_LEVELS = 255


class MapSentence(NamedTuple):
    """The sentences with maps, and why these, for people."""

    places: list[int]
    reason: str


def chosen_sentences(found: Sentences, count: int, *, models: Sequence[int]) -> MapSentence:
    """At most `count` sentences: hard ones, ones on which systems differ, and others spread over the text.

    `models` are the places of the systems that have maps. A sentence without words, and one of more than LONGEST words,
    has none.
    """
    possible = [place for place, length in enumerate(found.lengths) if 0 < length <= LONGEST]
    if len(possible) <= count:
        return MapSentence(possible, f"all sentences of 1 to {LONGEST} words")
    first = found.chrf[models[0]]
    worst = [place for place in shortest_first(first) if 0 < found.lengths[place] <= LONGEST]
    rankings = [worst]
    reasons = ["{} with the lowest chrF2 of the first model"]
    if len(found.chrf) > 1:
        spread = [min(scores) - max(scores) for scores in zip(*found.chrf, strict=True)]
        rankings.append([place for place in shortest_first(spread) if 0 < found.lengths[place] <= LONGEST])
        reasons.append("{} on which the systems differ most in chrF2")
    share = count // (len(rankings) + 1)
    chosen: dict[int, None] = {}
    for ranking in rankings:
        new = [place for place in ranking if place not in chosen]
        chosen |= dict.fromkeys(new[:share])
    rest = [place for place in possible if place not in chosen]
    left = count - len(chosen)
    chosen |= dict.fromkeys(rest[place * len(rest) // left] for place in range(left))
    reasons = [reason.format(share) for reason in reasons if share] + [f"{left} spread evenly over the text"]
    return MapSentence(sorted(chosen), f"{', '.join(reasons)}, of at most {LONGEST} words")


def packed(inspections: Mapping[int, Inspection]) -> dict[str, Any]:
    """The data of one sentence in the page, by the places of the systems: tokens, and maps with one byte per weight.

    Nothing for a system with more than MOST_TOKENS tokens.
    """
    return {
        str(system): _packed(inspection)
        for system, inspection in inspections.items()
        if max(len(inspection.source_tokens), len(inspection.target_tokens)) <= MOST_TOKENS
    }


def _packed(inspection: Inspection) -> dict[str, Any]:
    maps = []
    crossing = {name: heads for name, heads in inspection.attention.items() if not name.endswith(".self")}
    if crossing:
        maps.append(_map("Attention, mean of all", "attention", inspection.source_attention))
    heads = sum(len(weights) for weights in inspection.attention.values())
    for name, weights in inspection.attention.items():
        kind = "attention" if name in crossing else "source" if name.startswith("encoder") else "target"
        title = f"Attention, {name}"
        if len(weights) > 1 or len(inspection.attention) > 1 or kind != "attention":
            maps.append(_map(title + (", mean of its heads" if len(weights) > 1 else ""), kind, weights.mean(0)))
        if len(weights) > 1 and heads <= MOST_HEADS:
            maps += [_map(f"{title}, head {head}", kind, part) for head, part in enumerate(weights, 1)]
    for name, trace in inspection.units.items():
        if trace.memory is not None and trace.tokens:
            kind = "source" if "encoder." in name else "memory"
            maps.append(_map(f"Memory of {trace.unit}, {name}", kind, trace.memory))
    decoder = next((list(t.tokens) for name, t in inspection.units.items() if "decoder." in name and t.tokens), [])
    return {
        "source": list(inspection.source_tokens),
        "target": list(inspection.target_tokens),
        "memory": decoder,
        "scores": [round(float(score), 3) for score in inspection.token_scores],
        "maps": maps,
    }


def _map(title: str, kind: str, weights: Any) -> dict[str, Any]:
    """A map as bytes, the largest weight as 255; `kind` names the tokens of its rows and columns."""
    values = np.nan_to_num(np.asarray(weights, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    most = float(values.max(initial=0.0))
    levels = np.rint(values * (_LEVELS / most if most > 0 else 0.0)).clip(0, _LEVELS).astype(np.uint8)
    return {
        "title": title,
        "kind": kind,
        "size": list(values.shape),
        "most": round(most, 4),
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
