"""COMET (Rei et al., EMNLP 2020) and CometKiwi (Rei et al., WMT 2022) by the package unbabel-comet, the extra `comet`.

The package is imported when a metric scores, and its models are read once in a process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from nmt.data.tokenizer import LANGUAGE
from nmt.errors import ConfigError, DataError, missing
from nmt.evaluation.metrics import Metric, Score, check_streams
from nmt.registry import METRICS

PACKAGE: Final = "unbabel-comet"
_CHECKPOINT: Final = Path("checkpoints", "model.ckpt")
"""Of a model's folder."""
_SETTINGS: Final = "hparams.yaml"


class _Comet(Metric):
    """Mean of the scores of the sentences, in percent; a sentence has about 0 to 100."""

    needs_sources = True
    label: ClassVar[str]
    usual: ClassVar[str]
    """The model, unless another is chosen."""
    reads_reference: ClassVar[bool]

    @dataclass(frozen=True, kw_only=True)
    class Options:
        model: str | None = None
        """Name of a model on Hugging Face, fetched at its first use, or path of a folder or checkpoint:
        [evaluation.md](evaluation.md#metrics)."""
        batch_size: int = 16
        """Sentences at a time."""

        def __post_init__(self) -> None:
            if self.batch_size < 1:
                raise ValueError(f"batch_size: must be 1 or more, not {self.batch_size}")

    def __init__(self, *, options: Any = None) -> None:
        super().__init__(options=options)
        if importlib.util.find_spec("comet") is None:
            advice = "pip install 'nmt-recurrent[comet]', in an environment of its own, as it needs numpy 1"
            raise ConfigError(f"the package {PACKAGE} is not installed; {advice}")
        self.model = self.options.model or self.usual
        if os.path.exists(self.model):
            _checkpoint(self.model)  # so that a mistake is told before anything is translated

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, sources: Sequence[str] = ()
    ) -> Score:
        check_streams(hypotheses, references)
        read = [line[tag.end() :] if (tag := LANGUAGE.match(line)) else line for line in sources]
        texts: dict[str, Sequence[str]] = {"src": read, "mt": hypotheses}
        if self.reads_reference:
            if len(references) != 1:
                raise DataError(f"{self.name}: compares with one reference; {len(references)} are given")
            texts["ref"] = references[0]
        import torch

        network = _network(self.model)
        with _quiet():
            found = network.predict(
                [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)],
                batch_size=self.options.batch_size,
                gpus=int(torch.cuda.is_available()),
                num_workers=0,
                progress_bar=False,
            )
        segments = [100 * float(score) for score in found.scores]
        signature = f"model:{self.model}|version:{importlib.metadata.version(PACKAGE)}"
        return Score(self.label, sum(segments) / len(segments), signature, True, segments=segments)


@METRICS.register("comet")
class Comet(_Comet):
    """COMET: how good a translation is, given its source and one reference."""

    name, label, usual = "comet", "COMET", "Unbabel/wmt22-comet-da"
    reads_reference = True


@METRICS.register("cometkiwi")
class CometKiwi(_Comet):
    """CometKiwi: how good a translation is, given its source alone; references are not looked at."""

    name, label, usual = "cometkiwi", "CometKiwi", "Unbabel/wmt22-cometkiwi-da"
    reads_reference = False


def _checkpoint(model: str) -> str:
    """The checkpoint of a path; ConfigError for a folder that has none."""
    path = Path(model)
    file = path / _CHECKPOINT if path.is_dir() else path
    folder = file.parent.parent
    for wanted in (file, folder / _SETTINGS):
        if not wanted.is_file():
            raise ConfigError(f"model: {missing(wanted)}; a model of COMET is a folder with {_CHECKPOINT}, {_SETTINGS}")
    return str(file)


@functools.lru_cache(maxsize=2)
def _network(model: str) -> Any:
    with _quiet():
        import comet

        try:
            file = _checkpoint(model) if os.path.exists(model) else comet.download_model(model)
            return comet.load_from_checkpoint(file)
        except ConfigError:
            raise
        except Exception as error:  # of Hugging Face, Lightning or torch, whatever it is
            reason = " ".join(str(error).split())
            raise ConfigError(f"comet: the model {model} cannot be used ({type(error).__name__}: {reason})") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lightning and its friends tell of devices, of versions and of what could be faster."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning", "comet", "transformers")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
