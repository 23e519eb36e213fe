"""Several processes at one work: what each does, and how they agree."""

from nmt.training.distributed.connect import connected
from nmt.training.distributed.share import Share, interleave
from nmt.training.distributed.world import RankError, World, check_same

__all__ = ["RankError", "Share", "World", "check_same", "connected", "interleave"]
