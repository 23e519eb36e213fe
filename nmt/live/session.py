"""A session of live translation: text in, as it comes, and out what no longer changes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from nmt.config.options import component_options
from nmt.data.matching import UNSPACED
from nmt.data.sentences import splitter_of
from nmt.data.tokenizer import on_one_line
from nmt.errors import NmtError
from nmt.live.policies import Network, Policy
from nmt.registry import POLICIES, SESSIONS

_WORD: Final = re.compile(rf"\s*(?:[{UNSPACED}]|[^\s{UNSPACED}]+)")
"""A word with the white space before it; in scripts without spaces between words, a character."""
_GOES_ON: Final = re.compile(rf"[^\s{UNSPACED}]\Z")


@SESSIONS.register("text")
class Session:
    """Translates text while it grows, sentence by sentence: what has been returned never changes.

    Only the sentence at hand is kept. A session belongs to one thread.
    """

    def __init__(self, translator: Any, policy: str, given: Mapping[str, Any], network: tuple[Any, ...] | None) -> None:
        """See `nmt.Translator.live`; `network` are the fields of a `Network`.

        Raises ConfigError for a policy or an option that there is not.
        """
        kind = POLICIES.get(policy)
        own = {field.name for field in dataclasses.fields(kind.Options)}
        search = {name: value for name, value in given.items() if name not in own}
        translator.hypotheses(**search)  # says which options there are not
        options = component_options(kind, {name: given[name] for name in own & given.keys()}, key=policy)
        made = None if network is None else Network(*network)
        self._policy: Policy = kind(translator, options, search=search, network=made)
        self._splitter = splitter_of(translator.source_language if translator.source_language != "?" else "")
        self._joins = " " if self._splitter.is_spaced(translator.target_language) else ""
        self._waiting = ""  # of a word that may continue
        self._sentence = ""
        self._words = 0
        self._told = 0  # characters of the sentence's translation that have been returned
        self._between = ""  # before the next sentence
        self._is_closed = False
        self._policy.begin()

    def feed(self, text: str) -> str:
        """More source text, in pieces of any size; the translation's next stable text, often none.

        A word is read when it is complete: when white space follows. Raises NmtError after `end`.
        """
        if self._is_closed:
            raise NmtError("this session has ended")
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, not {type(text).__name__}")
        self._waiting += on_one_line(text)
        found = [*_WORD.finditer(self._waiting)]
        if found and _GOES_ON.search(self._waiting):
            found.pop()
        self._waiting = self._waiting[found[-1].end() :] if found else self._waiting
        return "".join([self._read(word[0]) for word in found])

    def end(self) -> str:
        """The rest of the translation; the session is closed."""
        found = self._read(self._waiting) if self._waiting.strip() else ""
        self._waiting, self._is_closed = "", True
        return found + self._finish()

    @property
    def tail(self) -> str:
        """What may follow what has been returned, but may still change; policies without such text have none."""
        return self._policy.tail

    def _read(self, word: str) -> str:
        """One more word: of the sentence at hand, or of a new one."""
        found, longer = "", self._sentence + word
        bounds = self._splitter.bounds(longer)
        if len(bounds) > 1:
            found, longer = self._finish(), longer[bounds[-1][0] :]
        self._sentence, self._words = longer.lstrip() if not self._sentence else longer, self._words + 1
        self._policy.read(self._sentence, self._words)
        return found + self._told_now()

    def _finish(self) -> str:
        """The rest of the sentence at hand, and a new one."""
        found = ""
        if self._sentence.strip():
            self._policy.finish(self._sentence)
            found = self._told_now()
            self._between = self._joins if self._told or self._between else ""
        self._sentence, self._words, self._told = "", 0, 0
        self._policy.begin()
        return found

    def _told_now(self) -> str:
        new = self._policy.written[self._told :]
        found = (self._between if new and not self._told else "") + new
        self._told += len(new)
        return found

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
