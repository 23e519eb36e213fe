"""The model behind a server, from loading to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

from nmt import __version__
from nmt.errors import ConfigError, NmtError, printable
from nmt.files import reason
from nmt.library.translator import Translator
from nmt.library.values import Request, Result
from nmt.light.binding import Stop
from nmt.light.formats import hypothesis_record
from nmt.serving import IS_LIGHT, PROGRAM
from nmt.serving.batching import SHORT, Batcher, Job
from nmt.serving.limits import SOON, RefusedError, Settings, count, is_surely_short
from nmt.serving.metrics import Metrics
from nmt.serving.requests import keys_of

WARM_UP = "A"
"""Translated before the first request, into the first language that there is, so that no request waits for work that is
done only once."""
COUNTED_AT_ONCE = 2000
"""Characters whose tokens are counted in the event loop; those of more in a thread."""
LIVE_THREADS: Final = 2
KNOWN = 256
"""Sets of options whose number of hypotheses is kept."""
FACTS: Final = ("source_language", "target_language", "device", "precision", "kernels")
"""Of a translator, that clients are told."""

Load = Callable[[], tuple[Translator, Mapping[str, Any]]]
"""Loads a model; returns it and the default options of requests."""

_log = logging.getLogger("nmt.serving.status")


class _Model:
    """A model that answers requests, with its queue."""

    def __init__(
        self, translator: Translator, defaults: Mapping[str, Any], service: Service, *, facts: dict[str, str]
    ) -> None:
        self.translator = translator
        self.defaults = dict(defaults)
        self.facts = facts
        self._known: dict[str, int] = {}
        self.hypotheses(self.defaults)
        compute = functools.partial(_compute, translator)
        self.batcher = Batcher(compute, service.settings, metrics=service.metrics, nice="file" in service.doors)

    def known(self, options: Mapping[str, Any]) -> int | None:
        """What `hypotheses` has found before."""
        return self._known.get(json.dumps(options, sort_keys=True))

    def hypotheses(self, options: Mapping[str, Any]) -> int:
        """Hypotheses of a sentence in a search with such options, kept for some of them."""
        if len(self._known) >= KNOWN:
            self._known.clear()
        found = max(1, self.translator.hypotheses(**options))
        self._known[json.dumps(options, sort_keys=True)] = found
        return found


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
        self._models: list[_Model] = []
        """The last one gets new requests; those before it finish theirs."""
        self._load: Load | None = None
        self.exchange = asyncio.Lock()
        """Held while another model is being loaded."""
        self._retiring: set[asyncio.Task[None]] = set()
        self.live_threads = ThreadPoolExecutor(LIVE_THREADS, thread_name_prefix="nmt-serve-live")
        """Where live sessions are computed; no thread is there before one is needed."""
        self._sessions = 0

    def start(self, translator: Translator, defaults: Mapping[str, Any]) -> None:
        """Accept requests, in the running event loop; `defaults`: the default options of requests.

        If there was a model before, new requests go to this one from now on.
        """
        facts = {"model": self._name} | {name: getattr(translator, name) for name in FACTS}
        self._models.append(_Model(translator, defaults, self, facts=facts))
        self.metrics.serves(facts)
        _log.info("kernels: %s", translator.kernels)
        if translator.without_kernels:
            _log.warning("translation is several times slower than possible: %s", translator.without_kernels)
        if self.status == "loading":
            self.status = "ready"

    async def open(self, load: Load) -> None:
        """Load the model in a thread, then accept requests. Errors are those of `load`, which a reload calls again."""
        self._load = load
        self.start(*await asyncio.to_thread(_warm, load))

    async def reload(self) -> None:
        """Load the model again; new requests go to it, and those that the one before has accepted are finished there.

        If it cannot be loaded, or is for other languages, the one before keeps serving; the log and RefusedError
        say why.
        Reloads follow one after the other.
        """
        async with self.exchange:
            self._check_ready()
            assert self._load is not None
            old = self._models[-1]
            try:
                translator, defaults = await asyncio.to_thread(_warm, self._load)
                try:
                    self._check_ready()
                    before, after = ((one.source_language, one.target_language) for one in (old.translator, translator))
                    if before != after:  # clients have been told the languages
                        raise RefusedError(
                            422,
                            f"the model translates from {after[0]} to {after[1]}. Allowed: from {before[0]} to "
                            f"{before[1]}, as before; for other languages start another server.",
                        )
                except RefusedError:
                    await asyncio.to_thread(translator.close)
                    raise
            except Exception as error:
                status, why = _why(error)
                _log.error("not reloaded, the model before keeps serving: %s", why, exc_info=status == 500)
                raise RefusedError(status, f"not reloaded: {why}") from None
            self.start(translator, defaults)
            _log.info("reloaded; new requests go to the new model")

            async def retire() -> None:
                await old.batcher.idle()
                self._models.remove(old)
                old.batcher.close()
                await asyncio.to_thread(old.translator.close)

            task = asyncio.create_task(retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def drain(self) -> None:
        """Accept nothing more, and wait until all that has been accepted is answered."""
        self.status = "draining"
        self.draining.set()
        for model in list(self._models):
            await model.batcher.idle()

    def close(self) -> None:
        """Give the memory back."""
        self.live_threads.shutdown(wait=False)
        while self._models:
            model = self._models.pop()
            model.batcher.close()
            model.translator.close()

    async def submit(self, wanted: Any) -> Job:
        """Put a `TranslateRequest` into the queue.

        RefusedError where it is full, where nothing is accepted, and for a request that costs too much; ConfigError,
        DataError for one that is not possible.
        """
        self._check_ready()
        model = self._models[-1]
        given, defaults = wanted.options(), dict(model.defaults)
        if given.get("search", defaults.get("search")) != defaults.get("search"):
            defaults.pop("search_options", None)  # they are for the other search
        sentences, options = wanted.sentences(), {**defaults, **given}
        with model.batcher.kept():  # options that are new may need more of nmt, whose import takes seconds
            known = model.known(options)
            hypotheses = await asyncio.to_thread(model.hypotheses, options) if known is None else known
        self._check_ready()
        if is_surely_short(sentences, options, most=min(SHORT // hypotheses, self.settings.max_sentence_tokens)):
            return model.batcher.submit(sentences, options, [(len(one.text) + 1) * hypotheses for one in sentences])
        counting = functools.partial(count, model.translator, sentences, options, self.settings, hypotheses=hypotheses)
        if sum(len(sentence.text) for sentence in sentences) <= COUNTED_AT_ONCE:
            costs, options = counting()
            return model.batcher.submit(sentences, options, costs)
        with model.batcher.kept():  # a reload in between does not close it
            costs, options = await asyncio.to_thread(counting)
            self._check_ready()
            return model.batcher.submit(sentences, options, costs)

    def _check_ready(self) -> None:
        if not self._models or self.status != "ready":
            raise RefusedError(503, f"the server is {self.status}. Try again later.", headers=SOON)

    @contextlib.contextmanager
    def a_session(self) -> Iterator[None]:
        """Of live translation; RefusedError where there may be no more, or nothing is accepted."""
        if IS_LIGHT:
            raise RefusedError(404, f"/live: {PROGRAM} has no live translation; nmt-serve has.")
        self._check_ready()
        most = self.settings.max_sessions
        if self._sessions >= most:
            message = f"too many live sessions are open. Allowed: {most:,}. Try again later."
            raise RefusedError(503, message, headers=SOON)
        self._sessions += 1
        self.metrics.sessions.inc()
        try:
            yield
        finally:
            self._sessions -= 1
            self.metrics.sessions.dec()

    def newest(self) -> _Model:
        """The model for new sessions; RefusedError where nothing is accepted."""
        self._check_ready()
        return self._models[-1]

    def drop(self, job: Job) -> None:
        """Drop a job whose client has gone."""
        for model in self._models:
            model.batcher.drop(job)

    def health(self) -> dict[str, Any]:
        """The answer to GET /health."""
        found: dict[str, Any] = {
            "status": self.status,
            "version": __version__,
            "max_beam_size": self.settings.max_beam_size,
            "keys": keys_of(*self.doors),
            "live": not IS_LIGHT,
        }
        for model in self._models[-1:]:
            found |= {**model.facts, "languages": list(model.translator.languages)}
        return found


def _warm(load: Load) -> tuple[Translator, Mapping[str, Any]]:
    """The model, which has translated once: what is wrong with it, or with the options, shows before it is used."""
    translator, defaults = load()
    try:
        config = getattr(translator, "_config", None)  # none of a file for the engine
        if config is not None and config.data.context != "none":  # sentences of several requests share a batch
            raise ConfigError(
                f"data.context: '{config.data.context}' has no place where sentences are translated alone"
            )
        language = {"target_language": translator.languages[0]} if translator.languages else {}
        translator.translate(WARM_UP, **{**language, **defaults})
    except BaseException:
        translator.close()
        raise
    return translator, defaults


def _why(error: Exception) -> tuple[int, str]:
    """Status, and one line: why a model is not used."""
    if isinstance(error, RefusedError):
        return error.status, error.message
    if isinstance(error, OSError):
        return 422, printable(f"{error.filename or 'the model'}: {reason(error)}")
    if isinstance(error, NmtError):
        return 422, printable(" ".join(str(error).split("\n")))
    return 500, f"internal error: {type(error).__name__}"


def _compute(translator: Translator, sentences: Sequence[Request], options: Mapping[str, Any], stop: Stop) -> list[str]:
    """The answers, as JSON; slow work is done here, in the computing thread."""
    with_n_best = "n_best" in options
    results = translator.translate(sentences, stop=stop, **options)
    return [_as_json(result, with_n_best=with_n_best) for result in results]


def _as_json(result: Result, *, with_n_best: bool) -> str:
    """`SentenceAnswer`, without what was not asked for."""
    record = hypothesis_record(result.best)
    if with_n_best:
        record["n_best"] = [hypothesis_record(hypothesis) for hypothesis in result.n_best]
    if result.source_pieces is not None:
        record["source_tokens"] = list(result.source_pieces)
    if result.confidence is not None:
        record["confidence"] = round(result.confidence, 4)
    if result.notes:
        record["notes"] = list(result.notes)
    return json.dumps(record, ensure_ascii=False, allow_nan=False)
