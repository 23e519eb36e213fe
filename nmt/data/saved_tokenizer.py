"""The tokenizer directory of a run or model: written with checksums of its files, which are verified on reading."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from nmt.config import component_options
from nmt.config.schema import Config
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError, DataError, printable
from nmt.files import (
    LARGEST_RECORD,
    LARGEST_VOCABULARY,
    check_directory,
    check_size,
    digest_of,
    open_inside,
    read_inside,
    replace_text,
)
from nmt.registry import TOKENIZERS

FOLDER = "tokenizer"
CHECKSUMS = "checksums.json"
_KEY = "sha256"


def save_tokenizer(folder: Path, tokenizer: Tokenizer, config: Config, *, name: Path) -> None:
    """Write `tokenizer` and the checksums of all its files into `folder`, which exists.

    `name` is the folder's later name. Raises DataError, naming the difference, if fingerprint or vocabularies differ
    after loading back.
    """
    tokenizer.save(folder)
    write_checksums(folder)
    try:
        again = _loaded(folder, config)
    except CheckpointError as error:
        reason = str(error).replace(str(folder), str(name))
        raise DataError(f"{name}: this tokenizer would not load again once it is saved: {reason}") from error
    if difference := _difference(tokenizer, again):
        raise DataError(f"{name}: this tokenizer would not load back equal once it is saved: {difference}")


def load_tokenizer(model_dir: str | Path, config: Config) -> Tokenizer:
    """The tokenizer saved with a run or model; `model_dir` may be a checkpoint directory inside a run.

    Raises CheckpointError naming a file that is missing or does not match its checksum.
    """
    model_dir = Path(model_dir)
    folder = model_dir / FOLDER
    if not folder.is_dir() and model_dir.parent.name == "checkpoints":
        folder = model_dir.parent.parent / FOLDER
    if not folder.is_dir():
        raise CheckpointError(f"{model_dir}: there is no tokenizer directory in it")
    try:
        check_directory(folder, within=folder.parent)
    except OSError as error:
        raise CheckpointError(f"{folder}: {error.strerror}") from error
    return _loaded(folder, config)


def _loaded(folder: Path, config: Config) -> Tokenizer:
    check_checksums(folder)
    kind = TOKENIZERS.get(config.data.tokenizer)
    tokenizer: Tokenizer = kind.load(folder, options=component_options(kind, config.data.tokenizer_options))
    return tokenizer


def _difference(tokenizer: Tokenizer, again: Tokenizer) -> str | None:
    """The difference between two tokenizers, in words."""
    sides = (
        ("source", tokenizer.source_size, again.source_size, tokenizer.source_tokens, again.source_tokens),
        ("target", tokenizer.target_size, again.target_size, tokenizer.target_tokens, again.target_tokens),
    )
    for side, size, size_again, tokens, tokens_again in sides:
        if size != size_again:
            return f"its {side} vocabulary of {size} tokens would have {size_again}"
        for i, (token, token_again) in enumerate(zip(tokens(range(size)), tokens_again(range(size)), strict=True)):
            if token != token_again:
                return f"token {i} of its {side} vocabulary is {token!r} and would be {token_again!r}"
    return None if tokenizer.fingerprint() == again.fingerprint() else "its fingerprint would differ"


def write_checksums(folder: Path) -> None:
    """Write FOLDER/checksums.json with the sums of all files in the folder."""
    sums = {name: _sum(path, folder) for name, path in _files(folder).items()}
    replace_text(folder / CHECKSUMS, json.dumps({_KEY: sums}, indent=1) + "\n")


def has_checksums(folder: Path) -> bool:
    """Whether FOLDER/checksums.json exists; folders of older versions have none."""
    return os.path.lexists(folder / CHECKSUMS)


def check_checksums(folder: Path) -> None:
    """Raise CheckpointError, naming the file, if anything has changed since it was written; a folder without sums
    passes.

    Files that did not exist when the sums were written are not checked.
    """
    if not has_checksums(folder):
        return
    found = _files(folder)  # a name in somebody else's checksums.json could lead anywhere
    for name, expected in _read(folder / CHECKSUMS).items():
        if name not in found:
            raise CheckpointError(f"{folder}: {printable(name)} is missing, but {CHECKSUMS} has its checksum")
        if _sum(found[name], folder) != expected:
            raise CheckpointError(
                f"{found[name]}: changed since it was saved: its SHA-256 differs from the one in {CHECKSUMS}; restore "
                f"it from a copy"
            )


def _files(folder: Path) -> dict[str, Path]:
    """The files below a folder, by their names relative to it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: path for path in paths if (name := path.relative_to(folder).as_posix()) != CHECKSUMS}


def _sum(path: Path, folder: Path) -> str:
    try:
        with open_inside(path, within=folder) as stream:
            check_size(stream, largest=LARGEST_VOCABULARY)
            return digest_of(stream)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _read(file: Path) -> Mapping[str, str]:
    problem = 'expected {"sha256": {NAME: SUM, ...}}'
    try:
        sums = json.loads(read_inside(file, within=file.parent, largest=LARGEST_RECORD))[_KEY]
        if isinstance(sums, dict) and all(isinstance(value, str) for value in sums.values()):
            return sums
        problem = f"{_KEY} is not a mapping of names to sums"
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CheckpointError(f"{file}: not a list of checksums: {problem}")
