"""A corpus of translations: counts, record and files, written part by part, so that an interrupted one resumes."""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from nmt import __version__
from nmt.config.schema import DecodingConfig
from nmt.data.text import check_hides_no_packed, windows
from nmt.data.text_facts import file_digest
from nmt.errors import ConfigError, DataError, SettingError, counted, refused
from nmt.files import LARGEST_RECORD, check_not_packed, naming, open_regular, read_bounded, reason, replace_text
from nmt.interop import run_layout
from nmt.interop.model_dir import weights_of
from nmt.interop.run_layout import check_no_part
from nmt.light.options import OPTIONS, names_of
from nmt.search.values import AT_LIMIT, LONGER, NOT_FINITE, SEVERAL, SPLIT
from nmt.synthetic.best import SCORES, Score, best_of, scored, write_kept
from nmt.synthetic.texts import SIMILARITIES, Line, Made, Texts, chosen

EXAMPLES: Final = 3
"""Places that are named of each kind of line."""
NOT_UTF8: Final = "not_utf8"
_SAID: Final = MappingProxyType(
    {
        NOT_FINITE: "without a translation of finite probability",
        AT_LIMIT: "left without a translation, because the search reached the length limit",
        LONGER: "longer than any in training",
        SEVERAL: "of several sentences translated as a whole (--split sentences translates each by itself)",
        SPLIT: "translated in parts (decoding.split_long)",
        NOT_UTF8: "not UTF-8",
    }
)


@dataclass
class Counts:
    """Of lines read and pairs written so far."""

    lines: int = 0
    empty: int = 0
    """Lines of nothing but white space, or that the tokenizer makes nothing of."""
    pairs: int = 0
    halves: int = 0
    """Pairs with an empty side, which training skips."""
    dropped: int = 0
    """Other pairs that are not among the best."""
    highest: float = 0.0
    """The highest cross entropy among the best."""
    noted: dict[str, int] = field(default_factory=dict)
    """Lines with a note, by the words of `nmt-translate --format jsonl`."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The places of the first of them."""

    def add(self, line: Line, made: Made, pairs: Sequence[tuple[str, ...]]) -> None:
        """Count a line and the pairs made of it."""
        self.lines += 1
        self.empty += made.source_tokens == 0
        self.pairs += len(pairs)
        self.halves += sum(1 for pair in pairs if not all(side.strip() for side in pair[:2]))
        notes = [(note, line.place) for note in made.notes] + [(NOT_UTF8, line.not_utf8)] * bool(line.not_utf8)
        for note, where in notes:
            self.noted[note] = self.noted.get(note, 0) + 1
            examples = self.examples.setdefault(note, [])
            if len(examples) < EXAMPLES:
                examples.append(where)

    @property
    def failed(self) -> int:
        """Lines without a translation."""
        return self.noted.get(NOT_FINITE, 0)

    def problems(self) -> list[str]:
        """The problems, with the places of the first lines that have them."""
        said = []
        for note, what in _SAID.items():
            if count := self.noted.get(note, 0):
                more = "; ..." if count > EXAMPLES else ""
                said.append(f"{counted(count, 'line')} {what} ({'; '.join(self.examples[note])}{more})")
        return said

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Counts:
        """Read back `to_json`; TypeError for anything else."""
        return cls(**values)


FORMAT: Final = 1
_REWRITING: Final = ("placeholders", "glossary", "replace_unknown")
"""Keys of `decoding` that replace parts of the model's output."""
_FEWEST: Final = 2
"""Translations that can be chosen among."""
_DIGEST: Final = "sha256:"


