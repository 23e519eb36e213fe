"""Sets of `data.dev` and `data.test` with names: what is wrong with them, their scores, and the means over them.

A score of one set is called `bleu@NAME`, the mean over the sets `bleu`. Nothing here needs torch: configurations are
checked without.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nmt.errors import refused, shown
from nmt.registry import SETS
from nmt.texts import name_of

if TYPE_CHECKING:
    from nmt.config.schema import Config
    from nmt.data.work import Advance
    from nmt.training.validation import Chance, Check, Validation, Validator


Scores: TypeAlias = tuple[dict[str, float], dict[str, str]]
"""Scores by their names, and the signatures of the metrics among them."""


_OF_A_TEXT: Final = {"prefix", "source", "target", "file", "columns", "languages", "directions", "tag"}
"""Keys of a mapping that is one text, so that no set has such a name."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@SETS.register("named")
def named_texts(value: Mapping[Any, Any]) -> Any:
    """The names that stand for texts in sets, or for one text; ValueError for what is neither."""
    if not value or value.keys() & _OF_A_TEXT:
        return name_of(value)
    for name in value:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is no name of a set, which has letters, digits, - and _")
    return {name: name_of(texts) for name, texts in value.items()}


@SETS.register("apart")
class Apart:
    """The validators of several sets as one."""

    def __init__(self, validators: Mapping[str, Validator], *, ranked_by: str) -> None:
        """`validators` by the names of their sets; `ranked_by`: the score by which checkpoints are ranked."""
        self._validators = validators
        self._ranked = ranked_by.partition("@")[2]

    @property
    def key(self) -> str:
        """Digests of the encoded texts."""
        return " ".join(f"{name}:{one.key}" for name, one in self._validators.items())

    @property
    def lines(self) -> int:
        """How many lines this process translates."""
        return sum(one.lines for one in self._validators.values())

    def validate(self, model: Any, *, check: Check, translated: Advance) -> Validation:
        """Measure `model` on each set, as `Validator`. Samples say their set, translations come set after set."""
        found = {
            name: one.validate(model, check=check, translated=translated) for name, one in self._validators.items()
        }
        results = list(found.values())
        scores, signatures = self.joined({name: (one.scores, one.signatures) for name, one in found.items()})
        faults = copy.copy(results[0].faults)
        faults.counts = {key: sum(one.faults.counts[key] for one in results) for key in faults.counts}
        faults.problems = [f"{name}: {problem}" for name, one in found.items() for problem in one.faults.problems]
        return dataclasses.replace(
            results[0],
            scores=scores,
            signatures=signatures,
            samples=[{"set": name, **sample} for name, one in found.items() for sample in one.samples],
            seconds=round(sum(one.seconds for one in results), 3),
            translations=[line for one in results for line in one.translations],
            faults=faults,
            chance=self._chance(found),
        )

    def _chance(self, found: Mapping[str, Validation]) -> Chance | None:
        """That of the set by which checkpoints are ranked; by means, the mean, which one set is enough to beat."""
        if self._ranked:
            chance = found[self._ranked].chance
            return None if chance is None else chance._replace(metric=f"{chance.metric}@{self._ranked}")
        known = [one.chance for one in found.values() if one.chance is not None]
        if not known:
            return None
        mean = statistics.fmean(chance.score for chance in known)
        return known[0]._replace(score=mean, is_beaten=any(chance.is_beaten for chance in known))

    @staticmethod
    def joined(found: Mapping[str, Scores]) -> Scores:
        """The scores of each set as `bleu@NAME`, after their means over the sets; of one set without a name its own."""
        if list(found) == [""]:
            return found[""]
        scores, signatures = (
            {name: [part[name] for part in parts] for name in parts[0]} for parts in zip(*found.values(), strict=True)
        )
        means = {name: statistics.fmean(values) for name, values in scores.items()}
        said = {}
        for name, each in signatures.items():
            own = dict.fromkeys(one.partition(" ")[2] for one in each)
            said[name] = f"{each[0].partition(' ')[0]} {', '.join(own)}|mean:{'+'.join(found)}"
        for name, (values, named) in found.items():
            means |= {f"{score}@{name}": value for score, value in values.items()}
            said |= {f"{metric}@{name}": one.replace(" ", f"@{name} ", 1) for metric, one in named.items()}
        return means, said

    @staticmethod
    def problems(config: Config) -> Iterator[tuple[str, str]]:
        """What is wrong with the sets of a configuration and the references of them, as (key, message)."""
        for key in ("dev", "test"):
            sets, references = getattr(config.data, key), getattr(config.data, f"{key}_references")
            if sets is None or references is None:
                continue
            if isinstance(sets, Mapping) != isinstance(references, Mapping):
                yield f"data.{key}_references", f"must name sets if data.{key} does, and only then"
            elif isinstance(references, Mapping):
                for name in references:
                    if name not in sets:
                        message = refused("", name, list(sets), problem=f"is no set of data.{key}")
                        yield f"data.{key}_references.{name}", message
