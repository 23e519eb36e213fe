"""nmt: recurrent neural machine translation with selectable units.

`nmt.load(run)` gives a translator, `nmt.train` and `nmt.evaluate` do what the commands do: docs/library.md. Importing
this package changes nothing and imports no torch; what is used is imported then.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nmt.light import __version__

if TYPE_CHECKING:
    from nmt import layers as layers
    from nmt.data.sentences import split_sentences as split_sentences
    from nmt.errors import CheckpointError as CheckpointError
    from nmt.errors import ConfigError as ConfigError
    from nmt.errors import DataError as DataError
    from nmt.errors import NmtError as NmtError
    from nmt.library.evaluation import Evaluation as Evaluation
    from nmt.library.evaluation import evaluate as evaluate
    from nmt.library.loading import load as load
    from nmt.library.training import Training as Training
    from nmt.library.training import train as train
    from nmt.library.translator import Translator as Translator
    from nmt.library.values import Hypothesis as Hypothesis
    from nmt.library.values import Inspection as Inspection
    from nmt.library.values import PairScore as PairScore
    from nmt.library.values import Request as Request
    from nmt.library.values import Result as Result
    from nmt.library.values import UnitTrace as UnitTrace
    from nmt.light.binding import Stop as Stop
    from nmt.light.errors import StoppedError as StoppedError
    from nmt.synthetic.library import SyntheticText as SyntheticText
    from nmt.synthetic.library import backtranslate as backtranslate
    from nmt.synthetic.library import distill as distill

_PLACES = {
    "nmt.data.sentences": ("split_sentences",),
    "nmt.errors": ("CheckpointError", "ConfigError", "DataError", "NmtError"),
    "nmt.library.evaluation": ("Evaluation", "evaluate"),
    "nmt.library.loading": ("load",),
    "nmt.synthetic.library": ("SyntheticText", "backtranslate", "distill"),
    "nmt.library.training": ("Training", "train"),
    "nmt.library.translator": ("Translator",),
    "nmt.library.values": ("Hypothesis", "Inspection", "PairScore", "Request", "Result", "UnitTrace"),
    "nmt.light.binding": ("Stop",),
    "nmt.light.errors": ("StoppedError",),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}

_MODULES = ("layers",)

__all__ = ["__version__", *_PLACE_OF]


def __getattr__(name: str) -> Any:
    """Import what is used for the first time."""
    if name in _MODULES:
        return importlib.import_module(f"nmt.{name}")
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'nmt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACE_OF, *_MODULES})
