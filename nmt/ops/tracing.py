"""Whether operations run for their values, or to be written down in a graph."""

from __future__ import annotations

import torch


def traced() -> bool:
    """Whether torch.jit.trace, torch.export or torch.compile looks on.

    What they cannot see, such as a C kernel, must not run then, and no value may decide what does.
    """
    return torch.jit.is_tracing() or torch.compiler.is_compiling()  # type: ignore[attr-defined]