@dataclass(frozen=True)
class Work:
    """The description of the work."""

    texts: Texts
    models: Sequence[Path]
    """Directories of the weights."""
    decoding: DecodingConfig
    languages: tuple[str, str]
    """Suffixes of the files: of the text that is read, and of its translations."""
    nearest: str | None = None
    """A name of SIMILARITIES: of the n best translations that one which is nearest to the reference."""
    keep_original: bool = False
    """Also write each line with its reference."""
    errors: str = "strict"
    """The rule for lines that are not UTF-8."""
    as_tokens: bool = False
    """Whether output is written as tokens separated by spaces, for a tokenizer that splits at spaces."""
    keep_best_share: float | None = None
    """The share of the pairs that stay, those with the lowest cross entropy by `scored_by`."""
    scored_by: Path | None = None
    """Directory of the weights of a model of the other direction."""
    alignment: bool = False
    """Also write the words that belong together, as attention tells them, for `training.guided_alignment`."""

    def __post_init__(self) -> None:
        """Raise ConfigError for options that are not possible."""
        if self.nearest is not None and self.nearest not in SIMILARITIES:
            raise SettingError(("nearest", refused("", self.nearest, tuple(SIMILARITIES), problem="is not known")))
        if self.nearest is not None and self.decoding.n_best < _FEWEST:
            raise SettingError(("nearest", f"needs several translations; set n_best to {_FEWEST} or more"))
        rewriting = [name for name in _REWRITING if getattr(self.decoding, name)]
        if self.as_tokens and rewriting:
            message = "changes translations afterwards, but text for this tokenizer consists of the model's tokens"
            raise SettingError((rewriting[0], message))
        if self.keep_best_share is None and self.scored_by is not None:
            raise SettingError(("scored_by", "has no effect without keep_best_share"))
        if self.keep_best_share is not None and self.scored_by is None:
            raise SettingError(("keep_best_share", "needs a model of the other direction: give scored_by"))
        if self.keep_best_share is not None and not 0 < self.keep_best_share < 1:
            raise SettingError(("keep_best_share", f"{self.keep_best_share:g} must be above 0 and below 1"))
        if self.as_tokens and self.alignment:
            raise SettingError(("alignment", "is of words, but text for this tokenizer consists of the model's tokens"))
        asked = [name for name, given in (("nearest", self.nearest), ("keep_original", self.keep_original)) if given]
        if asked and not any(part.reference is not None for part in self.texts.parts):
            raise SettingError((asked[0], "the text to translate has no references; only parallel text has them"))

    def facts(self) -> dict[str, Any]:
        """By name, everything that determines the output, as JSON values; contents of files by their digests."""
        texts = {f"text {number}": _DIGEST + part.digest for number, part in enumerate(self.texts.parts, start=1)}
        models = {f"model {number}": _DIGEST + _sum(path) for number, path in enumerate(self.models, start=1)}
        own = {
            name: getattr(self, name) for name in ("nearest", "keep_original", "errors", "alignment", "keep_best_share")
        }
        own["scored_by"] = None if self.scored_by is None else _DIGEST + _sum(self.scored_by)
        with_references = sum(part.reference is not None for part in self.texts.parts)
        numbers = {"texts": len(texts), "texts with references": with_references, "models": len(models)}
        found = {**numbers, **texts, **models, "languages": self.languages, **own, **_search(self.decoding)}
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain


