"""Generated sentences for reports, with whatever a page could stumble over."""

from __future__ import annotations

import random

WORDS = [
    "the",
    "a",
    "small",
    "big",
    "red",
    "old",
    "dog",
    "cat",
    "house",
    "tree",
    "man",
    "woman",
    "runs",
    "sits",
    "sees",
]
WORDS += ["buys", "and", "or", "under", "over", "two", "three"]
HOSTILE = [
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title = 'broken'\"> & &amp; ' \" ` ${1} {{ 1 }}",
    "line \u2028 and paragraph \u2029 separators, \x00 NUL, \x7f DEL, a tab\t.",
    "<!-- <script> -->",
    "שלום עולם (אבג) 123 abc",
    "日本語の文です。 中文 ภาษาไทย",
    "half of a pair: \ud800 and \udc00",
    "\u202eright to left\u202c and back",
]


def text(count: int, *, seed: int) -> list[str]:
    """Lines of 3 to 14 words, after those above."""
    source = random.Random(seed)
    return [*HOSTILE, *(" ".join(source.choices(WORDS, k=source.randint(3, 14))) + "." for _ in range(count))][:count]


def changed(lines: list[str], *, seed: int, share: float = 0.2) -> list[str]:
    """The lines with some of their words replaced, repeated or left out."""
    source = random.Random(seed)
    found = []
    for line in lines:
        words: list[str] = []
        for word in line.split(" "):
            chance = source.random()
            words += [source.choice(WORDS)] if chance < share else [word] * (2 if chance > 0.98 else 1)
        found.append(" ".join(words) if source.random() > 0.01 else "")
    return found
