"""Number words from 0 to 99 in English and German."""

from __future__ import annotations

_ENGLISH_SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_ENGLISH_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN_SMALL = (
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
)
_GERMAN_TENS = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def english_number(value: int) -> str:
    """Words for 0..99: 21 is "twenty-one"."""
    tens, ones = _split(value)
    if tens < 2:
        return _ENGLISH_SMALL[value]
    return _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")


def german_number(value: int) -> str:
    """Words for 0..99, ones before tens: 21 is "einundzwanzig"."""
    tens, ones = _split(value)
    if tens < 2:
        return _GERMAN_SMALL[value]
    first = "ein" if ones == 1 else _GERMAN_SMALL[ones]
    return (f"{first}und" if ones else "") + _GERMAN_TENS[tens - 2]


def _split(value: int) -> tuple[int, int]:
    if not 0 <= value <= 99:
        raise ValueError(f"number words go from 0 to 99, not {value}")
    return divmod(value, 10)
