"""The built-in demo corpus: English and German sentences written by one small bilingual grammar."""

from __future__ import annotations

from nmt.demo.corpus import DEV_PAIRS, TEST_PAIRS, TRAIN_PAIRS, Pair, check_languages, generate, write_corpus

__all__ = ["DEV_PAIRS", "TEST_PAIRS", "TRAIN_PAIRS", "Pair", "check_languages", "generate", "write_corpus"]
