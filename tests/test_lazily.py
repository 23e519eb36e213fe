"""Packages whose members are imported when they are used: nothing heavy comes with the light ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nmt.data
import nmt.search


def test_members_are_there_and_others_are_an_attribute_error() -> None:
    for package in (nmt.data, nmt.search):
        for name in package.__all__:
            assert getattr(package, name).__class__.__name__ != "module"
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
            package.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_light_members_come_without_torch_and_pydantic() -> None:
    program = (
        "import sys; from nmt.data import read_lines; from nmt.search import Hypothesis; "
        "from nmt.search.values import LONGER; from nmt.interop.run_layout import LongestSource; "
        "print([name for name in ('torch', 'numpy', 'pydantic', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
