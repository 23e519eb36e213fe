"""Zero's checkpoints, TensorFlow's index and data files and `.npz`, and its vocabularies."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data import Vocabulary
from nmt.data.text import read_lines
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import CheckpointError, DataError, missing, printable
from nmt.files import LARGEST_RECORD, open_inside, open_regular, read_inside
from nmt.zero.weights import PREFIX

CONFIG = "config"
"""Array of an `.npz` with the hyper-parameters as JSON text."""
AVERAGE = "/ExponentialMovingAverage"
_OF_TRAINING = ("/Adam", "/Adam_1", "/CTrainOpReplica", "/CTrainOpBackUpReplica", AVERAGE)
"""Ends of names: Adam's moments, sums of gradients, weights put aside while the averages are in use, averages."""
_COUNTERS = ("beta1_power", "beta2_power", "global_step")
_STATE_FILE = "checkpoint"
_PACKED = 20
"""Times that weights become smaller by packing, at most; numbers that were learned hardly do."""
_SMALL = 1 << 26
"""Bytes that may be packed as well as they can be."""
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


class Checkpoint(NamedTuple):
    """The weights in a checkpoint, in Zero's names, without what only training needs."""

    variables: dict[str, NDArray[Any]]
    path: Path
    """the `.npz` file, or what TensorFlow's files have in common, such as DIR/model-1000"""
    has_averages: bool
    """whether moving averages exist, used or not"""
    hyper_parameters: str | None
    """the JSON text that an `.npz` file carries"""


class _Source(NamedTuple):
    """What a file offers: names, and a function that reads one array."""

    path: Path
    names: list[str]
    read: Callable[[str], NDArray[Any]]
    hyper_parameters: str | None = None


def read_checkpoint(path: str | Path, *, averages: bool = False) -> Checkpoint:
    """Read the weights in `path`.

    Args:
        path: DIR/model-1000 or one of its files, a directory with a `checkpoint` file (its newest), or an
            `.npz` whose arrays have Zero's names, with or without "var/" before them.
        averages: take the moving averages of the weights instead of the weights.

    Raises:
        CheckpointError: no such checkpoint, a damaged one, values that are not finite, averages asked for that
            are not there, or TensorFlow needed but not installed.
    """
    source = _open(Path(path))
    weights = {name for name in source.names if not name.endswith(_OF_TRAINING) and _last(name) not in _COUNTERS}
    averaged = {name.removesuffix(AVERAGE) for name in source.names if name.endswith(AVERAGE)}
    if not weights:
        raise CheckpointError(f"{source.path}: holds no weights; names in it: {_listed(source.names)}")
    if averages and (missing := sorted(weights - averaged)):
        count = f"{len(missing)} of {len(weights)} weights have none"
        raise CheckpointError(f"{source.path}: --moving-averages is not possible, because {count}: {_listed(missing)}")
    end = AVERAGE if averages else ""
    variables = {name: _value(source, f"{name}{end}") for name in sorted(weights)}
    return Checkpoint(variables, source.path, bool(averaged), source.hyper_parameters)


def _open(path: Path) -> _Source:
    if path.suffix == ".npz":
        return _open_npz(path)
    prefix = _named_in(path) if path.is_dir() else path.with_name(_PART.sub("", path.name))
    index = prefix.with_name(f"{prefix.name}.index")
    if not index.is_file():
        allowed = f"DIR/model-STEP with an .index file, a directory with a file '{_STATE_FILE}', or FILE.npz"
        raise CheckpointError(missing(index, f"allowed: {allowed}"))
    return _open_tensorflow(prefix)


def _named_in(folder: Path) -> Path:
    """The newest checkpoint that the file `checkpoint` in a directory of TensorFlow names."""
    record = folder / _STATE_FILE
    try:
        text = read_inside(record, within=folder, largest=LARGEST_RECORD).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CheckpointError(f"{record}: {reason}; give the checkpoint itself, such as DIR/model-1000") from error
    found = re.search(r'^model_checkpoint_path:\s*"([^"]+)"', text, flags=re.M)
    if found is None:
        raise CheckpointError(f"{record}: names no checkpoint (model_checkpoint_path)")
    # Directories are moved and copied; an absolute name in it is then that of another place.
    return folder / Path(found[1]).name


def _open_npz(path: Path) -> _Source:
    try:
        stream = open_regular(path)
        file = np.load(stream, allow_pickle=False)
        names = list(file.files)
        _check_unpacked(file.zip, os.fstat(stream.fileno()).st_size)
        text = str(file[CONFIG]) if CONFIG in names else None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not an .npz file ({error})"
        raise CheckpointError(f"{path}: {reason}") from error
    marked = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    before = PREFIX if marked else ""
    return _Source(path, marked or [name for name in names if name != CONFIG], lambda name: file[before + name], text)


