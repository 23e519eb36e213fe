"""The model behind a server, from loading to the last answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nmt import __version__
from nmt.library.request import Request
from nmt.library.results import Result
from nmt.library.translator import Translator
from nmt.light.formats import hypothesis_record
from nmt.serving.batching import Batcher, Job
from nmt.serving.metrics import Metrics
from nmt.serving.refusal import RefusedError
from nmt.serving.settings import Settings

WARM_UP = "A"
"""Translated before the first request, so that no request waits for work that is done only once."""
SOON = {"Retry-After": "5"}
"""The error of a server that is starting or ending."""


class Service:
    """Loading, then ready, then draining: no new request is accepted, and all that have been are answered."""

    def __init__(self, settings: Settings, *, name: str, doors: Sequence[str] = ("run",)) -> None:
        """`name` is the model's name for clients; `doors`: what it is, in words of `nmt.light.options.DOORS`."""
        self.settings = settings
        self.doors = tuple(doors)
        self._name = name
        self.metrics = Metrics()
        self.status: Literal["loading", "ready", "draining"] = "loading"
        self.draining = asyncio.Event()
        """Set when `status` becomes `draining`."""
        self._translator: Translator | None = None
        self._batcher: Batcher | None = None
        self._defaults: dict[str, Any] = {}

    def start(self, translator: Translator, defaults: Mapping[str, Any]) -> None:
        """Accept requests, in the running event loop; `defaults`: the default options of requests."""
        self._translator, self._defaults = translator, dict(defaults)
        self._batcher = Batcher(
            self._compute,
            batch_size=self.settings.batch_size,
            max_wait=self.settings.max_wait,
            max_queue=self.settings.max_queue,
            metrics=self.metrics,
        )
        if self.status == "loading":
            self.status = "ready"

    async def drain(self) -> None:
        """Accept nothing more, and wait until all that has been accepted is answered."""
        self.status = "draining"
        self.draining.set()
        if self._batcher is not None:
            await self._batcher.idle()

    def close(self) -> None:
        """Give the memory back."""
        if self._batcher is not None:
            self._batcher.close()
        if self._translator is not None:
            self._translator.close()

    def submit(self, wanted: Any) -> Job:
        """Put a `TranslateRequest` into the queue; RefusedError where it is full, or where nothing is accepted."""
        if self._batcher is None or self.status != "ready":
            raise RefusedError(503, f"the server is {self.status}. Try again later.", headers=SOON)
        options, defaults = wanted.options(), dict(self._defaults)
        if options.get("search", defaults.get("search")) != defaults.get("search"):
            defaults.pop("search_options", None)  # they are for the other search
        return self._batcher.submit(wanted.sentences(), {**defaults, **options})

    def drop(self, job: Job) -> None:
        """Drop a job whose client has gone."""
        if self._batcher is not None:
            self._batcher.drop(job)

    def health(self) -> dict[str, str | int]:
        """The answer to GET /health."""
        found: dict[str, str | int] = {
            "status": self.status,
            "version": __version__,
            "max_beam_size": self.settings.max_beam_size,
        }
        if self._translator is not None:
            found |= {
                "model": self._name,
                "source_language": self._translator.source_language,
                "target_language": self._translator.target_language,
                "device": self._translator.device,
                "precision": self._translator.precision,
                "kernels": self._translator.kernels,
            }
        return found

    def _compute(self, sentences: Sequence[Request], options: Mapping[str, Any]) -> list[str]:
        """The answers, as JSON; slow work is done here, in the computing thread."""
        assert self._translator is not None
        with_n_best = "n_best" in options
        results = self._translator.translate(sentences, **options)
        return [_as_json(result, with_n_best=with_n_best) for result in results]


def _as_json(result: Result, *, with_n_best: bool) -> str:
    """`SentenceAnswer`, without what was not asked for."""
    record = hypothesis_record(result.best)
    if with_n_best:
        record["n_best"] = [hypothesis_record(hypothesis) for hypothesis in result.n_best]
    if result.source_pieces is not None:
        record["source_tokens"] = list(result.source_pieces)
    if result.notes:
        record["notes"] = list(result.notes)
    return json.dumps(record, ensure_ascii=False, allow_nan=False)
