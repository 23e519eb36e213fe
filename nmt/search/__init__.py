"""Search: from a source in ids to its best translations, from text to text, and scores of given translations."""

from typing import TYPE_CHECKING

from nmt.lazily import members

if TYPE_CHECKING:
    from nmt.search.base import Search as Search
    from nmt.search.values import Hypothesis as Hypothesis
else:
    __getattr__ = members(__name__, {"base": ("Search",), "values": ("Hypothesis",)})

__all__ = ["Hypothesis", "Search"]
