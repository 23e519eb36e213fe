"""Training text in windows: consecutive sentences of a document as one pair, an end symbol after each."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import EXAMPLES, EncodedBlock, Encoder, FlatSentences
from nmt.data.text import Block, split_lines
from nmt.registry import CONTEXTS


def window_starts(lines: NDArray[np.int64], *, sentences: int) -> NDArray[np.int64]:
    """Which of the sentences at these lines [N], ascending, begin a window of at most so many: their places [windows].

    A document ends where a line is missing.
    """
    places = np.arange(len(lines))
    begins = np.diff(lines, prepend=-2) != 1
    since = places - np.maximum.accumulate(np.where(begins, places, 0))
    return np.flatnonzero(since % sentences == 0)


@CONTEXTS.register("windows")
class Windows:
    """Encodes blocks of text as another encoder, but with windows of sentences in place of pairs.

    Lines that are blank on both sides divide documents. A pair that the length rule leaves out ends a document, too,
    as the next sentence lacks the one before it. So does the end of a block, some thousand lines.
    """

    def __init__(self, encoder: Encoder, sentences: int) -> None:
        """`sentences`: most of a window."""
        self._encoder, self.sentences = encoder, sentences

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the vocabularies."""
        return self._encoder.sizes

    def __call__(self, block: Block) -> EncodedBlock:
        """The windows of a block; the report counts sentences, and no dividing line among those with an empty side."""
        encoded = self._encoder(block)
        texts = [
            split_lines(text, path, first_line=block.first_line)
            for text, path in zip((block.source, block.target), block.files, strict=True)
        ]
        blank = np.array([not (source.strip() or target.strip()) for source, target in zip(*texts, strict=True)], bool)
        lines = np.flatnonzero(encoded.kept)
        rows = np.flatnonzero(~blank[lines])  # what is kept and no blank line
        starts = window_starts(lines[rows], sentences=self.sentences)

        def joined(side: FlatSentences) -> FlatSentences:
            taken = side.taken(rows)
            return FlatSentences.of(taken.ids, np.diff(np.append(taken.offsets[starts], len(taken.ids))))

        report, gaps = encoded.report, int(blank.sum())
        one_sided = (
            f"{path}, line {block.first_line + place}"
            for place, pair in enumerate(zip(*texts, strict=True))
            for path, text, other in zip(block.files, pair, reversed(pair), strict=True)
            if not text.strip() and other.strip()
        )
        report = replace(
            report,
            empty=report.empty - gaps,
            empty_examples=tuple(islice(one_sided, EXAMPLES)),
            looked_at=max(0, report.looked_at - gaps),
        )
        return encoded._replace(source=joined(encoded.source), target=joined(encoded.target), report=report)
