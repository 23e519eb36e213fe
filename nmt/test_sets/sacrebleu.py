"""The published test sets that sacreBLEU knows, such as `wmt14`, from its folder or, where that lacks them, fetched."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from nmt.errors import ConfigError, DataError, near_miss
from nmt.registry import TEST_SETS


class Published(NamedTuple):
    """Files of a test set; of several sets after one another, a list with a file of each."""

    sources: list[str]
    references: list[list[str]]
    """For each set of references."""
    language: str
    """That is translated to."""


@TEST_SETS.register("sacrebleu")
def test_set(names: str, pair: str | None) -> Published:
    """The files of test sets (separated by commas, as for `sacrebleu -t`) for a language pair such as `en-de`.

    Raises:
        ConfigError: sacreBLEU does not know the set or pair.
        DataError: files are not in sacreBLEU's folder and cannot be fetched; the message names their place.
    """
    from sacrebleu.dataset import DATASETS

    sources, references = [], []
    for name in names.split(","):
        if name not in DATASETS:
            raise ConfigError(
                f"test set '{name}': sacreBLEU does not know it.{near_miss(name, list(DATASETS))} "
                "`sacrebleu --list` shows all."
            )
        dataset = DATASETS[name]
        known = ", ".join(sorted(dataset.langpairs))
        if pair is None:
            raise ConfigError(f"test set {name}: needs a language pair. Allowed: {known}.")
        if pair not in dataset.langpairs:
            raise ConfigError(f"test set {name}: has no language pair '{pair}'. Allowed: {known}.")
        source, *others = _files(dataset, pair)
        sources.append(source)
        references.append(others)
    counts = {len(files) for files in references}
    if len(counts) > 1:
        raise ConfigError(f"test sets {names}: have different numbers of references ({sorted(counts)})")
    return Published(
        sources, [list(files) for files in zip(*references, strict=True)], pair.split("-")[1] if pair else ""
    )


def _files(dataset: Any, pair: str) -> list[str]:
    """The source and the references, as text; the text alone is enough, without what sacreBLEU made it of."""
    from sacrebleu.dataset.wmt_xml import WMTXMLDataset

    folder, url = dataset._outdir, dataset.data[0]
    fetching: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if isinstance(dataset, WMTXMLDataset):  # reads the names of its references in the raw files
        belongs = f"it belongs in {dataset._rawdir} as {dataset._get_tarball_filename(url)}, and unpacked"
        fetching = _fetching(f"test set {dataset.name}, {pair}: {url}", belongs)
    with fetching:  # a set has more fields, such as the document of a line
        fields = ["src", *(field for field in dataset.fieldnames(pair) if field.startswith("ref"))]
    texts = [dataset._get_txt_file_path(pair, field) for field in fields]
    if not all(map(os.path.exists, texts)):
        belongs = f"its text belongs in {folder} as {' and '.join(map(os.path.basename, texts))}"
        with _fetching(f"test set {dataset.name}, {pair}: {url}", belongs):
            dataset.get_files(pair)
    return texts


@contextlib.contextmanager
def _fetching(what: str, belongs: str) -> Iterator[None]:
    """Turns sacreBLEU's exceptions and exits into an error that names the place of the files."""
    logger, messages = logging.getLogger("sacrebleu"), logging.handlers.BufferingHandler(capacity=1000)
    messages.setLevel(logging.ERROR)
    logger.addHandler(messages)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    except (OSError, EOFError, ValueError, SystemExit) as error:
        # Before it ends the process, sacreBLEU logs why.
        told = messages.buffer if isinstance(error, SystemExit) else []
        reason = told[0].getMessage() if told else str(error)
        raise DataError(f"{what} cannot be fetched ({' '.join(reason.split())}); {belongs}") from error
    finally:
        logger.removeHandler(messages)
        logger.propagate = propagates
