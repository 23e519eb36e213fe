"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Final

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

from nmt import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

MODEL: Final = ("model", "source_language", "target_language", "precision", "device", "kernels")
"""Labels that say what is served."""


class Metrics:
    """The metrics of one server; `text` is the answer to GET /metrics."""

    def __init__(self) -> None:
        disable_created_metrics()  # a creation time for each count, which few programs read
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = {"version": __version__, "python": platform.python_version()}
        Gauge("nmt_build_info", "What serves; always 1", [*build], registry=registry).labels(**build).set(1)
        self._model = Gauge("nmt_model_info", "What is served, once it is loaded; always 1", MODEL, registry=registry)
        meaning = "Requests to translate, by HTTP status; 499: the client went away"
        self._requests = Counter("nmt_requests", meaning, ["status"], registry=registry)
        self._of_status: dict[int, Counter] = {}
        meaning = "Seconds from the arrival of a request to translate to its answer, errors included"
        self._latency = Histogram("nmt_request_seconds", meaning, buckets=_SECONDS, registry=registry)
        self._sentences = Counter("nmt_sentences", "Sentences translated", registry=registry)
        meaning = "Sentences translated together"
        self._batches = Histogram("nmt_batch_sentences", meaning, buckets=_SIZES, registry=registry)
        self._computing = Counter("nmt_computing_seconds", "Seconds of translating", registry=registry)
        self.sessions = Gauge("nmt_live_sessions", "Connections for live translation that are open", registry=registry)
        self.queue = Gauge("nmt_queue_sentences", "Sentences that wait to be translated", registry=registry)

    def serves(self, facts: Mapping[str, object]) -> None:
        """State the model that translates from now on: values of the labels MODEL, and others."""
        self._model.clear()
        self._model.labels(**{name: str(facts[name]) for name in MODEL}).set(1)

    def answered(self, status: int, seconds: float) -> None:
        """Count a request to translate."""
        if status not in self._of_status:
            self._of_status[status] = self._requests.labels(str(status))
        self._of_status[status].inc()
        self._latency.observe(seconds)

    def computed(self, sentences: int, seconds: float) -> None:
        """Count a batch."""
        self._sentences.inc(sentences)
        self._batches.observe(sentences)
        self._computing.inc(seconds)

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self._registry)
