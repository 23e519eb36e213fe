"""The environment a benchmark was called in; imported before nmt.cli, which sets variables for itself."""

from __future__ import annotations

import os

ENVIRONMENT = dict(os.environ)
