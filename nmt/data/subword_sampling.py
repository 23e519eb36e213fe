"""How the subwords of a SentencePiece model are drawn at random: its characters, merges and probabilities as tables."""

from __future__ import annotations

from typing import Literal

import numpy as np
import sentencepiece

from nmt.data.sentencepiece_options import WORD_BEGIN
from nmt.errors import ConfigError
from nmt.ops.subwords import Alphabet, MergeDropout, PathSampling, Splitter, Table


def bpe_dropout(model: sentencepiece.SentencePieceProcessor, p: float, *, key: str) -> Splitter:
    """Sampling from a BPE model; ConfigError, which begins with `key`, for a model of another kind."""
    _check(model, "bpe", key)
    pieces = _ordinary(model)
    merges = {
        (pieces[whole[:cut]], pieces[whole[cut:]]): i
        for whole, i in pieces.items()
        for cut in range(1, len(whole))
        if whole[:cut] in pieces and whole[cut:] in pieces
    }
    # Equal scores have equal ranks: of such merges SentencePiece, too, takes the leftmost.
    scores = np.array([model.get_score(i) for i in range(model.get_piece_size())])
    ranks = np.unique(-scores, return_inverse=True)[1].astype(np.int32)
    return MergeDropout(_alphabet(model, pieces), Table(merges), ranks, p=p)


def unigram_sampling(model: sentencepiece.SentencePieceProcessor, alpha: float, *, key: str) -> Splitter:
    """Sampling from a unigram model; ConfigError, which begins with `key`, for a model of another kind."""
    _check(model, "unigram", key)
    pieces = _ordinary(model)
    tokens = {i: [pieces[character] for character in piece] for piece, i in pieces.items() if _is_known(piece, pieces)}
    scores = np.array([model.get_score(i) for i in range(model.get_piece_size())], np.float64)
    return PathSampling(_alphabet(model, pieces), tokens, scores, alpha=alpha)


def kind_of(model: sentencepiece.SentencePieceProcessor) -> Literal["bpe", "unigram"] | None:
    """The algorithm of a model, by what it can do; None where it has only one segmentation (words, characters)."""
    try:
        model.sample_encode_as_ids("a", alpha=0.5, nbest_size=-1)
    except RuntimeError:
        return None
    try:
        model.nbest_encode_as_ids("a", nbest_size=1)
    except RuntimeError:
        return "bpe"
    return "unigram"


def _check(model: sentencepiece.SentencePieceProcessor, wanted: str, key: str) -> None:
    if kind_of(model) != wanted:
        raise ConfigError(f"{key}: needs a {wanted} model, which this SentencePiece model is not")
    if any(model.is_unused(i) for i in range(model.get_piece_size())):
        raise ConfigError(f"{key}: the SentencePiece model has pieces marked as unused, which cannot be sampled")


def _ordinary(model: sentencepiece.SentencePieceProcessor) -> dict[str, int]:
    """The pieces that words are made of, with their ids: no special symbols, no bytes, none that a user has defined."""
    special = (model.is_control, model.is_unknown, model.is_byte, model.is_unused)
    ids = (i for i in range(model.get_piece_size()) if not any(is_so(i) for is_so in special))
    return {model.id_to_piece(i): i for i in ids if not _is_user_defined(model, i)}


def _is_user_defined(model: sentencepiece.SentencePieceProcessor, i: int) -> bool:
    """Whether a piece is always taken whole: its score is 0, and it is there where all merges are left out.

    SentencePiece for Python does not tell the type of a piece. The best merge of a BPE model has a score of 0, too.
    """
    if model.get_score(i) != 0:
        return False
    text = model.id_to_piece(i).replace(WORD_BEGIN, " ")
    return kind_of(model) == "unigram" or i in model.sample_encode_as_ids(text, alpha=1.0, nbest_size=-1)


def _is_known(piece: str, pieces: dict[str, int]) -> bool:
    return all(character in pieces for character in piece)


def _alphabet(model: sentencepiece.SentencePieceProcessor, pieces: dict[str, int]) -> Alphabet:
    """A token with a character that is no piece of its own stays whole."""
    size = model.get_piece_size()
    frozen, starts = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    characters = [[i] for i in range(size)]
    for piece, i in pieces.items():
        if _is_known(piece, pieces):
            frozen[i] = 0
            characters[i] = [pieces[character] for character in piece]
    # Where spaces stand only at the beginning of pieces, no piece is part of two words.
    if WORD_BEGIN in pieces and not any(WORD_BEGIN in piece[1:] for piece in pieces):
        starts[pieces[WORD_BEGIN]] = 1
    first = np.zeros(size + 1, np.int64)
    np.cumsum([len(own) for own in characters], out=first[1:])
    return Alphabet(first, np.concatenate([np.array(own, np.int32) for own in characters]), frozen, starts)
