"""Translates with model files of nmt's engine; needs neither PyTorch nor anything else of nmt.

    import nmt_light
    print(nmt_light.Translator("model.nmt").translate("A dog runs.").text)

Within nmt this package is `nmt.light`, which `nmt.load` uses for files that end in .nmt. `options` is the table of the
options of all of nmt.
"""

from __future__ import annotations

from .errors import EngineError, NmtError, StoppedError

__version__ = "0.4.0.dev0"
"""Of all of nmt."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .binding import Stop
    from .results import Hypothesis, Request, Result
    from .translator import Translator

__all__ = [
    "EngineError",
    "Hypothesis",
    "NmtError",
    "Request",
    "Result",
    "Stop",
    "StoppedError",
    "Translator",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Import the classes at the first use of one: the table of options needs none, the command nmt-light no results."""
    if name not in ("Hypothesis", "Request", "Result", "Stop", "Translator"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What a first translation needs, too: a process that forks during an import hangs in the same import.
    import json  # noqa: F401

    from . import binding, results, translator

    homes = {"Stop": binding, "Translator": translator}
    return getattr(homes.get(name, results), name)
