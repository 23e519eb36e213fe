"""nmt-data multi30k and wmt14: local copies, sums, resumed transfers, one line for what goes wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType

import pytest

from nmt.corpora import fetch as downloads
from nmt.corpora import multi30k as multi30k_corpus
from nmt.corpora import wmt14
from nmt.corpora.command import main
from nmt.errors import DataError
from tests.corpora.conftest import Server, home

NOWHERE = "http://127.0.0.1:9"  # the discard port, where nothing listens


def fetch(name: str, *arguments: object) -> int:
    """The exit code of `nmt-data NAME`."""
    return main([name, *map(str, arguments)])


# Multi30k


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, server: Server) -> tuple[ModuleType, dict[str, bytes]]:
    """Multi30k with short texts in place of the real ones, on a server at home(server)."""
    module = multi30k_corpus
    monkeypatch.setattr(downloads, "PAUSE", 0)
    texts = {name: (f"{name} line\n" * 50 + os.urandom(300).hex()).encode() for name in module.TEXT_SUMS}
    monkeypatch.setattr(module, "TEXT_SUMS", {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()})
    server.files = {f"/{name}.gz": gzip.compress(text) for name, text in texts.items()}
    return module, texts


def test_help_names_the_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("multi30k", "wmt14"):
        assert fetch(name, "--help") == 0
        told = capsys.readouterr().out
        assert "--from DIR" in told and f"data/{name}" in told


def test_real_multi30k_from_local_copies(multi30k: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch("multi30k", "--from", multi30k, "--to", tmp_path / "to") == 0
    assert "non-commercial" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert names == sorted(f"{p}.{s}.gz" for p in ("train", "val", "test_2016_flickr") for s in ("en", "de"))
    assert fetch("multi30k", "--to", tmp_path / "to", "--mirror", NOWHERE) == 0
    assert capsys.readouterr().out.count("already here") == 6
    assert fetch("multi30k", "--from", multi30k, "--to", tmp_path / "to", "--languages", "de", "cs") == 0
    assert capsys.readouterr().out.count("already here") == 6 and (tmp_path / "to" / "val.cs.gz").is_file()


@pytest.mark.parametrize("name", ["multi30k", "wmt14"])
def test_no_network_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [variable for variable in os.environ if variable.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    assert fetch(name, "--to", tmp_path / "to", "--mirror", NOWHERE) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"nmt-data: {NOWHERE}/") and ": cannot be reached (" in error
    assert "--from DIR" in error and error.count("\n") == 1
    assert not (tmp_path / "to").exists()


def test_a_wrong_folder_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch("multi30k", "--from", tmp_path / "nowhere", "--to", tmp_path) == 2
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["example.org/x", "http://[::1/x", "https://example.org/ü", "data", ""])
def test_a_mirror_that_is_no_url_is_a_usage_error(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch("multi30k", "--to", tmp_path / "to", "--mirror", url) == 2
    assert capsys.readouterr().err == f"nmt-data: --mirror {url}: is not a URL such as https://example.org/folder\n"
    assert not (tmp_path / "to").exists()


def test_fetching_everything(small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path) -> None:
    module, texts = small
    both = ["--languages", "de", "cs"]
    assert main(["multi30k", "--to", str(tmp_path / "new"), "--mirror", home(server) + "/", *both]) == 0
    for name, text in texts.items():
        assert gzip.decompress((tmp_path / "new" / f"{name}.gz").read_bytes()) == text
    assert len(list((tmp_path / "new").iterdir())) == 9


def test_plain_local_copies_are_taken_too(small: tuple[ModuleType, dict[str, bytes]], tmp_path: Path) -> None:
    module, texts = small
    (tmp_path / "from").mkdir()
    for name, text in texts.items():
        (tmp_path / "from" / name).write_bytes(text)
    copies = ["multi30k", "--to", str(tmp_path / "to"), "--from", str(tmp_path / "from"), "--languages", "cs"]
    texts = {name: text for name, text in texts.items() if not name.endswith(".de")}
    assert main(copies) == 0
    assert {path.name for path in (tmp_path / "to").iterdir()} == set(texts)


@pytest.mark.parametrize("kind", ["other text", "not gzip", "missing"])
def test_copies_that_are_not_the_data(
    small: tuple[ModuleType, dict[str, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    module, texts = small
    copies = tmp_path / "from"
    copies.mkdir()
    content = {"other text": gzip.compress(b"something else\n"), "not gzip": b"\x1f\x8bnonsense", "missing": None}[kind]
    if content is not None:
        (copies / "train.en.gz").write_bytes(content)
    assert main(["multi30k", "--to", str(tmp_path / "to"), "--from", str(copies)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "train.en" in error
    assert ("holds neither" if kind == "missing" else "sum differs") in error
    assert not (tmp_path / "to").exists()


def test_files_of_the_user_are_not_overwritten(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = small
    (tmp_path / "train.en").write_text("mine\n")
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 1
    assert "is not the published text; move it away" in capsys.readouterr().err
    assert (tmp_path / "train.en").read_text() == "mine\n"


def test_an_earlier_part_is_gone_on_with(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path
) -> None:
    module, _ = small
    whole = server.files["/train.en.gz"]
    (tmp_path / "train.en.gz.part").write_bytes(whole[:100])
    (tmp_path / "val.en.gz.part").write_bytes(server.files["/val.en.gz"])  # complete, only its name is missing
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert ("/train.en.gz", "bytes=100-") in server.asked
    assert (tmp_path / "train.en.gz").read_bytes() == whole
    assert not list(tmp_path.glob("*.part"))


def test_a_server_without_ranges_starts_over(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path
) -> None:
    module, _ = small
    server.ranges = False
    (tmp_path / "train.en.gz.part").write_bytes(b"x" * 50)
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert (tmp_path / "train.en.gz").read_bytes() == server.files["/train.en.gz"]


def test_a_part_that_is_too_long_starts_over(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path
) -> None:
    module, _ = small
    (tmp_path / "train.en.gz.part").write_bytes(b"x" * 5000)
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0


def test_broken_transfers_go_on_where_they_stopped(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path
) -> None:
    module, _ = small
    server.break_after = [40, 60]
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    ranges = [wanted for path, wanted in server.asked if path == "/train.en.gz"]
    assert ranges == [None, "bytes=40-", "bytes=100-"]


def test_a_transfer_that_ends_with_an_error_goes_on_where_it_stopped(
    small: tuple[ModuleType, dict[str, bytes]],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(downloads, "BLOCK", 10)
    server.chunked, server.break_after = True, [40]
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert [wanted for path, wanted in server.asked if path == "/train.en.gz"] == [None, "bytes=40-"]
    assert (tmp_path / "train.en.gz").read_bytes() == server.files["/train.en.gz"]
    assert "train.en.gz: the transfer was interrupted; resuming" in capsys.readouterr().err


def test_a_transfer_that_keeps_breaking_ends_and_keeps_its_part(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = small
    server.break_after = [10] * 20
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 1
    assert "was interrupted 5 times" in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "train.en.gz.part").stat().st_size == 50


@pytest.mark.parametrize("kind", ["404", "sum"])
def test_a_server_with_something_else(
    small: tuple[ModuleType, dict[str, bytes]],
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    module, _ = small
    if kind == "404":
        server.files.clear()
    else:
        server.files["/train.en.gz"] = gzip.compress(b"something else\n")
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert ("the server answered 404" if kind == "404" else "sha256 sum differs") in error
    assert not list(tmp_path.iterdir())


def test_text_that_a_small_file_unpacks_to_is_limited_too(
    small: tuple[ModuleType, dict[str, bytes]],
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if the sum of all of it would be right: what makes a gigabyte of a megabyte is not unpacked to its end."""
    module, _ = small
    text = b"a\n" * 50_000
    monkeypatch.setattr(module, "TEXT_SUMS", {"train.en": hashlib.sha256(text).hexdigest()})
    monkeypatch.setattr(module, "LARGEST", 10_000)
    server.files["/train.en.gz"] = gzip.compress(text)
    assert len(server.files["/train.en.gz"]) < module.LARGEST
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 1
    assert "is not the published file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def slowly(*blocks: bytes) -> Iterator[bytes]:
    """These, then a byte every hundredth of a second, for half a minute."""
    yield from blocks
    for _ in range(3000):
        time.sleep(0.01)
        yield b"x"


