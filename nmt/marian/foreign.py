"""Models of others as one value: weights in Marian's names, vocabularies of both sides, where they come from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nmt.errors import CheckpointError, missing, shown
from nmt.light.options import OPTIONS
from nmt.marian import pieces
from nmt.marian.arrays import MarianWeights, read_weights, read_yaml
from nmt.marian.package import LARGEST, Package, is_zip, open_package, read_file
from nmt.marian.pieces import Piece
from nmt.marian.shape import Shape, shape_of
from nmt.marian.shortlists import Lexicon, read_lexicon

NO_LICENCE = "not stated in its files"
PAD, UNK, EOS = "<pad>", "<unk>", "</s>"
WEIGHTS = r"(?!lex)(?!optimizer).*\.(npz|bin)(\.gz)?"
VOCABULARY = r"vocab.*\.(spm|yml|json)(\.gz)?"
LEXICON = r"lex.*\.bin(\.gz)?"
_LANGUAGE = re.compile(r">>[^<>\s]+<<")
"""A token that says into which language a multilingual model translates."""
_PAIR = re.compile(r"\.([a-z]{2,3})[-_]?([a-z]{2,3})\.")
"""The languages in Mozilla's names, as in model.csen.intgemm.alphas.bin."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a side, and the SentencePiece model that splits text into them."""

    tokens: Sequence[str]
    """By their ids in the model."""
    splitter: bytes

    def rebuilt(self) -> bytes:
        """The SentencePiece model with nmt's ids, for which `old_ids` has the model's; raises ValueError for none.

        Tokens that it never splits text into are UNUSED pieces, languages are words that it does not split.
        """
        own = {piece.text: piece for piece in pieces.pieces_of(self.splitter)}
        found = [Piece(PAD, 0.0, pieces.CONTROL), Piece(UNK, 0.0, pieces.UNKNOWN), Piece(EOS, 0.0, pieces.CONTROL)]
        for token in self.others():
            piece = own.get(token)
            if _LANGUAGE.fullmatch(token):
                found.append(Piece(f"\u2581{token}", 0.0, pieces.USER_DEFINED))
            elif piece is not None and piece.kind in (pieces.NORMAL, pieces.USER_DEFINED, pieces.BYTE):
                found.append(piece)
            else:
                found.append(Piece(token, 0.0, pieces.UNUSED))
        return pieces.with_pieces(self.splitter, found, unk=1, eos=2, pad=0)

    def others(self) -> list[str]:
        """The tokens besides padding, unknown and end, in the order that both numberings have."""
        return [token for token in self.tokens if token not in (PAD, UNK, EOS)]

    def old_ids(self) -> list[int]:
        """The model's id of each of nmt's ids: -1 where it has no padding."""
        place = {token: i for i, token in enumerate(self.tokens)}
        return [place.get(PAD, -1), place[UNK], place[EOS], *(place[token] for token in self.others())]


@dataclass(frozen=True)
class Foreign:
    """A model as its files have it."""

    form: Literal["marian", "opus_mt"]
    weights: MarianWeights
    shape: Shape
    source: Vocabulary
    target: Vocabulary
    sha256: str
    """Of the file of weights, as it is stored."""
    languages: tuple[str, str] | None = None
    licence: str | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    """Options of the search that its files state, by nmt's names."""
    lexicon: Lexicon | None = None
    notes: list[str] = field(default_factory=list)
    """What a user should know, one line each."""

    @property
    def described(self) -> str:
        """What it is, for people."""
        shape, maker = self.shape, "Marian" if self.form == "marian" else "OPUS-MT"
        languages = "" if self.languages is None else f" from {self.languages[0]} to {self.languages[1]}"
        sizes = " and ".join(dict.fromkeys(f"{len(side.tokens):,}" for side in (self.source, self.target)))
        return (
            f"a model of {maker}{languages}, {shape.encoder_layers}+{shape.decoder_layers} layers, "
            f"{shape.width} wide, {sizes} tokens, licence {self.licence or NO_LICENCE}"
        )

    @property
    def tying(self) -> Literal["none", "target_softmax", "all"]:
        """Which tables are one, as `model.tie_embeddings` has it."""
        source, target, output = self.shape.tables
        if output != target:
            return "none"
        return "all" if source == target else "target_softmax"


