"""Training by several processes at once: what each does, and how they agree."""

from nmt.training.distributed.connect import connected
from nmt.training.distributed.share import Share
from nmt.training.distributed.world import RankError, World, check_same

__all__ = ["RankError", "Share", "World", "check_same", "connected"]
