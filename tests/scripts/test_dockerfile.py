"""scripts/Dockerfile: what it copies is enough, and its commands work, in an environment in place of an image."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.exported_run import make_exported
from tests.serving.server_process import ServerProcess

TEXT = re.sub(r"\\\n\s*", "", (REPOSITORY / "scripts/Dockerfile").read_text(encoding="utf-8"))
STEPS = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]


def steps(kind: str) -> list[str]:
    return [rest for name, rest in STEPS if name == kind]


def test_what_it_copies_is_there_and_sent_to_the_builder() -> None:
    ignored = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    copied = {name for line in steps("COPY") for name in shlex.split(line)[:-1]}
    assert copied == sent and all((REPOSITORY / name).exists() for name in copied)


def test_it_serves_on_the_port_that_it_exposes_and_not_as_root() -> None:
    (entry,), (check,), (port,) = steps("ENTRYPOINT"), steps("HEALTHCHECK"), steps("EXPOSE")
    assert json.loads(entry) == ["nmt-serve", "--host", "0.0.0.0", "--port", port]
    assert f"127.0.0.1:{port}/health" in check
    kinds = [name for name, _ in STEPS]
    assert kinds.index("USER") < kinds.index("ENTRYPOINT") and steps("USER") == ["nmt"]
    assert any(re.search(r"apt-get install .*\bgcc libc6-dev\b", line) for line in steps("RUN"))


@pytest.mark.slow
def test_its_commands_install_and_serve(tmp_path: Path) -> None:
    """What fetches packages is left out: they are those of the environment of the tests."""
    source, environment = tmp_path / "source", tmp_path / "environment"
    for line in steps("COPY"):
        *names, target = shlex.split(line)
        for name in names:
            place = tmp_path / target.lstrip("/")
            place = place / Path(name).name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(REPOSITORY / name, place)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = next((environment / "lib").glob("python*/site-packages"))
    own = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("\n".join(own) + "\n")
    (install,) = [line for line in steps("RUN") if line.endswith('"/source[serve]"')]
    assert fnmatch.fnmatch(install, "pip install * --constraint /source/scripts/constraints.txt *")
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--use-pep517", "--ignore-installed", str(source)], check=True)

    home = tmp_path / "home"
    home.mkdir()
    inside = {**os.environ, "HOME": str(home), "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "NMT_CACHE", "XDG_CACHE_HOME"):
        inside.pop(name, None)
    (compile_engine,) = [line for line in steps("RUN") if "compiled_engine" in line]
    done = subprocess.run(compile_engine, shell=True, cwd=home, env=inside, capture_output=True, text=True, check=True)
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(home)

    model, port = make_exported(tmp_path).file, str(_free_port())
    (entry,), (default,), (check,) = steps("ENTRYPOINT"), steps("CMD"), steps("HEALTHCHECK")
    assert json.loads(default) == ["/model"]
    command = [port if word == "8080" else word for word in json.loads(entry)] + [model]
    process = subprocess.Popen(command, cwd=home, env=inside, stderr=subprocess.PIPE, text=True)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: process.kill() if process.poll() is None else None)
        server = ServerProcess(process)
        server.wait_for("serving .* on (http)")
        health = [word.replace("8080", port) for word in json.loads(check[check.index("[") :])]
        subprocess.run(health, env=inside, check=True)
        server.signal(signal.SIGTERM)
        assert server.ended() == 143
        assert not [line for line in server.said if "compiling" in line]
        assert subprocess.run(health, env=inside, check=False, capture_output=True).returncode != 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
