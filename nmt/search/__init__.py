"""Search: from a source in ids to its best translations, from text to text, and scores of given translations."""

from typing import TYPE_CHECKING

from nmt.lazily import members

_PLACES = {"base": ("Search",), "values": ("Hypothesis",)}

__all__ = [name for names in _PLACES.values() for name in names]

if TYPE_CHECKING:
    from nmt.search.base import Search as Search
    from nmt.search.values import Hypothesis as Hypothesis
else:
    __getattr__ = members(__name__, _PLACES)