def silent() -> Iterator[bytes]:
    """The beginning of an answer, of which nothing more comes."""
    yield OK
    time.sleep(2)


OK = b"HTTP/1.1 200 OK\r\n"
MOVED = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
END = b"\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\nX: " + bytes(60000) + END
CHUNK = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
LIES: dict[str, tuple[Callable[[str], Iterable[bytes]], str]] = {
    "a length that is no number": (lambda _: [OK + b"Content-Length: abc" + END + b"abc"], "'Content-Length: abc'"),
    "a negative length": (lambda _: [OK + b"Content-Length: -1" + END + b"abc"], "'Content-Length: -1'"),
    "two lengths": (lambda _: [OK + b"Content-Length: 1\r\nContent-Length: 2" + END + b"abc"], "Length: 1, 2'"),
    "a huge length": (
        lambda _: [OK + b"Content-Length: 99999999999" + END + b"abc"],
        "sends more than 16,777,216 bytes",
    ),
    "no end": (lambda _: chain([OK + END], repeat(bytes(1 << 20), 100)), "sends more than 16,777,216 bytes"),
    "no end of chunks": (
        lambda _: chain([OK + b"Transfer-Encoding: chunked" + END], repeat(CHUNK, 100)),
        "sends more than 16,777,216 bytes",
    ),
    "no end of chunks of a byte": (
        lambda _: chain([OK + b"Transfer-Encoding: chunked" + END], repeat(b"1;" + bytes(60000) + b"\r\nx\r\n", 2000)),
        "sends without end",
    ),
    "no end of headers": (
        lambda _: repeat(CONTINUED, 2000),
        "sends without end",
    ),
    "a slow body": (lambda _: slowly(OK + END), "less than 1,024 a second; run the command again to resume"),
    "a slow line of status": (lambda _: slowly(), "less than 1,024 a second"),
    "a slow header": (lambda _: slowly(OK + b"X-Long: "), "less than 1,024 a second"),
    "nothing": (lambda _: silent(), "has sent nothing in 0.4 seconds"),
    "no answer": (lambda _: [], "cannot be reached (Remote end closed connection without response)"),
    "no HTTP": (lambda _: [b"SSH-2.0-OpenSSH_9.2\r\n"], "cannot be reached (SSH-2.0-OpenSSH_9.2"),
    "a long reason": (lambda _: [b"HTTP/1.1 500 " + b"no" * 5000 + END], "the server answered 500 nono"),
    "a part of the file": (lambda _: [b"HTTP/1.1 206 Partial\r\nContent-Length: 3" + END + b"abc"], "not asked"),
    "no such part": (lambda _: [b"HTTP/1.1 416 No\r\nContent-Length: 0" + END], "the server answered 416 No"),
    "to ftp": (lambda _: [MOVED + b"ftp://127.0.0.1/x" + END], "ftp://127.0.0.1/x; from http only http and https are"),
    "to a file": (lambda _: [MOVED + b"file:///etc/passwd" + END], "the server answered 302"),
    "to no address": (lambda _: [MOVED + b"http://[::1/x" + END], "cannot be reached (Invalid IPv6 URL)"),
    "to no host": (lambda _: [MOVED + b"http://a..b/x" + END], "cannot be reached ("),
    "in a circle": (lambda home: [MOVED + f"{home}/train.en.gz".encode() + END], "redirects more than"),
    "to ever others": (
        lambda home: [MOVED + f"{home}/train.en.gz?{os.urandom(4).hex()}".encode() + END],
        "redirects more than 5 times",
    ),
    "away without end": (
        lambda home: chain(
            [b"HTTP/1.1 302 Found\r\nLocation: " + f"{home}/val.en.gz".encode() + END], repeat(bytes(1 << 20), 100)
        ),
        "is not the published file: its sha256 sum differs",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_ends_in_one_line_that_names_the_file(
    small: tuple[ModuleType, dict[str, bytes]],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lie: str,
) -> None:
    if "slow" in lie or lie == "nothing":
        monkeypatch.setattr(downloads, "TIMEOUT", 0.4)
    answer, said = LIES[lie]
    server.answers["/train.en.gz"] = lambda: answer(home(server))
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"nmt-data: {home(server)}/train.en.gz") and error.count("\n") == 1 and len(error) < 400
    assert said in error
    assert server.sent < 90 << 20 and not (tmp_path / "train.en.gz").exists()


def test_a_redirection_is_followed_but_not_from_https_to_http(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path
) -> None:
    server.answers["/train.en.gz"] = lambda: [MOVED + b"/elsewhere" + END]
    server.files["/elsewhere"] = server.files["/train.en.gz"]
    (tmp_path / "train.en.gz.part").write_bytes(server.files["/train.en.gz"][:30])
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert ("/elsewhere", "bytes=30-") in server.asked
    secure = urllib.request.Request("https://example.org/a")
    follow = downloads._Redirections("https://example.org/a").redirect_request
    assert follow(secure, io.BytesIO(), 302, "", {}, "https://example.org/b").full_url == "https://example.org/b"
    with pytest.raises(DataError, match="^https://example.org/a: .* to http://example.org/b; from https only https is"):
        follow(secure, io.BytesIO(), 302, "", {}, "http://example.org/b")


@pytest.mark.parametrize(
    "said", ["bytes 0-9/1000", "bytes 41-1000/2000", "bytes 40-30/1000", "bytes 40-999/50", "rest"]
)
def test_another_part_than_the_missing_one_starts_over(
    small: tuple[ModuleType, dict[str, bytes]], server: Server, tmp_path: Path, said: str
) -> None:
    whole = server.files["/train.en.gz"]
    wrong = f"HTTP/1.1 206 Partial Content\r\nContent-Range: {said}\r\n\r\n".encode() + b"wrong bytes"
    answers = iter([wrong, OK + f"Content-Length: {len(whole)}".encode() + END + whole])
    server.answers["/train.en.gz"] = lambda: [next(answers)]
    (tmp_path / "train.en.gz.part").write_bytes(whole[:40])
    assert main(["multi30k", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert (tmp_path / "train.en.gz").read_bytes() == whole
    assert [wanted for path, wanted in server.asked if path == "/train.en.gz"] == ["bytes=40-", None]


# WMT14


def sgml(*lines: str) -> bytes:
    segments = "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(lines, start=1))
    return f'<srcset setid="x" srclang="any">\n<doc docid="1">\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'.encode()


MEMBERS = {
    "training-parallel-europarl-v7.tgz": {
        "training/europarl-v7.fr-en.en": b"not this\n",
        "training/europarl-v7.de-en.de": "Europa eins\nEuropa\u2028zwei\n".encode(),
        "training/europarl-v7.de-en.en": b"Europe one\nEurope two\n",
    },
    "training-parallel-commoncrawl.tgz": {
        "./commoncrawl.de-en.en": b"crawl",  # no line end
        "./commoncrawl.de-en.de": b"kriechen",
    },
    "training-parallel-nc-v9.tgz": {
        "training/news-commentary-v9.de-en.de": b"Kommentar\n",
        "training/news-commentary-v9.de-en.en": b"comment\n",
    },
    "test.tgz": {
        "test/newstest2013-src.de.sgm": sgml("Entwicklung &amp; mehr", "zwei"),
        "test/newstest2013-src.en.sgm": sgml("development &amp; more", " two  spaces "),
    },
    "test-full.tgz": {
        "test-full/newstest2014-deen-src.en.sgm": sgml("a test"),
        "test-full/newstest2014-deen-src.de.sgm": sgml("not this"),
        "test-full/newstest2014-deen-ref.de.sgm": sgml("ein &quot;Test&quot; &lt;x&gt; &amp;lt;"),
    },
}


def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def wmt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server) -> tuple[ModuleType, Path]:
    """WMT14 with tiny archives in place of the real ones, and a folder that holds them."""
    module = wmt14
    folder = tmp_path / "from"
    folder.mkdir()
    archives = {}
    for name, members in MEMBERS.items():
        content = packed(members)
        (folder / name).write_bytes(content)
        year, published = module.ARCHIVES[name]
        archives[name] = (year, type(published)("sha256", hashlib.sha256(content).hexdigest()))
        server.files[f"/{year}/{name}"] = content
    monkeypatch.setattr(module, "ARCHIVES", archives)
    monkeypatch.setattr(module, "LINES", {"dev": 2, "test": 1})
    return module, folder


EXPECTED = {
    "train.en": "Europe one\nEurope two\ncrawl\ncomment\n",
    "train.de": "Europa eins\nEuropa\u2028zwei\nkriechen\nKommentar\n",
    "dev.en": "development & more\ntwo spaces\n",
    "dev.de": "Entwicklung & mehr\nzwei\n",
    "test.en": "a test\n",
    "test.de": 'ein "Test" <x> &lt;\n',
}


def check(folder: Path) -> None:
    for name, text in EXPECTED.items():
        assert (folder / name).read_bytes().decode() == text
    recorded = (folder / "SHA256SUMS").read_text().splitlines()
    assert recorded == sorted(
        (f"{hashlib.sha256(text.encode()).hexdigest()}  {name}" for name, text in EXPECTED.items()),
        key=lambda line: line.split()[1],
    )
    assert not list(folder.glob("*.part"))


def test_wmt14_from_local_copies(
    wmt: tuple[ModuleType, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, folder = wmt
    assert main(["wmt14", "--from", str(folder), "--to", str(tmp_path / "to")]) == 0
    assert "Free for research" in capsys.readouterr().out
    check(tmp_path / "to")
    assert main(["wmt14", "--to", str(tmp_path / "to"), "--mirror", NOWHERE]) == 0
    assert capsys.readouterr().out.count("already here") == 3


def test_wmt14_from_the_network_and_resumed(wmt: tuple[ModuleType, Path], server: Server, tmp_path: Path) -> None:
    module, _ = wmt
    to = tmp_path / "to"
    (to / "archives").mkdir(parents=True)
    (to / "archives" / "test.tgz.part").write_bytes(server.files["/wmt13/test.tgz"][:77])
    assert main(["wmt14", "--to", str(to), "--mirror", home(server)]) == 0
    check(to)
    assert ("/wmt13/test.tgz", "bytes=77-") in server.asked
    (to / "dev.de").unlink()  # a missing side is made again from the archives that are here
    asked = len(server.asked)
    assert main(["wmt14", "--to", str(to), "--mirror", home(server)]) == 0
    check(to)
    assert len(server.asked) == asked


@pytest.mark.parametrize("kind", ["missing", "other", "changed text", "own text", "lines"])
def test_wmt14_that_is_not_as_published(
    wmt: tuple[ModuleType, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    module, folder = wmt
    to = tmp_path / "to"
    expected = {
        "missing": "test.tgz is missing; --from needs",
        "other": "test.tgz is not the published file: its sha256 sum differs",
        "changed text": "train.de: its checksum",
        "own text": "dev.en: its checksum",
        "lines": "dev: 2 English and 2 German lines",
    }[kind]
    if kind == "missing":
        (folder / "test.tgz").unlink()
    elif kind == "other":
        shutil.copyfile(folder / "test-full.tgz", folder / "test.tgz")
    elif kind == "changed text":
        assert main(["wmt14", "--from", str(folder), "--to", str(to)]) == 0
        (to / "train.de").write_text("changed\n")
    elif kind == "own text":
        to.mkdir()
        (to / "dev.en").write_text("mine\n")
    else:
        monkeypatch.setattr(module, "LINES", {"dev": 3000, "test": 1})
    capsys.readouterr()
    assert main(["wmt14", "--from", str(folder), "--to", str(to)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("nmt-data: ") and error.count("\n") == 1
    assert expected in error


@pytest.mark.parametrize("damage", ["archive", "member"])
def test_wmt14_archives_that_cannot_be_unpacked(
    wmt: tuple[ModuleType, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    module, folder = wmt
    content = b"not an archive" if damage == "archive" else packed({"other": b"x\n"})
    (folder / "test.tgz").write_bytes(content)
    expected = type(module.ARCHIVES["test.tgz"][1])("sha256", hashlib.sha256(content).hexdigest())
    module.ARCHIVES["test.tgz"] = ("wmt13", expected)
    assert main(["wmt14", "--from", str(folder), "--to", str(tmp_path / "to")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert ("damaged archive" if damage == "archive" else "is not in it") in error


def test_published_sums_are_whole() -> None:
    digits = {"sha256": 64, "md5": 32}
    for _, published in wmt14.ARCHIVES.values():
        assert len(bytes.fromhex(published.hexadecimal)) * 2 == digits[published.algorithm]
    for text_sum in multi30k_corpus.TEXT_SUMS.values():
        assert len(bytes.fromhex(text_sum)) == 32
