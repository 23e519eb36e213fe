"""The examples of docs/plugins.md as plugin files, and registries that are as before once a test is over."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from nmt import registry
from nmt.registry import PLUGIN_PREFIX, Registry
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "plugins.md").read_text(encoding="utf-8")
FILES = sorted((REPOSITORY / "docs/examples/plugins").glob("my_*.py"))


def examples(language: str) -> list[str]:
    """The blocks of docs/plugins.md in a language; of Python also the files that it links."""
    files = [path.read_text(encoding="utf-8") for path in FILES] if language == "python" else []
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.M | re.S) + files


def example(name: str) -> str:
    """The Python block or file that registers a component of this name."""
    (found,) = [block for block in examples("python") if f'.register("{name}")' in block]
    return found


def write_example(folder: Path, name: str) -> Path:
    """The same as a plugin in `folder`."""
    path = folder / f"my_{name}.py"
    path.write_text(example(name), encoding="utf-8")
    return path


@contextlib.contextmanager
def registries_restored() -> Iterator[None]:
    """The block begins without plugins, and what they register in it is forgotten after it."""
    members = [found for found in vars(registry).values() if isinstance(found, Registry)]
    for member in members:
        member.fill()
    before = [dict(member._members) for member in members]
    modules = set(sys.modules)
    for member, known in zip(members, before, strict=True):
        for name, component in known.items():
            if component.__module__.startswith(PLUGIN_PREFIX):
                del member._members[name]
    try:
        yield
    finally:
        for member, known in zip(members, before, strict=True):
            member._members.clear()
            member._members.update(known)
        for name in [name for name in sys.modules if name.startswith(PLUGIN_PREFIX) and name not in modules]:
            del sys.modules[name]
