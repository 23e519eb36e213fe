"""A metric that looks at the sources, by a package of its own (plugins.md)."""

from comet import download_model, load_from_checkpoint

from nmt.evaluation import Metric, Score
from nmt.registry import METRICS


@METRICS.register("my_comet")
class Comet(Metric):
    name, needs_sources = "my_comet", True

    def compute(self, hypotheses, references, *, sources):
        model = load_from_checkpoint(download_model("Unbabel/wmt22-comet-da"))
        rows = [{"src": s, "mt": h, "ref": r} for s, h, r in zip(sources, hypotheses, references[0], strict=True)]
        found = model.predict(rows, batch_size=16, gpus=0)
        return Score("COMET", found.system_score, "model:wmt22-comet-da", True, segments=found.scores)
