"""The work itself: window by window read, translated, chosen and written, from where it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

from nmt.data.text import windows
from nmt.synthetic.choice import Made, chosen
from nmt.synthetic.output import Output
from nmt.synthetic.record import Progress, Work
from nmt.synthetic.texts import Line

Translate = Callable[[Sequence[str]], Sequence[Made]]
"""What models make of some lines, in order."""
WINDOW = 2000
"""Lines translated and written together; a kill loses at most this many."""


def translate_corpus(
    work: Work,
    output: Output,
    progress: Progress,
    translate: Translate,
    *,
    joined: Callable[[str], str] = str,
    window: int = WINDOW,
    on_window: Callable[[int], object] = lambda lines: None,
) -> None:
    """Do the remaining part of `work`, and keep `progress` up to date.

    Windows begin at the same lines however often the work was interrupted, so the files are the same as without
    interruptions. `joined` joins the subwords of a reference to words, as in translations. `on_window` is called with
    the number of lines of each window. Raises DataError for text or files that cannot be used, and the errors of
    `translate`.
    """
    if not progress.is_whole:
        with output.writing(progress) as writer:
            for lines in _windows(work, progress, size=window):
                on_window(len(lines))
                pairs, counts = [], copy.deepcopy(progress.counts)
                for line, one in zip(lines, translate([line.text for line in lines]), strict=True):
                    own = pairs_of(line, one, work, joined=joined)
                    counts.add(line, one, own)
                    pairs += own
                writer.append(pairs, counts, is_last=counts.lines == work.texts.lines)
    output.finish(progress)


def take_part(work: Work, progress: Progress, translate: Translate, *, window: int = WINDOW) -> None:
    """What `translate_corpus` does, in a process that helps another one and writes nothing."""
    if not progress.is_whole:
        for lines in _windows(work, progress, size=window):
            translate([line.text for line in lines])


def _windows(work: Work, progress: Progress, *, size: int) -> Iterator[list[Line]]:
    return windows(work.texts.read(progress.counts.lines), size=size, length=lambda line: len(line.text))


def pairs_of(line: Line, made: Made, work: Work, *, joined: Callable[[str], str]) -> list[tuple[str, str]]:
    """The pairs that a line becomes: with what was made of it, and with its reference where that is kept."""
    reference = None if line.reference is None or work.nearest is None else joined(line.reference)
    texts = chosen(made, reference, n_best=work.decoding.n_best, nearest=work.nearest)
    pairs = [(line.text, text) for text in texts]
    if work.keep_original and line.reference is not None:
        pairs.append((line.text, line.reference))
    return pairs
