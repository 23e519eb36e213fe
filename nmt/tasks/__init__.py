"""The tasks that come with nmt; importing this registers them."""

from nmt.tasks.classification import Classification
from nmt.tasks.language_model import LanguageModelling
from nmt.tasks.tagging import Segmentation, Tagging
from nmt.tasks.translation import Translation

__all__ = ["Classification", "LanguageModelling", "Segmentation", "Tagging", "Translation"]
