"""A metric (plugins.md)."""

from dataclasses import dataclass

from nmt.evaluation import Metric, Score
from nmt.evaluation.metrics import check_streams
from nmt.registry import METRICS


@METRICS.register("exact")
class Exact(Metric):
    """Share of the translations that are one of the references."""

    name = "exact"
    higher_is_better = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        lowercase: bool = False
        """Ignore case."""

    def compute(self, hypotheses, references):  # references: a stream for each set, as long as the hypotheses
        check_streams(hypotheses, references)
        form = str.lower if self.options.lowercase else str
        rows = zip(hypotheses, zip(*references, strict=True), strict=True)
        hits = sum(form(text) in map(form, right) for text, right in rows)
        signature = f"case:{'lc' if self.options.lowercase else 'mixed'}"
        return Score("exact", 100 * hits / len(hypotheses), signature, self.higher_is_better)
