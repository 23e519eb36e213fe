"""`nmt-eval --live`: how good live translations are, how far behind their sources, and what they cost."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from nmt.cli.arguments import given
from nmt.cli.common import say
from nmt.cli.lines import LinesBar
from nmt.cli.output import output_stream
from nmt.errors import ConfigError, DataError, counted
from nmt.evaluation import Metric, Score
from nmt.evaluation.report import Result, System, written
from nmt.library.evaluation import measured
from nmt.library.loading import load
from nmt.live.lag import Heard, hear, mean_lag
from nmt.live.settings import Setting, settings
from nmt.registry import LAGS

WHOLE: Final = "whole lines"
"""Each line is translated when all of it has been read, by the model's search."""
LOG: Final = "instances.log"
_SIMULEVAL: Final = "source_type: text\ntarget_type: text\n"
"""Its config.yaml, with which `simuleval --score-only --output FOLDER` reads the log."""
_MEASURES: Final = {
    "AL": "words behind the source|length:reference",
    "LAAL": "words behind the source|length:longer of both",
    "AP": "part of the source read|length:reference",
    "DAL": "words behind the source|length:translation",
}
"""What the numbers of `Lag` are, in the place of a metric's signature."""
_REFUSED: Final = ("baseline", "significance", "robustness")


@LAGS.register("live")
def evaluate(arguments: argparse.Namespace, texts: Sequence[list[str]], metrics: Callable[..., list[Metric]]) -> int:
    """Translate the first of `texts` by each policy of `--live`, compare with the others, and print.

    With `-o FOLDER` also write the log of each in the format of SimulEval. `metrics` makes those of the arguments for a
    language.

    Raises ConfigError for options that do not go together with `--live`, DataError for what cannot be written.
    """
    for name in _REFUSED:
        if getattr(arguments, name):
            raise ConfigError(f"--{name}: does not go together with --live")
    chosen: dict[str, Setting | None] = {one.name: one for text in arguments.live for one in settings(text)}
    search = {name: value for name, value in given(arguments).items() if name not in ("precision", "n_best")}
    source, found = texts[0], []
    (models,) = arguments.systems
    with (
        load(
            models,
            device=arguments.device,
            precision=arguments.precision or "auto",
            checkpoint=arguments.checkpoint,
            plugins=arguments.plugins,
        ) as translator,
        LinesBar(len(source) * (len(chosen) + 1), shown=sys.stderr.isatty()) as bar,
    ):
        references = [list(translator.joined(stream)) for stream in texts[1:]]
        scoring = metrics(arguments, language=translator.target_language)
        for own in filter(None, chosen.values()):  # so that a mistake is told before any work
            translator.live(own.policy, **own.options, **search)
        for name, one in {**chosen, WHOLE: None}.items():
            started = time.perf_counter()
            bar.window(len(source))
            lines = _shown(source, bar)
            if one is None:
                heard = [_whole(translator, line, search) for line in lines]
            else:
                heard = hear(translator, lines, one.policy, **one.options, **search)
                if arguments.output is not None:
                    _write_log(Path(arguments.output, name), heard, references[0], models=models)
            done = f"{name}: {counted(len(source), 'line')} in {time.perf_counter() - started:.1f} s"
            say("nmt-eval", done + _left_out(heard, references[0]))
            found.append(_scored(name, heard, references, scoring, arguments))
    print(written(found, arguments.format or "text"))
    return 0


def _shown(lines: Iterable[str], bar: LinesBar) -> Iterator[str]:
    for line in lines:
        yield line
        bar.batch(1)


def _whole(translator: Any, line: str, search: dict[str, Any]) -> Heard:
    """A line that is translated as a whole."""
    started, words = time.process_time(), len(line.split())
    text = translator.translate(line, **search).text
    spent = 1000 * (time.process_time() - started) / max(1, words)
    return Heard(line, text, (words,) * len(text.split()), spent)


def _scored(
    name: str,
    heard: Sequence[Heard],
    references: Sequence[list[str]],
    metrics: Sequence[Metric],
    arguments: argparse.Namespace,
) -> System:
    """Scores, lag and CPU time of one policy."""
    (scores,) = measured(
        metrics,
        {name: [one.text for one in heard]},
        references,
        baselines={},
        sources=[one.source for one in heard],
        samples=arguments.samples,
        **({} if arguments.seed is None else {"seed": arguments.seed}),
        confidence=arguments.confidence,
        groups=arguments.grouped(references[0]),
    )
    lag = mean_lag(heard, references[0])
    words = [len(one.source.split()) for one in heard]
    cost = sum(one.milliseconds * count for one, count in zip(heard, words, strict=True)) / max(1, sum(words))
    more = [Score(label, value, _MEASURES[label], False) for label, value in zip(_MEASURES, lag, strict=True)]
    more.append(Score("ms", cost, "CPU milliseconds for a word of the source", False))
    return System(name, [*scores.results, *map(Result, more)])


def _left_out(heard: Sequence[Heard], references: Sequence[str]) -> str:
    """What the mean lag has left out."""
    complete = [one.delays and one.source.split() and line.split() for one, line in zip(heard, references, strict=True)]
    count = len(complete) - sum(map(bool, complete))
    left_out = (
        f"; the lag is of the others, as {counted(count, 'line')} had no words in source, translation or reference"
    )
    return left_out if count else ""


def _write_log(folder: Path, heard: Sequence[Heard], references: Sequence[str], *, models: Sequence[str]) -> None:
    """The log of SimulEval, a JSON object for each line, and what it reads beside it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: {os.strerror(error.errno or 0)}") from None
    rows = []
    for index, (one, reference) in enumerate(zip(heard, references, strict=True)):
        words, source = one.text.split(), one.source.split()
        row = {
            "index": index,
            "prediction": " ".join(words),
            "delays": list(one.delays),
            "elapsed": [0] * len(words),  # as SimulEval has it for text
            "prediction_length": len(words),
            "reference": reference,
            "source": " ".join(source),
            "source_length": len(source),
        }
        rows.append(json.dumps(row, ensure_ascii=False) + "\n")
    for name, text in ((LOG, "".join(rows)), ("config.yaml", _SIMULEVAL)):
        with output_stream(str(folder / name), models=models) as stream:
            stream.write(text.encode())
