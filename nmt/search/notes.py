"""Notes about a translation, by their names in commands and library."""

from __future__ import annotations

from nmt.search.translation import Translation

SPLIT = "split"
SEVERAL = "several_sentences"
NOT_FINITE = "no_finite_translation"
AT_LIMIT = "length_limit"
LONGER = "longer_than_training"
MISSING = "required_missing"


def notes_of(translation: Translation, *, longest: int) -> list[str]:
    """The notes of one line; `longest` are the tokens of the longest source that the model was trained on."""
    found = (
        (SPLIT, translation.parts > translation.sentences),
        (SEVERAL, translation.several),
        (NOT_FINITE, not translation.is_finite),
        (AT_LIMIT, not translation.has_ended),
        (LONGER, translation.longest_part > longest),
        (MISSING, translation.missing > 0),
    )
    return [name for name, is_so in found if is_so]
