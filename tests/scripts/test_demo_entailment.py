"""Generated pairs: what follows from what, and that no side alone tells the label."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from scripts.demo_grammar.entailment import GROUP, LABELS, EntailmentPair, generate_pairs
from scripts.demo_grammar.words import english_number
from scripts.demo_grammar.words import nouns as all_nouns

NUMBERS = {english_number(value): value for value in range(100)}


@pytest.fixture(scope="module")
def pairs() -> list[EntailmentPair]:
    return generate_pairs(300, seed=1)


def test_labels_and_kinds(pairs: list[EntailmentPair]) -> None:
    assert len(pairs) == 300 * GROUP
    assert Counter(pair.label for pair in pairs) == dict.fromkeys(LABELS, 600)
    assert {pair.kind for pair in pairs} == {"negation", "hyponyms", "numbers"}
    assert all(pair.premise.endswith(" .") and pair.hypothesis.endswith(" .") for pair in pairs)


def test_the_beginning_does_not_depend_on_the_number(pairs: list[EntailmentPair]) -> None:
    assert generate_pairs(10, seed=1) == pairs[: 10 * GROUP]
    assert generate_pairs(10, seed=2) != pairs[: 10 * GROUP]


def test_each_hypothesis_has_each_label_once(pairs: list[EntailmentPair]) -> None:
    """So whatever a reader of hypotheses alone answers is right in one of three cases, held-out text or not."""
    labels = defaultdict(list)
    for pair in pairs:
        labels[pair.hypothesis].append(pair.label)
    assert all(sorted(own) == sorted(LABELS) for own in labels.values())
    assert len(labels) == 600


def test_no_hypothesis_is_in_two_groups_however_many_there_are() -> None:
    """Of so many by this seed some would be, if they were only drawn."""
    assert len({pair.hypothesis for pair in generate_pairs(600, seed=2)}) == 2 * 600


def test_what_decides_one_hypothesis_is_never_neutral_to_the_other(pairs: list[EntailmentPair]) -> None:
    for first in range(0, len(pairs), GROUP):
        premises = defaultdict(set)
        for pair in pairs[first : first + GROUP]:
            premises[pair.label].add(pair.premise)
        assert premises["entailment"] == premises["contradiction"]
        assert not premises["neutral"] & premises["entailment"]


def test_premises_alone_are_no_better_than_chance(pairs: list[EntailmentPair]) -> None:
    """By whether they negate, and by their kind: what can be told of a premise that has not been seen before."""
    forms: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for pair in generate_pairs(1000, seed=4):
        forms[pair.kind, " not " in pair.premise][pair.label] += 1
    for counts in forms.values():
        assert max(counts.values()) / counts.total() < 0.36


def test_idle_premises_are_negated_alike_beside_all_hypotheses() -> None:
    """So whether both sides are negated does not tell that a premise decides nothing."""
    found: dict[bool, list[bool]] = defaultdict(list)
    for pair in generate_pairs(1000, seed=4):
        if pair.kind != "numbers" and pair.label == "neutral":
            found[" not " in pair.hypothesis].append(" not " in pair.premise)
    for negated in found.values():
        assert abs(sum(negated) / len(negated) - 0.5) < 0.05


def test_numbers_decide(pairs: list[EntailmentPair]) -> None:
    for pair in (pair for pair in pairs if pair.kind == "numbers"):
        words = pair.hypothesis.split()
        place = words.index("than")
        limit, things = NUMBERS[words[place + 1]], words[place + 2]
        premise = pair.premise.split()
        number, own = next((NUMBERS[word], premise[i + 1]) for i, word in enumerate(premise) if word in NUMBERS)
        assert number != limit or own != things
        holds = number > limit if words[place - 1] == "more" else number < limit
        expected = ("entailment" if holds else "contradiction") if own == things else "neutral"
        assert pair.label == expected


def test_negation_decides(pairs: list[EntailmentPair]) -> None:
    """The undecided premises speak of another thing; of the others, negated on one side alone contradicts."""
    for pair in (pair for pair in pairs if pair.kind != "numbers" and pair.label != "neutral"):
        opposed = (" not " in pair.premise) != (" not " in pair.hypothesis)
        assert pair.label == ("contradiction" if opposed else "entailment")


def test_hyponyms_are_below_their_kind(pairs: list[EntailmentPair]) -> None:
    found = [
        pair for pair in pairs if pair.kind == "hyponyms" and pair.label == "neutral" and " not " not in pair.premise
    ]
    assert any("an animal" in pair.hypothesis for pair in found)
    for pair in found:
        assert not any(kind in pair.premise for kind in ("animal", "piece of", "vehicle", "person"))


KINDS = {
    "animal": "an animal",
    "building": "a building",
    "clothing": "a piece of clothing",
    "furniture": "a piece of furniture",
    "person": "a person",
    "vehicle": "a vehicle",
}


def test_kinds_decide_what_hyponyms_entail(pairs: list[EntailmentPair]) -> None:
    """A dog is an animal, and no other kind that is spoken of."""
    for pair in (pair for pair in pairs if pair.kind == "hyponyms"):
        general, special = sorted((pair.premise, pair.hypothesis), key=lambda text: not named(text))
        kinds = named(general)
        if not kinds or named(special):
            continue  # both say the kind, or one of them another
        (kind,) = kinds
        nouns = [noun for noun in all_nouns() if special.endswith((f" {noun.english} .", f" {noun.english_plural} ."))]
        longest = max(nouns, key=lambda noun: len(noun.english))
        assert (kind in longest.tags) == (pair.label != "neutral"), pair


def named(text: str) -> list[str]:
    """The kinds that a sentence names."""
    return [kind for kind, words in KINDS.items() if text.endswith(f" {words} .")]
