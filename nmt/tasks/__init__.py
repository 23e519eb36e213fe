"""The tasks that come with nmt; importing this registers them."""

from nmt.tasks.language_model import LanguageModelling
from nmt.tasks.translation import Translation

__all__ = ["LanguageModelling", "Translation"]
