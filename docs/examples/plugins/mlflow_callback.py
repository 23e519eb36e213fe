"""A callback that sends a run to MLflow (plugins.md)."""

from dataclasses import asdict

import mlflow

from nmt.registry import CALLBACKS
from nmt.training.callbacks import Callback


@CALLBACKS.register("mlflow")
class Mlflow(Callback):
    id = None  # of the record there, which a resumed run continues

    def on_start(self, start):
        self.id = mlflow.start_run(run_id=self.id, run_name=start.run.name).info.run_id
        mlflow.log_dict(asdict(start.config), "config.json")

    def on_update(self, update):
        mlflow.log_metrics({"train/loss": update.loss, "train/lr": update.lr}, step=update.step)

    def on_validation(self, validation):
        scores = {f"dev/{name.replace('+', 'p').replace('@', '/')}": value for name, value in validation.scores.items()}
        mlflow.log_metrics(scores, step=validation.step)
        mlflow.log_dict(list(validation.samples), f"samples/{validation.step}.json")

    def on_end(self, end):
        mlflow.end_run()

    def state_dict(self):
        return {"id": self.id}

    def load_state_dict(self, state):
        self.id = state["id"]
