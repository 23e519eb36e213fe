"""What a live translation of the demo corpus can know: do the English words read so far decide the next German word?

    python -m scripts.demo_bound --wait 3 5

Sentences are drawn from the grammar of the corpus (scripts/demo_grammar). Of word t of a German sentence, from 0, the
first `wait` + t English and the first t German words are known. The best guess is what most other sentences that begin
so have there. Words that go with the same words in the same way count as one: nouns of a gender, adjectives, verbs of a
frame, numbers, possessives, modals, cities, weekdays, times and places of a form. Printed are

- how many words are guessed right, and their BLEU, if each is right that less than --least others tell: at most so many
  can be known;
- the same if these are as often wrong as the other words at their place of the sentence: an estimate.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

from nmt.evaluation.metrics import Bleu
from scripts.demo_grammar import english, german, sampling, sentences, words
from scripts.demo_grammar.words import Phrase

Beginning = tuple[bool, str, str]
"""Whether all of the source has been read, what has been read, and the target before a word."""
Asked = tuple[Beginning, str]
"""What is known before a word, and the word."""
_INDEX = re.compile(r"x\d+")
_MERGED = (
    (r"\b(your|his|our)\b", "my"),
    (r"\bher (?=[nj]|k )", "my "),
    (r"\b(must|may|should|will)\b", "can"),
    (r"\ban\b", "a"),
), (
    (r"\b(dein|sein|ihr|unser)(?=(e|en|em|er|es)? [AN])", "mein"),
    (r"\b(muss|darf|soll|wird)\b", "kann"),
    (r"\b(musst|darfst|sollst|wirst)\b", "kannst"),
    (r"\b(müssen|dürfen|sollen|werden)\b", "können"),
)  # fmt: skip
"""Of the text of both sides, patterns of one kind of word and the word that stands for them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--test", type=int, default=500, help="sentences that are guessed (default: %(default)s)")
    parser.add_argument(
        "--others", type=int, default=1_200_000, help="that they are compared with (default: %(default)s)"
    )
    parser.add_argument("--least", type=int, default=3, help="others that tell a word (default: %(default)s)")
    arguments = parser.parse_args()
    merge_words()
    drawn = draw(random.Random(1))
    test = [next(drawn) for _ in range(arguments.test)]
    asked = {wait: [[*beginnings(pair, wait)] for pair in test] for wait in arguments.wait}
    told = {beginning: Counter[str]() for each in asked.values() for line in each for beginning, _ in line}
    for _ in range(arguments.others):
        pair = next(drawn)
        for wait in arguments.wait:
            for beginning, word in beginnings(pair, wait):
                if beginning not in told:
                    break  # nor are longer ones
                told[beginning][word] += 1
    for wait, each in asked.items():
        report(wait, each, told, least=arguments.least, references=[target for _, target in test])


def report(
    wait: int, asked: list[list[Asked]], told: dict[Beginning, Counter[str]], *, least: int, references: list[str]
) -> None:
    """Print what can be known where so many words are waited for."""
    known = [[told[beginning] if told[beginning].total() >= least else None for beginning, _ in line] for line in asked]
    places = Counter[tuple[int, bool]]()
    for line, own in zip(asked, known, strict=True):
        for place, ((_, word), counts) in enumerate(zip(line, own, strict=True)):
            if counts is not None:
                places[place, counts.most_common(1)[0][0] == word] += 1
    chance = random.Random(2)
    for name, guesses in (("at most", False), ("estimate", True)):
        lines = []
        for line, own in zip(asked, known, strict=True):
            words = []
            for place, ((_, word), counts) in enumerate(zip(line, own, strict=True)):
                right, wrong = places[place, True], places[place, False]
                if counts is not None:
                    word = counts.most_common(1)[0][0]
                elif guesses and chance.random() * (right + wrong) >= right:
                    word = "wrong" if right + wrong else word
                words.append(word)
            lines.append(words)
        pairs = [
            (one, other)
            for own, line in zip(lines, asked, strict=True)
            for one, (_, other) in zip(own, line, strict=True)
        ]
        score = Bleu().score([" ".join(words) for words in lines], [references]).score
        share = 100 * sum(one == other for one, other in pairs) / len(pairs)
        print(f"wait={wait}, {name}: {share:.1f} % of {len(pairs):,} words, BLEU {score:.2f}")
    print(f"  {100 * sum(places.values()) / len(pairs):.1f} % of the words are told by others")


