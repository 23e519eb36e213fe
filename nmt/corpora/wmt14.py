"""WMT14 English-German, as the shipped configurations read it from data/wmt14.

train: Europarl v7, Common Crawl and News Commentary v9, in this order; dev: newstest2013;
test: the full newstest2014 (3,003 sentences). 1.7 GB are fetched and 1.4 GB of text is made.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from nmt.corpora.fetch import LANGUAGES, Sum, blocks, download, is_complete, settle
from nmt.errors import DataError, counted

FOLDER = Path("data/wmt14")
HOME = "https://www.statmt.org"
LICENCE = """WMT14 English-German, https://www.statmt.org/wmt14/translation-task.html
Free for research; cite the overview paper of the shared task (Bojar et al. 2014). For other uses ask the owners
of the texts: European Parliament (Europarl), the crawled sites (Common Crawl), Project Syndicate (News Commentary)
and the newspapers of the test sets."""

# The sums of the training archives are those TensorFlow Datasets publishes (url_checksums/wmt14_translate.txt),
# the MD5 sums of the test archives those of sacreBLEU 2.6 (wmt13 and wmt14/full).
ARCHIVES = {
    "training-parallel-europarl-v7.tgz": (
        "wmt13",
        Sum("sha256", "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"),
    ),
    "training-parallel-commoncrawl.tgz": (
        "wmt13",
        Sum("sha256", "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"),
    ),
    "training-parallel-nc-v9.tgz": (
        "wmt14",
        Sum("sha256", "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"),
    ),
    "test.tgz": ("wmt13", Sum("md5", "48eca5d02f637af44e85186847141f67")),
    "test-full.tgz": ("wmt14", Sum("md5", "a8cd784e006feb32ac6f3d9ec7eb389a")),
}

# Part -> archives in order, each with the members that hold the English and the German text.
PARTS = {
    "train": [
        ("training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"),
        ("training-parallel-commoncrawl.tgz", "commoncrawl.de-en.en", "commoncrawl.de-en.de"),
        (
            "training-parallel-nc-v9.tgz",
            "training/news-commentary-v9.de-en.en",
            "training/news-commentary-v9.de-en.de",
        ),
    ],
    "dev": [("test.tgz", "test/newstest2013-src.en.sgm", "test/newstest2013-src.de.sgm")],
    "test": [("test-full.tgz", "test-full/newstest2014-deen-src.en.sgm", "test-full/newstest2014-deen-ref.de.sgm")],
}
LARGEST = 2 << 30
"""Bytes of an archive: all of them have fewer."""
LINES = {"dev": 3000, "test": 3003}


def get(to: Path, *, copies: Path | None, mirror: str) -> None:
    """Make every part in `to` from archives in the folder `copies` or from `mirror`; each step is printed.

    Raises DataError if a file cannot be fetched or is not the published one.
    """
    print(LICENCE)
    for part, shards in PARTS.items():
        if is_complete(to, part):
            print(f"{to / part}.en, .de: already here")
            continue
        archives = [archive(name, to / "archives", copies=copies, mirror=mirror) for name, _, _ in shards]
        lines = make(to, part, archives, [members for _, *members in shards])
        print(f"{to / part}.en, .de: {counted(lines, 'line')}")
    print(f"WMT14 is complete in {to}; {to / 'archives'} is no longer needed")


def archive(name: str, folder: Path, *, copies: Path | None, mirror: str) -> Path:
    """The path of an archive whose sum is right: in `copies`, in `folder`, or fetched into it."""
    year, expected = ARCHIVES[name]
    path = (copies or folder) / name
    if path.is_file() or copies:
        print(f"checking {path}")
        if not path.is_file():
            raise DataError(f"{path} is missing; --from needs {', '.join(ARCHIVES)}")
        if not expected.fits(path):
            raise DataError(f"{path} is not the published file: its {expected.algorithm} sum differs; delete it")
        return path
    print(f"fetching {mirror}/{year}/{name}")
    return download(f"{mirror}/{year}/{name}", path, expected=expected, largest=LARGEST)


def make(to: Path, part: str, archives: list[Path], members: list[list[str]]) -> int:
    """Write both sides of a part from the members of its archives; returns the line count."""
    to.mkdir(parents=True, exist_ok=True)
    temporary = [to / f"{part}.{language}.part" for language in LANGUAGES]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in temporary]
        for path, wanted in zip(archives, members, strict=True):
            unpack(path, dict(zip(wanted, files, strict=True)))
    counts = [sum(block.count(b"\n") for block in all_blocks(path)) for path in temporary]
    if counts[0] != counts[1] or counts[0] != LINES.get(part, counts[0]):
        raise DataError(f"{part}: {counts[0]} English and {counts[1]} German lines; the archives are not as expected")
    settle(to, temporary)
    return counts[0]


def unpack(path: Path, wanted: dict[str, IO[bytes]]) -> None:
    """Append members of an archive, SGML as plain lines, to the open files `wanted` names for them."""
    missing = set(wanted)
    try:
        with tarfile.open(path, "r|gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in missing:
                    missing.remove(name)
                    stream, last = tar.extractfile(member), b"\n"
                    assert stream is not None, "the texts are regular files"
                    for block in segments(stream) if name.endswith(".sgm") else blocks(stream):
                        wanted[name].write(block)
                        last = block
                    if not last.endswith(b"\n"):
                        wanted[name].write(b"\n")
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged archive ({error})") from error
    if missing:
        raise DataError(f"{path}: {', '.join(sorted(missing))} is not in it")


def segments(stream: IO[bytes]) -> Iterator[bytes]:
    """The sentences of a WMT SGML file, one a line; whitespace as sacreBLEU has it, entities undone."""
    for line in stream:
        for text in re.findall(r"<seg[^>]*>(.*)</seg>", line.decode("utf-8")):
            for entity, character in (("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
                text = text.replace(entity, character)
            yield re.sub(r"\s+", " ", text.strip()).encode() + b"\n"


def all_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks."""
    with path.open("rb") as stream:
        yield from blocks(stream)
