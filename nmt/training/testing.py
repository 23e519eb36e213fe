"""What is done when training ends: checkpoints are averaged, the test text is translated and scored."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.config.schema import Config
from nmt.data import PreparedData
from nmt.errors import CheckpointError
from nmt.files.whole import is_file, is_there
from nmt.interop import run_layout
from nmt.interop.weights_file import DamagedError, read_metadata, read_weights
from nmt.training.average import average_checkpoints
from nmt.training.checkpoint_files import read_checkpoint
from nmt.training.distributed import interleave
from nmt.training.logs import EVENTS, read_events
from nmt.training.setup import build_metrics, build_translate
from nmt.training.text_file import write_lines
from nmt.training.trainer import Trainer
from nmt.training.validation import Found, counts, noted_lines, problems

AVERAGE = "average"
MAKER = {"made_by": "nmt-train"}
"""Metadata of an average that the next end of the run may replace."""


def is_done(config: Config, *, step: int, has_test: bool) -> bool:
    """Whether all that the end of training makes is there, and of `step`, not of an earlier end."""
    run, averages = Path(config.run_dir), config.training.average_last
    events = [event for event in read_events(run) if event["step"] == step] if is_file(run / EVENTS) else []
    if averages and not any(event["event"] == AVERAGE and event["average_last"] == averages for event in events):
        return False
    files = [run / AVERAGE / run_layout.WEIGHTS] if averages else []
    if has_test:
        files += test_outputs(config)
    scored = sum(event["event"] == "test" for event in events)
    return all(is_file(file) for file in files) and (not has_test or scored >= len(test_outputs(config)))


def test_outputs(config: Config) -> list[Path]:
    """All translations of the test text; each is there only when it is complete."""
    average = [test_output(config, average=True)] if config.training.average_last else []
    return [test_output(config), *average]


def test_output(config: Config, *, average: bool = False) -> Path:
    """Where the translation of the test text by the best checkpoint goes, or that by the average."""
    middle = f".{AVERAGE}" if average else ""
    return Path(config.run_dir) / f"test{middle}.{config.data.target_language}"


def check_average(run: Path) -> None:
    """Raise CheckpointError if something is where the average of this run will be, and the run did not put it there.

    UnreadableError where that cannot be told at this moment.
    """
    folder = run / AVERAGE
    if not is_there(folder):
        return
    file = folder / run_layout.WEIGHTS
    try:
        ours = is_file(file) and MAKER.items() <= read_metadata(file).items()
    except DamagedError:
        ours = False
    if not ours:
        raise CheckpointError(f"{folder}: is in the way of training.average_last; move it away")


def finish(config: Config, trainer: Trainer, data: PreparedData) -> None:
    """Translate and score the test text, if there is one, with the best checkpoint and, if asked for, the average.

    The translations go to RUN/test.<target language> and RUN/test.average.<target language>, the average of the
    newest checkpoints to RUN/average. The trainer's model has other weights afterwards. Several processes share the
    lines; rank 0 writes.

    Raises:
        CheckpointError: checkpoints cannot be read or averaged.
        DataError: a file cannot be written.
    """
    run, model, world = trainer.checkpoints.run, trainer.updater.model, trainer.world
    has_test = data.test_text is not None
    if world.is_main:
        for file in test_outputs(config) if has_test else ():
            file.unlink(missing_ok=True)  # of an earlier end of this run
        trainer.log.withdraw(("test", AVERAGE), step=trainer.progress.step)  # of one that was killed
    step = world.from_main(run_layout.best_step(run) if world.is_main else None)
    assert step is not None, "training has ended, so there is a checkpoint"
    if has_test:
        model.load_state_dict(read_checkpoint(run_layout.step_dir(run, step)).weights)
        _score(config, trainer, data, by=f"step-{step}", output=test_output(config))
    if config.training.average_last:
        with world.main_first():
            if world.is_main:
                _average(config, trainer)
        if has_test:
            model.load_state_dict(read_weights(run / AVERAGE / run_layout.WEIGHTS))
            output = test_output(config, average=True)
            _score(config, trainer, data, by=AVERAGE, output=output)


def _average(config: Config, trainer: Trainer) -> None:
    """Make RUN/average anew from the newest checkpoints, all that there are if they are fewer than asked for."""
    run, wanted = trainer.checkpoints.run, config.training.average_last
    steps = run_layout.checkpoint_steps(run)[-wanted:]
    _remove_average(run)
    folders = [run_layout.step_dir(run, step) for step in steps]
    average_checkpoints(folders, run / AVERAGE, run=run, metadata=MAKER)
    names = [folder.name for folder in folders]
    trainer.record(AVERAGE, {"path": AVERAGE, "average_last": wanted, "checkpoints": names})
    few = f" (training.average_last is {wanted}, but there are no more)" if len(names) < wanted else ""
    trainer.log.say(f"averaged {', '.join(names)} into {run / AVERAGE}{few}")


def _remove_average(run: Path) -> None:
    """Take away an earlier average, and what a killed process left of one."""
    check_average(run)
    doomed = run / f".deleting-{AVERAGE}"
    for leftover in (doomed, *run.glob(f".writing-{AVERAGE}-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    if (run / AVERAGE).exists():
        (run / AVERAGE).rename(doomed)  # half of it must not look like somebody else's
        shutil.rmtree(doomed, ignore_errors=True)


def _score(config: Config, trainer: Trainer, data: PreparedData, *, by: str, output: Path) -> None:
    """Translate the test text with the weights that the model has, called `by`, and report the scores."""
    assert data.test_text is not None
    log, model, world = trainer.log, trainer.updater.model, trainer.world
    model.eval()
    translate = build_translate(data.tokenizer, config.decoding, device=trainer.updater.precision.device)
    lines = data.test_text.source[world.rank :: world.size]
    mine = [Found(found.best, found.is_finite, found.has_ended) for found in translate(model, lines)]
    found: Sequence[Found] = interleave(world.gather(mine))
    if not world.is_main:
        return
    translations = [text for text, _, _ in found]
    not_finite, at_limit = noted_lines(found)
    fields: dict[str, Any] = {"checkpoint": by, "signatures": {}, **counts(not_finite, at_limit)}
    for line in problems(not_finite, at_limit):
        log.say(f"test: {line}")
    for metric in build_metrics(config):
        score = metric.compute(translations, data.test_references)
        fields[metric.name] = score.score
        fields["signatures"][metric.name] = f"{score.name} {score.signature}"
        log.say(f"test {score.name} = {score.score:.2f} with {by}  {score.signature}")
    write_lines(output, translations)
    trainer.record("test", fields)
    log.say(f"test text translated with {by} into {output}")
