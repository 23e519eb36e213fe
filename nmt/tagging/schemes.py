"""How labels of words say where spans begin and end: IOB1, IOB2, BIOES; spans as conlleval finds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, get_args

Scheme = Literal["iob1", "iob2", "bioes"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)
OUTSIDE: Final = "O"


class Span(NamedTuple):
    """Words first..end-1 of a sentence, and what they are."""

    kind: str
    first: int
    end: int


def parts(label: str) -> tuple[str, str]:
    """Prefix and kind of a label: `I-LOC` is ("I", "LOC"), `O` is ("O", "")."""
    prefix, _, kind = label.partition("-")
    return prefix, kind


def is_label(label: str) -> bool:
    """Whether it is `O`, or one of B, I, E and S, a hyphen and a kind."""
    return label == OUTSIDE or (len(label) > 2 and label[0] in "BIES" and label[1] == "-" and " " not in label)


def spans(labels: Iterable[str]) -> list[Span]:
    """The spans of the labels of a sentence by the rules of conlleval, which understand every scheme and sequence.

    A span ends before O, before another kind, before B and S, and after E and S; any label but O that follows such an
    end begins one.
    """
    found: list[Span] = []
    first, before, kind_before = 0, OUTSIDE, ""
    for place, label in enumerate((*labels, OUTSIDE)):
        prefix, kind = parts(label)
        cut = OUTSIDE in (before, prefix) or before in "ES" or prefix in "BS" or kind != kind_before
        if cut and before != OUTSIDE:
            found.append(Span(kind_before, first, place))
        if cut:
            first = place
        before, kind_before = prefix, kind
    return found


def labelled(found: Iterable[Span], *, length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence of so many words with these spans, in their order."""
    labels = [OUTSIDE] * length
    end_before, kind_before = -1, ""
    for kind, first, end in found:
        labels[first:end] = [f"I-{kind}"] * (end - first)
        if scheme == "bioes" and end - first == 1:
            labels[first] = f"S-{kind}"
        elif scheme == "bioes":
            labels[first], labels[end - 1] = f"B-{kind}", f"E-{kind}"
        elif scheme == "iob2" or (end_before, kind_before) == (first, kind):
            labels[first] = f"B-{kind}"
        end_before, kind_before = end, kind
    return labels


def misplaced(labels: Sequence[str], scheme: Scheme) -> int | None:
    """The place of the first label that `scheme` would not have there; None where there is none.

    Each sequence of spans has exactly one sequence of labels in a scheme.
    """
    right = labelled(spans(labels), length=len(labels), scheme=scheme)
    return next((place for place, pair in enumerate(zip(labels, right, strict=True)) if pair[0] != pair[1]), None)


def found_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that the labels of a text look like; where all of them would do, IOB2.

    BIOES where there is any E or S, IOB1 where any span begins with I.
    """
    found: Scheme = "iob2"
    for labels in sentences:
        if any(label[0] in "ES" for label in labels):
            return "bioes"
        if found == "iob2" and any(labels[span.first][0] == "I" for span in spans(labels)):
            found = "iob1"
    return found
