"""Models in this process: loaded once, used by any number of threads, one at a time on each device."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from nmt.config.options import changed_decoding
from nmt.data.sentences import lines_of_all
from nmt.errors import ConfigError
from nmt.interop.device import choose_device
from nmt.interop.model_dir import load_models
from nmt.kernel_check import Purpose, use_verified_kernels
from nmt.library import translator as library
from nmt.library.values import (
    OWN,
    PairScore,
    Request,
    Result,
    chosen_details,
    with_arrays,
)
from nmt.light.binding import Stop
from nmt.light.options import as_keys
from nmt.ops import native
from nmt.ops.dispatch import Selection, own_selection, selection
from nmt.registry import INSPECTORS, RATERS
from nmt.search.ensemble import PreparedModels, ensemble_mean, prepare_models
from nmt.search.reading import score_pairs
from nmt.search.translator import Translator, translator_of

if TYPE_CHECKING:
    from nmt.inspection.values import Inspection


class Turns:
    """Like `threading.Lock` in a `with` statement, but in the order of arrival."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        """One lock for each waiting thread, locked until its turn comes."""

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()
        except BaseException:  # Ctrl-C: stop waiting or, if the turn has just come, pass it on
            with self._guard:
                is_waiting = mine in self._waiting
                if is_waiting:
                    self._waiting.remove(mine)
            if not is_waiting:
                self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False

    def pass_on(self) -> None:
        """Within the `with` block: let each waiting thread go first, once."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


_CALL = " translator"
"""Among the options of a call: what translates its windows."""
MOST_SEARCHES = 16
"""Combinations of options whose searches are kept."""
SCORING_TOKENS = 4096
"""Value of decoding.batch_tokens: auto for scoring, where the logits of all target tokens are in memory at once."""

_turns: dict[torch.device, Turns] = {}
_turns_guard = threading.Lock()


