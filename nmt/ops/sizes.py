"""Few sizes in place of many: what has been prepared for one of them is there for the next batch."""

from __future__ import annotations


def next_size(count: int, *, an_octave: int) -> int:
    """The smallest of these sizes that is no less than `count`: all up to 2 * an_octave, then an_octave sizes, a power
    of two, from each power of two to the next."""
    unit = 1 << max(0, count.bit_length() - an_octave.bit_length())
    return -(-count // unit) * unit
