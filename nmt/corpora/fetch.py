"""Fetching public data: downloads that resume after an interruption, and checksums, also of what is made of them.

Whatever a server sends, a download ends: it has a largest size, a slowest speed and few redirections.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.client
import io
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any

from nmt import __version__
from nmt.errors import DataError, printable
from nmt.files import read_sums, sums_text

LANGUAGES = ("en", "de")
SUMS = "SHA256SUMS"
BLOCK = 1 << 20
"""Bytes read at a time."""
TIMEOUT = 30
"""Longest time without a byte, in seconds."""
SLOWEST = 1024
"""Bytes a second, on average over as long."""
REDIRECTIONS = 5
"""Most redirections that are followed."""
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
    largest: int | None = None
    """Bytes of the file, or of the text in it; one that has more is not read to its end."""

    def fits(self, path: Path) -> bool:
        """Whether the file (whose name may end in .part) has this sum."""
        return digest(path, self.algorithm, unpack=self.unpack, largest=self.largest) == self.hexadecimal


def digest(path: Path, algorithm: str = "sha256", *, unpack: bool = False, largest: int | None = None) -> str:
    """Hexadecimal sum of a file; with `unpack`, of the text in it if its name ends in .gz or .gz.part.

    Raises DataError for a damaged .gz file, and for more than `largest` bytes, to which a small one may unpack.
    """
    found, size = hashlib.new(algorithm, usedforsecurity=False), 0
    packed = unpack and path.name.removesuffix(".part").endswith(".gz")
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            for block in blocks(stream):
                found.update(block)
                size += len(block)
                if largest is not None and size > largest:
                    raise DataError(f"{path}: holds more than {largest:,} bytes; it is not the published file")
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


def download(url: str, path: Path, *, expected: Sum | None, largest: int) -> Path:
    """Fetch `url` into `path`, resuming a transfer that an earlier call left as PATH.part.

    `path` appears only when it is complete, with at most `largest` bytes, and its sum right; `expected` is None if it
    is unknown. Raises DataError, which names the URL.
    """
    part = path.with_name(path.name + ".part")
    if _size(part) > largest:
        part.unlink()
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            total = _transfer(url, part, largest=largest)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, _TooSlowError) as error:
            if _size(part) - before < (TIMEOUT * SLOWEST if isinstance(error, _TooSlowError) else 1):
                raise DataError(_explain(url, error)) from error
        else:
            if total is None or _size(part) == total:
                return _settle(part, path, expected=expected, origin=url)
        if attempt + 1 < ATTEMPTS:
            print(f"  {url}: the transfer was interrupted; resuming", file=sys.stderr)
            time.sleep(PAUSE)
    many = f"was interrupted {ATTEMPTS} times, at last after {_size(part):,} bytes"
    raise DataError(f"{url}: the transfer {many}; run the command again to resume it")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(url: str, part: Path, *, largest: int) -> int | None:
    """Download the missing rest of `part`; returns the size of the whole file if the server sends it."""
    start = _size(part)
    # Some servers refuse requests without a user agent.
    headers = {"User-Agent": f"nmt-data/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    most = 2 * largest + (1 << 20)  # what surrounds the file counted
    opener = urllib.request.build_opener(_Http(url, most), _Https(url, most), _Redirections(url))
    try:
        response = opener.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or not start:
            raise
        # Nothing follows the part we have: it is complete, or does not belong to this file.
        if error.headers.get("Content-Range", "").rpartition("/")[2] != str(start):
            part.unlink()
            return _transfer(url, part, largest=largest)
        return start
    except ValueError as error:  # of a host or an address that cannot be one
        raise urllib.error.URLError(str(error)) from error
    with response:
        total = _length(url, response.headers)
        resumed = response.status == 206
        if resumed:
            right, total = _whole(response.headers.get("Content-Range", ""), start=start, length=total)
            if not start:
                raise DataError(f"{url}: the server sends a part of the file, for which it was not asked")
            if not right:
                part.unlink()
                return _transfer(url, part, largest=largest)
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if resumed else "wb") as file:
            block = b""
            while max(total or 0, file.tell() + len(block)) <= largest:
                file.write(block)
                _show(url, file.tell(), total)
                block = response.read1(BLOCK)
                if not block:
                    return total
    part.unlink()
    raise DataError(f"{url}: is not the published file: the server sends more than {largest:,} bytes")


def _length(url: str, headers: Message) -> int | None:
    """The length that a server gives its answer, None for one without."""
    given = headers.get_all("Content-Length", [])
    if not given or "Transfer-Encoding" in headers:  # which is what then counts
        return None
    if len(set(given)) > 1 or not re.fullmatch("[0-9]{1,18}", given[0].strip()):
        raise DataError(f"{url}: the server sent 'Content-Length: {_short(', '.join(given))}', which is no size")
    return int(given[0])


def _whole(content_range: str, *, start: int, length: int | None) -> tuple[bool, int | None]:
    """Whether an answer has what follows `start`, and the size of the whole file, if it is told."""
    if not content_range:  # as some servers answer; the sum says whether it was right
        return True, None if length is None else start + length
    found = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/(?:([0-9]{1,18})|\*)", content_range.strip())
    if found is None:
        return False, None
    first, last, whole = int(found[1]), int(found[2]), int(found[3] or int(found[2]) + 1)
    return first == start <= last < whole and length in (None, last - first + 1), whole


class _TooSlowError(Exception):
    """Fewer than SLOWEST bytes a second, in TIMEOUT seconds; says how many."""


class _Received(io.RawIOBase):
    """The bytes that a server sends, those of its headers too, in bounded number and time."""

    def __init__(self, stream: io.BufferedReader, url: str, most: int) -> None:
        self._stream, self._url, self._left = stream, url, most
        self._since: float | None = None
        self._bytes = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, at least a byte except at the end."""
        try:
            count = self._stream.readinto1(buffer)
        except TimeoutError as error:
            raise _TooSlowError("nothing") from error
        except OSError as error:  # not to be taken for one of writing the file
            raise ConnectionError(str(error)) from error
        self._left -= count
        if self._left < 0:
            raise DataError(f"{self._url}: the server sends without end")
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._bytes += count
        if count and now - self._since >= TIMEOUT:
            if self._bytes < SLOWEST * TIMEOUT:
                raise _TooSlowError(f"only {self._bytes:,} bytes")
            self._since, self._bytes = now, 0
        return count

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, *arguments: Any, url: str, most: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fp = io.BufferedReader(_Received(self.fp, url, most))


