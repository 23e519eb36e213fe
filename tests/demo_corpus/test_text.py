"""The demo corpus as written: the same bytes each time, nothing twice, mistakes named."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from nmt.demo_corpus.text import Demo
from nmt.errors import ConfigError, DataError

SIZES = {"train": 14_000, "dev": 500, "test": 500}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "corpus"
    Demo.write(folder, "en", "de")
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_sizes(corpus: Path) -> None:
    assert {name: len(lines(corpus / f"{name}.en")) for name in SIZES} == SIZES
    assert {name: len(lines(corpus / f"{name}.de")) for name in SIZES} == SIZES
    assert sorted(path.name for path in corpus.iterdir()) == sorted(
        f"{name}.{side}" for name in SIZES for side in ("en", "de")
    )


@pytest.mark.parametrize("side", ["en", "de"])
def test_no_sentence_comes_twice_in_a_part_or_in_two(corpus: Path, side: str) -> None:
    counts = Counter(line for name in SIZES for line in lines(corpus / f"{name}.{side}"))
    assert counts.most_common(1)[0][1] == 1
    assert len(counts) == sum(SIZES.values())


@pytest.mark.slow
def test_the_other_direction_is_the_same_corpus(corpus: Path, tmp_path: Path) -> None:
    Demo.write(tmp_path, "de", "en")
    for path in corpus.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_the_whole_corpus_is_that_of_the_published_figures(corpus: Path) -> None:
    """Other sentences mean other figures in the demo: after a change of the grammar, measure them anew."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(corpus.iterdir())))
    assert digest.hexdigest() == "588e49e6210ebbfbff4cdb754fbdd96d8ea88c714910f68002fd4c511b287488"


def test_other_languages_are_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.source_language.*'fr'-'de'"):
        Demo.write(tmp_path, "fr", "de")
    with pytest.raises(ConfigError, match=r"data\.source_language"):
        Demo.write(tmp_path, "en", "en")


def test_both_directions_are_there() -> None:
    for languages in (("en", "de"), ("de", "en")):
        Demo.check_languages(*languages)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*cannot be written"):
        Demo.write(tmp_path / "file" / "corpus", "en", "de")
