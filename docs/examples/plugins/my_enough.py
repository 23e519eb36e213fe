"""A callback (plugins.md)."""

from dataclasses import dataclass

from nmt.registry import CALLBACKS
from nmt.training.callbacks import Callback, StopTraining


@CALLBACKS.register("enough")
class Enough(Callback):
    """Ends training once a score has been good enough several times."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        score: str = "bleu"
        """`loss`, or one of evaluation.metrics."""
        reaches: float = 30.0
        """What is good enough."""
        times: int = 1
        """How often."""

        def __post_init__(self):
            if self.times < 1:
                raise ValueError(f"times: must be 1 or more, not {self.times}")

    def on_start(self, start):
        self.seen = getattr(self, "seen", 0)

    def on_validation(self, validation):
        self.seen += validation.scores[self.options.score] >= self.options.reaches
        if self.seen >= self.options.times:
            raise StopTraining(f"{self.options.score} was good enough {self.seen} times")

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]
