"""Largest numbers that a configuration or a command line may hold: far above any use, and arithmetic carries them.

Those of a search are in `nmt.light.options`.
"""

from __future__ import annotations

from typing import Final

from nmt.light.options import MOST as MOST  # of what is only counted: updates, epochs, sentences, files

WIDEST: Final = 2**20
"""Width of states and embeddings."""
DEEPEST: Final = 1000
"""Layers."""
MOST_WORKERS: Final = 10_000
"""Processes."""
HIGHEST_RATE: Final = 1e6
"""Learning rate: with any weight decay still a number of 32 bits."""
LARGEST: Final = 1e30
"""Other numbers with a fraction, which 32 bits must carry."""
MOST_MINUTES: Final = 10**7
"""Of a time limit: 19 years."""
