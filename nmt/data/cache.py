"""The cache of encoded text: complete entries are opened, missing or damaged ones are encoded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from nmt.config.schema import DataConfig
from nmt.data.corpus import META, Corpus
from nmt.data.corpus_check import damage, damaged_file, unverified_bytes
from nmt.data.encoding import LengthRule, Tags, encode
from nmt.data.progress import progress as progress_shown
from nmt.data.text import FilePair
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError


def encoded_corpus(
    files: Sequence[FilePair],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    rule: LengthRule,
    key: str,
    tags: Tags = (),
    language: str,
    workers: int,
    pairs: int,
    shown: bool,
) -> Corpus:
    """Open the corpus of a cache folder, or make it; a damaged corpus is made again."""
    if folder.is_dir():
        try:
            corpus = _whole(folder, shown=shown)
            if corpus.key == key:
                return corpus
        except DataError as error:
            print(f"{error}; the text is encoded again", file=sys.stderr, flush=True)
        shutil.rmtree(folder)
    name = f"encoding {folder.name.partition('-')[0]}"
    with progress_shown(name, total=pairs, unit=" pairs", shown=shown) as advance:
        encode(
            files, folder, tokenizer=tokenizer, rule=rule, key=key, tags=tags, language=language, workers=workers,
            advance=advance,
        )  # fmt: skip
    return _whole(folder, shown=shown)


def _whole(folder: Path, *, shown: bool) -> Corpus:
    """The corpus in a folder; DataError, naming the file, if it has changed since it was written."""
    corpus = Corpus(folder)
    name = f"verifying {folder.name.partition('-')[0]}"
    with progress_shown(name, total=unverified_bytes(folder), unit="B", shown=shown) as advance:
        damaged = damaged_file(folder, advance=advance)
    if damaged is not None:
        raise DataError(damage(damaged))
    return corpus


def corpora_of(data: DataConfig, run_dir: Path, *, keys: Mapping[str, Collection[str]]) -> list[Path]:
    """The existing folders of encoded text of a run: all of its own cache.

    In a cache shared with other runs (data.cache_dir), those with `keys`: by the name of a corpus, `train` or `dev`.
    """
    if data.cache_dir is None:
        return sorted(path.parent for path in (run_dir / "cache").glob(f"*/{META}") if not _is_unfinished(path.parent))
    folders = (corpus_folder(Path(data.cache_dir), name, key) for name, found in keys.items() for key in sorted(found))
    return [folder for folder in folders if (folder / META).is_file()]


def corpus_folder(cache: Path, name: str, key: str) -> Path:
    """Where the corpus called `name` of this key lies in a cache."""
    return cache / f"{name}-{key[:16]}"


def _is_unfinished(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name.endswith(".partial")
