"""Fresh memory is poisoned, and the number of threads is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN, so that what a kernel should have written and did not is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def _threads() -> Iterator[None]:
    """What a test sets with torch.set_num_threads does not last."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
