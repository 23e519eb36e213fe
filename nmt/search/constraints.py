"""From what is asked for a line to what the search keeps to: tokens of the prefix, the word that it ends within, and
phrases that must not occur or must.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer
from nmt.data.matching import is_boundary, is_in_text, spellings
from nmt.data.tokenizer import on_one_line
from nmt.data.vocabulary import BYTE
from nmt.registry import SEARCHES
from nmt.search.base import Required, searches_that_accept
from nmt.search.ruled import Rule, Step
from nmt.search.values import Request

_SPACES = re.compile(rb" +")
_MOST_KNOWN = 10_000
"""Phrases that are remembered."""
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""


def _last_character(text: bytes) -> str:
    """The last character of a text, as far as it is whole."""
    return text[-_LONGEST_CHARACTER:].decode(errors="replace")[-1:]


def _beginning(text: bytes) -> str:
    """As much of the beginning of a text as can decide whether it continues a word."""
    return text[: _LONGEST_CHARACTER * 16].decode(errors="replace")


def joining(pieces: Sequence[bytes]) -> tuple[Tensor, Tensor]:
    """`joins_left` and `joins_right` of `Required`, from what each word of a vocabulary adds to a text, in UTF-8.

    A part of a character counts as a letter: it may become one.
    """
    firsts, lasts = [_beginning(piece) for piece in pieces], [_last_character(piece) for piece in pieces]
    left = [bool(text) and (text[0] == "\ufffd" or not is_boundary("a", text)) for text in firsts]
    right = [bool(text) and (text == "\ufffd" or not is_boundary(text, "a")) for text in lasts]
    return torch.tensor(left, dtype=torch.bool), torch.tensor(right, dtype=torch.bool)


class Phrases:
    """The tokens that complete a phrase, for any number of phrases.

    A phrase is looked for as it is written, as the tokenizer writes it, with its letters composed and decomposed, and
    with its first letter in the other case; by characters, as a word or a sequence of words. A token that completes it
    is excluded even if the next one could make the last word longer: otherwise the search would have to continue with a
    word that it did not mean.
    """

    def __init__(self, pieces: Sequence[bytes], tokenizer: Tokenizer) -> None:
        """`pieces`: what each target id adds to a text, in UTF-8."""
        self._tokenizer = tokenizer
        self.pieces = [_SPACES.sub(b" ", piece) for piece in pieces]
        self._sorted = sorted((piece, i) for i, piece in enumerate(self.pieces) if piece.strip())
        # After a space, or at the beginning of a text, another one adds nothing.
        self._stripped = sorted((piece.lstrip(), i) for i, piece in enumerate(self.pieces) if piece.strip())
        self._inside: dict[bytes, list[int]] = {}
        self._known: dict[str, list[bytes]] = {}

    def excluded(self, text: bytes, phrases: Iterable[str]) -> set[int]:
        """The ids that must not follow `text`, the pieces so far without repeated spaces."""
        found: set[int] = set()
        pieces = self._stripped if not text or text.endswith(b" ") else self._sorted
        for pattern in (pattern for phrase in phrases for pattern in self._patterns(phrase)):
            found.update(self._occurring_inside(pattern))
            first, last = _beginning(pattern), _last_character(pattern)
            # With how many bytes of it, as a whole word, `text` may already end; with none if it can begin.
            for length in range(min(len(pattern), len(text) + 1)):
                start, rest = len(text) - length, pattern[length:]
                if not text.startswith(pattern[:length], start):
                    continue
                if is_boundary(_last_character(text[:start]), first):
                    # The pieces that begin with the rest of it, and end its last word or end with it.
                    for piece, i in pieces[bisect_left(pieces, (rest, -1)) :]:
                        if not piece.startswith(rest):
                            break
                        if is_boundary(last, _beginning(piece[len(rest) :])):
                            found.add(i)
        return found

    def first_in(self, text: str, phrases: Iterable[str]) -> str | None:
        """The first of the phrases that `text` contains."""
        spelled = self._tokenizer.spelled(text)
        return next((one for one in phrases if any(is_in_text(p.decode(), spelled) for p in self._patterns(one))), None)

    def _patterns(self, phrase: str) -> list[bytes]:
        """The spellings that are looked for."""
        found = self._known.get(phrase)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known, self._inside = {}, {}
            texts = spellings(phrase)
            encoded = self._tokenizer.encode_target(texts)
            texts += [self._tokenizer.decode_target(ids) for ids in encoded if UNK not in ids]
            cased: dict[str, None] = {}
            for word in filter(None, (" ".join(text.split()) for text in texts)):
                first = word[0]
                other = first.lower() if first != first.lower() else first.upper()
                cased |= {word: None, other + word[1:]: None}
            found = self._known[phrase] = [*{self._tokenizer.spelled(text).encode(): None for text in cased}]
        return found

    def _occurring_inside(self, pattern: bytes) -> list[int]:
        """Ids of the pieces that contain the phrase as whole words, not at their beginning."""
        found = self._inside.get(pattern)
        if found is None:
            found = self._inside[pattern] = []
            first, last = _beginning(pattern), _last_character(pattern)
            for piece, i in self._sorted:
                place = piece.find(pattern, 1)
                while place >= 0:
                    after = _beginning(piece[place + len(pattern) :])
                    if is_boundary(_last_character(piece[:place]), first) and is_boundary(last, after):
                        found.append(i)
                        break
                    place = piece.find(pattern, place + 1)
        return found


@dataclass(frozen=True)
class ForbiddenPhrases:
    """The rule that keeps the phrases of each sentence out of its translation."""

    phrases: Phrases
    wanted: Sequence[Sequence[str]]
    """The forbidden phrases of each sentence of the batch."""
    words: Sequence[int] | None
    """Ids of the words from which the search chooses; None for all."""

    @cached_property
    def _places(self) -> dict[int, int] | None:
        return None if self.words is None else {token: place for place, token in enumerate(self.words)}

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        rows: list[int] = []
        places: list[int] = []
        for row, (line, history) in enumerate(zip(step.lines.tolist(), step.history.tolist(), strict=True)):
            if self.wanted[line]:
                ids = history if self.words is None else [self.words[place] for place in history]
                text = _SPACES.sub(b" ", b"".join(self.phrases.pieces[i] for i in ids)).lstrip()
                for i in self.phrases.excluded(text, self.wanted[line]):
                    place = i if self._places is None else self._places.get(i)
                    if place is not None:
                        rows.append(row)
                        places.append(place)
        if rows:
            device = log_probs.device
            log_probs[torch.tensor(rows, device=device), torch.tensor(places, device=device)] = -math.inf


@dataclass(frozen=True)
class RequiredDespiteRepeats:
    """The rule that a phrase may be started and continued even if that repeats an n-gram, until it is complete."""

    phrases: Sequence[Sequence[tuple[int, ...]]]
    """Of each sentence of the batch, in words as the search calls them."""

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        for row, (line, history) in enumerate(zip(step.lines.tolist(), step.history.tolist(), strict=True)):
            for phrase in self.phrases[line]:
                size, words = len(phrase), tuple(history)
                if any(words[start : start + size] == phrase for start in range(len(words) - size + 1)):
                    continue
                for length in range(size):
                    if not length or words[-length:] == phrase[:length]:
                        log_probs[row, phrase[length]] = original[row, phrase[length]]


class ForcedPrefix:
    """Each sentence begins with its own words, even if earlier rules exclude them. Each has the probability of the most
    probable one: by a length penalty long translations would make up for an improbable beginning."""

    def __init__(self, prefixes: Sequence[Sequence[int]], *, device: torch.device) -> None:
        """`prefixes`: of each sentence of the batch its first words, as the search calls them; empty for none."""
        rows = [torch.tensor(words, dtype=torch.int64) for words in prefixes]
        self._prefixes = pad_sequence(rows, batch_first=True, padding_value=-1).to(device)

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        place = step.history.shape[1]
        if place >= self._prefixes.shape[1]:
            return
        forced = self._prefixes[step.lines, place].unsqueeze(1)  # [N, 1]
        kept = original.gather(1, forced.clamp(min=0))
        kept = torch.where(kept.isfinite(), original.amax(1, keepdim=True), kept)
        log_probs.masked_fill_(forced >= 0, -math.inf)
        log_probs.scatter_(1, forced.clamp(min=0), torch.where(forced >= 0, kept, log_probs[:, :1]))


@dataclass(frozen=True)
class NewWordAfterPrefix:
    """What follows a prefix whose last word is complete begins a word, or ends the translation."""

    lengths: Tensor  # of the prefix of each sentence [B], in words of the search; -1 where anything may follow
    excluded: Tensor  # which words may not follow [V]

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        here = self.lengths[step.lines] == step.history.shape[1]  # [N]
        if bool(here.any()):
            log_probs.masked_fill_(here.unsqueeze(1) & self.excluded, -math.inf)


class StartedWord(NamedTuple):
    """The end of a prefix, as text."""

    after: int
    """Tokens of the prefix before it."""
    text: bytes
    """What the next tokens must spell before anything else."""


class Spellings:
    """Which tokens spell the beginning of a text, or more than all of it."""

    def __init__(self, pieces: Sequence[bytes], *, without: Container[int] = ()) -> None:
        """`pieces`: what each target id adds to a text, in UTF-8; ids in `without` spell nothing."""
        self.pieces = pieces
        self._sorted = sorted((piece, i) for i, piece in enumerate(pieces) if piece and i not in without)
        self._of: dict[bytes, list[int]] = defaultdict(list)
        for piece, i in self._sorted:
            self._of[piece].append(i)

    def choices(self, text: bytes, places: dict[int, int] | None) -> dict[int, tuple[list[int], list[int]]]:
        """By the bytes spelled so far, the places of the tokens that continue within a text and beyond its end.

        Only tokens after which the rest can be spelled, too. `places`: as in `SpelledWords`.
        """
        found: dict[int, tuple[list[int], list[int]]] = {}
        for spelled in reversed(range(len(text))):
            rest = text[spelled:]
            within: list[int] = []
            for length in range(1, len(rest) + 1):
                if length == len(rest) or spelled + length in found:
                    within += self._of.get(rest[:length], ())
            beyond = []
            for piece, i in self._sorted[bisect_left(self._sorted, (rest, len(self.pieces))) :]:
                if not piece.startswith(rest):
                    break
                beyond.append(i)
            if places is not None:
                within, beyond = ([places[i] for i in ids if i in places] for ids in (within, beyond))
            if within:
                found[spelled] = within, beyond
        return found


class SpelledWords:
    """The rule that makes each sentence finish its started word.

    Tokens within the word have the model's probability whatever other rules exclude; for tokens that run beyond its
    end, the other rules apply. The best first token has the probability that those of a `ForcedPrefix` have.
    """

    def __init__(
        self, spellings: Spellings, words: Sequence[StartedWord | None], *, places: dict[int, int] | None
    ) -> None:
        """
        Args:
            spellings: of the vocabulary.
            words: the started word of each sentence of the batch; None for none.
            places: of the ids of the words that the search chooses among; None for all, where an id is its place.
        """
        self._words = words
        known = {word.text for word in words if word is not None}
        self._choices = {text: spellings.choices(text, places) for text in known}
        ids = range(len(spellings.pieces)) if places is None else places
        self._lengths = [len(spellings.pieces[i]) for i in ids]  # in the order of the places

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        t = step.history.shape[1]
        for row, line in enumerate(step.lines.tolist()):
            word = self._words[line]
            if word is None or not word.after <= t < word.after + len(word.text):
                continue
            spelled = sum(self._lengths[place] for place in step.history[row, word.after :].tolist())
            if spelled < len(word.text):
                within, beyond = (
                    torch.tensor(places, dtype=torch.int64, device=log_probs.device)
                    for places in self._choices[word.text].get(spelled, ((), ()))
                )
                kept = log_probs[row, beyond]
                log_probs[row] = -math.inf
                log_probs[row, within] = original[row, within]
                log_probs[row, beyond] = kept
                if not spelled and log_probs[row].max().isfinite():
                    log_probs[row] += original[row].max() - log_probs[row].max()


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
_MOST_TOKENS = 8
"""The part of a prefix that other tokens may spell; in scripts without spaces all of it is a word."""


class ConstraintsMaker:
    """Constraints of requests, and rules of batches, for one tokenizer and one section `decoding`."""

    def __init__(self, tokenizer: Tokenizer, decoding: DecodingConfig) -> None:
        self._tokenizer = tokenizer
        self._decoding = decoding

    @cached_property
    def _pieces(self) -> list[bytes]:
        """What each target id adds to a text; empty where the tokenizer does not tell it. Found when it is needed, as
        the rest."""
        return self._tokenizer.target_pieces() or []

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases(self._pieces, self._tokenizer)

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self._pieces, without=self._space_bytes)

    @cached_property
    def _joining(self) -> tuple[Tensor, Tensor]:
        return joining(self._pieces)

    @cached_property
    def _space_bytes(self) -> set[int]:
        """Ids of byte tokens that are a space in a translation, such as `<0x0D>`: no text begins a word with them, and
        a model that has seldom seen them may prefer them to a word that it does not expect."""
        spaces = [i for i, piece in enumerate(self._pieces) if piece == b" "]
        names = self._tokenizer.target_tokens(spaces)
        return {i for i, name in zip(spaces, names, strict=True) if BYTE.fullmatch(name)}

    def of(self, request: Request) -> Constraints:
        """What the translation of a request keeps to.

        Raises DataError, which names the request, for what no translation could keep to.
        """
        prefix = tuple(self.ids_of(request.prefix, inside=False)) if request.prefix.strip() else ()
        for phrase in request.forbidden:
            if not phrase.strip():
                raise request.error("forbidden: a phrase is empty")
        if request.forbidden:
            self._check_pieces(request, "forbidden")
            found = self._phrases.first_in(request.prefix, request.forbidden)
            if found is not None:
                raise request.error(f"forbidden: {found!r} is in the prefix, {request.prefix!r}")
        ends_word = False
        if prefix and request.prefix[-1].isspace():
            # Whether the token after it shows if it begins a word.
            self._check_pieces(request, "prefix with a space at its end")
            ends_word = not self._pieces[prefix[-1]].endswith(b" ") and any(p.startswith(b" ") for p in self._pieces)
        started = self._started(request, prefix)
        return Constraints(prefix, ends_word, started, tuple(request.forbidden), self._required(request))

    def _check_pieces(self, request: Request, what: str) -> None:
        if not self._pieces:
            kind = type(self._tokenizer).__name__
            raise request.error(f"{what}: the tokenizer {kind} does not tell the text of its tokens (target_pieces)")

    def _started(self, request: Request, prefix: tuple[int, ...]) -> StartedWord | None:
        """The last word of a prefix, which may continue: then other tokens than those of its beginning may spell it."""
        if not prefix or request.prefix[-1].isspace() or request.required or not self._pieces:
            return None
        starts = [place for place, token in enumerate(prefix) if self._pieces[token].startswith(b" ")]
        after = max([*starts[-1:], len(prefix) - _MOST_TOKENS])
        if not starts or UNK in prefix[after:]:
            return None
        return StartedWord(after, b"".join(self._pieces[token] for token in prefix[after:]))

    def _required(self, request: Request) -> tuple[tuple[int, ...], ...]:
        """The tokens of the required phrases, which a translation can contain; DataError otherwise."""
        name = self._decoding.chosen_search
        if request.required and "required" not in SEARCHES.get(name).accepts:
            able = searches_that_accept("required")
            raise request.error(f"required: not possible with the search '{name}'. Allowed: {able}")
        found = []
        for phrase in request.required:
            ids = self.ids_of(phrase, inside=True)
            if not phrase.strip() or not ids:
                raise request.error("required: a phrase is empty")
            if UNK in ids:
                raise request.error(f"required: {phrase!r} has a word that is not in the model's vocabulary")
            if request.forbidden:
                excluded = self._phrases.first_in(phrase, request.forbidden)
                if excluded is not None:
                    raise request.error(f"required: {phrase!r} contains {excluded!r}, which is forbidden")
            self._check_pieces(request, "required")
            found.append(tuple(ids))
        return tuple(found)

    def required(
        self, constraints: Sequence[Constraints], *, words: Tensor | None, device: torch.device
    ) -> Required | None:
        """What the sentences of a batch must contain, as `rules`; None where there is nothing."""
        if not any(one.required for one in constraints):
            return None
        left, right = (edges if words is None else edges[words.cpu()] for edges in self._joining)
        return Required(_phrases_of(constraints, words), left.to(device), right.to(device))

    def rules(self, constraints: Sequence[Constraints], *, words: Tensor | None, device: torch.device) -> list[Rule]:
        """The rules of a batch of sentences, after those of `decoding`.

        `words`: ids of the words that the search chooses among, None for all.
        """
        ids = None if words is None else words.tolist()
        places = None if ids is None else {token: place for place, token in enumerate(ids)}
        rules: list[Rule] = []
        if self._decoding.no_repeat_ngram and any(one.required for one in constraints):
            rules.append(RequiredDespiteRepeats(_phrases_of(constraints, words)))
        if any(one.forbidden for one in constraints):
            rules.append(ForbiddenPhrases(self._phrases, [one.forbidden for one in constraints], words=ids))
        if any(one.ends_word for one in constraints):
            lengths = torch.tensor([len(one.prefix) if one.ends_word else -1 for one in constraints], device=device)
            begins_word = [
                i == EOS or (self._pieces[i].startswith(b" ") and i not in self._space_bytes)
                for i in (range(len(self._pieces)) if ids is None else ids)
            ]
            rules.append(NewWordAfterPrefix(lengths, ~torch.tensor(begins_word, device=device)))
        if any(one.started for one in constraints):
            rules.append(SpelledWords(self._spellings, [one.started for one in constraints], places=places))
        if any(one.forced for one in constraints):
            prefixes = [one.forced if places is None else [places[i] for i in one.forced] for one in constraints]
            rules.append(ForcedPrefix(prefixes, device=device))
        return rules

    def missing(self, request: Request, text: str) -> int:
        """How many of the required phrases a translation lacks."""
        written, spelled = self._tokenizer.decode_target, self._tokenizer.spelled
        return sum(
            not is_in_text(spelled(on_one_line(written(self.ids_of(phrase, inside=True)))), spelled(text))
            for phrase in request.required
        )

    def with_prefix(self, request: Request, text: str) -> str:
        """A translation that begins with the prefix as it was given, also where the tokenizer writes it otherwise."""
        if not request.prefix.strip():
            return text
        prefix = on_one_line(request.prefix).strip()
        written = on_one_line(self._tokenizer.decode_target(self.ids_of(request.prefix, inside=False))).strip()
        text, spelled = text.lstrip(), self._tokenizer.spelled
        return prefix + (text[len(written) :] if spelled(text).startswith(spelled(written)) else text)

    def ids_of(self, text: str, *, inside: bool) -> Sequence[int]:
        """A text inside a translation, or at its beginning, in tokens, without white space at its ends: of its
        spellings in Unicode the first that has the fewest."""
        encode = self._tokenizer.encode_inside if inside else self._tokenizer.encode_target
        encoded = encode(spellings(text.strip()))
        return min(encoded, key=lambda ids: (ids.count(UNK), len(ids)))


def _phrases_of(constraints: Sequence[Constraints], words: Tensor | None) -> list[tuple[tuple[int, ...], ...]]:
    """The required phrases of a batch in ids, or in places in `words`."""
    if words is None:
        return [one.required for one in constraints]
    places = {token: place for place, token in enumerate(words.tolist())}
    return [tuple(tuple(places[i] for i in phrase) for phrase in one.required) for one in constraints]
