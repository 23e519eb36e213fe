"""The HTTP server of nmt-serve: requests of many clients, translated in batches.

`scripts/build_light` puts it into the wheel nmt-light, too, where it is `nmt-light-serve`.
"""

from __future__ import annotations

from typing import Final

IS_LIGHT: Final = not __name__.startswith("nmt.")
"""Whether this is the server of nmt-light, which serves files for the engine alone."""
PROGRAM: Final = "nmt-light-serve" if IS_LIGHT else "nmt-serve"
PACKAGE: Final = "nmt-light" if IS_LIGHT else "nmt-recurrent"
"""What is installed by pip."""
