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
    from .results import Hypothesis, Result
    from .translator import Translator

__all__ = ["EngineError", "Hypothesis", "NmtError", "Result", "Stop", "StoppedError", "Translator", "__version__"]


def __getattr__(name: str) -> object:
    """Import a class at its first use: the table of options needs none, the command nmt-light neither result."""
    if name == "Translator":
        # What it needs at its first translation, too: a process that forks during an import hangs in the same import.
        import json  # noqa: F401

        from . import collected  # noqa: F401
        from .translator import Translator

        return Translator
    if name == "Stop":
        from .binding import Stop

        return Stop
    if name not in ("Hypothesis", "Result"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import results

    return getattr(results, name)
