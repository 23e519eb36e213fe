"""The environment in which a benchmark was called; imported before nmt.cli, which sets variables."""

from __future__ import annotations

import os

ENVIRONMENT = dict(os.environ)
