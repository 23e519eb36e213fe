"""A whole training run in its directory: begin or resume, train, report."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from nmt.config import dump, load_saved
from nmt.config.schema import Config
from nmt.cpus import available_cores
from nmt.data import PreparedData, check_files, prepare
from nmt.errors import DataError, NmtError
from nmt.interop import run_layout
from nmt.models import parameters_by_part
from nmt.training.checkpoint import Loaded
from nmt.training.logs import RunLog
from nmt.training.run_dir import Change, check_resumable, locked, move_aside
from nmt.training.setup import build_checkpoints, build_ranking, build_trainer
from nmt.training.state import Progress
from nmt.training.stopping import Ending, Limits
from nmt.training.testing import score_test_text, test_output
from nmt.training.trainer import Trainer


def run_training(config: Config, *, device: torch.device, limits: Limits, overwrite: bool = False) -> int:
    """Train in `config.run_dir`, or go on with what is there; return the exit code.

    With `overwrite` what is there is moved aside first.

    Raises:
        ConfigError: the run there has another model or order of data.
        DataError: texts that cannot be used.
        CheckpointError: a directory that cannot be used or written, or another process trains in it.
    """
    run = Path(config.run_dir)
    log = RunLog(run, tensorboard=config.training.tensorboard)
    if overwrite:
        check_files(config.data)  # a wrong path should not move anything
    moved = move_aside(run) if overwrite else None
    try:
        with locked(run):
            if moved is not None:
                log.say(f"the run that was here is now {moved}")
            changes = _accepted_changes(config, run)
            loaded = build_checkpoints(config, run).load_newest(warn=log.say)
            finished = _finished(config, loaded, limits)
            if finished is not None:
                log.say(f"{run}: nothing to do, this run is finished: {finished}")
                return 0
            data = prepare(config, run)
            trainer = build_trainer(config, data, run=run, device=device, log=log, limits=limits)
            _begin(config, trainer, data, loaded=loaded, changes=changes)
            ending = trainer.train()
            return _end(config, trainer, data, ending)
    except torch.OutOfMemoryError as error:
        advice = "lower training.batch_tokens or batch_sentences, and raise training.accumulate for it"
        raise NmtError(f"out of GPU memory; {advice}") from error
    finally:
        log.close()


def _accepted_changes(config: Config, run: Path) -> list[Change]:
    """What differs from the run that is there; nothing where there is none or it has no checkpoint yet."""
    saved = run / run_layout.CONFIG
    if not saved.is_file() or not run_layout.checkpoint_steps(run):
        return []
    return check_resumable(load_saved(saved, config.plugins), config, run=run)


def _finished(config: Config, loaded: Loaded | None, limits: Limits) -> str | None:
    """The goal that a saved run has already reached; found without reading the data."""
    if loaded is None:
        return None
    progress, ranking = Progress(), build_ranking(config)
    progress.load_state_dict(loaded.state["progress"])
    ranking.load_state_dict(loaded.state["ranking"])
    ending = limits.reached(progress, ranking)
    validates = config.data.dev is not None or config.data.generator != "none"
    if ending is None or not ending.finished or (validates and progress.validated_step != progress.step):
        return None
    has_test = config.data.test is not None or config.data.generator != "none"
    if has_test and not test_output(config).is_file():
        return None  # interrupted while it was being translated, or asked for only now
    return ending.reason


def _begin(
    config: Config, trainer: Trainer, data: PreparedData, *, loaded: Loaded | None, changes: list[Change]
) -> None:
    """Take over the checkpoint, save the configuration and say what will be done."""
    log, updater = trainer.log, trainer.updater
    notes = trainer.load(loaded) if loaded is not None else []
    trainer.checkpoints.write_ranking(trainer.ranking)
    undone = log.rewind(trainer.progress.step)
    _write_config(config, trainer.checkpoints.run)
    parameters = sum(weight.numel() for weight in updater.model.parameters())
    model = config.model
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers"
    log.say(f"run {trainer.checkpoints.run} on {_device_name(updater.precision.device)}; {updater.precision}")
    log.say(f"model {model.architecture} {model.cell}, {layers}, {parameters:,} parameters")
    log.say(f"  vocabularies: source {updater.model.source_vocab_size:,}, target {updater.model.target_vocab_size:,}")
    parts = parameters_by_part(updater.model)
    log.say("  " + ", ".join(f"{part} {count:,}" for part, count in parts.items()))
    for line in data.report_lines():
        log.say(line)
    per_epoch = trainer.batches.updates_per_epoch()
    log.say(f"{trainer.limits}; {per_epoch:,} updates an epoch, {trainer.batches.padding_share():.1%} padding")
    for change in changes:
        log.say(f"changed since the last start: {change}")
    if loaded is not None:
        lost = f"; {undone} log lines of later updates are taken out" if undone else ""
        log.say(f"resuming {loaded.path} at epoch {trainer.progress.epochs_done():.2f}{lost}")
    for note in notes:
        log.say(note)
    trainer.record(
        "start",
        {
            "resumed": loaded is not None,
            "parameters": parameters,
            "updates_per_epoch": per_epoch,
            "device": str(updater.precision.device),
            "precision": updater.precision.name,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
    )


def _end(config: Config, trainer: Trainer, data: PreparedData, ending: Ending) -> int:
    """Say how training ended and, unless a signal asked to stop, score the test text."""
    run, log, progress = trainer.checkpoints.run, trainer.log, trainer.progress
    best = trainer.ranking.ranked()
    where = f"{trainer.ranking.metric} was best at update {best[0]}: {trainer.ranking.best:.4f}" if best else ""
    log.say(f"{ending.reason} at update {progress.step}, epoch {progress.epochs_done():.2f}. {where}".rstrip())
    if not ending.finished:
        log.say("the same command resumes this run")
    saved = run_layout.last_step(run) is not None  # a short time limit can be over before the first update
    if ending.exit_code == 0 and saved and data.test_text is not None:
        score_test_text(config, trainer, data.test_text, tokenizer=data.tokenizer)
    if ending.exit_code == 0 and saved:
        log.say(f"translate with: nmt-translate {run}")
    return ending.exit_code


def _write_config(config: Config, run: Path) -> None:
    path = run / run_layout.CONFIG
    temporary = run / f".{run_layout.CONFIG}.{os.getpid()}"
    try:
        temporary.write_text(dump(config), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(f"{path}: cannot be written ({error.strerror})") from error


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' * (threads > 1)} for {available_cores()} cores"
