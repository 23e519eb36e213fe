"""The lines to translate, and which translations of a line are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from nmt.config.schema import Config, DataConfig, DecodingConfig
from nmt.data.matching import are_unspaced
from nmt.data.prepare import trained_on
from nmt.data.text import FilePair, Policy, Undecodable, find_pairs, read_lines, read_pairs, unequal
from nmt.data.text_facts import file_digest, read_facts
from nmt.data.vocabulary import EOS, PAD, SPECIAL_TOKENS
from nmt.errors import ConfigError, DataError, missing
from nmt.search.values import AT_LIMIT
from nmt.texts import SEVERAL


class Line(NamedTuple):
    """A line to translate."""

    text: str
    reference: str | None
    """Its translation by people, where its file has one."""
    place: str
    """`FILE, line N`."""
    not_utf8: str = ""
    """The place of the text or, where that is UTF-8, of the reference, that was not and has been read by the rule for
    such lines; empty if both were."""


@dataclass(frozen=True)
class Text:
    """A file of lines, and the file of their references if there is one."""

    source: Path
    reference: Path | None
    lines: int
    digest: str
    """Of the bytes of both."""


class Texts:
    """All text of one work, in order."""

    def __init__(self, found: Sequence[tuple[Path, Path | None]], *, policy: Policy = "strict") -> None:
        """Reads the files once, for their digests and numbers of lines.

        Raises DataError, naming the file, if it is missing or cannot be read, for bytes that are not UTF-8 (unless
        `policy` allows them), for two sides of unequal length, and if there are no lines.
        """
        self._policy = policy
        self.parts = [self._text(source, reference) for source, reference in found]
        if not self.lines:
            raise DataError(f"no line to translate in {', '.join(str(part.source) for part in self.parts)}")

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(part.lines for part in self.parts)

    def read(self, start: int = 0) -> Iterator[Line]:
        """The lines from number `start`, from 0, on."""
        for part in self.parts:
            if start >= part.lines:
                start -= part.lines
                continue
            rules = Undecodable(self._policy), Undecodable(self._policy)
            for number, (text, reference) in enumerate(_lines(part, rules), start=1):
                odd = [rule.had(number) for rule in rules]  # ask both: each forgets its answer
                if number > start:
                    places = [f"{path}, line {number}" for path in (part.source, part.reference)]
                    not_utf8 = next((place for place, is_odd in zip(places, odd, strict=True) if is_odd), "")
                    yield Line(text, reference, places[0], not_utf8)
            start = 0

    def _text(self, source: Path, reference: Path | None) -> Text:
        files = [source] if reference is None else [source, reference]
        facts = [self._facts(path) for path in files]
        if reference is not None and facts[0][1] != facts[1][1]:
            raise unequal(FilePair(source, reference), facts[0][1], facts[1][1])
        return Text(source, reference, facts[0][1], "".join(digest for digest, _ in facts))

    def _facts(self, path: Path) -> tuple[str, int]:
        if self._policy == "strict":
            found = read_facts(path)
            return found.digest, found.lines
        lines = sum(1 for _ in read_lines(path, undecodable=Undecodable(self._policy)))
        return file_digest(path), lines


def files_to_translate(
    config: Config, *, train: Sequence[str], source: Sequence[str]
) -> list[tuple[Path, Path | None]]:
    """The files of parallel text (prefixes), then the files without references (names).

    With neither, the parallel training text of the model with this configuration. Raises DataError for a missing file,
    ConfigError if the configuration has no text.
    """
    if config.data.target_tag and not (train or source):
        raise ConfigError("the model has several directions; name the text of one with --train, such as corpus@en>de")
    key = "--train" if train else "data.train"
    prefixes = train or ([] if source else trained_on(config))
    pairs = find_pairs(prefixes, config.data.source_language, config.data.target_language, key=key)
    return [*((pair.source, pair.target) for pair in pairs), *((_file(name), None) for name in source)]


def languages_of(data: DataConfig, decoding: DecodingConfig) -> tuple[str, str]:
    """The endings of the files to write; ConfigError where a model translates into several and none is chosen."""
    if data.target_language != SEVERAL:
        return data.source_language, data.target_language
    if decoding.target_language is None:
        raise ConfigError("decoding.target_language: is needed; the files are of one language each")
    return data.source_language, decoding.target_language.partition("+")[0]


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise DataError(f"{name}: is not a regular file" if path.exists() else missing(name))
    return path


def _lines(part: Text, rules: tuple[Undecodable, Undecodable]) -> Iterator[tuple[str, str | None]]:
    if part.reference is None:
        yield from ((line, None) for line in read_lines(part.source, undecodable=rules[0]))
    else:
        yield from read_pairs(FilePair(part.source, part.reference), undecodable=rules)


_NO_WORDS: Final = frozenset({SPECIAL_TOKENS[PAD], SPECIAL_TOKENS[EOS]})


class Found(Protocol):
    """A translation, of the search or of the library."""

    @property
    def text(self) -> str:
        """As people read it."""

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """As the model wrote it, if that was asked for."""

    @property
    def alignment(self) -> tuple[tuple[int, int], ...] | None:
        """Words of source and translation that belong together, if that was asked for."""


@dataclass(frozen=True)
class Made:
    """What a model has made of a line."""

    texts: Sequence[str]
    """As people read them, best first, one at least; a single empty one where there is none."""
    written: Sequence[str]
    """The same as training text: split at spaces where the tokenizer wants that."""
    notes: Sequence[str]
    """In the words of `nmt-translate --format jsonl`."""
    source_tokens: int
    """Tokens that the model has read; 0 for an empty line."""
    alignments: Mapping[str, str] = field(default_factory=dict)
    """Of each of these in Pharaoh's format, if that was asked for."""


