"""RUN/validation: the translations of each validation, one file for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.training.text_file import write_lines

FOLDER = "validation"


@dataclass(frozen=True)
class KeptTranslations:
    """The files step-N.txt of a run, a line for each translated line of the validation text, in its order."""

    run: Path

    def write(self, step: int, lines: Sequence[str]) -> Path:
        """Write the translations of this step's validation atomically; DataError if that is not possible."""
        path = self.run / FOLDER / f"step-{step}.txt"
        write_lines(path, lines)
        return path

    def rewind(self, step: int, *, validated: bool) -> int:
        """Delete the translations of later steps, which will be repeated; return how many.

        The translations of `step` itself are kept if it is `validated`, and otherwise repeated, too.
        """
        undone = [path for number, path in self._files() if number > step or (number == step and not validated)]
        for path in undone:
            path.unlink(missing_ok=True)
        return len(undone)

    def _files(self) -> list[tuple[int, Path]]:
        found = ((re.fullmatch(r"step-(\d+)\.txt", path.name), path) for path in (self.run / FOLDER).glob("step-*.txt"))
        return [(int(match[1]), path) for match, path in found if match]
