"""One file with both sides of a parallel text, read once and kept as two files of lines."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from xml.parsers import expat

from nmt.compiling import BuildError, own_directory
from nmt.data.text import FilePair, Undecodable, open_bytes, read_lines
from nmt.data.work import progress
from nmt.errors import DataError, counted, missing, refused, say_once, shown
from nmt.files import file_identity, new_directory, reason
from nmt.registry import FORMS

_VERSION: Final = 1
"""Of what is kept."""
_BREAKS: Final = re.compile(r"\s*[\r\n]\s*")
_NATIVE: Final = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""Elements of TMX whose content is code of the format that a text comes from."""
_DEEPEST: Final = 64
"""Elements of TMX within others."""
_LONGEST: Final = 1 << 24
"""Characters of a segment of TMX."""
_BLOCK: Final = 1 << 16


class Row(NamedTuple):
    """A pair of a file, or what has none."""

    number: int
    """Of the line or unit, from 1."""
    source: str = ""
    target: str = ""
    problem: str = ""
    """Why there is no pair; empty for a pair."""
    is_usual: bool = False
    """Whether such files usually have what has none: it is left out and reported, not an error."""
    document: str = ""
    """What it belongs to; empty where no column tells."""

    @property
    def sides(self) -> tuple[str, str]:
        """Source and target, each on one line."""
        return _BREAKS.sub(" ", self.source), _BREAKS.sub(" ", self.target)

    @property
    def has_breaks(self) -> bool:
        """Whether a side has line breaks, which are read as spaces."""
        return self.sides != (self.source, self.target)


