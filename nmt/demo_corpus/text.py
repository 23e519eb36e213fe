"""The built-in demo corpus: English and German sentences, which scripts/demo_grammar has made."""

from __future__ import annotations

import bz2
from pathlib import Path

from nmt.errors import ConfigError, DataError
from nmt.files import reason
from nmt.registry import GENERATORS

TEXT = Path(__file__).with_name("demo.tsv.bz2")
TEST_PAIRS = 500
DEV_PAIRS = 500
PAIRS = 15_000
"""Lines of TEXT: English, a tab, German. The first are the test text, the next the validation text."""
_LANGUAGES = ("en", "de")


@GENERATORS.register("demo")
class Demo:
    """Writes the corpus for a run."""

    @staticmethod
    def check_languages(source_language: str, target_language: str) -> None:
        """Raise ConfigError unless these are English and German."""
        if sorted((source_language, target_language)) != sorted(_LANGUAGES):
            raise ConfigError(
                f"data.source_language: the demo corpus is English-German, not {source_language!r}-"
                f"{target_language!r}. Allowed: en with data.target_language de, or de with en."
            )

    @staticmethod
    def write(folder: Path, source_language: str, target_language: str) -> None:
        """Write train, dev and test of the demo corpus as FOLDER/train.en, FOLDER/train.de, ...

        The same call writes the same bytes. No sentence of one part is in another, in either language.

        Raises:
            ConfigError: the languages are not English and German.
            DataError: a file cannot be written.
        """
        Demo.check_languages(source_language, target_language)
        pairs = [line.split("\t") for line in bz2.decompress(TEXT.read_bytes()).decode().splitlines()]
        parts = {
            "test": pairs[:TEST_PAIRS],
            "dev": pairs[TEST_PAIRS : TEST_PAIRS + DEV_PAIRS],
            "train": pairs[TEST_PAIRS + DEV_PAIRS :],
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, part in parts.items():
                for language, lines in zip(_LANGUAGES, zip(*part, strict=True), strict=True):
                    text = "".join(f"{line}\n" for line in lines)
                    (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise DataError(f"{folder}: the demo corpus cannot be written: {reason(error)}") from error
