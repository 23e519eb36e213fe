"""SHA256SUMS: the checksums of files in the same folder, as `sha256sum --check` reads them."""

from __future__ import annotations

from collections.abc import Mapping

_DIGITS = 64


def sums_text(sums: Mapping[str, str]) -> bytes:
    """The content of such a file, from the digests by names of files."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()


def read_sums(content: bytes) -> dict[str, str] | None:
    """The digests by names of files; None where the content is no such list."""
    rows = [line.split("  ", 1) for line in content.decode("utf-8", "replace").splitlines()]
    if not rows or any(len(row) != 2 or len(row[0]) != _DIGITS for row in rows):
        return None
    return {name: digest for digest, name in rows}
