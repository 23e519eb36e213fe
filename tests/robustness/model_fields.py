"""SentencePiece models with damage inside their parts, which gets past the reader of the file to what uses it."""

from __future__ import annotations

import random


def mutated_fields(model: bytes, chance: random.Random) -> bytes:
    """`model` with bytes changed inside some of its fields, which stay as long as they are, or with fields moved."""
    parts = fields(model)
    for _ in range(chance.randint(1, 4)):
        # The last ones are the settings of training and the tables of the normalizer.
        place = len(parts) - chance.randint(1, min(3, len(parts))) if chance.random() < 0.5 else -1
        place = place if place >= 0 else chance.randrange(len(parts))
        kind = chance.choice(("change", "change", "change", "delete", "double"))
        if kind == "delete" and len(parts) > 1:
            del parts[place]
        elif kind == "double":
            parts.insert(chance.randint(0, len(parts)), parts[place])
        else:
            parts[place] = _changed(parts[place], chance)
    return b"".join(parts)


def fields(message: bytes) -> list[bytes]:
    """The fields of a message of protocol buffers that holds nothing but messages, each with its tag and length."""
    found, place = [], 0
    while place < len(message):
        start, length, shift = place, 0, 0
        place += 1
        while True:
            length |= (message[place] & 127) << shift
            place, shift = place + 1, shift + 7
            if message[place - 1] < 128:
                break
        place += length
        found.append(message[start:place])
    return found


def _changed(part: bytes, chance: random.Random) -> bytes:
    changed = bytearray(part)
    reach = chance.choice((20, 100, 3000, len(part)))  # what stands at the beginning matters most
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(min(len(part) - 1, 4), min(len(part), reach))
        changed[place] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
    return bytes(changed)
