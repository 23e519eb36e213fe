"""A session of live translation: text in, as it comes, and out what no longer changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from nmt.config.options import component_options
from nmt.data.sentences import splitter_of
from nmt.data.tokenizer import on_one_line
from nmt.errors import ConfigError, DataError, NmtError, refused, shown
from nmt.light.binding import Stop
from nmt.live.policies import Network, Policy
from nmt.live.words import CONTINUES, SPACED_CONTINUES, SPACED_WORD, WORD
from nmt.registry import POLICIES, SESSIONS

_WINDOW: Final = 1000
"""Characters at the end of a sentence in which the beginning of the next one is looked for; a bracket or a quotation
that was opened further back holds nothing together any more."""
_NOT_LIVE: Final = ("prefix", "required", "n_best", "details", "split")
"""Options of `translate` that have no meaning while a sentence grows."""
_KEPT: Final = {"placeholders": False, "glossary": "none"}
"""What takes its place in a translation when all of it is there, and what switches it off."""
_HIGH: Final = ("\ud800", "\udbff")
"""First and last of the first halves of surrogate pairs, of which the second half may come later."""


@SESSIONS.register("text")
class Session:
    """Translates text while it grows, sentence by sentence: what has been returned never changes.

    Only the sentence at hand is kept. A session belongs to one thread at a time.
    """

    def __init__(self, translator: Any, policy: str, given: Mapping[str, Any], network: tuple[Any, ...] | None) -> None:
        """See `nmt.Translator.live`; `network` are the fields of a `Network`.

        Raises ConfigError for a policy or an option that there is not.
        """
        given = dict(given)
        self._revises = given.pop("revise", False)
        if not isinstance(self._revises, bool):
            raise ConfigError(refused("revise", self._revises, "true or false"))
        kind = POLICIES.get(policy)
        own = {field.name for field in dataclasses.fields(kind.Options)}
        search = {name: value for name, value in given.items() if name not in own}
        for name in _NOT_LIVE:
            if search.get(name) is not None:
                raise ConfigError(f"{name}: a live session has no such option")
        translator.hypotheses(**search)  # says which options there are not
        config = getattr(translator, "_config", None)
        if config is not None and config.data.context != "none":
            raise ConfigError(f"data.context: '{config.data.context}' has no place in a live session")
        for name, off in _KEPT.items():
            if search.get(name, config and getattr(config.decoding, name)) not in (None, off):
                allowed = "false" if off is False else off
                raise ConfigError(f"{name}: has its place only when a sentence is complete. Allowed: {allowed}.")
        options = component_options(kind, {name: given[name] for name in own & given.keys()}, key=policy)
        made = None if network is None else Network(*network)
        self._policy: Policy = kind(translator, options, search=search, network=made)
        self._policy.revises = self._revises
        is_spaced = made is not None and made.tokenizer.splits_at_spaces
        self._word, self._continues = (SPACED_WORD, SPACED_CONTINUES) if is_spaced else (WORD, CONTINUES)
        self._splitter = splitter_of(translator.source_language if translator.source_language != "?" else "")
        self._joins = " " if self._splitter.is_spaced(translator.target_language) else ""
        self._parts = " " if self._splitter.is_spaced(translator.source_language) else ""
        self._half = ""  # of a character
        self._waiting = ""  # of a word that may continue
        self._utterance: list[str] = []  # its words, of which the last ones are those of the sentence at hand
        self._done = 0  # of these words, of sentences that are done
        self._fixed, self._fixed_words = "", 0  # of the sentence at hand, before the utterance
        self._sentence = ""
        self._words = 0
        self._told = 0  # characters of the sentence's translation that have been returned
        self._between = ""  # before the next sentence
        self._is_closed = False
        self.stop: Stop | None = None
        """Ends a call before the next word by StoppedError, for another thread."""
        self.late = 0
        """Words that were revised when the sentence that they are in was done, so that nothing came of it."""
        self._policy.begin()

    def feed(self, text: str) -> str:
        """More source text, in pieces of any size; the translation's next stable text, often none.

        A word is read when it is complete: when white space follows. What `revise` gave before is no longer revised.
        Raises NmtError after `end`, DataError for half of a surrogate pair, TypeError for what is no text.
        """
        self._settle()
        self._waiting += on_one_line(self._whole(text))
        words, self._waiting = self._complete(self._waiting)
        found = "".join([self._read(word) for word in words])
        self._settle()
        return found

    def revise(self, text: str, *, final: bool = False) -> str:
        """The whole of what is being said, which replaces what this was given before; for speech recognisers, which
        send the text of an utterance again and again. The translation's next stable text.

        What follows a `final` text is another utterance. In a session that was opened with `revise=True` all words of
        the text are read, and may be others the next time: what has been returned stays, all else follows the new text.
        In any other session the last word is read when another one follows, or `final` says so, and DataError names a
        word that has changed after it was read. Other errors are those of `feed`.
        """
        text = on_one_line(self._whole(text))
        if self._half:
            self._half = ""
            raise DataError("text ends with half of a surrogate pair, which is not text")
        found = ""
        if self._waiting.strip():
            found, self._waiting = self._read(self._waiting), ""
            self._settle()
        if text.strip():
            text = (self._parts if self._fixed else "") + text.lstrip()
        words = [word[0] for word in self._word.finditer(text)] if self._revises or final else self._complete(text)[0]
        found += self._revised(words)
        if final:
            self._settle()
        return found

    def end(self) -> str:
        """The rest of the translation; the session is closed."""
        self._check_open()
        if self._half:
            raise DataError("text ends with half of a surrogate pair, which is not text")
        found = self._read(self._waiting) if self._waiting.strip() else ""
        self._waiting, self._is_closed = "", True
        return found + self._finish(self._sentence)

    @property
    def tail(self) -> str:
        """What may follow what has been returned, but may still change; policies without such text have none."""
        tail = self._policy.tail
        return (self._between if tail and not self._told else "") + tail

    @property
    def open_words(self) -> int:
        """Words of the sentence at hand."""
        return self._words

    def _check_open(self) -> None:
        if self._is_closed:
            raise NmtError("this session has ended")

    def _whole(self, text: str) -> str:
        """The text without half of a character at its end, which waits for the other half."""
        self._check_open()
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, not {type(text).__name__}")
        text, self._half = self._half + text, ""
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            text, self._half = text[:-1], text[-1]
        try:
            return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise DataError("text holds half of a surrogate pair, which is not text") from None

    def _complete(self, text: str) -> tuple[list[str], str]:
        """The words of a text that are complete, and the rest."""
        words = [*self._word.finditer(text)]
        if words and self._continues.search(text):
            words.pop()
        return [word[0] for word in words], text[words[-1].end() :] if words else text

    def _settle(self) -> None:
        """What has been read is not revised any more."""
        self._utterance, self._done = [], 0
        self._fixed, self._fixed_words = self._sentence, self._words

    def _revised(self, words: Sequence[str]) -> str:
        """Read the words of an utterance, of which others may have been read."""
        old = self._utterance
        same = next((i for i, (one, other) in enumerate(zip(old, words, strict=False)) if one != other), None)
        if same is None:
            same = min(len(old), len(words))
        if same == len(old):
            return "".join([self._uttered(word) for word in words[same:]])
        if not self._revises:
            became = f"has become {shown(words[same].strip())}" if same < len(words) else "is gone"
            raise DataError(
                f"word {same + 1} of the text, {shown(old[same].strip())}, {became} after it was read. Allowed: text "
                "that continues, or a session that was opened with revise=True."
            )
        if same < self._done:
            self.late += self._done - same
            self._done = same = _moved(old, words, self._done)
        kept = words[self._done : same]
        self._utterance = list(words[:same])
        self._sentence = self._fixed + "".join(kept) if self._fixed else "".join(kept).lstrip()
        self._words = self._fixed_words + len(kept)
        if same < len(words):
            return "".join([self._uttered(word) for word in words[same:]])
        self._policy.read(self._sentence, self._words)
        return self._told_now()

    def _uttered(self, word: str) -> str:
        self._utterance.append(word)
        return self._read(word)

    def _read(self, word: str) -> str:
        """One more word: of the sentence at hand, or of a new one."""
        if self.stop is not None:
            self.stop.check()
        found = ""
        self._sentence, self._words = (self._sentence + word if self._sentence else word.lstrip()), self._words + 1
        while (bounds := self._next_bounds()) is not None:
            end, begin = bounds
            found += self._finish(self._sentence[:end], rest=self._sentence[begin:])
        self._policy.read(self._sentence, self._words)
        return found + self._told_now()

    def _next_bounds(self) -> tuple[int, int] | None:
        """Where the first sentence ends and the next one begins; looked for at the end, where words are new."""
        first = max(0, len(self._sentence) - _WINDOW)
        if first:
            first = self._sentence.find(" ", first) + 1
        bounds = self._splitter.bounds(self._sentence[first:])
        return (first + bounds[0][1], first + bounds[1][0]) if len(bounds) > 1 else None

    def _finish(self, sentence: str, rest: str = "") -> str:
        """The rest of the translation of a sentence, and a new one."""
        if sentence.strip():
            self._policy.finish(sentence)
        found = self._told_now()
        if self._told:
            self._between = self._joins
        words = self._word.findall(rest)
        self._fixed_words = max(0, len(words) - len(self._utterance))
        self._done = len(self._utterance) - len(words) + self._fixed_words
        self._fixed = "".join(words[: self._fixed_words])
        self._sentence, self._words, self._told = rest, len(words), 0
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


def _moved(old: Sequence[str], new: Sequence[str], place: int) -> int:
    """Where a place between words is after a revision."""
    for _, begin, end, own_begin, own_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if begin <= place < end:
            return min(own_begin + place - begin, own_end)
    return len(new)
