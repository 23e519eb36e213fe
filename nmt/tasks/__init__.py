"""The task of translation; importing this registers it. Other tasks are packages of their own (`nmt.registry`)."""

from nmt.tasks.translation import Translation

__all__ = ["Translation"]
