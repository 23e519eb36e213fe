"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics of one server; `text` is the answer to GET /metrics."""

    def __init__(self) -> None:
        disable_created_metrics()  # a creation time for each count, which few programs read
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "nmt_requests",
            "Requests to translate, by HTTP status; 499: the client went away",
            ["status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "nmt_request_seconds",
            "Seconds from the arrival of a request to translate to its answer, errors included",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._sentences = Counter("nmt_sentences", "Sentences translated", registry=self._registry)
        self._batches = Histogram(
            "nmt_batch_sentences", "Sentences translated together", buckets=_SIZES, registry=self._registry
        )
        self._computing = Counter("nmt_computing_seconds", "Seconds of translating", registry=self._registry)
        self.queue = Gauge("nmt_queue_sentences", "Sentences that wait to be translated", registry=self._registry)

    def answered(self, status: int, seconds: float) -> None:
        """Count a request to translate."""
        self._requests.labels(str(status)).inc()
        self._latency.observe(seconds)

    def computed(self, sentences: int, seconds: float) -> None:
        """Count a batch."""
        self._sentences.inc(sentences)
        self._batches.observe(sentences)
        self._computing.inc(seconds)

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self._registry)
