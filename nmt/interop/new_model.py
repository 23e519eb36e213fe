"""Writing a model directory that appears only when it is complete, and never over another one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from nmt.config import Config, write_config
from nmt.data import Tokenizer, save_tokenizer
from nmt.errors import CheckpointError
from nmt.files import naming, new_directory, unused_name
from nmt.interop import run_layout
from nmt.interop.weights_file import write_weights

_UNFINISHED = ".writing-"
"""The beginning of a directory's name until it is complete."""


def check_output(output: Path, *, model: Path | None = None) -> None:
    """Raise CheckpointError unless `output` is free: not there, or an empty directory, and no part of `model`."""
    run_layout.check_no_part(output, models=() if model is None else (model,))
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise CheckpointError(f"{output}: exists and is not a directory; choose another name")
    if output.is_dir() and any(output.iterdir()):
        raise CheckpointError(f"{output}: this directory is not empty; choose another name or move it away")


def is_replaced(output: Path, *, model: Path, overwrite: bool, is_one: Callable[[Path], bool], what: str) -> bool:
    """Whether an existing folder will be replaced; CheckpointError if `output` is anything else that exists.

    `overwrite` replaces folders for which `is_one` is true; `what` describes them.
    """
    run_layout.check_no_part(output, models=(model,))
    is_full = not output.is_symlink() and output.is_dir() and any(output.iterdir())
    if is_full and not overwrite and is_one(output):
        raise CheckpointError(f"{output}: exists already; choose another name or replace it with --overwrite")
    if not is_full or not overwrite:
        check_output(output)
        return False
    if not is_one(output):
        raise CheckpointError(f"{output}: --overwrite replaces only {what}, and this is not one; move it away")
    return True


@contextlib.contextmanager
def whole_directory(output: Path, *, replace: bool = False) -> Iterator[Path]:
    """A directory to fill, which becomes `output` when the block ends without an error.

    With `replace` it replaces an existing directory, which is then deleted. An OSError of writing names `output`.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output, unfinished=_UNFINISHED), new_directory(output, prefix=_UNFINISHED) as temporary:
        yield temporary
        before = unused_name(output, prefix=".replaced-") if replace and output.is_dir() else None
        if before is not None:
            output.rename(before)
        temporary.rename(output)  # takes the place of an empty directory
        if before is not None:
            shutil.rmtree(before)


def write_model(
    output: Path, weights: Mapping[str, Tensor], *, config: Config, tokenizer: Tokenizer, metadata: Mapping[str, str]
) -> None:
    """Write the directory that `load_model` takes; `metadata` is stored with the weights.

    Raises:
        CheckpointError: `output` exists and is not an empty directory.
    """
    check_output(output)
    with whole_directory(output) as temporary:
        write_config(temporary / run_layout.CONFIG, config, name=output / run_layout.CONFIG)
        (temporary / run_layout.TOKENIZER).mkdir()
        save_tokenizer(temporary / run_layout.TOKENIZER, tokenizer, config, name=output / run_layout.TOKENIZER)
        write_weights(temporary / run_layout.WEIGHTS, weights, metadata={"format": "pt", **metadata})
