"""The model that `training.init_from` names: its settings, its tokenizer, its weights, and the rows of its tables for
another vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.config import load_saved
from nmt.config.located import path_options
from nmt.config.problems import Problem
from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.saved_tokenizer import load_tokenizer
from nmt.data.sentencepiece import WORD_BEGIN
from nmt.data.vocabulary import BYTE, SPECIAL_TOKENS, UNK
from nmt.errors import CheckpointError, ConfigError, NmtError, shown
from nmt.interop import run_layout
from nmt.interop.exported import check_trainable
from nmt.interop.model_dir import TRANSLATION, check_weights, config_file, find_model
from nmt.interop.weights_file import check_finite, read_shapes, read_weights
from nmt.models.base import Seq2Seq
from nmt.registry import STARTS, TOKENIZERS
from nmt.system import expanded

KEY: Final = "training.init_from"
NEW: Final = "training.new_vocabulary"
_OF_NEW_WEIGHTS = ("initializer", "initializer_options", "init_range", "layer_norm_scale")
"""Keys of the section `model` that have no effect on weights that are given."""
_TABLES: Final = {
    "embeddings.source": "source",
    "embeddings.target": "target",
    "embeddings.softmax": "target",
    "embeddings.output_bias": "target",
}
"""Weights with a row for each piece, and the side whose vocabulary it is; a shared table has the first of its names."""


@STARTS.register("model")
class Start:
    """The weights with which a run begins."""

    def __init__(self, config: Config) -> None:
        """Find the model, of a run its best checkpoint; ConfigError where there is none that can be trained."""
        training = config.training
        assert training.init_from is not None
        self.directory = find(training.init_from)
        self.keeps_vocabulary = not training.new_vocabulary
        self.said = f"starting from the weights in {self.directory}"
        """What a log should say once the weights are loaded."""

    def tokenizer(self) -> Tokenizer:
        """That of the model."""
        return load_tokenizer(self.directory, load_saved(config_file(self.directory), ()))

    def load(self, model: Seq2Seq, tokenizer: Tokenizer) -> None:
        """Give `model`, whose vocabularies are those of `tokenizer`, the weights.

        Raises ConfigError where the model that starts has another tokenizer and the configuration does not ask for
        that, or other sizes, and CheckpointError where its files are damaged or hold NaN or infinite weights.
        """
        theirs, file = self.tokenizer(), self.directory / run_layout.WEIGHTS
        is_same = theirs.fingerprint() == tokenizer.fingerprint()
        if not is_same and self.keeps_vocabulary:
            raise ConfigError(
                f"{KEY}: {self.directory} has another tokenizer than this run; leave data.tokenizer and "
                f"data.tokenizer_options out, or name the files in its tokenizer directory; with {NEW}: true the "
                "vocabulary may be another"
            )
        own, shapes = model.state_dict(), read_shapes(file)
        tables = {} if is_same else {name: side for name, side in _TABLES.items() if name in own and name in shapes}
        sizes = {"source": theirs.source_size, "target": theirs.target_size}
        for name, side in tables.items():
            if shapes[name].shape == (sizes[side], *own[name].shape[1:]):
                shapes[name] = own[name]
        try:
            check_weights(model, shapes, file=file)  # before the rest is read, which can be much
        except CheckpointError as error:
            raise ConfigError(f"{KEY}: {error}") from error
        weights = read_weights(file)
        if tables:
            origins = {side: origin_of(side, theirs, tokenizer) for side in dict.fromkeys(tables.values())}
            for name, side in tables.items():
                weights[name] = moved(weights[name], own[name].cpu(), origins[side].pieces)
            first, *others = map(str, origins.values())
            named = first if others in ([], [first]) else "; ".join(f"{side} {one}" for side, one in origins.items())
            self.said += f" with another vocabulary: {named}"
        check_weights(model, weights, file=file)
        model.load_state_dict(weights)
        check_finite(model.state_dict(), file=file)

    @staticmethod
    def settings(raw: dict[str, Any], *, overwrite: bool) -> list[Problem]:
        """Add to `raw`, a configuration as it is given, architecture, tokenizer and languages of the model that it
        starts from; a problem for each given value that contradicts it.

        A run that resumes has them in its own configuration. Whatever else is wrong with `raw` is reported elsewhere.
        """
        problems, run = list[Problem](), Path(str(raw.get("run_dir")))
        training, data, model = (raw.get(name) or {} for name in ("training", "data", "model"))
        start = training.get("init_from") if isinstance(training, dict) else None
        if not isinstance(start, str) or not isinstance(data, dict) or not isinstance(model, dict):
            return []
        try:
            resumes = not overwrite and bool(run_layout.checkpoint_steps(run))
            saved = load_saved(run / run_layout.CONFIG if resumes else config_file(find(expanded(start))))
        except (NmtError, ValueError):
            return []
        tokenizer, options = TOKENIZERS.get(saved.data.tokenizer), data.get("tokenizer_options") or {}
        files, is_new = path_options(tokenizer), training.get("new_vocabulary") is True

        def joined(given: Mapping[str, Any], theirs: Mapping[str, Any], *, key: str) -> dict[str, Any]:
            found = {**theirs, **given}
            for name, value in given.items():
                own, is_free = theirs.get(name, value), name.endswith("dropout") or name in tokenizer.sampling_options
                is_free = is_free or resumes or name in _OF_NEW_WEIGHTS or (is_new and key.startswith("data"))
                if isinstance(own, dict) and isinstance(value, dict) and name not in _OF_NEW_WEIGHTS:
                    found[name] = joined(value, own, key=f"{key}.{name}")
                elif value != own and not is_free:
                    hint = f"; {NEW}: true allows another vocabulary" if key.startswith("data") else ""
                    message = f"{shown(value)} is not what {KEY} has, {shown(own)}{hint}"
                    problems.append(Problem(f"{key}.{name}", message))
            return found

        if raw.get("task", TRANSLATION) == saved.task:
            raw["model"] = joined(model, dataclasses.asdict(saved.model), key="model")
            languages = {name: getattr(saved.data, name) for name in ("source_language", "target_language")}
            kept = {**saved.data.tokenizer_options, **dict.fromkeys(files)}
            theirs = {"tokenizer": saved.data.tokenizer, "tokenizer_options": kept}
            if data.get("tokenizer", saved.data.tokenizer) != saved.data.tokenizer and is_new:
                theirs = {}  # whose options are others
            if isinstance(options, dict) and not any(map(options.get, files)):  # else the files decide
                data = joined(data, theirs, key="data")
            raw["data"] = {**languages, **data}
        return problems


def find(path: str) -> Path:
    """The directory whose weights `path` means: of a run its best checkpoint. ConfigError for none."""
    try:
        directory = find_model(path)
        check_trainable(directory)
        return directory
    except CheckpointError as error:
        raise ConfigError(f"{KEY}: {error}") from error


class Origin(NamedTuple):
    """Where the rows of a new vocabulary come from."""

    pieces: list[list[int]]
    """For each new piece the old ids of whose rows it starts as the mean: its own one, those that spell it, or none."""
    taken: int
    """How many pieces both have."""

    def __str__(self) -> str:
        drawn = self.pieces.count([])
        mean = len(self.pieces) - self.taken - drawn
        return (
            f"{self.taken:,} of {len(self.pieces):,} rows taken over, {mean:,} the mean of their old pieces, "
            f"{drawn:,} drawn anew"
        )


def origin_of(side: str, theirs: Tokenizer, ours: Tokenizer) -> Origin:
    """The pieces of `ours`, of one side, in `theirs`: the same one, else those into which its text is split.

    A piece that continues a word is split without the mark of a word's beginning where that is possible. Pieces that
    stand for bytes, and those with nothing but unknown characters, have none.
    """
    names, new = (
        [WORD_BEGIN * each.splits_at_spaces + name for name in tokens(range(size))]
        for each in (theirs, ours)
        for tokens, size in [
            (each.source_tokens, each.source_size) if side == "source" else (each.target_tokens, each.target_size)
        ]
    )
    known = {name: i for i, name in enumerate(names)}
    found = [[i] if i < len(SPECIAL_TOKENS) else [known[name]] if name in known else [] for i, name in enumerate(new)]
    taken = sum(map(len, found))
    others = [i for i, ids in enumerate(found) if not ids and not BYTE.fullmatch(new[i])]
    texts = [new[i].replace(WORD_BEGIN, " ").strip() for i in others]
    encode = theirs.encode_source if side == "source" else theirs.encode_target
    for i, ids in zip(others, encode(texts), strict=True):
        first = names[ids[0]] if ids else ""
        if first.startswith(WORD_BEGIN) and not new[i].startswith(WORD_BEGIN):
            inner = known.get(first.removeprefix(WORD_BEGIN))
            ids = [*([] if first == WORD_BEGIN else ids[:1] if inner is None else [inner]), *ids[1:]]
        found[i] = [old for old in ids if old != UNK]
    return Origin(found, taken)


def moved(old: Tensor, new: Tensor, pieces: Sequence[Sequence[int]]) -> Tensor:
    """A table [V', ...] whose rows are means of rows of `old` [V, ...], and those of `new` [V', ...] without any."""
    found = new.clone()
    for row, ids in enumerate(pieces):
        if ids:
            found[row] = old[torch.tensor(ids)].double().mean(0)
    return found
