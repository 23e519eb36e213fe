"""The loss of a language model on a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nmt.data.streams import EncodedText, Rows
from nmt.data.text_lines import TextLines
from nmt.models.language_model import LanguageModel, States
from nmt.training.distributed import World, interleave
from nmt.training.validation import (
    LOSS_BATCH_TOKENS,
    Check,
    ScoreValidator,
    batch_losses,
    in_all_processes,
    mean_loss,
    rows_by_length,
)

STEPS = 70
"""Words that are read at once."""


@torch.inference_mode()
def stream_losses(
    model: LanguageModel,
    rows: Rows,
    *,
    device: torch.device,
    check: Check | None = None,
    first: int = 0,
    end: int | None = None,
) -> float:
    """Sum of the negative log-likelihoods, in nats, of rows first..end-1 of a stream."""
    inputs, targets = (torch.from_numpy(side[first:end]).to(device) for side in (rows.inputs, rows.targets))
    states: States | None = None
    total = 0.0
    for start in range(0, rows.length, STEPS):
        if check is not None:
            check()
        words, wanted = inputs[:, start : start + STEPS], targets[:, start : start + STEPS]
        run = model.run(words, states)
        states = run.states
        found = model.losses(run.features, wanted, weights=torch.ones_like(wanted, dtype=torch.float32))
        total += float(found.nll.double().sum())
    return total


@dataclass(frozen=True, kw_only=True)
class StreamValidator(ScoreValidator):
    """The validation text as a stream in some rows, which several processes share."""

    text: EncodedText
    rows: int

    @property
    def key(self) -> str:
        return self.text.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], None]:
        rows = Rows.of(self.text.ids, self.rows)
        cuts = np.linspace(0, len(rows.targets), self.world.size + 1).astype(int).tolist()
        first, end = cuts[self.world.rank], cuts[self.world.rank + 1]

        def mine() -> float:
            if end == first:
                return 0.0
            return stream_losses(model, rows, device=self.device, check=check, first=first, end=end)

        return {"loss": sum(in_all_processes(self.world, mine)) / len(self.text.ids)}, None


@torch.inference_mode()
def line_loss(model: Any, lines: TextLines, *, device: torch.device, world: World, check: Check) -> float:
    """Mean negative log-likelihood of the words of independent lines in nats, with the ends of lines.

    Several processes share the lines, and all get the same result. Raises InterruptedValidationError in all of them
    when `check` raises it in one.
    """
    batches = list(rows_by_length(lines, cells=LOSS_BATCH_TOKENS))[world.rank :: world.size]
    parts = in_all_processes(world, lambda: batch_losses(model, lines, batches, device=device, check=check))
    return mean_loss(interleave(parts))


@dataclass(frozen=True, kw_only=True)
class LineValidator(ScoreValidator):
    """The validation text line by line."""

    text: EncodedText

    @property
    def key(self) -> str:
        return self.text.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], None]:
        loss = line_loss(model, TextLines.of(self.text), device=self.device, world=self.world, check=check)
        return {"loss": loss}, None
