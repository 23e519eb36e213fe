"""Models in this process: loaded once, used by any number of threads, one at a time on each device."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import torch
from torch import Tensor

from nmt.config.changed import changed_decoding
from nmt.config.schema import DecodingConfig
from nmt.data import EOS, Tokenizer
from nmt.data.sentences import lines_of_all
from nmt.data.tokenizer import on_one_line
from nmt.errors import ConfigError, DataError, NmtError
from nmt.interop.device import choose_device
from nmt.interop.ensemble import load_models
from nmt.kernel_check import Purpose, use_verified_kernels
from nmt.library.computing import Facts
from nmt.library.values import (
    OWN,
    START,
    WISHES,
    Hypothesis,
    Inspection,
    PairScore,
    Request,
    Result,
    UnitTrace,
    chosen_details,
)
from nmt.light.binding import Stop
from nmt.light.options import as_keys
from nmt.models.base import Seq2Seq
from nmt.models.record import UnitRecord
from nmt.ops import native
from nmt.ops.dispatch import Selection, own_selection, selection
from nmt.search import Translation, Translator, score_pairs
from nmt.search.ensemble import EnsembleMean, ensemble_mean
from nmt.search.prepared import PreparedModels, prepare_models
from nmt.search.reading import inspect_pair, tokens_of
from nmt.search.values import Request as Asked
from nmt.search.values import ScoredText, notes_of


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
        except BaseException:  # Ctrl-C
            self._leave(mine)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hand_over()

    def pass_on(self) -> None:
        """Within the `with` block: let each waiting thread go first, once."""
        if self._waiting:
            self._hand_over()
            self.__enter__()

    def _hand_over(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False

    def _leave(self, mine: threading.Lock) -> None:
        """Stop waiting; if the turn has just come, pass it on."""
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self._hand_over()


LONGEST: Final = 1000
"""Largest number of tokens of a sentence: memory and time grow with its square."""


def inspected(
    models: Sequence[Seq2Seq],
    tokenizer: Tokenizer,
    translator: Translator,
    *,
    source: str,
    target: str | None,
    mean: EnsembleMean,
) -> Inspection:
    """The inner values of `models` for `source` (one line) and `target` (default: the translation by `translator`).

    Raises DataError for a source without tokens, for sentences of more than LONGEST tokens, and if no translation has a
    finite probability.
    """
    ids = _encoded("source", tokenizer.encode_source([source])[0])
    if len(ids) == 1:
        raise DataError("source: is empty; give a sentence")
    if target is None:
        own = _best(translator, ids)
        target = on_one_line(tokenizer.decode_target(own))
    else:
        own = _encoded("target", tokenizer.encode_target([target])[0])
    found = inspect_pair(models, ids, own, mean=mean)
    source_tokens, target_tokens = tuple(tokenizer.source_tokens(ids)), tuple(tokenizer.target_tokens(own))
    read = {"encoder": source_tokens, "decoder": (START, *target_tokens[:-1])}
    return Inspection(
        source,
        target,
        source_tokens,
        target_tokens,
        array(found.log_probs),
        array(found.entropies),
        {name: array(weights) for name, weights in found.attention.items()},
        {name: _trace(unit, read.get(_side(name), ())) for name, unit in found.units.items()},
    )


def _encoded(name: str, ids: Sequence[int]) -> list[int]:
    if len(ids) > LONGEST:
        raise DataError(f"{name}: has {len(ids):,} tokens; at most {LONGEST:,} are allowed")
    return [*ids, EOS]


def _best(translator: Translator, ids: Sequence[int]) -> list[int]:
    """The ids of the best translation, with the end symbol if it was reached."""
    (found,) = translator.search([ids])
    usable = (one for one in found if one.is_finite and math.isfinite(one.score))
    best = next(usable, None)
    if best is None:
        raise DataError("source: no translation of it has a finite probability; give a target")
    return tokens_of(best)


def _side(name: str) -> str:
    """Encoder or decoder, from the name of a part, which in an ensemble begins with a number."""
    return next(word for word in name.split(".") if not word.isdecimal())


def _trace(found: UnitRecord, tokens: tuple[str, ...]) -> UnitTrace:
    states = [array(part) for part in found.states]
    return UnitTrace(
        found.unit,
        found.reverse,
        tokens if len(tokens) == len(states[0]) else (),
        states[0],
        {name: array(gate) for name, gate in found.gates.items()},
        None if found.memory is None else array(found.memory),
        states[1] if len(states) > 1 else None,
    )


def array(tensor: Tensor) -> Any:
    """The tensor as a NumPy array in fp32."""
    return tensor.float().cpu().numpy()


SCORING_TOKENS = 4096
"""Value of decoding.batch_tokens: auto for scoring, where the logits of all target tokens are in memory at once."""

_log = logging.getLogger(__name__)
_turns: dict[torch.device, Turns] = {}
_turns_guard = threading.Lock()


class Engine:
    """The models themselves. Kernels follow the first model's configuration, whatever else the process does."""

    place = "in this process"

    def __init__(
        self, paths: Sequence[str], *, device: str, precision: str, checkpoint: str | int, plugins: Sequence[str]
    ) -> None:
        """Load the models; arguments and errors are those of `nmt.load`."""
        place = choose_device(device)
        with own_selection(Selection()):
            self._loaded = load_models(paths, plugins=plugins, device=place, checkpoint=checkpoint)
            self._kernels: dict[Purpose, Selection] = {"search": selection()}
        first = self._loaded[0]
        changes = {} if precision == "auto" else {"precision": precision}
        self._decoding = changed_decoding(first.config.decoding, changes)
        self._models = [loaded.model for loaded in self._loaded]
        with own_selection(self._kernels["search"]):
            self._prepared: PreparedModels | None = prepare_models(
                self._models, precision=self._decoding.precision, device=place
            )
        longest = min(loaded.longest_source.tokens for loaded in self._loaded)
        self._lines = lines_of_all([loaded.lines for loaded in self._loaded])
        named = tuple(str(loaded.path) for loaded in self._loaded)
        languages = first.config.data.source_language, first.config.data.target_language
        kernels, missing = _kernels(place, self._kernels["search"])
        self.facts = Facts(
            named, first.config, str(place), str(self._prepared.precision), longest, languages, kernels, missing
        )
        self._device = place
        self._process = os.getpid()
        self._said: set[str] = set()
        with _turns_guard:
            self._turns = _turns.setdefault(place, Turns())

    def check(self, options: dict[str, Any]) -> None:
        """Raise ConfigError or DataError for options that are not possible."""
        self._check_usable()
        chosen_details(options)
        with own_selection(self._kernels["search"]):
            self._translator(options)

    def translate(
        self, sentences: Sequence[str | Request], options: dict[str, Any], *, stop: Stop | None = None
    ) -> list[Result]:
        """The results of some sentences, one line each, translated together; StoppedError after `stop.set()`."""
        with self._turn("search"):
            translator = self._translator(options, stop=stop)
            found = translator.translate_window([*map(_asked, sentences)], details=chosen_details(options))
            return [self._result(translation) for translation in found]

    def hypotheses(self, options: dict[str, Any]) -> int:
        """Hypotheses of a sentence that a search with such options computes at once."""
        self._check_usable()
        chosen_details(options)
        with own_selection(self._kernels["search"]):
            return self._translator(options).hypotheses

    def parts(self, sentences: Sequence[str | Request], options: dict[str, Any]) -> list[list[int]]:
        """The source tokens of each part in which each sentence, one line, would be translated."""
        self._check_usable()
        with own_selection(self._kernels["search"]):
            return self._translator(options).parts([*map(_asked, sentences)])

    def score(
        self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None, stop: Stop | None = None
    ) -> list[PairScore]:
        """The scores of (source, target) pairs, computed together; `stop` as in `translate`."""
        configured = self._decoding.batch_tokens
        tokens = batch_tokens or (SCORING_TOKENS if configured == "auto" else configured)
        with self._turn("scoring"):
            first, *others = self._models
            found = score_pairs(
                first,
                self._loaded[0].tokenizer,
                pairs,
                batch_tokens=tokens,
                others=others,
                mean=ensemble_mean(self._decoding, models=len(self._models)),
                before_batch=self._between(stop),
            )
            return [PairScore(-pair.mean_nll, pair.tokens, pair.unknown) for pair in found]

    def inspect(self, source: str, target: str | None) -> Inspection:
        """The inner values of the models for a source (one line) and a target (default: the translation)."""
        self._check_usable()
        with self._turn("search"):
            return inspected(
                self._models,
                self._loaded[0].tokenizer,
                self._translator({}),
                source=source,
                target=target,
                mean=ensemble_mean(self._decoding, models=len(self._models)),
            )

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Target text in the form of translations, with subwords joined to words."""
        self._check_usable()
        return [self._loaded[0].tokenizer.joined_target(line) for line in lines]

    def close(self) -> None:
        """Release the models, after the running calls of other threads."""
        with self._turns:
            self._loaded, self._models, self._prepared = [], [], None

    @contextmanager
    def _turn(self, purpose: Purpose) -> Iterator[None]:
        """Wait for this thread's turn to compute, with the kernels that the models need."""
        self._check_usable()
        with self._turns:
            self._check_usable()  # it may have been closed meanwhile
            if purpose not in self._kernels:
                with own_selection(Selection(self._kernels["search"].choice)):
                    use_verified_kernels(self._models, device=self._device, purpose=purpose)
                    self._kernels[purpose] = selection()
            with own_selection(self._kernels[purpose]):
                yield

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise NmtError("this translator was loaded before its process forked; call nmt.load after forking")
        if not self._loaded:
            raise NmtError("this translator is closed")

    def _translator(self, options: dict[str, Any], *, stop: Stop | None = None) -> Translator:
        """A new search for each call, so that no state passes from one call to another."""
        own = {name: options.get(name, usual) for name, usual in OWN.items()}
        first = self._loaded[0]
        return Translator(
            first.model,
            first.tokenizer,
            self._changed({name: value for name, value in options.items() if name not in OWN}),
            scores=own["scores"],
            before_batch=self._between(stop),
            before_step=self._between(stop, gives_way=self._device.type == "cpu"),
            prepared=self._prepared,
            lines=self._lines,
        )

    def _between(self, stop: Stop | None, *, gives_way: bool = True) -> Callable[[], None]:
        """What is done between two pieces of work: other threads have their turns. On a GPU a batch is one piece, as
        the graphs of its steps keep their states."""

        def between() -> None:
            if stop is not None:
                stop.check()
            if gives_way:
                self._turns.pass_on()

        return between

    def _changed(self, options: dict[str, Any]) -> DecodingConfig:
        if "precision" in options:
            raise ConfigError("precision: is set once, as in nmt.load(..., precision='int8')")
        taken = as_keys(options)
        return changed_decoding(self._decoding, taken, say=self._say) if taken else self._decoding

    def _say(self, message: str) -> None:
        """Log each change that the caller did not ask for, once."""
        if message not in self._said:
            self._said.add(message)
            _log.warning("%s", message)

    def _result(self, found: Translation) -> Result:
        return Result(
            found.source,
            [*map(_hypothesis, found.hypotheses)],
            source_tokens=found.source_tokens,
            unknown=found.unknown,
            source_pieces=found.source_pieces,
            notes=tuple(notes_of(found, longest=self.facts.longest_source)),
        )


def _kernels(device: torch.device, chosen: Selection) -> tuple[str, str]:
    """The code that computes a search, for people, and why it is PyTorch code instead of compiled kernels on a CPU."""
    if device.type != "cpu":
        return f"those checked on {device}", ""
    problem = native.problem() if chosen.choice == "auto" else f"the configuration says kernels: {chosen.choice}"
    return ("C kernels for this processor", "") if problem is None else ("none: PyTorch code", problem)


def _hypothesis(found: ScoredText) -> Hypothesis:
    parts, heads = found.attention_of_parts, found.heads_of_parts
    return Hypothesis(
        found.text,
        found.score,
        found.tokens,
        found.token_scores,
        None if parts is None else tuple(map(array, parts or (torch.zeros(0, 0),))),
        None if found.alignment is None else tuple((source, target) for source, target in found.alignment),
        found.token_entropies,
        None if heads is None else tuple({name: array(own) for name, own in part.items()} for part in heads),
    )


def _asked(sentence: str | Request) -> str | Asked:
    """A sentence in the form that the search takes."""
    if isinstance(sentence, str):
        return sentence
    return Asked(text=sentence.text, **{name: getattr(sentence, name) for name in WISHES})
