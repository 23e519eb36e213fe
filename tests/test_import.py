"""`import nmt` changes nothing and costs nothing; what it offers is there when it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import nmt

HEAVY = ("torch", "numpy", "pydantic", "yaml", "multiprocessing")


def test_importing_it_imports_nothing_heavy_and_leaves_the_environment_alone() -> None:
    program = (
        "import json, os, sys; before = dict(os.environ); import nmt; nmt.load, nmt.ConfigError, nmt.Result; "
        f"print(json.dumps([[m for m in {HEAVY!r} if m in sys.modules], before == dict(os.environ)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True]


def test_every_name_is_there() -> None:
    assert set(nmt.__all__) <= set(dir(nmt))
    for name in nmt.__all__:
        assert getattr(nmt, name) is not None
    assert issubclass(nmt.ConfigError, nmt.NmtError)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nmt' has no attribute 'laod'"):
        nmt.laod  # noqa: B018
