"""Search settings for the engine, from the section `decoding`; and settings that it does not support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nmt.config.schema import DecodingConfig
from nmt.errors import ConfigError
from nmt.light.options import ENGINE_SEARCHES, OPTIONS, Option, options_of

_STORED: Final = ("beam_size", "length_penalty", "max_length_offset", "split_long")
"""Keys that each file has, in its section `SETT`; other numbers of the engine are stored by name where they are set."""
_PER_CALL: Final = "n_best"
"""The key that changes nothing about the best translation."""
_LARGEST_OFFSET: Final = 1000
_LARGEST_SEARCH: Final = 100_000
"""Beam size times `max_length_offset`, see docs/engine_format.md: what a file asks for must not take for ever."""


class Settings(NamedTuple):
    """The search, as the file has it."""

    beam_size: int
    """1: greedy search"""
    length_penalty: float
    max_length_offset: int
    longest_source: int
    """Tokens, the end symbol not counted, beyond which a line is translated in parts; 0: any number"""
    others: Mapping[str, float] = MappingProxyType({})
    """Further options by their names, where they are not the engine's defaults"""


def settings_of(decoding: DecodingConfig) -> Settings:
    """The settings of the search that a model translates with by default.

    Raises ConfigError, naming the key, for what would change translations and is unknown to the engine, and for a
    search larger than a file may ask for.
    """
    for key, given, allowed in unusual(decoding):
        raise ConfigError(
            f"decoding.{key}: {given} is set, which the engine does not have. Allowed in config.yaml: {allowed}."
        )
    found = numbers_of(decoding)
    offsets = min(_LARGEST_OFFSET, _LARGEST_SEARCH // found.beam_size)
    for key, number, most in (
        ("beam_size", found.beam_size, OPTIONS["beam_size"].engine_most),
        ("max_length_offset", found.max_length_offset, offsets),
    ):
        if number > most:
            raise ConfigError(
                f"decoding.{key}: {number} is too large for a file for the engine. Allowed in config.yaml: at most "
                f"{most}; each call can ask for more."
            )
    return found


def numbers_of(decoding: DecodingConfig) -> Settings:
    """The settings that the engine supports, whatever else is set."""
    return Settings(
        decoding.beam_size if decoding.chosen_search == "beam" else 1,
        float(decoding.length_penalty),
        decoding.max_length_offset,
        decoding.split_long or 0,
        {
            option.name: option.number(getattr(decoding, option.name))
            for option in options_of("light")
            if option.is_number
            and option.name not in (*_STORED, _PER_CALL)
            and getattr(decoding, option.name, None) not in (None, option.default)
        },
    )


def notes_on(decoding: DecodingConfig) -> list[str]:
    """Settings that the file does not have; the best translations are the same without them."""
    if decoding.n_best == 1:
        return []
    return [f"decoding.n_best: {decoding.n_best} is not stored in the file; set it in each call"]


def unusual(decoding: DecodingConfig) -> Iterator[tuple[str, str, str]]:
    """Keys with values that the engine does not support, these values, and the allowed ones."""
    search = decoding.chosen_search
    if search not in ENGINE_SEARCHES:
        yield "search", f"'{search}'", "beam, greedy"
    if search == "beam" and decoding.beam_size == 1:
        yield "search", "'beam' with a beam_size of 1", "greedy, or a wider beam"
    if (temperature := temperature_of(decoding)) != 1:
        yield "search_options.temperature", f"{temperature:g}", "1"
    for option in lacking(decoding, door="file"):
        usual = option.default
        yield option.name, repr(getattr(decoding, option.name)), "null" if usual is None else str(usual).lower()


def temperature_of(decoding: DecodingConfig) -> float:
    """What logits are divided by."""
    return float(decoding.search_options.get("temperature", 1.0))


def lacking(decoding: DecodingConfig, *, door: str) -> list[Option]:
    """Options that change translations, are set, and that a door (`nmt.light.options.DOORS`) does not have."""
    return [
        option
        for option in OPTIONS.values()
        if option.is_key
        and door not in option.doors
        and not (option.only_rounding or option.needs or option.name in ("search_options", _PER_CALL))
        and getattr(decoding, option.name) != option.default
    ]


def settings_in_words(settings: Settings) -> dict[str, float | str]:
    """The same for the card of the file."""
    found = settings._asdict()
    others = {name: OPTIONS[name].of_number(value) for name, value in found.pop("others").items()}
    return {"search": "beam" if settings.beam_size > 1 else "greedy", **found, **others}
