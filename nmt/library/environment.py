"""What the commands do before and after the import of torch, where a program has not imported it yet."""

from __future__ import annotations

import sys

from nmt.environment import keep_more_kernels, prepare_environment


def before_torch() -> None:
    """Set environment variables and import torch, unless the program has done so: then nothing is changed."""
    if "torch" in sys.modules:
        return
    prepare_environment()
    keep_more_kernels()
    from nmt.training.allocator import keep_large_blocks

    keep_large_blocks()
