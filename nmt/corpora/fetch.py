"""Fetching public data: downloads that resume after an interruption, and checksums."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nmt import __version__
from nmt.errors import DataError

BLOCK = 1 << 20
"""Bytes read at a time."""
TIMEOUT = 60
"""Longest time without a byte, in seconds."""
ATTEMPTS = 5
"""Number of interrupted transfers that are resumed before giving up."""
PAUSE = 2.0
"""Seconds between attempts."""


def blocks(stream: IO[bytes] | Any) -> Iterator[bytes]:
    """The bytes of a stream in blocks."""
    while block := stream.read(BLOCK):
        yield block


@dataclass(frozen=True)
class Sum:
    """Expected checksum of a file: of its bytes or, with `unpack`, of the text in a .gz file."""

    algorithm: str
    hexadecimal: str
    unpack: bool = False

    def fits(self, path: Path) -> bool:
        """Whether the file (whose name may end in .part) has this sum."""
        return digest(path, self.algorithm, unpack=self.unpack) == self.hexadecimal


def digest(path: Path, algorithm: str = "sha256", *, unpack: bool = False) -> str:
    """Hexadecimal sum of a file; with `unpack`, of the text in it if its name ends in .gz or .gz.part."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    packed = unpack and path.name.removesuffix(".part").endswith(".gz")
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            for block in blocks(stream):
                found.update(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); delete it and run this again") from error
    return found.hexdigest()


def take_copy(folder: Path, names: Sequence[str], to: Path, *, expected: Sum) -> Path:
    """Copy the first of `names` that is in `folder` to the folder `to`, and check its sum; returns the copy.

    The folder `to` is made only for a file whose sum is right.
    """
    for name in names:
        if (folder / name).is_file():
            part = to / f"{name}.part"
            _check(folder / name, expected, origin=str(folder / name))
            to.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, part)
            return _settle(part, to / name, expected=expected, origin=str(folder / name))
    raise DataError(f"{folder} holds neither {' nor '.join(names)}")


def _settle(part: Path, path: Path, *, expected: Sum | None, origin: str) -> Path:
    """Give a complete file its name if its checksum is right, else delete it."""
    if expected is not None:
        try:
            _check(part, expected, origin=origin)
        except DataError:
            part.unlink()
            raise
    os.replace(part, path)
    return path


def _check(path: Path, expected: Sum, *, origin: str) -> None:
    """Raise DataError unless the file, which comes from `origin`, has the expected sum."""
    try:
        fits = expected.fits(path)
    except DataError:
        fits = False
    if not fits:
        raise DataError(f"{origin} is not the published file: its {expected.algorithm} sum differs")


def download(url: str, path: Path, *, expected: Sum | None) -> Path:
    """Fetch `url` into `path`, resuming a transfer that an earlier call left as PATH.part.

    `path` appears only when it is complete and its sum right; `expected` is None if it is unknown. Raises DataError.
    """
    part = path.with_name(path.name + ".part")
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            total = _transfer(url, part)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if _size(part) == before:
                raise DataError(_explain(url, error)) from error
        else:
            if total is None or _size(part) == total:
                return _settle(part, path, expected=expected, origin=url)
        if attempt + 1 < ATTEMPTS:
            print(f"  {url}: the transfer was interrupted; resuming", file=sys.stderr)
            time.sleep(PAUSE)
    raise DataError(f"{url}: the transfer was interrupted {ATTEMPTS} times; run the command again to resume it")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(url: str, part: Path) -> int | None:
    """Download the missing rest of `part`; returns the size of the whole file if the server sends it."""
    start = _size(part)
    # Some servers refuse requests without a user agent.
    headers = {"User-Agent": f"nmt-data/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # Nothing follows the part we have: it is complete, or does not belong to this file.
        if error.headers.get("Content-Range", "").rpartition("/")[2] != str(start):
            part.unlink()
            return _transfer(url, part)
        return start
    with response:
        resumed = response.status == 206
        left = response.headers.get("Content-Length")
        total = None if left is None else int(left) + (start if resumed else 0)
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if resumed else "wb") as file:
            for block in blocks(response):
                file.write(block)
                _show(url, file.tell(), total)
    return total


def _show(url: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        of = f" of {total / 1e6:,.1f}" if total else ""
        end = "\n" if done == total else ""
        print(f"\r  {url.rpartition('/')[2]}: {done / 1e6:,.1f}{of} MB ", end=end, file=sys.stderr, flush=True)


def _explain(url: str, error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{url}: the server answered {error.code} {error.reason}"
    host = urllib.parse.urlsplit(url).netloc
    reason = getattr(error, "reason", None) or error
    return f"{host} cannot be reached ({reason}); is there a network? --from DIR takes local copies"
