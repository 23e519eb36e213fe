"""The operations of a model on a GPU that must be checked there, each with the design of its units.

A key is an operation and, if its kernels are compiled for a design, the words of the design, as in `sequence lrn tanh`:
the argument of `nmt.ops.dispatch`. A pair of cells without matrices is one unit there, as in `sequence pair lrn`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from torch import nn

from nmt.cells import Cell
from nmt.errors import ConfigError
from nmt.models.attention import AttentionQuery
from nmt.models.decoder import AttendingRNN, AttentionRNN
from nmt.models.encoder import Bidirectional, OneToOneRNN
from nmt.ops.scan import pair_of
from nmt.registry import CELLS

Purpose = Literal["training", "scoring", "search"]
"""Training needs gradients and, for validation, what search needs; scoring needs no steps of a search."""

WITHOUT_TRITON: Final = frozenset({"decoding_step", "lstm_layer"})
"""Operations that run as CUDA graphs or by cuDNN."""
FORWARD: Final = " forward"
"""Ends the name of a check without gradients."""


class Design(NamedTuple):
    """Which cells an operation runs."""

    kind: type[Cell[Any]]
    options: Any = None
    layer_norm: bool = False

    @property
    def words(self) -> str | None:
        """See `kernel_words`."""
        return kernel_words(self.cell(1, 1))

    def cell(self, input_size: int, hidden_size: int) -> Cell[Any]:
        """A new cell."""
        return self.kind(input_size, hidden_size, layer_norm=self.layer_norm, options=self.options)


def needed(model: nn.Module, purpose: Purpose) -> list[str]:
    """The keys of all that `model` runs on a GPU."""
    found = dict.fromkeys(recurrences(model if purpose != "search" else getattr(model, "encoder", model)))
    if any(isinstance(module, AttentionQuery) for module in model.modules()):
        found["attention"] = None
    if purpose != "search":
        found["linear_cross_entropy"] = None
    if purpose != "scoring":
        found["decoding_step"] = None
    if purpose == "training" and any(
        isinstance(module, nn.Dropout) and module.p or isinstance(module, Cell) and module.recurrent_dropout
        for module in model.modules()
    ):
        found["dropout"] = None
    return list(found)


def recurrences(model: nn.Module) -> Iterator[str]:
    """Keys of the recurrent layers of a model; some may come more than once."""
    inside = set[nn.Module]()
    for module in model.modules():
        if isinstance(module, (AttendingRNN, OneToOneRNN)):
            inside.update(part for part in module.modules() if isinstance(part, Cell))
            operation = "conditional"
            if isinstance(module, OneToOneRNN):
                lower, higher = module.lower.unit(), module.higher.unit()
                operation = "sequence pair" if lower and higher and pair_of(lower, higher) else "one_to_one"
            if words := kernel_words(module.lower):
                yield f"{operation} {words}"
        elif isinstance(module, Bidirectional) and (words := kernel_words(module.forward_rnn)):
            yield f"bidirectional {words}"
        elif isinstance(module, Cell) and module not in inside and (words := kernel_words(module)):
            yield f"sequence {words}"
            if words.startswith("lstm") and not module.layer_norm:
                yield "lstm_layer"


def kernel_words(cell: Cell[Any]) -> str | None:
    """The words of a cell's design, if there is a kernel for GPUs."""
    unit = cell.unit()
    return None if unit is None or unit.triton is None or not unit.usual else unit.words


def plain(name: str) -> str:
    """The key of a check."""
    return name.removesuffix(FORWARD)


def parts(name: str) -> tuple[str, str]:
    """Operation and design of a check; the design may be none."""
    operation, _, words = plain(name).partition(" ")
    return ("one_to_one", words.removeprefix("pair ")) if words.startswith("pair ") else (operation, words)


def groups(names: Iterable[str]) -> list[list[str]]:
    """The checks in lists of those that share most of their kernels, the longest first: what attends, then recurrences
    by design, and the rest."""
    attend, others, attention = dict[str, list[str]](), dict[str, list[str]](), list[str]()
    for name in names:
        operation, words = parts(name)
        if operation in ("attention", "decoding_step"):
            attention.append(name)
        elif operation == "conditional":
            attend[words] = [name]
        else:
            others.setdefault(words or operation, []).append(name)
    first, *more = attend.values() or [[]]
    return [group for group in ([*first, *attention], *more, *others.values()) if group]


def designs_of(words: str) -> list[Design]:
    """Those of all cells whose unit has these words; ConfigError if there is none."""
    known = _all_designs()
    if words not in known:
        of_its_unit = [other for other in known if other.split()[0] == words.split()[0]]
        allowed = of_its_unit or sorted({other.split()[0] for other in known})
        raise ConfigError(f"no unit has the design '{words}'. Known: {', '.join(allowed)}.")
    return known[words]


@functools.cache
def _all_designs() -> Mapping[str, list[Design]]:
    """By words; with and without layer norm, with all options that are words or truth values."""
    found = dict[str, list[Design]]()
    for name in CELLS.names():
        kind: type[Cell[Any]] = CELLS.get(name)
        for options, layer_norm in itertools.product(_options(kind), (False, True)):
            design = Design(kind, options, layer_norm)
            known = found.setdefault(design.words, []) if design.words else []
            if layer_norm not in [other.layer_norm for other in known]:
                known.append(design)
    return found


def _options(kind: type[Cell[Any]]) -> Iterator[Any]:
    """All options of a cell except numbers."""
    choices, hints = dict[str, Sequence[Any]](), get_type_hints(kind.Options)
    for field in fields(kind.Options):
        if hints[field.name] is bool or get_origin(hints[field.name]) is Literal:
            choices[field.name] = get_args(hints[field.name]) or (False, True)
    for values in itertools.product(*choices.values()):
        with contextlib.suppress(ConfigError):  # what does not go together
            yield kind.Options(**dict(zip(choices, values, strict=True)))


def all_keys() -> list[str]:
    """Those of all units, alone, in pairs and with layer norm, and with each of their options alone."""
    found = dict.fromkeys(["attention", "decoding_step", "dropout", "linear_cross_entropy"])
    for name in CELLS.names():
        kind: type[Cell[Any]] = CELLS.get(name)
        usual = kind.Options()
        for layer_norm in (False, True):
            make = partial(Design(kind, usual, layer_norm).cell, hidden_size=1)
            for network in (Bidirectional(make, 1), AttentionRNN(make, 1, 1), OneToOneRNN(make, 1, 1)):
                found |= dict.fromkeys(recurrences(network))
        for options in _options(kind):
            differing = [field for field in fields(usual) if getattr(options, field.name) != getattr(usual, field.name)]
            words = Design(kind, options).words
            if words and len(differing) == 1:
                found[f"sequence {words}"] = None
    return list(found)


def plugin_files(names: Iterable[str]) -> list[Path]:
    """The user's files in which the cells of these checks are defined."""
    words = {parts(name)[1] for name in names} - {""}
    kinds = {design.kind for known in words for design in designs_of(known)}
    files = {Path(inspect.getfile(kind)).resolve() for kind in kinds if not kind.__module__.startswith("nmt.")}
    return sorted(files)
