"""Whether operations run for their values, or are traced into a graph."""

from __future__ import annotations

import torch


def traced() -> bool:
    """Whether torch.jit.trace, torch.export or torch.compile is tracing.

    Code that they cannot see, such as a C kernel, must not run then, and control flow must not depend on values.
    """
    return torch.jit.is_tracing() or torch.compiler.is_compiling()  # type: ignore[attr-defined]
