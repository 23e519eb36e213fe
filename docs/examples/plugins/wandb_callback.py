"""A callback that sends a run to Weights & Biases (plugins.md)."""

from dataclasses import asdict

import wandb

from nmt.registry import CALLBACKS
from nmt.training.callbacks import Callback


@CALLBACKS.register("wandb")
class Wandb(Callback):
    id = None  # of the record there, which a resumed run continues

    def on_start(self, start):
        self.record = wandb.init(
            project="nmt", name=start.run.name, config=asdict(start.config), id=self.id, resume="allow"
        )

    def on_update(self, update):
        self.record.log({"train/loss": update.loss, "train/lr": update.lr}, step=update.step)

    def on_validation(self, validation):
        samples = wandb.Table(
            ["source", "reference", "translation"], [list(sample.values()) for sample in validation.samples]
        )
        scores = {f"dev/{name}": value for name, value in validation.scores.items()}
        self.record.log(scores | {"samples": samples}, step=validation.step)

    def on_end(self, end):
        self.record.finish()

    def state_dict(self):
        return {"id": self.record.id}

    def load_state_dict(self, state):
        self.id = state["id"]
