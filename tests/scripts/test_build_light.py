"""scripts/build_light: what is in its wheel, that the same comes out again, and that it works where nothing else is.

Its server works beside the packages of its extra alone.
"""

from __future__ import annotations

import base64
import email
import hashlib
import importlib.util
import platform
import re
import signal
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import httpx
import pytest
from packaging.requirements import Requirement

import nmt
from nmt import __version__
from nmt.compiling import BuildError, find_compiler
from nmt.errors import ConfigError
from nmt.interop.engine.opened import compiled_engine
from tests.conftest import REPOSITORY
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import pieces
from tests.serving.server_process import COMMAND, started

SCRIPT = REPOSITORY / "scripts/build_light"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("build_light", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library() -> bytes:
    try:
        return compiled_engine().read_bytes()
    except ConfigError as error:
        pytest.skip(str(error))


def test_the_wheel_has_all_of_the_package(script: Any, library: bytes, tmp_path: Path) -> None:
    path = script.write_wheel(tmp_path, library, "manylinux2014_x86_64.manylinux_2_17_x86_64")
    assert path.name == f"nmt_light-{__version__}-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert list(tmp_path.iterdir()) == [path]
    info = f"nmt_light-{__version__}.dist-info"
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    own = {file.name for file in (REPOSITORY / "nmt/light").glob("*.py")} - {"sources.py"}
    models = {"pretrained/de-en.nmt", "pretrained/en-de.nmt"}
    page = {"web/index.html", "web/page.css", "web/page.js"}
    assert {name for name in files if name.startswith("nmt_light/") and "/server/" not in name} == {
        f"nmt_light/{name}" for name in (*own, *models, *page, "libnmt_engine.so", "py.typed")
    }
    of_server = REPOSITORY / "nmt/serving"
    served = {
        path.relative_to(of_server).as_posix() for path in of_server.rglob("*") if path.suffix not in ("", ".pyc")
    }
    assert {f"nmt_light/server/serving/{name}" for name in served} <= {*files}
    assert path.stat().st_size <= 15_000_000
    about = email.message_from_bytes(files[f"{info}/METADATA"])
    assert (about["Name"], about["Version"]) == ("nmt-light", __version__)
    needed = [Requirement(one) for one in about.get_all("Requires-Dist", [])]
    assert {one.name for one in needed} == {"fastapi", "h11", "prometheus_client"}
    assert not [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    tags = email.message_from_bytes(files[f"{info}/WHEEL"]).get_all("Tag")
    assert tags == ["py3-none-manylinux2014_x86_64", "py3-none-manylinux_2_17_x86_64"]
    for line in files.pop(f"{info}/RECORD").decode().splitlines()[:-1]:
        name, digest, size = line.split(",")
        expected = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(files.pop(name)))
    assert not files  # RECORD lists each


def test_the_same_library_makes_the_same_bytes(script: Any, library: bytes, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = (script.write_wheel(folder, library, "any") for folder in (tmp_path, tmp_path / "again"))
    assert first.read_bytes() == second.read_bytes()


def test_the_tag_says_what_the_library_needs(script: Any) -> None:
    linux = script.target_of("linux-aarch64")
    old = "manylinux2014_aarch64.manylinux_2_17_aarch64"
    assert script.platform_tag(linux, b"\0GLIBC_2.17\0GLIBC_2.2.5\0") == old
    assert script.platform_tag(linux, b"\0GLIBC_2.2.5\0") == old
    assert script.platform_tag(linux, b"\0GLIBC_2.9\0GLIBC_2.34\0") == "manylinux_2_34_aarch64"
    assert script.platform_tag(linux, b"\0libc.musl\0") == "linux_aarch64"
    assert script.platform_tag(script.target_of("macos-aarch64"), b"") == "macosx_11_0_arm64"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "linux",
            "--target linux: is not known. Allowed: native, linux-x86_64, linux-aarch64, macos-x86_64, macos-aar",
        ),
    ],
)
def test_what_it_cannot_compile_for(script: Any, name: str, said: str) -> None:
    with pytest.raises(BuildError, match=re.escape(said)):
        script.target_of(name)


