"""Small SentencePiece models, made by its trainer or by editing what it made, and lines that are hard to split."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SYMBOLS = ["<b>", "<br>", "<brr>", "{name}", "@@", "ß", "Ⅷ", "日本", "🎉🎉", "x-y"]
_TEXT = """
the a dog dogs cat running runs ran street streets of und der die das läuft über Straße Straßen große größer Größe schön
naïve café Ćevapi Ελλάδα Москва 日本 日本語 東京 北京 中文 한국어 🎉
👩\u200d👩\u200d👧 \ufb01ne \uff46\uff55\uff4c \uff11\uff12 Ⅷ
½ x² \uff05 e\u0301 a\u0308 \u0130 \u017f \u01c6 don't it's U.S. 3.14 2,000 http://a.b/c?d=e (so) „ja“ »nein« – — …
<br> <b> {name} @@ x-y ABC Abc
"""
WORDS = _TEXT.split()
ODD = [chr(i) for i in range(33)] + list(
    "\x7f\x80\x85\x9f\xa0\xad\u0300\u0301\u0308\u0327\u034f\u061c\u0e33\u1680\u180e\u200b\u200c\u200d\u200e\u2000\u2003\u2028"
    "\u2029\u202f\u205f\u2060\u2581\u3000\u3099\ufe0f\ufeff\uff01\uff21\uff41\uffe3\ufffd\ufffe\uffff\U0001f389\U0001d400"
    "\U000e0001\U0010ffff\ufb03\ufdfa\u337f\u01c5\u1e9b\u0323\u212b\u2126\u2460\uff71\uff76\uff9e\u1100\u1161\u11a8"
)
BROKEN = [  # too long, cut, surrogates, too large, no beginning
    *(b"\xc0\x80", b"\xe0\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x96", b"\xe2", b"\xf0\x9f\x8e", b"\xc3"),
    *(b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\x81", b"\x80\x80", b"\xfe", b"\xff"),
]
SPACES = [" ", "  ", "\t", " \u3000", "     ", "\u2581", "\u2581 \u2581"]


def training_text(lines: int = 400) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(lines)]


def trained(**options: Any) -> bytes:
    """A model with nmt's special symbols."""
    model = io.BytesIO()
    settings = {
        "vocab_size": 480,
        "hard_vocab_limit": False,
        "character_coverage": 0.99,  # so that some characters are unknown
        "pad_id": 0,
        "unk_id": 1,
        "eos_id": 2,
        "bos_id": -1,
        "num_threads": 1,
        "minloglevel": 2,
        "max_sentencepiece_length": 12,
    }
    if options["model_type"] == "bpe" and not options.get("byte_fallback"):
        settings |= {"vocab_size": 300}
    settings["sentence_iterator"] = iter(training_text())
    sentencepiece.SentencePieceTrainer.train(model_writer=model, **(settings | options))
    return model.getvalue()


def edited(proto: bytes, change: Callable[[Any], None]) -> bytes:
    """A model with something changed in its message."""
    message = sentencepiece_model_pb2.ModelProto.FromString(proto)
    change(message)
    return bytes(message.SerializeToString())


def odd_lines(count: int, *, seed: int) -> list[bytes]:
    """Lines of words, odd characters, bytes that are no text, runs of spaces and long words, in any mixture."""
    draw = random.Random(seed)
    any_character = (range(0x250), range(0xD800), range(0xE000, 0x110000))
    parts: list[Callable[[], bytes]] = [
        lambda: draw.choice(WORDS).encode(),
        lambda: draw.choice(WORDS)[: draw.randint(1, 4)].encode(),
        lambda: draw.choice(ODD).encode(),
        lambda: draw.choice(BROKEN),
        lambda: draw.choice(SPACES).encode(),
        lambda: draw.choice(SYMBOLS).encode(),
        lambda: chr(draw.choice(draw.choice(any_character))).encode(),
        lambda: draw.randbytes(3),
    ]
    lines = [b"", b" ", b"\0", "\u2581".encode()]
    while len(lines) < count:
        mixture = draw.choices(parts, k=draw.randint(1, 4))
        space = draw.choice([b"", b" "])
        lines.append(space.join(draw.choice(mixture)() for _ in range(draw.choice([1, 3, 10, 30]))))
    return lines