class Form:
    """A form of files with both sides of a text. A plugin's form derives from it and has `rows`."""

    unit = "line"
    """What has a pair."""
    said = ""
    """The warning of the last call of `pairs`."""

    def rows(
        self, path: Path, columns: Sequence[str], languages: tuple[str, str], undecodable: Undecodable
    ) -> Iterator[Row]:
        """Read a file.

        Args:
            path: may be packed.
            columns: the columns of source and target as the user has named them, or none; a third one tells documents
                apart.
            languages: codes of source and target.
            undecodable: the rule for lines that are not UTF-8.

        Raises DataError, which names the file, for one that cannot be read or has no such columns.
        """
        raise NotImplementedError

    def pairs(self, path: Path, columns: Sequence[str], languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """The pairs of a file, sides on one line, blank ones between documents; DataError for the first row without a
        pair.

        What is usual to be left out, and line breaks that have become spaces, are counted in one warning.
        """
        left_out: Counter[str] = Counter()
        first, breaks, document = "", 0, None
        for row in self.rows(path, columns, languages, Undecodable()):
            if not row.problem:
                breaks += row.has_breaks
                if document not in (None, row.document):
                    yield "", ""
                document = row.document
                yield row.sides
            elif row.is_usual:
                left_out[row.problem] += 1
                first = first or f"{self.unit} {row.number}"
            else:
                raise DataError(
                    f"{path}, {self.unit} {row.number}: {row.problem}; nmt-data prepare leaves such rows out"
                )
        notes = [f"{counted(number, self.unit)} left out: {why}" for why, number in left_out.items()]
        notes += [f"line breaks within {counted(breaks, 'pair')} are read as spaces"] if breaks else []
        if notes:
            self.said = f"{path}: {'; '.join(notes)}{f' (first: {first})' if first else ''}"
            say_once(__name__, self.said)

    def sides(self, path: Path, columns: Sequence[str], languages: tuple[str, str]) -> FilePair:
        """The files of the two sides, written at the first call below the cache directory and kept until `path`
        changes.

        Raises DataError as `rows`, for a row without a pair, and where the files cannot be written.
        """
        identity = file_identity(path)
        if identity is None:
            raise DataError(missing(path))
        try:
            own = own_directory() / "texts"
        except BuildError as error:
            raise DataError(f"{path}: its sides cannot be kept: {error}") from None
        wanted = [str(path.resolve()), *columns, *languages]
        folder = own / hashlib.sha256("\0".join(wanted).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        pair = FilePair(*(folder / f"{path.name}.{language}" for language in languages))
        record = json.dumps([_VERSION, type(self).__name__, *identity])
        made_of, _, said = _read(folder / "made_of").partition("\n")
        if made_of == record:
            if said:
                say_once(__name__, said)
            return pair
        try:
            own.mkdir(mode=0o700, exist_ok=True)
            with new_directory(folder) as temporary:
                files = [(temporary / kept.name).open("w", encoding="utf-8", newline="\n") for kept in pair]
                with files[0], files[1], progress(f"reading {path}", total=0, unit=" pairs") as advance:
                    for sides in self.pairs(path, columns, languages):
                        for file, side in zip(files, sides, strict=True):
                            file.write(f"{side}\n")
                        advance(1)
                if file_identity(path) != identity:
                    raise DataError(f"{path}: changed while it was read")
                (temporary / "made_of").write_text(f"{record}\n{self.said}", encoding="utf-8")
                _take_place(temporary, folder)
        except (OSError, UnicodeEncodeError) as error:
            raise DataError(f"{path}: its sides cannot be kept in {own} ({reason(error)})") from error
        return pair


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _take_place(new: Path, folder: Path) -> None:
    """Rename a folder to another's name, which another process may do at the same moment."""
    for _ in range(2):
        try:
            new.rename(folder)
            return
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


@FORMS.register("tsv")
class Tsv(Form):
    """Lines of columns that tabs separate, without quoting.

    If a cell of the first line is the code of the source's language, and another that of the target's, it is a header.
    Otherwise the first two columns count. Columns are named by their numbers, from 1, or as the header has them.
    """

    def rows(
        self, path: Path, columns: Sequence[str], languages: tuple[str, str], undecodable: Undecodable
    ) -> Iterator[Row]:
        places: tuple[int, ...] = (0, 1)
        for number, line in enumerate(read_lines(path, undecodable=undecodable), start=1):
            cells = line.split("\t")
            if number == 1:
                places, begins = _columns(path, cells, columns, languages)
                if begins:
                    continue
            if max(places) < len(cells):
                source, target, *document = (cells[place] for place in places)
                yield Row(number, source, target, document="".join(document))
            else:
                lacking = next(one for one in places if one >= len(cells))
                yield Row(number, problem=f"has {counted(len(cells), 'column')}, but column {lacking + 1} is needed")


def _columns(
    path: Path, first: Sequence[str], named: Sequence[str], languages: tuple[str, str]
) -> tuple[tuple[int, ...], bool]:
    """The places of the columns of source and target, and of documents if it is named, from 0, and whether the first
    line is a header."""
    names = [cell.strip() for cell in first]
    is_header = all(names.count(language) == 1 for language in languages)
    if not named:
        return ((names.index(languages[0]), names.index(languages[1])) if is_header else (0, 1)), is_header
    places = []
    for name in named:
        if name.isascii() and name.isdigit():
            if not 1 <= int(name[:9]) <= 10_000:
                raise DataError(f"{path}: {refused('', name, 'columns from 1', problem='is no column')}")
            places.append(int(name) - 1)
        elif names.count(name) == 1:
            places.append(names.index(name))
            is_header = True
        else:
            raise DataError(f"{path}: {refused('', name, names, problem='is no column of its first line')}")
    if places[0] == places[1]:
        raise DataError(f"{path}: source and target are the same column")
    return tuple(places), is_header


@FORMS.register("jsonl")
class JsonLines(Form):
    """A JSON object on each line, whose keys are the languages' codes or those that are named; or an object with such a
    one as `translation`."""

    def rows(
        self, path: Path, columns: Sequence[str], languages: tuple[str, str], undecodable: Undecodable
    ) -> Iterator[Row]:
        keys, of_documents = (columns or languages)[:2], columns[2:]
        for number, line in enumerate(read_lines(path, undecodable=undecodable), start=1):
            if not line.strip():
                yield Row(number, problem="is empty; a JSON object is needed")
                continue
            try:
                found: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(number, problem=f"is not JSON ({reason(error)})")
                continue
            inner = found.get("translation") if isinstance(found, dict) else None
            found = inner if isinstance(inner, dict) else found
            if not isinstance(found, dict):
                yield Row(number, problem=f"{shown(found)} is not a JSON object")
                continue
            lacking = next((key for key in keys if not isinstance(found.get(key), str)), None)
            if lacking is not None:
                what = f"is {shown(found[lacking])}, not text" if lacking in found else "is missing"
                yield Row(number, problem=f"the key {lacking!r} {what}")
                continue
            document = [found.get(key) for key in of_documents]
            if not all(type(one) in (str, int) for one in document):
                yield Row(number, problem=f"the key {of_documents[0]!r} is {shown(document[0])}, not text or a number")
                continue
            sides = [found[key] for key in keys]
            is_text = all(side.isprintable() or side == side.encode("utf-8", "replace").decode() for side in sides)
            if is_text:
                yield Row(number, sides[0], sides[1], document="".join(map(str, document)))
            else:
                yield Row(number, problem="has half of a surrogate pair")


@FORMS.register("tmx")
class Tmx(Form):
    """Translation Memory eXchange: units with a segment for each language, whose codes may have a region.

    Codes of other formats within a segment are left out, and units that lack one of the languages too.
    """

    unit = "unit"

    def rows(
        self, path: Path, columns: Sequence[str], languages: tuple[str, str], undecodable: Undecodable
    ) -> Iterator[Row]:
        if len(columns) > 2:
            raise DataError(f"{path}: {columns[2]!r}: units of TMX have languages alone, not documents")
        reader = _TmxReader(columns or languages)
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
        parser.CharacterDataHandler = reader.text
        parser.EntityDeclHandler = reader.entity
        try:
            with open_bytes(path) as stream:
                yield from _parsed(parser, stream, reader)
        except expat.ExpatError as error:
            raise DataError(f"{path}, line {error.lineno}: is not TMX ({expat.ErrorString(error.code)})") from None
        except _RefusedTmxError as error:
            raise DataError(f"{path}, line {parser.CurrentLineNumber}: {error}") from None
        except (OSError, EOFError) as error:
            raise DataError(f"{path}: cannot be read ({reason(error)})") from error


class _RefusedTmxError(Exception):
    """What no translation memory needs."""


def _parsed(parser: Any, stream: IO[bytes], reader: _TmxReader) -> Iterator[Row]:
    while block := stream.read(_BLOCK):
        parser.Parse(block, False)
        yield from reader.taken()
    parser.Parse(b"", True)
    yield from reader.taken()


class _TmxReader:
    """Collects the segments of units as a parser meets them."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._wanted = [language.lower().replace("_", "-") for language in languages]
        self._rows: list[Row] = []
        self._open: list[str] = []
        self._units = 0
        self._sides: dict[int, str] = {}
        self._side: int | None = None
        self._text: list[str] | None = None
        self._length = self._native = 0

    def taken(self) -> list[Row]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def entity(self, *_: Any) -> None:
        raise _RefusedTmxError("declares an entity, which is not read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) == _DEEPEST:
            raise _RefusedTmxError(f"has elements more than {_DEEPEST} deep")
        if not self._open and name != "tmx":
            raise _RefusedTmxError(f"is not TMX: it begins with <{shown(name)[1:-1]}>")
        self._open.append(name)
        if name == "tu":
            self._units, self._sides = self._units + 1, {}
        elif name == "tuv":
            code = (attributes.get("xml:lang") or attributes.get("lang") or "").lower().replace("_", "-")
            self._side = next((i for i, own in enumerate(self._wanted) if _is_language(code, own)), None)
        elif name == "seg" and self._side is not None and self._side not in self._sides:
            self._text, self._length = [], 0
        elif name in _NATIVE:
            self._native += 1

    def text(self, text: str) -> None:
        if self._text is not None and not self._native:
            self._length += len(text)
            if self._length > _LONGEST:
                raise _RefusedTmxError(f"has a segment of more than {_LONGEST:,} characters; is it text?")
            self._text.append(text)

    def end(self, name: str) -> None:
        self._open.pop()
        if name in _NATIVE:
            self._native -= 1
        elif name == "seg" and self._text is not None and self._side is not None:
            self._sides[self._side], self._text = "".join(self._text).strip(), None
        elif name == "tuv":
            self._side = None
        elif name == "tu":
            lacking = [own for i, own in enumerate(self._wanted) if i not in self._sides]
            if lacking:
                problem = f"no segment in {' or '.join(lacking)}"
                self._rows.append(Row(self._units, problem=problem, is_usual=True))
            else:
                self._rows.append(Row(self._units, self._sides[0], self._sides[1]))


def _is_language(code: str, wanted: str) -> bool:
    """Whether a code is that of a language, or of it in a region."""
    return code == wanted or code.startswith(f"{wanted}-")
