"""The adverbials of the demo grammar, and which times go with which tenses."""

from __future__ import annotations

from typing import NamedTuple

from nmt.demo.dice import Dice
from nmt.demo.lexicon import Verb
from nmt.demo.numbers import english_number, german_number
from nmt.demo.syntax import CAN, MAY, MUST, SHOULD, WANT, WILL, Modal, Phrase, Tense

CITIES = (
    Phrase("Berlin", "Berlin"),
    Phrase("Vienna", "Wien"),
    Phrase("Munich", "München"),
    Phrase("Cologne", "Köln"),
    Phrase("Hamburg", "Hamburg"),
    Phrase("Zurich", "Zürich"),
)

LOCATIONS = {
    "in": ("in", "in"),
    "at": ("at", "an"),
    "on": ("on", "auf"),
    "seat": ("on", "auf"),
    "surface": ("on", "auf"),
    "under": ("under", "unter"),
}
AROUND = (("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
_UNITS = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))

_WEEKDAYS = tuple(
    Phrase(f"on {name}", f"am {german_name}")
    for name, german_name in zip(
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
        strict=True,
    )
)
_ANY_TIME = (
    Phrase("today", "heute"),
    Phrase("in the morning", "am Morgen"),
    Phrase("in the evening", "am Abend"),
    Phrase("in summer", "im Sommer"),
    Phrase("in winter", "im Winter"),
)
_PRESENT = (Phrase("now", "jetzt"), Phrase("every day", "jeden Tag"), Phrase("every week", "jede Woche"))
_PAST = (Phrase("yesterday", "gestern"), Phrase("last week", "letzte Woche"), Phrase("last year", "letztes Jahr"))
_FUTURE = (Phrase("tomorrow", "morgen"), Phrase("next week", "nächste Woche"), Phrase("next year", "nächstes Jahr"))
FREQUENCIES = (
    Phrase("often", "oft"),
    Phrase("always", "immer"),
    Phrase("sometimes", "manchmal"),
    Phrase("never", "nie"),
)
PACES = (Phrase("slowly", "langsam"), Phrase("quickly", "schnell"))


class Mood(NamedTuple):
    """Tense, modal and time of a clause, which depend on each other."""

    tense: Tense
    modal: Modal | None
    time: Phrase | None


PLAIN = Mood("present", None, None)
_MODALS = (CAN, MUST, MAY, SHOULD, WILL, WILL, WANT)
_NEGATED_MODALS = (CAN, SHOULD, WILL, WANT)


def mood(dice: Dice, verb: Verb, *, past: bool = True, negated: bool = False) -> Mood:
    """Present, past if allowed, or a modal, with a time that goes with it or none.

    A verb whose English past looks like the present ("read") is not put into the past, and of the
    modals only those are negated that negate alike in both languages.
    """
    if "stative" in verb.extras:
        return PLAIN
    draw = dice.fraction()
    if draw < 0.4:
        if not past or verb.english == verb.english_past:
            return PLAIN
        return Mood("past", None, past_time(dice) if dice.chance(0.6) else None)
    times: tuple[Phrase, ...] = (*_PRESENT, *_ANY_TIME)
    modal = None
    if draw < 0.7:
        times, modal = (*_FUTURE, *_ANY_TIME, *_WEEKDAYS), dice.pick(_NEGATED_MODALS if negated else _MODALS)
    return Mood("present", modal, dice.pick(times) if dice.chance(0.4) else None)


def past_time(dice: Dice) -> Phrase:
    """When something was: "yesterday", "on Monday", "three weeks ago", "at five o'clock"."""
    draw = dice.fraction()
    if draw < 0.2:
        plural, german_dative = dice.pick(_UNITS)
        count = dice.number()
        return Phrase(f"{english_number(count)} {plural} ago", f"vor {german_number(count)} {german_dative}")
    if draw < 0.35:
        hour = dice.hour()
        return Phrase(f"at {english_number(hour)} o'clock", f"um {german_number(hour)} Uhr")
    return dice.pick((*_PAST, *_PAST, *_ANY_TIME, *_WEEKDAYS))