def read_foreign(
    path: Path,
    *,
    vocabulary: Path | None = None,
    target_vocabulary: Path | None = None,
    lexicon: Path | None = None,
) -> Foreign:
    """A file of weights with its vocabularies, or a folder or zip that holds all.

    Args:
        path: `.npz` or `.bin` of Marian, a folder as Mozilla or browsermt/students ship it, or a zip of OPUS-MT.
        vocabulary: `.spm`, or `.yml` beside two `.spm`, for a file, or instead of the one in the folder.
        target_vocabulary: that of the target, if there are two.
        lexicon: the binary shortlist.

    Raises:
        CheckpointError: files that cannot be used or do not fit together, in one line that names file and value.
    """
    if not path.exists():
        raise CheckpointError(missing(path))
    if path.is_dir() or (is_zip(path) and path.suffix != ".npz"):
        package = open_package(path)
        files = _files_of(package)
    else:
        if vocabulary is None:
            raise CheckpointError(f"{path}: needs its vocabulary: name the .spm file with --vocab, or give the folder")
        package = Package(path.parent, {})
        files = _Files(path, read_file(path), [])
    if vocabulary is not None:
        files = replace(files, vocabularies=[(v, read_file(v)) for v in (vocabulary, target_vocabulary or vocabulary)])
    if lexicon is not None:
        files = replace(files, lexicon=(lexicon, read_file(lexicon)))
    return _from_marian(files, package)


@dataclass(frozen=True)
class _Files:
    """What a model of Marian consists of, each with its name in messages."""

    path: Path
    content: bytes
    vocabularies: list[tuple[Path, bytes]]
    """Of source and target."""
    lexicon: tuple[Path, bytes] | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)


