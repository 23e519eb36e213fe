"""Labels of words, and words in text without spaces, which are labels of its characters."""

from nmt.tasks.tagging.task import Segmentation, Tagging

__all__ = ["Segmentation", "Tagging"]