class _Bounded(urllib.request.AbstractHTTPHandler):
    """Opens URLs whose answers are bounded."""

    def __init__(self, url: str, most: int) -> None:
        super().__init__()
        self._response = functools.partial(_Response, url=url, most=most)

    def do_open(self, http_class: Any, req: Any, **named: Any) -> Any:
        """Send a request, and read the headers of the answer."""

        def connection(*arguments: Any, **more: Any) -> Any:
            made = http_class(*arguments, **more)
            made.response_class = self._response
            return made

        return super().do_open(connection, req, **named)


class _Http(_Bounded, urllib.request.HTTPHandler):
    pass


class _Https(_Bounded, urllib.request.HTTPSHandler):
    pass


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Follows few redirections, to http and https alone, and never from https to http."""

    max_repeats = max_redirections = REDIRECTIONS
    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302

    def __init__(self, url: str) -> None:
        self._url = url

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request; DataError for one that is not made."""
        fp.close()  # what else it sends is not read
        scheme, before = urllib.parse.urlsplit(newurl).scheme, urllib.parse.urlsplit(req.full_url).scheme
        if scheme not in ("http", "https") or (before == "https" and scheme == "http"):
            allowed = "only https is followed" if before == "https" else "only http and https are followed"
            raise DataError(f"{self._url}: the server redirects to {_short(newurl)}; from {before} {allowed}")
        if sum(getattr(req, "redirect_dict", {}).values()) >= REDIRECTIONS:
            raise DataError(f"{self._url}: the server redirects more than {REDIRECTIONS} times")
        return urllib.request.Request(
            newurl, headers=req.headers, origin_req_host=req.origin_req_host, unverifiable=True
        )


def _short(text: str) -> str:
    return printable(text[:100]) + ("..." if len(text) > 100 else "")


def _show(url: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        of = f" of {total / 1e6:,.1f}" if total else ""
        end = "\n" if done == total else ""
        print(f"\r  {url.rpartition('/')[2]}: {done / 1e6:,.1f}{of} MB ", end=end, file=sys.stderr, flush=True)


def _explain(url: str, error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{url}: the server answered {error.code} {_short(str(error.reason))}"
    if isinstance(error, _TooSlowError):
        given_up = f"the server has sent {error} in {TIMEOUT} seconds, less than {SLOWEST:,} a second"
        return f"{url}: {given_up}; run the command again to resume"
    reason = _short(str(getattr(error, "reason", None) or error))
    return f"{url}: cannot be reached ({reason}); is there a network? --from DIR takes local copies"


def is_complete(to: Path, part: str) -> bool:
    """Whether both sides match the recorded sums; DataError for files that an earlier run did not make."""
    recorded = _recorded(to)
    present = [path for path in (to / f"{part}.{language}" for language in LANGUAGES) if path.exists()]
    for path in present:
        if digest(path) != recorded.get(path.name):
            raise DataError(f"{path}: its checksum differs from {to / SUMS}; move it away and run the command again")
    return len(present) == len(LANGUAGES)


def settle(to: Path, temporary: Sequence[Path]) -> None:
    """Record the sums of files PART.LANGUAGE.part, and take the `.part` off their names."""
    # Recorded before the files get their names: a file with its name always has its sum.
    sums = _recorded(to) | {path.stem: digest(path) for path in temporary}
    (to / SUMS).write_bytes(sums_text(dict(sorted(sums.items()))))
    for path in temporary:
        path.replace(path.with_suffix(""))


def _recorded(to: Path) -> dict[str, str]:
    """File names and the sums recorded for them; DataError where the file has something else in it."""
    path = to / SUMS
    if not path.is_file():
        return {}
    found = read_sums(path.read_bytes())
    if found is None:
        raise DataError(f"{path}: is not a list of checksums that nmt-data wrote; move it away")
    return found
