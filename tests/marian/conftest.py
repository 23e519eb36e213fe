"""The golden models of Marian and OPUS-MT beside the checkout, and small files made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SHARED

GOLDEN = SHARED / "marian"


def golden(name: str) -> Path:
    """A folder of golden files; skips where they are absent."""
    if not (GOLDEN / name).is_dir():
        pytest.skip(f"the golden models are not here: shared/marian/{name} is missing beside the checkout")
    return GOLDEN / name


@pytest.fixture
def ssru() -> Path:
    """A student as Firefox ships them."""
    return golden("ssru")


@pytest.fixture
def opus_mt() -> Path:
    """A MarianMT folder of transformers."""
    return golden("opus_mt")
