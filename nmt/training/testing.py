"""Translating and scoring the test text with the best checkpoint, when training ends."""

from __future__ import annotations

from typing import Any

from nmt.config.schema import Config
from nmt.data import ParallelText, Tokenizer
from nmt.interop import run_layout
from nmt.registry import METRICS
from nmt.training.checkpoint import read_checkpoint
from nmt.training.setup import build_translate
from nmt.training.trainer import Trainer


def score_test_text(config: Config, trainer: Trainer, text: ParallelText, *, tokenizer: Tokenizer) -> None:
    """Translate `text` into RUN/test.<target language> with the best checkpoint, and report its scores.

    The trainer's model has that checkpoint's weights afterwards.
    """
    run, log, model = trainer.checkpoints.run, trainer.log, trainer.updater.model
    step = run_layout.best_step(run)
    assert step is not None, "training has ended, so there is a checkpoint"
    model.load_state_dict(read_checkpoint(run_layout.step_dir(run, step)).weights)
    model.eval()
    device = trainer.updater.precision.device
    translate = build_translate(tokenizer, config.decoding, device=device)
    translations = list(translate(model, text.source))
    output = run / f"test.{config.data.target_language}"
    output.write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    fields: dict[str, Any] = {"checkpoint": f"step-{step}", "signatures": {}}
    log.say(f"test text translated with step-{step} into {output}")
    for name in config.evaluation.metrics:
        score = METRICS.get(name)().compute(translations, [text.target])
        fields[name] = score.score
        fields["signatures"][name] = f"{score.name} {score.signature}"
        log.say(f"test {score.name} = {score.score:.2f}  {score.signature}")
    trainer.record("test", fields)