@dataclass
class Progress:
    """How far a work has come."""

    sizes: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of the files."""
    counts: Counts = field(default_factory=Counts)
    is_whole: bool = False
    """Whether all lines are done, so that the files only need their names, unless only the best pairs are wanted."""
    scored: int = 0
    """Pairs that have a score, of all."""
    is_best: bool = False
    """Whether only the best are left."""


def read_record(path: Path, facts: Mapping[str, Any]) -> Progress | None:
    """The recorded progress of the work with these facts; None if there is no record.

    Raises:
        ConfigError: it belongs to other work; the error names the differences.
        DataError: it cannot be read, or is not such a record.
    """
    try:
        with open_regular(path) as stream:
            content = json.loads(read_bounded(stream, largest=LARGEST_RECORD))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({reason(error)})") from error
    except ValueError as error:
        raise DataError(f"{path}: {_DAMAGED}") from error
    try:
        found, done = {**_NOT_KNOWN_BEFORE, **content["facts"]}, content["done"]
        if content["format"] != FORMAT:
            raise DataError(
                f"{path}: of another version of nmt; finish with that version, or start again with --overwrite"
            )
        differing = differences(found, facts)
        progress = Progress(
            list(done["sizes"]),
            Counts.from_json(done["counts"]),
            bool(done["is_whole"]),
            int(done.get("scored", 0)),
            bool(done.get("is_best", False)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: {_DAMAGED}") from error
    if differing:
        raise ConfigError(
            f"{path}: made with other text, models or options ({'; '.join(differing)}); use the same ones, give "
            f"another prefix, or start again with --overwrite"
        )
    return progress


_NOT_KNOWN_BEFORE: Final = MappingProxyType({"alignment": False, "keep_best_share": None, "scored_by": None})
"""Facts that older records lack."""
_DAMAGED: Final = "not a record of nmt-distill or nmt-backtranslate; start again with --overwrite"


def write_record(path: Path, work: Work, facts: Mapping[str, Any], progress: Progress) -> None:
    """Replace the record at once; OSError where that fails."""
    content = {
        "format": FORMAT,
        "nmt": __version__,
        "texts": [
            {"source": str(part.source), "reference": None if part.reference is None else str(part.reference),
             "lines": part.lines}
            for part in work.texts.parts
        ],
        "models": [str(model) for model in work.models],
        "facts": dict(facts),
        "done": {
            "sizes": progress.sizes, "counts": progress.counts.to_json(), "is_whole": progress.is_whole,
            "scored": progress.scored, "is_best": progress.is_best,
        },
    }  # fmt: skip
    with naming(path):
        replace_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the facts of two works, in words; what an older version did not know is left out."""
    found = []
    for name, value in new.items():
        if name in old and old[name] != value:
            is_content = str(value).startswith(_DIGEST)
            found.append(f"{name} has different contents" if is_content else f"{name}: {old[name]!r} -> {value!r}")
    return found


def _search(decoding: DecodingConfig) -> dict[str, Any]:
    names = [item.name for item in fields(decoding) if not OPTIONS[item.name].only_rounding]
    found = {f"decoding.{name}": getattr(decoding, name) for name in names}
    for key in names_of("file"):
        if (path := getattr(decoding, key)) is not None:
            found[f"decoding.{key}"] = _DIGEST + file_digest(Path(path))
    if decoding.language_model is not None:
        found["decoding.language_model"] = _DIGEST + file_digest(weights_of(decoding.language_model))
    return found


def _sum(model: Path) -> str:
    return file_digest(model / run_layout.WEIGHTS)


RECORD = "manifest.json"
PARTIAL = ".partial"
"""End of the names of files that are not whole yet."""


