"""docs/api.md names all that `import nmt` offers; MkDocs, which scripts/test runs, finds the docstrings."""

from __future__ import annotations

import inspect
import re

import nmt
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/api.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^::: nmt\.(\w+)$", PAGE, flags=re.M)


def test_it_has_each_public_name_once() -> None:
    assert sorted(NAMED) == sorted({*nmt.__all__, "plotting"} - {"__version__"})


def test_each_has_a_docstring() -> None:
    for name in set(NAMED) - {"plotting"}:
        member = getattr(nmt, name)
        assert inspect.getdoc(member), name
        if inspect.isclass(member):
            methods = [value for key, value in vars(member).items() if not key.startswith("_") and callable(value)]
            assert [method.__name__ for method in methods if not inspect.getdoc(method)] == [], name
