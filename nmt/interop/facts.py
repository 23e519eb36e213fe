"""RUN/facts.json: facts about a model's training that its users need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nmt.errors import CheckpointError, counted, printable
from nmt.files import LARGEST_RECORD, read_inside, reason, replace_text
from nmt.interop import run_layout

if TYPE_CHECKING:
    from nmt.config import Config

FACTS: Final = "facts.json"
_LONGEST: Final = "longest_source"
_SEVERAL: Final = "sources_of_several_sentences"


class LongestSource(NamedTuple):
    """The longest source sentence that a model was trained on."""

    tokens: int
    """Without the end symbol."""
    is_known: bool
    """False if only the limit data.max_length is known."""

    def __str__(self) -> str:
        what = "any in training" if self.is_known else "training allowed"
        return f"{what} ({counted(self.tokens, 'token')})"


class TrainingFacts(NamedTuple):
    """What is known of the sources that a model was trained on; None for what versions before did not write."""

    longest: int | None = None
    """Tokens of the longest one."""
    several: float | None = None
    """The share of them that have several sentences."""

    def longest_source(self, config: Config) -> LongestSource:
        """The longest one, else the limit in the configuration."""
        return (
            LongestSource(config.data.max_length, False) if self.longest is None else LongestSource(self.longest, True)
        )


def read_facts(directory: Path) -> TrainingFacts:
    """The facts of the model in `directory`: from its own file, else from the run around it.

    Raises CheckpointError for a malformed file.
    """
    path = find_facts(directory)
    if path is None:
        return TrainingFacts()
    try:
        record: Any = json.loads(read_inside(path, within=path.parent, largest=LARGEST_RECORD).decode("utf-8"))
        tokens, share = record[_LONGEST], record.get(_SEVERAL)
        if type(tokens) is not int or tokens < 0:
            raise ValueError(f"{_LONGEST} is {tokens!r}")
        if share is not None and not (type(share) in (int, float) and 0 <= share <= 1):
            raise ValueError(f"{_SEVERAL} is {share!r}")
        return TrainingFacts(tokens, share)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = reason(error) if isinstance(error, OSError) else repr(error)[:200]
        wanted = f'{{"{_LONGEST}": N}}'
        raise CheckpointError(f"{path}: cannot be used ({printable(problem)}); expected {wanted}") from error


def find_facts(directory: Path) -> Path | None:
    """The file of a model directory, or of the run around a checkpoint; None if there is neither."""
    places = [directory / FACTS]
    if directory.parent.name == run_layout.CHECKPOINTS:
        places.append(directory.parent.parent / FACTS)
    return next((path for path in places if path.is_file()), None)


def write_facts(directory: Path, facts: TrainingFacts) -> None:
    """Write the file atomically; CheckpointError if it cannot be written."""
    path = directory / FACTS
    record = {_LONGEST: facts.longest, _SEVERAL: facts.several}
    try:
        replace_text(path, json.dumps({name: value for name, value in record.items() if value is not None}) + "\n")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({reason(error)})") from error