class Output:
    """The files of one work. Until all is done, they have temporary names in the same directory."""

    def __init__(self, prefix: str, work: Work) -> None:
        """Nothing is read or written yet; ConfigError or CheckpointError where the files are others that are needed."""
        self.prefix = prefix
        self._work = work
        self.facts = work.facts()
        self.record = Path(f"{prefix}.{RECORD}")
        self.files = [Path(f"{prefix}.{ending}") for ending in (*work.languages, *["alignment"] * work.alignment)]
        self._partial = [path.with_name(path.name + PARTIAL) for path in self.files]
        self._check_names()

    def progress(self, *, overwrite: bool = False) -> Progress:
        """The progress of the work, by the record; with `overwrite` it starts from nothing.

        Raises:
            ConfigError: the files belong to other work.
            DataError: files with these names belong to no work, or would hide a .gz; or the record cannot be used.
        """
        found = None if overwrite else read_record(self.record, self.facts)
        if found is not None:
            return found
        for path in self.files:
            check_hides_no_packed(path)
            if path.exists() and not overwrite:
                raise DataError(f"{path}: exists already; give another prefix or --overwrite")
        return Progress([0] * len(self.files))

    @contextlib.contextmanager
    def writing(self, progress: Progress) -> Iterator[Writer]:
        """Continue from this progress.

        Raises DataError if another process writes the files, if recorded text is missing, or if writing fails.
        """
        with contextlib.ExitStack() as stack:
            with _writing_errors(self.prefix):
                self.record.parent.mkdir(parents=True, exist_ok=True)
                streams = self._taken(progress, stack)
            yield Writer([*zip(streams, self._partial, strict=True)], progress, self._save)

    def _taken(self, progress: Progress, stack: contextlib.ExitStack) -> list[BinaryIO]:
        """The files, which no other process writes until `stack` ends, as the record has them."""
        streams = [stack.enter_context(_opened(path)) for path in self._partial]
        _lock(streams[0], self.prefix)
        self._save(progress)  # the old record may belong to other work
        for stream, path, size in zip(streams, self._partial, progress.sizes, strict=True):
            _cut(stream, path, size)
        return streams

    def keep_best(self, progress: Progress, score: Score, *, on_scored: Callable[[int], object]) -> None:
        """Leave only the best pairs of finished work; `on_scored` is told how many pairs have a score.

        Raises DataError if another process writes the files, or if that fails, and the errors of `score`.
        """
        scores, share = Path(f"{self.prefix}.{SCORES}{PARTIAL}"), self._work.keep_best_share
        assert share is not None
        with contextlib.ExitStack() as stack, _writing_errors(self.prefix):
            self._taken(progress, stack)
            for done in scored(self._partial[:2], scores, score=score, done=progress.scored):
                progress.scored = done
                self._save(progress)
                on_scored(done)
            kept, counts = best_of(scores, share=share), progress.counts
            progress.sizes = [
                write_kept(partial, path, kept.mask) for partial, path in zip(self._partial, self.files, strict=True)
            ]
            counts.pairs, counts.dropped, counts.highest = int(kept.mask.sum()), kept.worse, kept.highest
            progress.is_best = True
            self._save(progress)
            scores.unlink(missing_ok=True)

    def finish(self, progress: Progress) -> None:
        """Give the files of finished work their names; after a kill in between, calling it again completes it.

        Raises DataError if they do not match the record.
        """
        with _writing_errors(self.prefix):
            for partial, path, size in zip(self._partial, self.files, progress.sizes, strict=True):
                if progress.is_best:
                    partial.unlink(missing_ok=True)
                elif partial.exists():
                    partial.replace(path)
                if not path.is_file() or path.stat().st_size != size:
                    what = "has changed" if path.exists() else "is gone"
                    raise DataError(f"{path}: {what} since {self.record} was written; start again with --overwrite")

    def _save(self, progress: Progress) -> None:
        """Write the progress to the record; the recorded text is already on disk."""
        write_record(self.record, self._work, self.facts, progress)

    def _check_names(self) -> None:
        if not Path(self.prefix).name or self.prefix.endswith("/"):
            raise ConfigError(f"{self.prefix}: is not a prefix of files, such as data/made")
        inputs = [path for part in self._work.texts.parts for path in (part.source, part.reference) if path is not None]
        for path in self.files:
            check_not_packed(path)
            for name in (path, Path(f"{path}.gz")):
                if name.exists() and any(name.samefile(given) for given in inputs):
                    raise ConfigError(f"{name}: is also the text to translate; choose another prefix")
            check_no_part(path, models=self._work.models)
            if path.is_dir():
                raise DataError(f"{path}: is a directory; give another prefix")


class Writer:
    """Appends pairs, some at a time."""

    def __init__(
        self, files: Sequence[tuple[BinaryIO, Path]], progress: Progress, save: Callable[[Progress], object]
    ) -> None:
        self._files = files
        self._progress = progress
        self._save = save

    def append(self, pairs: Iterable[tuple[str, ...]], counts: Counts, *, is_last: bool) -> None:
        """Write pairs, a line for each file, then record that so much, `counts` with these pairs, is done.

        DataError where that fails.
        """
        texts = ["".join(f"{line}\n" for line in side).encode() for side in zip(*pairs, strict=True)]
        for place, ((stream, path), text) in enumerate(zip(self._files, texts, strict=True)):
            with _writing_errors(path):
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            self._progress.sizes[place] += len(text)
        self._progress.counts, self._progress.is_whole = counts, is_last
        with _writing_errors(self._files[0][1]):
            self._save(self._progress)


