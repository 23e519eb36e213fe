"""Commands: each parses its arguments, builds what it needs and calls it."""

import os

# Spinning OpenMP threads take the cores of whatever else runs on the machine.
# The setting is read when torch is first imported, so it stands here; a user's own value wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
