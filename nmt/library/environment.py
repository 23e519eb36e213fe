"""The commands' settings before and after the import of torch, if the program has not imported it yet."""

from __future__ import annotations

import sys

from nmt.environment import keep_more_kernels, prepare_environment


def before_torch() -> None:
    """Set environment variables and import torch; if torch is already imported, change nothing."""
    if "torch" in sys.modules:
        return
    prepare_environment()
    keep_more_kernels()
    from nmt.training.allocator import keep_large_blocks

    keep_large_blocks()
