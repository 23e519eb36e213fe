"""What is done when training ends: checkpoints are averaged, the test data is scored."""

from __future__ import annotations

import shutil
from pathlib import Path

from nmt.config.schema import Config
from nmt.errors import CheckpointError
from nmt.files.whole import is_file, is_there
from nmt.interop import run_layout
from nmt.interop.weights_file import DamagedError, read_metadata, read_weights
from nmt.training.average import average_checkpoints
from nmt.training.checkpoint_files import read_checkpoint
from nmt.training.logs import EVENTS, read_events
from nmt.training.task import Prepared, Task
from nmt.training.trainer import Trainer

AVERAGE = "average"
MAKER = {"made_by": "nmt-train"}
"""Metadata of an average that the next end of the run may replace."""


def is_done(task: Task, *, step: int) -> bool:
    """Whether all results of the end of training exist and belong to `step`, not to an earlier end."""
    run, averages = Path(task.config.run_dir), task.config.training.average_last
    events = [event for event in read_events(run) if event["step"] == step] if is_file(run / EVENTS) else []
    if averages and not any(event["event"] == AVERAGE and event["average_last"] == averages for event in events):
        return False
    files = [run / AVERAGE / run_layout.WEIGHTS] if averages else []
    if task.tests:
        files += test_outputs(task)
    scored = sum(event["event"] == "test" for event in events)
    return all(is_file(file) for file in files) and (not task.tests or scored >= (2 if averages else 1))


def test_outputs(task: Task) -> list[Path]:
    """The files written for the test data; each appears only when it is complete."""
    outputs = [task.test_output(), *([task.test_output(average=True)] if task.config.training.average_last else [])]
    return [output for output in outputs if output is not None]


def check_average(run: Path) -> None:
    """Raise CheckpointError if something else is in the place of this run's average.

    UnreadableError if this cannot be determined at this moment.
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


def finish(task: Task, trainer: Trainer, data: Prepared) -> None:
    """Score the test data, if there is any, with the best checkpoint and, if asked for, the average.

    A translation goes to RUN/test.<target language> and RUN/test.average.<target language>, the average of the
    newest checkpoints to RUN/average. The trainer's model has other weights afterwards. Several processes share the
    work; rank 0 writes.

    Raises:
        CheckpointError: checkpoints cannot be read or averaged.
        DataError: a file cannot be written.
    """
    run, model, world = trainer.checkpoints.run, trainer.updater.model, trainer.world
    if world.is_main:
        for file in test_outputs(task) if task.tests else ():
            file.unlink(missing_ok=True)  # of an earlier end of this run
        trainer.log.withdraw(("test", AVERAGE), step=trainer.progress.step)  # of one that was killed
    step = world.from_main(run_layout.best_step(run) if world.is_main else None)
    assert step is not None, "training has ended, so there is a checkpoint"
    if task.tests:
        model.load_state_dict(read_checkpoint(run_layout.step_dir(run, step)).weights)
        task.score_test(trainer, data, by=f"step-{step}", output=task.test_output())
    if task.config.training.average_last:
        with world.main_first():
            if world.is_main:
                _average(task.config, trainer)
        if task.tests:
            model.load_state_dict(read_weights(run / AVERAGE / run_layout.WEIGHTS))
            task.score_test(trainer, data, by=AVERAGE, output=task.test_output(average=True))


def _average(config: Config, trainer: Trainer) -> None:
    """Make RUN/average again from the newest checkpoints, or from all if there are fewer than requested."""
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
    """Delete an earlier average, and the rest of one left by a killed process."""
    check_average(run)
    doomed = run / f".deleting-{AVERAGE}"
    for leftover in (doomed, *run.glob(f".writing-{AVERAGE}-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    if (run / AVERAGE).exists():
        (run / AVERAGE).rename(doomed)  # a half-deleted one must not look like a foreign directory
        shutil.rmtree(doomed, ignore_errors=True)
