"""Language models: the next word of a text, given those before."""

from nmt.tasks.language_model.task import LanguageModelling

__all__ = ["LanguageModelling"]
