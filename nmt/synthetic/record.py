"""PREFIX.manifest.json: the inputs of a corpus and its progress, so that the same command resumes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from nmt import __version__
from nmt.config.schema import DecodingConfig
from nmt.errors import ConfigError, DataError, SettingError, refused
from nmt.files import LARGEST_RECORD, naming, open_regular, read_bounded, reason, replace_text
from nmt.interop import run_layout
from nmt.interop.model_dir import weights_of
from nmt.light.options import OPTIONS, names_of
from nmt.synthetic.choice import SIMILARITIES
from nmt.synthetic.counts import Counts
from nmt.synthetic.texts import Texts

FORMAT: Final = 1
_REWRITING: Final = ("placeholders", "glossary", "replace_unknown")
"""Keys of `decoding` that replace parts of the model's output."""
_FEWEST: Final = 2
"""Translations that can be chosen among."""
_DIGEST: Final = "sha256:"
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Work:
    """The description of the work."""

    texts: Texts
    models: Sequence[Path]
    """Directories of the weights."""
    decoding: DecodingConfig
    languages: tuple[str, str]
    """Suffixes of the files: of the text that is read, and of its translations."""
    nearest: str | None = None
    """A name of SIMILARITIES: of the n best translations that one which is nearest to the reference."""
    keep_original: bool = False
    """Also write each line with its reference."""
    errors: str = "strict"
    """The rule for lines that are not UTF-8."""
    as_tokens: bool = False
    """Whether output is written as tokens separated by spaces, for a tokenizer that splits at spaces."""

    def __post_init__(self) -> None:
        """Raise ConfigError for options that are not possible."""
        if self.nearest is not None and self.nearest not in SIMILARITIES:
            raise SettingError(("nearest", refused("", self.nearest, tuple(SIMILARITIES), problem="is not known")))
        if self.nearest is not None and self.decoding.n_best < _FEWEST:
            raise SettingError(("nearest", f"needs several translations; set n_best to {_FEWEST} or more"))
        rewriting = [name for name in _REWRITING if getattr(self.decoding, name)]
        if self.as_tokens and rewriting:
            message = "changes translations afterwards, but text for this tokenizer consists of the model's tokens"
            raise SettingError((rewriting[0], message))
        asked = [name for name, given in (("nearest", self.nearest), ("keep_original", self.keep_original)) if given]
        if asked and not any(part.reference is not None for part in self.texts.parts):
            raise SettingError((asked[0], "the text to translate has no references; only parallel text has them"))

    def facts(self) -> dict[str, Any]:
        """By name, everything that determines the output, as JSON values; contents of files by their digests."""
        texts = {f"text {number}": _DIGEST + part.digest for number, part in enumerate(self.texts.parts, start=1)}
        models = {f"model {number}": _DIGEST + _sum(path) for number, path in enumerate(self.models, start=1)}
        own = {name: getattr(self, name) for name in ("nearest", "keep_original", "errors")}
        with_references = sum(part.reference is not None for part in self.texts.parts)
        numbers = {"texts": len(texts), "texts with references": with_references, "models": len(models)}
        found = {**numbers, **texts, **models, "languages": self.languages, **own, **_search(self.decoding)}
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain


@dataclass
class Progress:
    """How far a work has come."""

    sizes: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of the two files."""
    counts: Counts = field(default_factory=Counts)
    is_whole: bool = False
    """Whether all lines are done, so that the files only need their names."""


def read_record(path: Path, facts: Mapping[str, Any]) -> Progress | None:
    """The recorded progress of the work with these facts; None if there is no record.

    Raises:
        ConfigError: it belongs to other work; the error names the differences.
        DataError: it cannot be read, or is not such a record.
    """
    try:
        with open_regular(path) as stream:
            content = json.loads(read_bounded(stream, largest=LARGEST_RECORD))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({reason(error)})") from error
    except ValueError as error:
        raise DataError(f"{path}: {_DAMAGED}") from error
    try:
        found, done = content["facts"], content["done"]
        if content["format"] != FORMAT:
            raise DataError(
                f"{path}: of another version of nmt; finish with that version, or start again with --overwrite"
            )
        differing = differences(found, facts)
        progress = Progress(list(done["sizes"]), Counts.from_json(done["counts"]), bool(done["is_whole"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: {_DAMAGED}") from error
    if differing:
        raise ConfigError(
            f"{path}: made with other text, models or options ({'; '.join(differing)}); use the same ones, give "
            f"another prefix, or start again with --overwrite"
        )
    return progress


_DAMAGED: Final = "not a record of nmt-distill or nmt-backtranslate; start again with --overwrite"


def write_record(path: Path, work: Work, facts: Mapping[str, Any], progress: Progress) -> None:
    """Replace the record at once; OSError where that fails."""
    content = {
        "format": FORMAT,
        "nmt": __version__,
        "texts": [
            {"source": str(part.source), "reference": None if part.reference is None else str(part.reference),
             "lines": part.lines}
            for part in work.texts.parts
        ],
        "models": [str(model) for model in work.models],
        "facts": dict(facts),
        "done": {"sizes": progress.sizes, "counts": progress.counts.to_json(), "is_whole": progress.is_whole},
    }  # fmt: skip
    with naming(path):
        replace_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the facts of two works, in words; what an older version did not know is left out."""
    found = []
    for name, value in new.items():
        if name in old and old[name] != value:
            is_content = str(value).startswith(_DIGEST)
            found.append(f"{name} has different contents" if is_content else f"{name}: {old[name]!r} -> {value!r}")
    return found


def _search(decoding: DecodingConfig) -> dict[str, Any]:
    names = [item.name for item in fields(decoding) if not OPTIONS[item.name].only_rounding]
    found = {f"decoding.{name}": getattr(decoding, name) for name in names}
    for key in names_of("file"):
        if (path := getattr(decoding, key)) is not None:
            found[f"decoding.{key}"] = _DIGEST + _sum_of_file(Path(path))
    if decoding.language_model is not None:
        found["decoding.language_model"] = _DIGEST + _sum_of_file(weights_of(decoding.language_model))
    return found


def _sum(model: Path) -> str:
    return _sum_of_file(model / run_layout.WEIGHTS)


def _sum_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({reason(error)})") from error
    return digest.hexdigest()
