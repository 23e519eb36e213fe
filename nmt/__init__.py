"""nmt: recurrent neural machine translation with selectable units.

`nmt.load(run)` gives a translator, `nmt.train` and `nmt.evaluate` do what the commands do: docs/library.md. Importing
this package changes nothing and imports no torch; what is used is imported then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.lazily import members
from nmt.light import __version__

if TYPE_CHECKING:
    from nmt import layers as layers
    from nmt.data.sentences import split_sentences as split_sentences
    from nmt.errors import CheckpointError as CheckpointError
    from nmt.errors import ConfigError as ConfigError
    from nmt.errors import DataError as DataError
    from nmt.errors import NmtError as NmtError
    from nmt.inspection.values import Inspection as Inspection
    from nmt.inspection.values import UnitTrace as UnitTrace
    from nmt.library.evaluation import Evaluation as Evaluation
    from nmt.library.evaluation import evaluate as evaluate
    from nmt.library.loading import load as load
    from nmt.library.training import Training as Training
    from nmt.library.training import train as train
    from nmt.library.translator import Translator as Translator
    from nmt.library.values import Hypothesis as Hypothesis
    from nmt.library.values import PairScore as PairScore
    from nmt.library.values import Request as Request
    from nmt.library.values import Result as Result
    from nmt.light.binding import Stop as Stop
    from nmt.light.errors import StoppedError as StoppedError
    from nmt.synthetic.library import SyntheticText as SyntheticText
    from nmt.synthetic.library import backtranslate as backtranslate
    from nmt.synthetic.library import distill as distill

_MODULES = {
    "data.sentences": ("split_sentences",),
    "errors": ("CheckpointError", "ConfigError", "DataError", "NmtError"),
    "library.evaluation": ("Evaluation", "evaluate"),
    "library.loading": ("load",),
    "synthetic.library": ("SyntheticText", "backtranslate", "distill"),
    "library.training": ("Training", "train"),
    "library.translator": ("Translator",),
    "library.values": ("Hypothesis", "PairScore", "Request", "Result"),
    "inspection.values": ("Inspection", "UnitTrace"),
    "light.binding": ("Stop",),
    "light.errors": ("StoppedError",),
}
__all__ = ["__version__", *(name for names in _MODULES.values() for name in names)]
__getattr__ = members(__name__, {**_MODULES, "layers": ()})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "layers"})