def beginnings(pair: tuple[str, str], wait: int) -> Iterator[Asked]:
    """For each German word what is known before it, and the word."""
    source, target = pair[0].split(), pair[1].split()
    for place, word in enumerate(target):
        read = source[: wait + place]
        yield (len(read) == len(source), " ".join(read), " ".join(target[:place])), word


def draw(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Sentences of the grammar that are short enough for the corpus."""
    bounds = list(accumulate(kind.weight for kind in sentences.KINDS))
    merged = [[(re.compile(pattern), word) for pattern, word in side] for side in _MERGED]
    while True:
        number = rng.randrange(bounds[-1])
        build = next(kind.build for bound, kind in zip(bounds, sentences.KINDS, strict=True) if number < bound)
        texts = []
        for text, patterns in zip(build(sampling.Sampler(rng)), merged, strict=True):
            text = _INDEX.sub("", text)
            for pattern, word in patterns:
                text = pattern.sub(word, text)
            texts.append(text)
        if max(len(text.split()) for text in texts) <= sentences._LONGEST:
            yield texts[0], texts[1]


def merge_words() -> None:
    """Let words of one kind be the same; a number behind each, which is taken off, keeps them apart in a sentence."""
    kinds: dict[Any, int] = {}
    nouns = []
    for i, noun in enumerate(words.nouns()):
        own = " ".join([*("k" for _ in noun.english.split()[1:]), f"n{noun.gender}x{i}"])
        name = f"N{noun.gender}x{i}"
        nouns.append(replace(noun, english=own, english_plural=f"{own}s", german=name, german_plural=f"{name}n"))
    adjectives = [
        replace(
            one, english=f"jx{i}", german=f"Ax{i}", german_stem=f"Ax{i}",
            english_comparative=one.english_comparative and f"jx{i}er",
            german_comparative=one.german_comparative and f"Ax{i}er",
        )
        for i, one in enumerate(words.adjectives())
    ]  # fmt: skip
    verbs = []
    for i, verb in enumerate(words.verbs()):
        more = " p" * (len(verb.english.split()) - 1)
        frame = "prepositional" if ":" in verb.frame else verb.frame
        kind = verb.auxiliary, bool(verb.prefix), frame, bool(verb.particle), len(more)
        name = f"{kinds.setdefault(kind, len(kinds))}x{i}"
        past = "" if verb.english == verb.english_past else "d"
        verbs.append(
            replace(
                verb,
                english=f"v{name}{more}",
                english_past=f"v{name}{past}{more}",
                particle=verb.particle and "q",
                prefix=verb.prefix and "vor",
                infinitive=f"V{name}en",
                changed_stem=None,
                participle=f"ge{name}",
            )  # fmt: skip
        )
    known = {f"{old.english} {old.particle}".strip(): new for old, new in zip(words.verbs(), verbs, strict=True)}
    sampling.nouns, sampling.adjectives = lambda: tuple(nouns), lambda: tuple(adjectives)
    sampling.verbs, sentences.find_verb = lambda: tuple(verbs), known.__getitem__
    for module in (sampling, sentences, english, german):
        for name, number in (("english_number", "number"), ("german_number", "Zahl")):
            if hasattr(module, name):
                setattr(module, name, lambda _, number=number: number)
    sampling.CITIES = (Phrase("Town", "Stadt"),) * len(sampling.CITIES)
    for name in ("_WEEKDAYS", "_ANY_TIME", "_PRESENT", "_PAST", "_FUTURE"):
        setattr(sampling, name, tuple(map(_merged_time, getattr(sampling, name))))
    sentences.FREQUENCIES = sentences.FREQUENCIES[:1] * len(sentences.FREQUENCIES)
    sentences.PACES = sentences.PACES[:1] * len(sentences.PACES)
    sampling.LOCATIONS = dict.fromkeys(sampling.LOCATIONS, ("in", "in"))


def _merged_time(phrase: Phrase) -> Phrase:
    """What stands for all phrases of the same form in both languages."""
    first, *rest = phrase.english.split()
    if first in ("last", "next", "every"):
        return Phrase(f"{first} week", "diese Woche")
    return Phrase(f"{first} {'the time' if len(rest) == 2 else 'time'}", "am Tag") if rest else Phrase("today", "heute")


if __name__ == "__main__":
    main()
