"""From what is asked for a line to what the search keeps to: tokens of the prefix, forbidden phrases, other lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer
from nmt.data.matching import is_in_text, spellings
from nmt.data.text import on_one_line
from nmt.registry import SEARCHES
from nmt.search.base import searches_that_accept
from nmt.search.forbidden import ForbiddenPhrases, Phrases
from nmt.search.request import Request
from nmt.search.required import Required, RequiredDespiteRepeats, joining
from nmt.search.ruled import Rule
from nmt.search.rules import ForcedPrefix, MinimumLength, NewWordAfterPrefix, NoRepeatedNgrams
from nmt.search.started_word import SpelledWords, Spellings, StartedWord


@dataclass(frozen=True)
class Constraints:
    """The constraints on the translation of one source (a line or a part of it)."""

    prefix: tuple[int, ...] = ()
    """Its first tokens."""
    ends_word: bool = False
    """Whether the last word of the prefix is complete."""
    started: StartedWord | None = None
    """Text that the search may spell with other tokens than the prefix's, from that place on."""
    forbidden: tuple[str, ...] = ()
    """Phrases that must not occur."""
    required: tuple[tuple[int, ...], ...] = ()
    """Tokens of phrases that must occur; sentences of a line that has any are not cut into parts."""

    @property
    def completed(self) -> Constraints | None:
        """The same where the word that the prefix ends within is complete; None without such a word."""
        return None if self.started is None else replace(self, started=None, ends_word=True)

    def of_part(self, number: int) -> Constraints:
        """What a part of a line keeps to, counted from 0: the prefix is the first one's."""
        return replace(self, prefix=(), ends_word=False, started=None) if number else self

    @property
    def words(self) -> tuple[int, ...]:
        """Tokens that a shortlist must hold."""
        return (*self.prefix, *(token for phrase in self.required for token in phrase))

    @property
    def tokens(self) -> int:
        """Length of what it begins with, the end symbol counted; a search adds the phrases that must occur."""
        if self.started is not None:  # at worst each byte is a token
            return self.started.after + len(self.started.text) + 1
        return len(self.prefix) + 1

    @property
    def forced(self) -> tuple[int, ...]:
        """The tokens of the prefix that must come as they are."""
        return self.prefix if self.started is None else self.prefix[: self.started.after]


FREE = Constraints()
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_MOST_TOKENS = 8
"""The part of a prefix that other tokens may spell; in scripts without spaces all of it is a word."""


