"""Translates with model files of nmt's engine; needs neither PyTorch nor anything else of nmt.

    import nmt_light
    print(nmt_light.Translator("model.nmt").translate("A dog runs.").text)

Within nmt this package is `nmt.light`, which `nmt.load` uses for files that end in .nmt.
"""

from __future__ import annotations

from .errors import EngineError
from .results import Hypothesis, Result
from .translator import Translator

__all__ = ["EngineError", "Hypothesis", "Result", "Translator"]
