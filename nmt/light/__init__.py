"""Translates with model files of nmt's engine; needs neither PyTorch nor anything else of nmt.

    import nmt_light
    print(nmt_light.Translator("model.nmt").translate("A dog runs.").text)

Within nmt this package is `nmt.light`, which `nmt.load` uses for files that end in .nmt.
"""

from __future__ import annotations

from .errors import EngineError
from .translator import Translator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .results import Hypothesis, Result

__all__ = ["EngineError", "Hypothesis", "Result", "Translator"]


def __getattr__(name: str) -> object:
    """Import `Hypothesis` and `Result` at their first use: the command nmt-light needs neither."""
    if name not in ("Hypothesis", "Result"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import results

    return getattr(results, name)