@contextlib.contextmanager
def _writing_errors(path: Path | str) -> Iterator[None]:
    """What cannot be written is a DataError, which names this file where the error itself names none."""
    try:
        with naming(path):
            yield
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be written ({reason(error)})") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    stream = open(descriptor, "r+b")  # noqa: SIM115  (closed below)
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # a full disk, once more; the recorded text is already on disk
            stream.close()


def _cut(stream: BinaryIO, path: Path, size: int) -> None:
    """Forget what was written after the record."""
    if stream.seek(0, os.SEEK_END) < size:
        raise DataError(f"{path}: is shorter than recorded; start again with --overwrite")
    stream.truncate(size)
    stream.seek(size)


def _lock(stream: BinaryIO, prefix: str) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise DataError(f"{prefix}: another process is writing it") from error
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # of a file system without locks
            raise


Translate = Callable[[Sequence[str]], Sequence[Made]]
"""What models make of some lines, in order."""
WINDOW = 2000
"""Lines translated and written together; a kill loses at most this many."""


def translate_corpus(
    work: Work,
    output: Output,
    progress: Progress,
    translate: Translate,
    *,
    joined: Callable[[str], str] = str,
    window: int = WINDOW,
    on_window: Callable[[int], object] = lambda lines: None,
    score: Score | None = None,
    on_scored: Callable[[int], object] = lambda pairs: None,
) -> None:
    """Do the remaining part of `work`, and keep `progress` up to date.

    Windows begin at the same lines however often the work was interrupted, so the files are the same as without
    interruptions. `joined` joins the subwords of a reference to words, as in translations. `on_window` is called with
    the number of lines of each window. `score`, if only the best pairs are wanted, and `on_scored` are those of
    `Output.keep_best`. Raises DataError for text or files that cannot be used, and the errors of
    `translate`.
    """
    if not progress.is_whole:
        with output.writing(progress) as writer:
            for lines in _windows(work, progress, size=window):
                on_window(len(lines))
                pairs, counts = [], copy.deepcopy(progress.counts)
                for line, one in zip(lines, translate([line.text for line in lines]), strict=True):
                    own = pairs_of(line, one, work, joined=joined)
                    counts.add(line, one, own)
                    pairs += own
                writer.append(pairs, counts, is_last=counts.lines == work.texts.lines)
    if score is not None and not progress.is_best:
        output.keep_best(progress, score, on_scored=on_scored)
    output.finish(progress)


def take_part(work: Work, progress: Progress, translate: Translate, *, window: int = WINDOW) -> None:
    """What `translate_corpus` does, in a process that helps another one and writes nothing."""
    if not progress.is_whole:
        for lines in _windows(work, progress, size=window):
            translate([line.text for line in lines])


def _windows(work: Work, progress: Progress, *, size: int) -> Iterator[list[Line]]:
    return windows(work.texts.read(progress.counts.lines), size=size, length=lambda line: len(line.text))


def pairs_of(line: Line, made: Made, work: Work, *, joined: Callable[[str], str]) -> list[tuple[str, ...]]:
    """The pairs that a line becomes: with what was made of it, and with its reference where that is kept.

    If alignments are written, each with its own, which is empty for a reference.
    """
    reference = None if line.reference is None or work.nearest is None else joined(line.reference)
    texts = chosen(made, reference, n_best=work.decoding.n_best, nearest=work.nearest)
    pairs = [(line.text, text) for text in texts]
    if work.keep_original and line.reference is not None:
        pairs.append((line.text, line.reference))
    return [(*pair, made.alignments.get(pair[1], "")) for pair in pairs] if work.alignment else [*pairs]
