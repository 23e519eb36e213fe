"""Largest numbers that a configuration or a command line may hold: far above any use, and arithmetic carries them."""

from __future__ import annotations

from typing import Final

MOST: Final = 10**15
"""Of what is only counted: updates, epochs, sentences, files. A thousand times as many still fit 64 bits."""
WIDEST: Final = 2**20
"""Width of states and embeddings."""
DEEPEST: Final = 1000
"""Layers."""
MOST_WORKERS: Final = 10_000
"""Processes."""
WIDEST_BEAM: Final = 10_000
"""Hypotheses of a sentence."""
LONGEST_OFFSET: Final = 10**6
"""Tokens a translation may have more than its source."""
STRONGEST_PENALTY: Final = 10.0
"""alpha in ((5 + length) / 6) ** alpha; scores of long sentences underflow far above it."""
HIGHEST_RATE: Final = 1e6
"""Learning rate: with any weight decay still a number of 32 bits."""
LARGEST: Final = 1e30
"""Other numbers with a fraction, which 32 bits must carry."""
MOST_MINUTES: Final = 10**7
"""Of a time limit: 19 years."""
