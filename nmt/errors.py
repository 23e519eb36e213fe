"""Errors a user can cause and the wording of messages; each is complete and needs no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from nmt.light.errors import LONGEST_VALUE as LONGEST_VALUE
from nmt.light.errors import DataError as DataError
from nmt.light.errors import NmtError as NmtError
from nmt.light.errors import missing as missing
from nmt.light.errors import shortened as shortened
from nmt.light.errors import shown as shown


class ConfigError(NmtError):
    """A mistake in a configuration file, an override or a command line."""

    exit_code = 2


class SettingError(ConfigError):
    """Mistakes in settings, as (key, message): a configuration says the keys, a command the options that set them."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return self.said()

    def said(self, named: Callable[[str], str] = str) -> str:
        """The message, with `named` of each key."""
        return "; ".join(f"{named(key)}: {message}" for key, message in self.problems)


class CheckpointError(NmtError):
    """A run directory, checkpoint or model file that cannot be used."""


class UnreadableError(CheckpointError):
    """A file that cannot be read at this moment. It may be good: nothing may be done to it for that."""


def printable(text: str) -> str:
    """`text` with line ends, control characters and lone surrogates escaped: one harmless line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and what it counts: `1 line`, `1,203 lines`; `plural` where the noun takes more than an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


_ALSO_CALLED = {
    "xavier": "glorot",
    "xavier_uniform": "glorot",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "plateau": "score",
    "reduce_lr_on_plateau": "score",
    "vanilla": "constant",
    "sacrebleu": "bleu",
    "spm": "sentencepiece",
    "bpe": "sentencepiece",
    "unigram": "sentencepiece",
    "word": "whitespace",
    "space": "whitespace",
    "moses": "whitespace",
    "xent": "loss",
    "ppl": "loss",
}
"""Names that other toolkits have for some of ours."""


def plain(name: str) -> str:
    """`name` without what is only a way of writing: letter case, hyphens and spaces."""
    return name.casefold().replace("-", "_").replace(" ", "_")


def near_miss(name: str, known: Sequence[str], *, ending: str = "", most: int = 1) -> str:
    """Return " Did you mean 'x'?" when `name` resembles one of `known`, else an empty string.

    A common `ending` of the names, such as ".yaml", does not count as a resemblance. At `most` so many names are
    given, nearest first.
    """
    if len(name) > LONGEST_VALUE:  # comparing takes time, and no name is that long
        return ""
    wanted = plain(name.removesuffix(ending))
    candidates = {plain(candidate.removesuffix(ending)): candidate for candidate in known}
    also = _ALSO_CALLED.get(wanted)
    close = [one for one in (also, wanted) if one in candidates][:1]
    from difflib import get_close_matches  # late, as few make mistakes

    close = close or get_close_matches(wanted, candidates, n=most)
    names = [f"'{candidates[one]}'" for one in close]
    listed = " or ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])
    return f" Did you mean {listed}?" if names else ""


def refused(key: str, value: object, allowed: str | Sequence[str], *, problem: str = "is not allowed") -> str:
    """`KEY: VALUE is not allowed. Did you mean 'x'? Allowed: x, y.`; an empty key is left out.

    `allowed` lists the words that may be given, or says it in words.
    """
    hint, listed = ("", allowed) if isinstance(allowed, str) else (near_miss(str(value), allowed), ", ".join(allowed))
    return f"{key}: " * bool(key) + f"{shown(value)} {problem}.{hint} Allowed: {listed}."


@functools.cache
def say_once(name: str, message: str) -> None:
    """Log a warning of the logger `name`, if this process has not yet."""
    import logging  # late, as it takes longer than a sentence

    logging.getLogger(name).warning(message)
