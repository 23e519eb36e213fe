"""Lists of checksums: what is read is what was written, and nothing else is taken for a list."""

from __future__ import annotations

import pytest

from nmt.files.sums import read_sums, sums_text

DIGEST = "0123456789abcdef" * 4


def test_names_are_read_as_they_were_written() -> None:
    sums = {"model.safetensors": DIGEST, "a name  with spaces": DIGEST[::-1]}
    assert read_sums(sums_text(sums)) == sums


@pytest.mark.parametrize("content", [b"", b"\n", f"{DIGEST[:-1]}  file\n".encode(), f"{DIGEST} file\n".encode()])
def test_what_is_no_list_is_none(content: bytes) -> None:
    assert read_sums(content) is None
