"""The model behind a server, from loading to the last answer."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nmt import __version__
from nmt.library.request import Request
from nmt.library.results import Result
from nmt.library.translator import Translator
from nmt.light.binding import Stop
from nmt.light.formats import hypothesis_record
from nmt.serving.batching import SHORT, Batcher, Job
from nmt.serving.budget import count, is_surely_short
from nmt.serving.metrics import Metrics
from nmt.serving.refusal import SOON, RefusedError
from nmt.serving.settings import Settings

WARM_UP = "A"
"""Translated before the first request, so that no request waits for work that is done only once."""
COUNTED_AT_ONCE = 2000
"""Characters whose tokens are counted in the event loop; those of more in a thread."""
KNOWN = 256
"""Sets of options whose number of hypotheses is kept."""


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
        self._known: dict[str, int] = {}

    def start(self, translator: Translator, defaults: Mapping[str, Any]) -> None:
        """Accept requests, in the running event loop; `defaults`: the default options of requests."""
        self._translator, self._defaults = translator, dict(defaults)
        self._batcher = Batcher(
            self._compute,
            batch_size=self.settings.batch_size,
            max_wait=self.settings.max_wait,
            max_queue=self.settings.max_queue,
            metrics=self.metrics,
            nice="file" in self.doors,
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

    async def submit(self, wanted: Any) -> Job:
        """Put a `TranslateRequest` into the queue.

        RefusedError where it is full, where nothing is accepted, and for a request that costs too much; ConfigError,
        DataError for one that is not possible.
        """
        self._check_ready()
        given, defaults = wanted.options(), dict(self._defaults)
        if given.get("search", defaults.get("search")) != defaults.get("search"):
            defaults.pop("search_options", None)  # they are for the other search
        sentences, options = wanted.sentences(), {**defaults, **given}
        hypotheses = self._hypotheses(options)
        if is_surely_short(sentences, options, most=min(SHORT // hypotheses, self.settings.max_sentence_tokens)):
            costs = [(len(sentence.text) + 1) * hypotheses for sentence in sentences]
        else:
            assert self._translator is not None
            counting = functools.partial(
                count, self._translator, sentences, options, self.settings, hypotheses=hypotheses
            )
            few = sum(len(sentence.text) for sentence in sentences) <= COUNTED_AT_ONCE
            costs, options = counting() if few else await asyncio.to_thread(counting)
        return self._check_ready().submit(sentences, options, costs)

    def _check_ready(self) -> Batcher:
        if self._batcher is None or self.status != "ready":
            raise RefusedError(503, f"the server is {self.status}. Try again later.", headers=SOON)
        return self._batcher

    def _hypotheses(self, options: Mapping[str, Any]) -> int:
        """Hypotheses of a sentence in a search with such options, kept for some of them."""
        assert self._translator is not None
        kind = json.dumps(options, sort_keys=True)
        if kind not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[kind] = max(1, self._translator.hypotheses(**options))
        return self._known[kind]

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

    def _compute(self, sentences: Sequence[Request], options: Mapping[str, Any], stop: Stop) -> list[str]:
        """The answers, as JSON; slow work is done here, in the computing thread."""
        assert self._translator is not None
        with_n_best = "n_best" in options
        results = self._translator.translate(sentences, stop=stop, **options)
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
