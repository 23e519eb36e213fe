"""Lines that programs have stumbled over, and random ones made of them."""

from __future__ import annotations

import random

ODD_LINES = [
    "",
    " ",
    "\t \u00a0\u3000",
    "a\u0085b",
    "a\u2028b\u2029c",
    "\x00",
    "a \x00 b",
    "\r",
    "a\rb",
    "a \x0b\x0c\x1c\x1d\x1e b",
    "\x1b[2J\x07",
    "\ufeffa",
    "\U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\u05e9\u05dc\u05d5\u05dd \u202ea b\u202c \u0645\u0631\u062d\u0628\u0627",
    "a" + "\u0301" * 300,
    "\ufffe\uffff\U0010ffff",
    "<pad> <unk> <eos> <s> </s> @@ a@@",
    "||| a ||| b",
    "%s {} \\n $HOME `id`",
    "a" * 5000,
    "a " * 150,
]

_ALPHABET = [
    "a",
    "b",
    "c",
    "d",
    "long@@",
    "er",
    " ",
    "  ",
    "\t",
    "\r",
    "\u0085",
    "\u2028",
    "\x00",
    "\U0001f600",
    "\u05d0",
]


def random_lines(count: int, *, seed: int) -> list[str]:
    """`count` lines, a tenth of them odd ones."""
    generator = random.Random(seed)
    lines = []
    for _ in range(count):
        if generator.random() < 0.1:
            lines.append(generator.choice(ODD_LINES))
        elif generator.random() < 0.1:
            points = (generator.randrange(0x110000) for _ in range(generator.randint(1, 20)))
            lines.append("".join(chr(p) for p in points if p != 0x0A and not 0xD800 <= p < 0xE000))
        else:
            lines.append(" ".join(generator.choice(_ALPHABET) for _ in range(generator.randint(0, 12))))
    return lines