def made(found: Sequence[Found], *, notes: Sequence[str], source_tokens: int, as_tokens: bool) -> Made:
    """What was found for a line; `as_tokens`: training text is tokens, with spaces between them."""
    texts = [one.text for one in found]
    if not as_tokens:
        best_last = reversed(found)  # of equal texts, that of the best
        aligned = {one.text: " ".join(f"{source}-{word}" for source, word in one.alignment or ()) for one in best_last}
        return Made(texts, texts, notes, source_tokens, aligned)
    written = [" ".join(token for token in one.tokens or () if token not in _NO_WORDS) for one in found]
    return Made(texts, written, notes, source_tokens)


def chosen(made: Made, reference: str | None, *, n_best: int, nearest: str | None) -> list[str]:
    """The training text made of a line: `n_best` lines, empty ones where there are fewer translations.

    With `nearest`, a name of SIMILARITIES, one line: the translation that is most like the reference (Kim and Rush,
    EMNLP 2016, section 3.3), of equals the best by the model; without a reference the best.

    Empty lines for one whose best translation was cut at the length limit: most of those repeat a word to their end,
    and a student would learn to do so.
    """
    if AT_LIMIT in made.notes:
        return [""] * (n_best if nearest is None else 1)
    if nearest is None:
        return [*made.written[:n_best], *[""] * (n_best - len(made.written))]
    if reference is None or not reference.strip() or len(made.texts) == 1:
        return [made.written[0]]
    similarity = SIMILARITIES[nearest](are_unspaced([reference]))
    scores = {text: similarity(text, reference) for text in dict.fromkeys(made.texts)}
    return [made.written[made.texts.index(max(scores, key=scores.__getitem__))]]


Similarity = Callable[[str, str], float]
"""From a translation and a reference, in percent."""


@cache
def _bleu(unspaced: bool) -> Similarity:
    """sacreBLEU's BLEU of sentences, without orders that a short one cannot have; where no spaces tell words apart, of
    characters."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True, tokenize="char" if unspaced else "13a")
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


@cache
def _chrf(unspaced: bool) -> Similarity:
    """sacreBLEU's chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


SIMILARITIES: Final[Mapping[str, Callable[[bool], Similarity]]] = MappingProxyType({"bleu": _bleu, "chrf": _chrf})
