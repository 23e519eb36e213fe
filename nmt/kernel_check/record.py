"""What has been verified on a kind of GPU, kept in a file, since it takes long to find out."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from nmt.files.new import replacing
from nmt.ops.dispatch import triton_version
from nmt.ops.native.cache import BuildError, is_ours, own_directory

PACKAGE = Path(__file__).parents[1]
_PARTS = ("ops", "cells", "models", "kernel_check")
"""What the results depend on."""


class Findings(NamedTuple):
    """What became of each operation."""

    verified: frozenset[str]
    refused: Mapping[str, str]
    """Operations that are wrong here, and how."""

    @property
    def known(self) -> frozenset[str]:
        """All operations that something has been found out about."""
        return self.verified | self.refused.keys()


NOTHING = Findings(frozenset(), {})


def record_file(device: torch.device) -> Path | None:
    """Where the findings of GPUs such as `device` are kept with these versions; None where nothing can be kept."""
    properties = torch.cuda.get_device_properties(device)
    digest = hashlib.sha256()
    versions = (torch.__version__, torch.version.cuda, triton_version(), sys.version_info[:2])
    gpu = (properties.name, properties.major, properties.minor, properties.multi_processor_count)
    digest.update(repr((versions, gpu)).encode())
    for path in sorted(path for part in _PARTS for path in (PACKAGE / part).rglob("*.py")):
        digest.update(path.read_bytes() + b"\0")
    with contextlib.suppress(BuildError):
        return own_directory() / f"gpu-{digest.hexdigest()[:32]}.json"
    return None


def read(path: Path | None) -> Findings:
    """The findings in a file; none where there is no such file of ours or it is damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path and is_ours(path) else {}
        return Findings(frozenset(map(str, kept["verified"])), {str(k): str(v) for k, v in kept["refused"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return NOTHING


def write(path: Path, findings: Findings) -> None:
    """Keep findings; the file is complete or not there, whoever else writes it at the same time."""
    text = json.dumps({"verified": sorted(findings.verified), "refused": dict(findings.refused)}, indent=1)
    with replacing(path, mode=0o600) as stream:
        stream.write(text.encode() + b"\n")


@contextlib.contextmanager
def alone(path: Path | None) -> Iterator[None]:
    """Wait for other processes that find out the same, of which one is enough."""
    if path is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # of a directory that cannot be written to: all of them find out
            fcntl.flock(stack.enter_context(path.with_suffix(".lock").open("w")), fcntl.LOCK_EX)
        yield