def _files_of(package: Package) -> _Files:
    """The files of a folder or zip, by its own configuration, or else by their names."""
    name = package.only(r"decoder\.yml|config.*\.yml", "configuration")
    decoding: dict[str, Any] = {}
    if name is not None:
        try:
            decoding = read_yaml(package.text(name))
        except ValueError as error:
            raise CheckpointError(f"{package.place(name)}: {error}") from error

    def named(key: str, pattern: str, what: str) -> list[str]:
        """The files that the configuration lists and the package has, under their names without folders."""
        listed = decoding.get(key)
        names = [Path(one).name for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
        there = [one if one in package.files else f"{one}.gz" for one in names if one]
        if there and all(one in package.files for one in there):
            return there
        found = package.only(pattern, what)
        return [] if found is None else [found]

    models = named("models", WEIGHTS, "weights")
    if len(models) != 1:
        problem = (
            f"lists {len(models)} models, and one is read" if models else "has neither a .npz nor a .bin of weights"
        )
        raise CheckpointError(f"{package.path}: {problem}")
    vocabularies = named("vocabs", VOCABULARY, "vocabulary")
    if not 1 <= len(vocabularies) <= 2:
        raise CheckpointError(f"{package.path}: has {len(vocabularies)} vocabularies. Allowed: one, or one a side.")
    lexicons = named("shortlist", LEXICON, "shortlist")[:1]
    read = {name: (package.place(name), package.read(name, largest=LARGEST)) for name in [*vocabularies, *lexicons]}
    return _Files(
        package.place(models[0]),
        package.read(models[0], largest=LARGEST),
        [read[vocabularies[0]], read[vocabularies[-1]]],
        read[lexicons[0]] if lexicons else None,
        decoding,
    )


def _from_marian(files: _Files, package: Package) -> Foreign:
    weights = read_weights(files.content, files.path)
    shape = shape_of(weights)
    notes = []
    if files.decoding.get("word-penalty"):
        notes.append(f"word-penalty {files.decoding['word-penalty']} of its configuration has no counterpart here")
    decoding = decoding_of([files.decoding, weights.settings], _OPTIONS)
    for key, name in _OPTIONS.items():
        if (value := files.decoding.get(key)) is not None and name not in decoding:
            allowed = OPTIONS[name].allowed()
            notes.append(f"{key}: {shown(value)} of its configuration is not taken over. Allowed: {allowed}.")
    (source_path, source_raw), (target_path, target_raw) = files.vocabularies
    source = read_vocabulary(source_path, source_raw, shape.source_size, package, "source")
    target = read_vocabulary(target_path, target_raw, shape.target_size, package, "target")
    if shape.tables[0] == shape.tables[1] and source.tokens != target.tokens:
        raise CheckpointError(
            f"{target_path}: another vocabulary than {source_path}, but the model has one table for both"
        )
    lexicon = None
    if files.lexicon is not None:
        path, raw = files.lexicon
        lexicon = read_lexicon(raw, path, source_size=shape.source_size, target_size=shape.target_size)
    pair = _PAIR.search(files.path.name)
    return Foreign(
        "marian",
        weights,
        shape,
        source,
        target,
        sha256=hashlib.sha256(files.content).hexdigest(),
        languages=(pair[1], pair[2]) if pair else None,
        licence=licence_of(package),
        decoding=decoding,
        lexicon=lexicon,
        notes=notes,
    )


def read_vocabulary(path: Path, raw: bytes, size: int, package: Package, side: str) -> Vocabulary:
    """The vocabulary in a SentencePiece model, or in YAML or JSON beside `source.spm` and `target.spm`."""
    try:
        if path.name.removesuffix(".gz").endswith(".spm"):
            tokens, splitter = [piece.text for piece in pieces.pieces_of(raw)], raw
        else:
            tokens = _listed(raw.decode("utf-8"))
            name = f"{side}.spm"
            beside = path.parent / name
            splitter = package.read(name) if package.files else read_file(beside)
            pieces.pieces_of(splitter)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    if len(tokens) < size:
        raise CheckpointError(f"{path}: has {len(tokens):,} tokens, and the model's table has {size:,} rows")
    for token in (EOS, UNK):
        if token not in tokens[:size]:
            raise CheckpointError(f"{path}: the token {token} is missing")
    return Vocabulary(tokens[:size], splitter)


def _listed(text: str) -> list[str]:
    """The tokens of `token: id` in JSON, or in Marian's YAML, which is not always valid. Raises ValueError."""
    if text.lstrip()[:1] == "{":
        found = json.loads(text)
        ids = found if isinstance(found, dict) else {}
    else:
        ids, key = {}, None
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("? "):
                key = line[2:]
            elif line.strip() and not line.startswith(("#", "---")):
                before, _, after = line.rpartition(":")
                token = _unquoted(key if key is not None and not before.strip() else before)
                if token in ids or not after.strip().isdecimal():
                    raise ValueError(f"line {number} is no new token with its id: {shown(line)}")
                ids[token], key = int(after), None
    tokens: list[str | None] = [None] * len(ids)
    for token, i in ids.items():
        if type(i) is not int or not 0 <= i < len(ids) or tokens[i] is not None:
            raise ValueError(
                f"the id {shown(i)} of {shown(token)} is not one of 0 to {len(ids) - 1}, each of which is there once"
            )
        tokens[i] = token
    return [token for token in tokens if token is not None]


def _unquoted(token: str) -> str:
    """A key of YAML as text."""
    token = token.strip(" ")
    if len(token) > 1 and token[0] == token[-1] == "'":
        return token[1:-1].replace("''", "'")
    if len(token) > 1 and token[0] == token[-1] == '"':
        escaped = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", token)
        return str(json.loads(escaped, strict=False))
    return token


_OPTIONS = {"beam-size": "beam_size", "normalize": "length_penalty", "max-length-factor": "max_length_factor"}
"""Options of the search, in Marian and here."""


def decoding_of(settings: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
    """What settings, the first ones before the others, say about the search, by nmt's `names` of theirs."""
    found = {}
    for key, name in names.items():
        value: Any = next((one[key] for one in settings if one.get(key) is not None), None)
        option = OPTIONS[name]
        if type(value) in (int, float) and option.least <= value <= option.engine_most:
            found[name] = int(value) if option.kind == "whole" else float(value)
    return found


_LICENCE = re.compile(
    r"^licen[cs]e\s*:\s*([\w.+-]+)\s*$|\b(CC[- ]BY[-\w .]*\d\.\d|MPL[- ]2\.0|Apache[- ]2\.0|MIT)\b", re.M | re.I
)


def licence_of(package: Package) -> str | None:
    """The licence that README.md, model card or LICENSE states; None if none does."""
    for name in ("README.md", "LICENSE", "LICENSE.md", "LICENSE.txt"):
        if name in package.files and (found := _LICENCE.search(package.text(name))):
            return found[1] or found[2]
    return None