class ConstraintsMaker:
    """Constraints of requests, and rules of batches, for one tokenizer and one section `decoding`."""

    def __init__(self, tokenizer: Tokenizer, decoding: DecodingConfig) -> None:
        self._tokenizer = tokenizer
        self._decoding = decoding
        self._pieces: list[bytes] | None = None
        self._phrases: Phrases | None = None
        self._spellings: Spellings | None = None
        self._joining: tuple[Tensor, Tensor] | None = None

    def of(self, request: Request) -> Constraints:
        """What the translation of a request keeps to.

        Raises DataError, which names the request, for what no translation could keep to.
        """
        prefix = self._prefix(request)
        for phrase in request.forbidden:
            if not phrase.strip():
                raise request.error("forbidden: a phrase is empty")
        if request.forbidden:
            found = self._known_phrases(request).first_in(request.prefix, request.forbidden)
            if found is not None:
                raise request.error(f"forbidden: {found!r} is in the prefix, {request.prefix!r}")
        ends_word = bool(prefix) and request.prefix[-1].isspace() and self._begins_words(request, prefix[-1])
        started = self._started(request, prefix)
        return Constraints(prefix, ends_word, started, tuple(request.forbidden), self._required(request))

    def required(
        self, constraints: Sequence[Constraints], *, words: Tensor | None, device: torch.device
    ) -> Required | None:
        """What the sentences of a batch must contain, as `rules`; None where there is nothing."""
        if not any(one.required for one in constraints):
            return None
        assert self._pieces is not None
        if self._joining is None:
            self._joining = joining(self._pieces)
        left, right = (edges if words is None else edges[words.cpu()] for edges in self._joining)
        return Required(self._phrases_of(constraints, words), left.to(device), right.to(device))

    def missing(self, request: Request, text: str) -> int:
        """How many of the required phrases a translation lacks."""
        return sum(not is_in_text(self._as_written(phrase), text) for phrase in request.required)

    def rules(self, constraints: Sequence[Constraints], *, words: Tensor | None, device: torch.device) -> list[Rule]:
        """The rules of a batch of sentences; `words`: ids of the words that the search chooses among, None for all."""
        ids = None if words is None else words.tolist()
        places = None if ids is None else {token: place for place, token in enumerate(ids)}
        rules: list[Rule] = []
        if self._decoding.min_length:
            rules.append(MinimumLength(self._decoding.min_length))
        if self._decoding.no_repeat_ngram:
            rules.append(NoRepeatedNgrams(self._decoding.no_repeat_ngram))
            if any(one.required for one in constraints):
                rules.append(RequiredDespiteRepeats(self._phrases_of(constraints, words)))
        if any(one.forbidden for one in constraints):
            assert self._phrases is not None
            rules.append(ForbiddenPhrases(self._phrases, [one.forbidden for one in constraints], words=ids))
        if any(one.ends_word for one in constraints):
            lengths = [len(one.prefix) if one.ends_word else None for one in constraints]
            rules.append(NewWordAfterPrefix(lengths, self._new_words(ids).to(device)))
        if any(one.started for one in constraints):
            rules.append(SpelledWords(self._known_spellings(), [one.started for one in constraints], places=places))
        if any(one.forced for one in constraints):
            prefixes = [one.forced if places is None else [places[i] for i in one.forced] for one in constraints]
            rules.append(ForcedPrefix(prefixes, device=device))
        return rules

    def with_prefix(self, request: Request, text: str) -> str:
        """A translation that begins with the prefix as it was given, also where the tokenizer writes it otherwise."""
        if not request.prefix.strip():
            return text
        prefix = on_one_line(request.prefix).strip()
        written = on_one_line(self._tokenizer.decode_target(self.ids_of(request.prefix))).strip()
        return prefix + text.lstrip().removeprefix(written)

    def ids_of(self, text: str) -> Sequence[int]:
        """A text in tokens: of its spellings in Unicode the first that has the fewest."""
        return min(self._tokenizer.encode_target(spellings(text)), key=lambda ids: (ids.count(UNK), len(ids)))

    def _prefix(self, request: Request) -> tuple[int, ...]:
        if not request.prefix.strip():
            return ()
        return tuple(self.ids_of(request.prefix))

    def _started(self, request: Request, prefix: tuple[int, ...]) -> StartedWord | None:
        """The last word of a prefix, which may continue: then other tokens than those of its beginning may spell it."""
        if not prefix or request.prefix[-1].isspace() or request.required:
            return None
        if self._pieces is None:
            self._pieces = self._tokenizer.target_pieces()
        if self._pieces is None:
            return None
        starts = [place for place, token in enumerate(prefix) if self._pieces[token].startswith(b" ")]
        if not starts:
            return None
        after = max(starts[-1], len(prefix) - _MOST_TOKENS)
        if UNK in prefix[after:]:
            return None
        return StartedWord(after, b"".join(self._pieces[token] for token in prefix[after:]))

    def _known_spellings(self) -> Spellings:
        assert self._pieces is not None
        if self._spellings is None:
            self._spellings = Spellings(self._pieces, without=self._space_bytes(self._pieces))
        return self._spellings

    def _required(self, request: Request) -> tuple[tuple[int, ...], ...]:
        """The tokens of the required phrases, which a translation can contain; DataError otherwise."""
        name = self._decoding.chosen_search
        if request.required and "required" not in SEARCHES.get(name).accepts:
            able = searches_that_accept("required")
            raise request.error(f"required: not possible with the search '{name}'. Allowed: {able}")
        found = []
        for phrase in request.required:
            ids = self.ids_of(phrase)
            if not phrase.strip() or not ids:
                raise request.error("required: a phrase is empty")
            if UNK in ids:
                raise request.error(f"required: {phrase!r} has a word that is not in the model's vocabulary")
            if request.forbidden:
                excluded = self._known_phrases(request).first_in(phrase, request.forbidden)
                if excluded is not None:
                    raise request.error(f"required: {phrase!r} contains {excluded!r}, which is forbidden")
            self._known_pieces(request, "required")
            found.append(tuple(ids))
        return tuple(found)

    def _as_written(self, phrase: str) -> str:
        """A phrase as the tokenizer writes it."""
        return on_one_line(self._tokenizer.decode_target(self.ids_of(phrase)))

    def _phrases_of(
        self, constraints: Sequence[Constraints], words: Tensor | None
    ) -> list[tuple[tuple[int, ...], ...]]:
        """The required phrases of a batch in ids, or in places in `words`."""
        if words is None:
            return [one.required for one in constraints]
        places = {token: place for place, token in enumerate(words.tolist())}
        return [tuple(tuple(places[i] for i in phrase) for phrase in one.required) for one in constraints]

    def _begins_words(self, request: Request, last: int) -> bool:
        """Whether the token after `last`, the last token of a prefix, shows if it begins a word."""
        pieces = self._known_pieces(request, "prefix with a space at its end")
        return not pieces[last].endswith(b" ") and any(piece.startswith(b" ") for piece in pieces)

    def _new_words(self, ids: Sequence[int] | None) -> Tensor:
        """Which words begin a word of text, or end the translation [V]."""
        assert self._pieces is not None
        chosen = range(len(self._pieces)) if ids is None else ids
        bytes_ = self._space_bytes(self._pieces)
        return torch.tensor([i == EOS or (self._pieces[i].startswith(b" ") and i not in bytes_) for i in chosen])

    def _space_bytes(self, pieces: Sequence[bytes]) -> set[int]:
        """Ids of byte tokens that are a space in a translation, such as `<0x0D>`: no text begins a word with them, and
        a model that has seldom seen them may prefer them to a word that it does not expect."""
        spaces = [i for i, piece in enumerate(pieces) if piece == b" "]
        names = self._tokenizer.target_tokens(spaces)
        return {i for i, name in zip(spaces, names, strict=True) if _BYTE.fullmatch(name)}

    def _known_phrases(self, request: Request) -> Phrases:
        pieces = self._known_pieces(request, "forbidden")
        if self._phrases is None:
            self._phrases = Phrases(pieces, self._tokenizer)
        return self._phrases

    def _known_pieces(self, request: Request, what: str) -> list[bytes]:
        if self._pieces is None:
            self._pieces = self._tokenizer.target_pieces()
        if self._pieces is None:
            kind = type(self._tokenizer).__name__
            raise request.error(f"{what}: the tokenizer {kind} does not tell the text of its tokens (target_pieces)")
        return self._pieces
