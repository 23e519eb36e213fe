"""The page of `nmt-report`: systems compared on a test set, in one file that needs no network (extra `report`)."""

from __future__ import annotations

from nmt.report.contents import Sentences, Subject, contents, sentences
from nmt.report.maps import MapSentence, chosen_sentences, packed
from nmt.report.page import page, require_jinja

__all__ = [
    "MapSentence",
    "Sentences",
    "Subject",
    "chosen_sentences",
    "contents",
    "packed",
    "page",
    "require_jinja",
    "sentences",
]
