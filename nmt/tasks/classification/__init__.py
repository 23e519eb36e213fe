"""Labels of texts, and of pairs of texts."""

from nmt.tasks.classification.task import Classification

__all__ = ["Classification"]
