"""Back-translated text in addition to the parallel text: all training files, and the tag of back-translated sources."""

from __future__ import annotations

from nmt.config.schema import DataConfig
from nmt.data.corpus import Corpus
from nmt.data.encoding import Tags
from nmt.data.text import FilePair, as_list, find_pairs
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import SPECIAL_TOKENS
from nmt.errors import DataError, counted


def training_prefixes(data: DataConfig) -> list[str]:
    """The prefixes of all training text, back-translated text last: the parts of the encoded corpus."""
    made = [] if data.train or data.generator == "none" else [data.generator]
    return [*as_list(data.train), *made, *as_list(data.monolingual)]


def training_files(data: DataConfig) -> list[FilePair]:
    """The files of these prefixes; DataError, naming the key, for a missing file."""
    languages = data.source_language, data.target_language
    parallel = find_pairs(data.train, *languages, key="data.train")
    return [*parallel, *find_pairs(data.monolingual, *languages, key="data.monolingual")]


def training_tags(data: DataConfig, tokenizer: Tokenizer) -> Tags:
    """The tag of each of these files (Caswell et al., WMT 2019); empty if no text has one.

    Raises DataError, naming the key, if the tag is not one token of the source vocabulary.
    """
    if not data.monolingual or data.monolingual_tag is None:
        return []
    tag = tokenizer.source_symbol(data.monolingual_tag)
    if tag is None or tag < len(SPECIAL_TOKENS):
        what = "is a special symbol" if tag is not None else "is not one token of the source vocabulary"
        remedy = (
            f"a tokenizer learned with data.tokenizer_options.symbols: ['{data.monolingual_tag}'] has it; "
            "data.monolingual_tag: null uses no tag"
        )
        raise DataError(f"data.monolingual_tag: {data.monolingual_tag!r} {what}; {remedy}")
    return [None] * len(as_list(data.train)) + [tag] * len(as_list(data.monolingual))


def describe_monolingual(data: DataConfig, train: Corpus) -> list[str]:
    """How much of the training text is back-translated, for people; empty if none is."""
    texts = len(as_list(data.monolingual))
    if not texts:
        return []
    tag = "" if data.monolingual_tag is None else f", each source after {data.monolingual_tag}"
    pairs = counted(sum(part.pairs for part in train.parts[-texts:]), "pair")
    return [f"train: {pairs} of these from data.monolingual{tag}"]