def _check_unpacked(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError where unpacking would take far more memory than weights do that someone has packed."""
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _PACKED * size + _SMALL:
        raise ValueError(f"{size:,} bytes would become {unpacked:,}")


def _open_tensorflow(prefix: Path) -> _Source:
    try:
        for file in (
            prefix.with_name(f"{prefix.name}.index"),
            *prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"),
        ):
            open_inside(file, within=prefix.parent).close()
    except OSError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
    try:
        with _errors_unseen():
            import tensorflow
    except Exception as error:  # it is missing, or does not go with other packages that are here
        advice = "pip install nmt-recurrent[tensorflow], or save its variables as FILE.npz where TensorFlow is"
        raise CheckpointError(
            f"{prefix}: reading TensorFlow's files needs TensorFlow ({_first_line(error)}): {advice}"
        ) from error
    try:
        with _errors_unseen():
            reader = tensorflow.train.load_checkpoint(str(prefix))
        names = sorted(reader.get_variable_to_shape_map())
    except Exception as error:  # its own classes, and RuntimeError and ValueError, by version
        raise CheckpointError(f"{prefix}: TensorFlow cannot read it: {_first_line(error)}") from error
    return _Source(prefix, names, reader.get_tensor)


@contextlib.contextmanager
def _errors_unseen() -> Iterator[None]:
    """Nothing appears on standard error: TensorFlow's libraries tell of instruction sets and missing GPUs there."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _value(source: _Source, name: str) -> NDArray[Any]:
    """A weight in float32, which is how Zero keeps them."""
    try:
        array = np.asarray(source.read(name))
    except Exception as error:  # damaged data: TensorFlow's own classes; of an .npz zlib's, zipfile's and numpy's
        raise CheckpointError(f"{source.path}: {printable(name)} cannot be read: {_first_line(error)}") from error
    if not np.issubdtype(array.dtype, np.floating):
        raise CheckpointError(f"{source.path}: {printable(name)} holds {array.dtype}; weights are real numbers")
    value: NDArray[Any] = array.astype(np.float32)
    if not np.isfinite(value).all():
        raise CheckpointError(f"{source.path}: {printable(name)} contains NaN or infinite values")
    return value


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _listed(names: Iterable[str], *, shown: int = 3) -> str:
    listed = [printable(name) for name in names]
    return ", ".join(listed[:shown]) + (", ..." if len(listed) > shown else "") if listed else "none"


def _first_line(error: BaseException) -> str:
    return printable(str(error).strip().split("\n")[0]) or type(error).__name__


def scope_of(variables: Mapping[str, Any]) -> str | None:
    """The first part of all names, where they have it in common."""
    scopes = {name.partition("/")[0] for name in variables}
    return scopes.pop() if len(scopes) == 1 else None


_STRIPPED = " \t\n\r\x0b\x0c"
"""What Zero, a program for Python 2, takes off both ends of a line of bytes."""


def read_vocabulary(path: Path) -> tuple[Vocabulary, list[str]]:
    """The tokens of a vocabulary file with the ids that Zero gives them, and notes for the user.

    One token per line; the three special tokens come first whether or not the file has them, and of a repeated token
    the first one counts. For Zero a blank line, or a line with a space inside, is a token that no text can contain: its
    id is kept under its own name. Raises DataError for a file that is missing, empty or not UTF-8.
    """
    tokens: dict[str, None] = {}
    repeated, odd = 0, []
    for number, line in enumerate(read_lines(path), start=1):
        token = line.strip(_STRIPPED)
        if token in SPECIAL_TOKENS:
            continue
        repeated += token in tokens
        if token not in tokens and (token == "" or any(sign in token for sign in _STRIPPED)):
            odd.append(number)
        tokens[token] = None
    if not tokens:
        raise DataError(f"{path}: the vocabulary is empty; one token per line is expected")
    notes = []
    if repeated:
        notes.append(f"{path}: {repeated} repeated tokens; the first of each counts, as in Zero")
    if odd:
        places = ", ".join(str(number) for number in odd[:5]) + (", ..." if len(odd) > 5 else "")
        notes.append(f"{path}: no text can contain the tokens of lines {places}, blank or with a space inside")
    return Vocabulary(_spellable(tokens)), notes


def _spellable(tokens: Iterable[str]) -> list[str]:
    """`tokens` with those that a vocabulary file cannot hold named <line-1>, <line-2>, ... after their place."""
    taken = set(tokens)
    names = []
    for place, token in enumerate(tokens, start=1):
        name = token
        if token == "" or any(sign in token for sign in _STRIPPED):
            name = f"<line-{place}>"
            while name in taken:
                name = f"<{name}>"
            taken.add(name)
        names.append(name)
    return names


def vocabulary_text(tokens: Iterable[str], *, where: object) -> str:
    """The lines of a vocabulary file that gives `tokens`, special ones included, the ids of their places in Zero.

    Raises CheckpointError, naming the model `where`, for tokens that Zero would read otherwise.
    """
    rest = list(tokens)[len(SPECIAL_TOKENS) :]
    seen: set[str] = set(SPECIAL_TOKENS)
    for place, token in enumerate(rest, start=len(SPECIAL_TOKENS)):
        if not token or any(sign in token for sign in _STRIPPED) or token in seen:
            raise CheckpointError(f"{where}: token {place} of its vocabulary, {token!r}, has another meaning in Zero")
        seen.add(token)
    return "".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *rest))