def test_for_windows_there_is_the_library_alone(tmp_path: Path) -> None:
    command = [SCRIPT, "-o", str(tmp_path), "--target", "windows-x86_64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "scripts/build_light: --target windows-x86_64: there is no wheel for Windows: the modules of nmt-light lock"
    assert done.returncode == 1 and done.stderr.startswith(said) and not list(tmp_path.iterdir())


def fresh(folder: Path, wheel: Path) -> Path:
    """The commands of an environment in which nothing but the wheel is installed, by pip, without a package index."""
    venv.create(folder, with_pip=False)
    python = str(folder / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def write_model(folder: Path) -> None:
    """A small random model of Chinese characters, as model.nmt."""
    model = make_model(section())
    vocabularies = pieces(model.source_vocab_size), pieces(model.target_vocab_size)
    (folder / "model.nmt").write_bytes(content_of(model, subwords=vocabularies))


def check_installed(wheel: Path, folder: Path) -> None:
    """The command and the package translate, with the kernels that this processor has."""
    commands = fresh(folder / "venv", wheel)
    write_model(folder)
    given = {"capture_output": True, "text": True, "check": False, "cwd": folder}
    done = subprocess.run([commands / "nmt-light", "model.nmt"], input="\u4e01\u4e02\n\n", **given)
    assert done.returncode == 0 and done.stdout.endswith("\n\n") and done.stdout.count("\n") == 2, done.stderr
    text = "t.translate('\u4e01\u4e02').text"
    code = f"import nmt_light; t = nmt_light.Translator('model.nmt'); print({text}, t.kernels, sep=chr(10))"
    seen = subprocess.run([commands / "python", "-I", "-c", code], **given)
    text, kernels = seen.stdout.splitlines()
    assert f"{text}\n\n" == done.stdout
    if Path("/proc/cpuinfo").exists() and " avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        assert kernels != "plain"
    named = subprocess.run([commands / "nmt-light", "en-de", "-q"], input="I am tired.\n", **given)
    assert named.stdout == "Ich bin müde.\n", named.stderr
    shown = subprocess.run([commands / "nmt-light", "--version"], **given)
    assert shown.stdout == f"nmt-light {__version__}\n"


def test_the_wheel_works_where_nothing_else_is_installed(script: Any, library: bytes, tmp_path: Path) -> None:
    tag = script.platform_tag(script.native_target(), library)
    check_installed(script.write_wheel(tmp_path, library, tag), tmp_path)


LARGEST = 30_000_000
"""Bytes of nmt-light[serve], all packages counted."""
SERVER = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from nmt_light.server.serving.command import main
sys.exit(main())
"""


class Unpacked(NamedTuple):
    """A wheel as pip installs it, and links to the packages that its extra needs: what these need, and nothing else."""

    wheel: Path
    packages: Path
    size: int

    def command(self, *, with_packages: bool = True) -> list[str]:
        """nmt-light-serve in a Python that has no other packages."""
        folders = f"{self.wheel}:{self.packages}" if with_packages else str(self.wheel)
        return [sys.executable, "-I", "-S", "-c", SERVER, folders]


@pytest.fixture(scope="module")
def unpacked(script: Any, library: bytes, tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    folder = tmp_path_factory.mktemp("unpacked")
    wheel, packages = folder / "wheel", folder / "packages"
    packages.mkdir()
    with zipfile.ZipFile(script.write_wheel(folder, library, "any")) as archive:
        archive.extractall(wheel)
    size = sum(path.stat().st_size for path in wheel.rglob("*") if path.is_file())
    waiting, seen = [Requirement(one).name for one in script.extra()], set[str]()
    while waiting:
        found = metadata.distribution(waiting.pop())
        if found.name in seen:
            continue
        seen.add(found.name)
        for file in found.files or ():
            first, whole = file.parts[0], Path(str(found.locate_file(file)))
            size += whole.stat().st_size if whole.is_file() else 0
            if first not in ("..", "__pycache__") and not (packages / first).exists():
                (packages / first).symlink_to(str(found.locate_file(first)))
        needs = (Requirement(one) for one in found.requires or ())
        waiting += [one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
    return Unpacked(wheel, packages, size)


def test_the_server_serves_files_with_the_packages_of_its_extra_alone(unpacked: Unpacked) -> None:
    names = {path.name for path in unpacked.packages.iterdir()}
    assert names.isdisjoint({"torch", "numpy", "sentencepiece", "nmt"}) and unpacked.size <= LARGEST
    texts = ["Where is the station?", "I am tired. I sleep."]
    asked = {"text": texts, "n_best": 2, "details": ["tokens", "attention", "alignment"], "split": "sentences"}
    drawn = ("--search", "sample", "--search-option", "temperature=0.5", "--search-option", "seed=3")
    samples = []
    for command in (COMMAND, unpacked.command()):
        with started("en-de", *drawn, command=command) as server:
            samples.append(httpx.post(f"{server.base}/translate", json={"text": texts}).json())
    assert samples[0] == samples[1] and len(samples[0]["translations"]) == len(texts)
    with started("en-de", "--beam-size", "3", command=unpacked.command()) as server:
        found = httpx.post(f"{server.base}/translate", json=asked).json()["translations"]
        api = httpx.get(f"{server.base}/openapi.json").json()
        for path in ("/", "/page.js", "/page.css", "/door.js", "/docs", "/metrics"):
            assert httpx.get(f"{server.base}{path}").status_code == 200, path
        refused = httpx.post(f"{server.base}/translate", json={"text": "a", "required": "b"}).json()
        server.signal(signal.SIGTERM)
        assert server.ended() == 143
    with started("en-de", "--beam-size", "3") as server:
        assert httpx.post(f"{server.base}/translate", json=asked).json()["translations"] == found
        assert httpx.post(f"{server.base}/translate", json={"text": "a", "required": "b"}).json() == refused
    with nmt.load("en-de") as translator:
        assert [one["text"] for one in found] == [one.text for one in translator.translate(texts, beam_size=3)]
    assert api["info"] == {"title": "nmt-light-serve", "description": "Translates sentences.", "version": __version__}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere",), 1, "nowhere: no such file; models by name: de-en, en-de"),
        (
            ("setup.py",),
            1,
            "setup.py: is no file for the engine (.nmt), and others need the package nmt-recur",
        ),
        (("en-de", "--search", "mbr"), 2, "--search: 'mbr' is not a search of en-de, one file for the engine. "),
        (("en-de", "--search-option", "seed"), 2, "--search-option: 'seed' must be KEY=VALUE, such as temperature=0.7"),
        (("en-de", "--device", "cuda"), 2, "unrecognized arguments: --device cuda"),
    ],
)
def test_what_the_server_cannot_serve_is_one_line(
    unpacked: Unpacked, arguments: tuple[str, ...], code: int, said: str
) -> None:
    command = [*unpacked.command(), "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == code and done.stderr.startswith(f"nmt-light-serve: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_the_server_names_it(unpacked: Unpacked) -> None:
    command = [*unpacked.command(with_packages=False), "en-de"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "nmt-light-serve: the package fastapi is not installed; pip install 'nmt-light[serve]'\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.slow
def test_pip_installs_the_server_within_its_size(script: Any, library: bytes, tmp_path: Path) -> None:
    wheel = script.write_wheel(tmp_path, library, script.platform_tag(script.native_target(), library))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / "site"), f"{wheel}[serve]"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr:
        pytest.skip("needs a package index")
    assert done.returncode == 0, done.stderr
    size = sum(path.stat().st_size for path in (tmp_path / "site").rglob("*") if path.is_file())
    assert size <= LARGEST, f"{size:,} bytes"
    command = [sys.executable, "-I", "-S", "-c", SERVER, str(tmp_path / "site")]
    with started("en-de", command=command) as server:
        found = httpx.post(f"{server.base}/translate", json={"text": "I am tired."}).json()
    assert found["translations"][0]["text"] == "Ich bin müde."


def build(folder: Path, *arguments: str) -> list[Path]:
    done = subprocess.run([SCRIPT, "-o", folder, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Path(line.rsplit(" (", 1)[0]) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_compiled_twice_it_is_the_same_and_works(tmp_path: Path) -> None:
    (wheel,), (again,) = build(tmp_path / "a"), build(tmp_path / "b")
    assert wheel.read_bytes() == again.read_bytes()
    check_installed(wheel, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["linux-x86_64", "linux-aarch64", "macos-x86_64", "macos-aarch64"])
def test_for_other_systems(script: Any, target: str, tmp_path: Path) -> None:
    if sys.modules["engine_builds"].find_zig() is None:
        pytest.skip("needs zig: the package ziglang, zig on PATH, or ZIG in the environment")
    (wheel,) = build(tmp_path / "dist", "--target", target)
    assert target.startswith("macos") or "manylinux2014_" in wheel.name
    if sys.platform == "linux" and target == f"linux-{platform.machine()}":
        check_installed(wheel, tmp_path)


def test_the_program_of_the_guide(script: Any, library: bytes, tmp_path: Path) -> None:
    """The program in C of docs/light.md translates, and says what is wrong with a file."""
    guide = (REPOSITORY / "docs/light.md").read_text(encoding="utf-8")
    (tmp_path / "docs").symlink_to(REPOSITORY / "docs")
    (tmp_path / "lib").mkdir()
    script.write_library(tmp_path / "lib", library, script.native_target())
    write_model(tmp_path)
    (command,) = re.findall(r"^cc (.*)", guide, re.M)
    command = f"{' '.join(find_compiler())} -Wall -Wextra -Werror {command}"
    assert subprocess.run(command.split(), cwd=tmp_path, check=False).returncode == 0
    given = {"capture_output": True, "text": True, "check": False, "cwd": tmp_path}
    done = subprocess.run(["./translate", "model.nmt", "\u4e01\u4e02"], **given)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    done = subprocess.run(["./translate", "docs/light.md", "\u4e01"], **given)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("docs/light.md: ")