class Engine(library.Translator):
    """The models themselves. Kernels follow the first model's configuration, whatever else the process does."""

    place = "in this process"

    def __init__(
        self, paths: Sequence[str], *, device: str, precision: str, checkpoint: str | int, plugins: Sequence[str]
    ) -> None:
        """Load the models; arguments and errors are those of `nmt.load`."""
        super().__init__()
        place = choose_device(device)
        with own_selection(Selection()):
            self._loaded = load_models(paths, plugins=plugins, device=place, checkpoint=checkpoint)
            self._kernels: dict[Purpose, Selection] = {"search": selection()}
        first = self._loaded[0]
        changes = {} if precision == "auto" else {"precision": precision}
        self._decoding = changed_decoding(first.config.decoding, changes)
        self._networks = [loaded.model for loaded in self._loaded]
        with own_selection(self._kernels["search"]):
            self._prepared: PreparedModels | None = prepare_models(
                self._networks, precision=self._decoding.precision, device=place
            )
        self._longest = min(loaded.longest_source.tokens for loaded in self._loaded)
        self._lines = lines_of_all([loaded.lines for loaded in self._loaded])
        self._config = first.config
        self.models = [loaded.path for loaded in self._loaded]
        self._rater = RATERS.get("fitted")(self.models)
        self.device, self.precision = str(place), self._prepared.precision.name
        self.source_language, self.target_language = (
            first.config.data.source_language,
            first.config.data.target_language,
        )
        self.languages = tuple(first.tokenizer.languages())
        self.kernels, self.without_kernels = _kernels(place, self._kernels["search"])
        self._device = place
        self._translators: dict[str, Translator] = {}
        """Searches by the options that calls have asked for."""
        with _turns_guard:
            self._turns = _turns.setdefault(place, Turns())

    def _results(self, lines: Sequence[str | Request], options: dict[str, Any], stop: Stop | None) -> list[Result]:
        with self._turn("search"):
            if _CALL not in options:  # a document may have sentences in several windows of one call
                options[_CALL] = self._translator(options, stop=stop)
            translator: Translator = options[_CALL]
            details = chosen_details(options) if "details" in options else ()
            own = translator.translate_window(lines, details=self._rater.needs(details))
            return [*map(with_arrays, self._rater.rated([one.result(self._longest) for one in own], details))]

    def _hypotheses(self, options: dict[str, Any]) -> int:
        self._check_usable()
        chosen_details(options)
        with own_selection(self._kernels["search"]):
            return self._translator(options).hypotheses

    def _parts(self, lines: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        self._check_usable()
        with own_selection(self._kernels["search"]):
            return self._translator(options).parts(lines)

    def _scores(self, pairs: Sequence[tuple[str, str]], batch_tokens: int | None) -> list[PairScore]:
        configured = self._decoding.batch_tokens
        with self._turn("scoring"):
            first, *others = self._networks
            found = score_pairs(
                first,
                self._loaded[0].tokenizer,
                pairs,
                batch_tokens=batch_tokens or (SCORING_TOKENS if configured == "auto" else configured),
                others=others,
                mean=ensemble_mean(self._decoding, models=len(self._networks)),
                before_batch=self._turns.pass_on,
            )
            return [*found]

    def _inspection(self, source: str, target: str | None) -> Inspection:
        with self._turn("search"):
            found: Inspection = INSPECTORS.get("translation")(
                self._networks,
                self._loaded[0].tokenizer,
                (source, target),
                search=lambda ids: self._translator({}).search([ids])[0],
                mean=ensemble_mean(self._decoding, models=len(self._networks)),
            )
            return found

    def _network(self) -> tuple[Any, ...] | None:
        if len(self._networks) != 1 or self._prepared is None:
            return None
        return self._prepared.models[0], self._loaded[0].tokenizer, self._computing, self._decoding

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with self._turn("search"):
            assert self._prepared is not None
            with self._prepared.precision.autocast():
                yield

    def joined(self, lines: Sequence[str]) -> list[str]:
        self._check_usable()
        return [self._loaded[0].tokenizer.joined_target(line) for line in lines]

    def close(self) -> None:
        with self._turns:
            self._is_closed = True
            self._loaded, self._networks, self._prepared = [], [], None
            self._translators.clear()

    @contextmanager
    def _turn(self, purpose: Purpose) -> Iterator[None]:
        """Wait for this thread's turn to compute, with the kernels that the models need."""
        self._check_usable()
        with self._turns:
            self._check_usable()  # it may have been closed meanwhile
            if purpose not in self._kernels:
                with own_selection(Selection(self._kernels["search"].choice)):
                    use_verified_kernels(self._networks, device=self._device, purpose=purpose)
                    self._kernels[purpose] = selection()
            with own_selection(self._kernels[purpose]):
                yield

    def _translator(self, options: dict[str, Any], *, stop: Stop | None = None) -> Translator:
        """The search with such options, between whose steps other threads have their turns.

        It is built once, unless it has a glossary, a file that may have changed.
        """
        own = dict(options)
        own.pop("details", None)
        key = library.key_of(own) if own else ""
        translator = self._translators.get(key)
        if translator is None:
            if "precision" in own:
                raise ConfigError("precision: is set once, as in nmt.load(..., precision='int8')")
            own, glossary = library.with_glossary(own)
            scores = own.pop("scores", OWN["scores"])
            taken = as_keys(own)
            decoding = changed_decoding(self._decoding, taken, say=self._say) if taken else self._decoding
            first = self._loaded[0]
            translator = translator_of(self._lines)(
                first.model,
                first.tokenizer,
                decoding,
                scores=scores,
                prepared=self._prepared,
                lines=self._lines,
                glossary=glossary,
            )
            if decoding.glossary is None or glossary is not None:
                if len(self._translators) >= MOST_SEARCHES:
                    self._translators.clear()
                self._translators[key] = translator

        check = None if stop is None else stop.check

        def between() -> None:
            if check is not None:
                check()
            self._turns.pass_on()

        before = self._turns.pass_on if check is None else between
        # On a GPU a batch is one piece of work, as the graphs of its steps keep their states.
        return translator.calling(before_batch=before, before_step=before if self._device.type == "cpu" else check)


def _kernels(device: torch.device, chosen: Selection) -> tuple[str, str]:
    """The code that computes a search, for people, and why it is PyTorch code instead of compiled kernels on a CPU."""
    if device.type != "cpu":
        return f"those checked on {device}", ""
    problem = native.problem() if chosen.choice == "auto" else f"the configuration says kernels: {chosen.choice}"
    return ("C kernels for this processor", "") if problem is None else ("none: PyTorch code", problem)
