"""The tokenizer directory of a run or model: written with checksums, which are verified on reading."""

from __future__ import annotations

from pathlib import Path

from nmt.config import component_options
from nmt.config.schema import Config
from nmt.data.checksums import check_checksums, write_checksums
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError, DataError
from nmt.files import check_directory
from nmt.registry import TOKENIZERS

FOLDER = "tokenizer"


def save_tokenizer(folder: Path, tokenizer: Tokenizer, config: Config, *, name: Path) -> None:
    """Write `tokenizer` and the checksums of all its files into `folder`, which exists.

    `name` is the folder's later name. Raises DataError, naming the difference, if fingerprint or vocabularies differ
    after loading back.
    """
    tokenizer.save(folder)
    write_checksums(folder)
    try:
        again = _load(folder, config)
    except CheckpointError as error:
        reason = str(error).replace(str(folder), str(name))
        raise DataError(f"{name}: this tokenizer would not load again once it is saved: {reason}") from error
    if difference := _difference(tokenizer, again):
        raise DataError(f"{name}: this tokenizer would not load back equal once it is saved: {difference}")


def load_tokenizer(model_dir: str | Path, config: Config) -> Tokenizer:
    """The tokenizer saved with a run or model; `model_dir` may be a checkpoint directory inside a run.

    Raises CheckpointError naming a file that is missing or does not match its checksum.
    """
    return _load(tokenizer_folder(model_dir), config)


def tokenizer_folder(model_dir: str | Path) -> Path:
    """The tokenizer directory of a run, model or checkpoint; CheckpointError if there is none."""
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
    return folder


def _load(folder: Path, config: Config) -> Tokenizer:
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
