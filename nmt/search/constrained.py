"""Beam search for translations that contain required phrases: the beam is shared among what has come equally far.

Dynamic beam allocation (Post and Vilar, NAACL 2018; Hu et al., NAACL 2019). B sentences, K hypotheses each, N = B * K
rows, V words, t tokens so far. What a hypothesis has of each phrase is kept in Python: a step looks at a few candidates
for each hypothesis, and what the model computes for it costs far more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.ops.matrices.best_words import Choice, best_words
from nmt.search.banks import Alive, Candidate, Sentence
from nmt.search.compaction import rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.hypothesis import FIRST_EOS_PENALTY, Hypothesis, penalty_of
from nmt.search.required import BLOCKED, Phrase, Required


@torch.inference_mode()
def constrained_beam_search(
    model: Any,
    source: Tensor,
    required: Required,
    *,
    beam_size: int,
    length_penalty: float,
    max_length_offset: int,
    n_best: int,
    coverage_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch that contain all required phrases of their sentences.

    A hypothesis may end only when it contains all of them. The candidates of a step are the 2K best continuations, the
    2 best of each hypothesis, and those that lead further with a phrase. They are put into banks by their progress with
    the phrases (`bank_of`), and the K slots are given in rounds: to the best of each bank, to the second best of each,
    and so on, by log-probability if a round does not fit. The most advanced bank comes first, so that its best
    candidate always stays: with a beam of any size, all phrases are complete within as many tokens as they have, plus
    one for each, and the limit of a sentence is longer by that number. A phrase can be missing only if a rule of
    `model` excludes the tokens that continue it; then the limit cuts the most advanced hypotheses.

    Without phrases a sentence gets what `beam_search` finds. Scores, limits and stopping are those of `beam_search`,
    except that with phrases n_best hypotheses must have finished, if the limit allows.

    Args:
        model: has `start`, and `step` that gives log-probabilities, as `RuledModel` has.
        source, beam_size, length_penalty, max_length_offset, n_best, coverage_penalty: as in `beam_search`.
        required: the phrases.

    Returns:
        As `beam_search`.
    """
    width = beam_size
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    if not results:
        return results
    sentences = _sentences(source, required, max_length_offset=max_length_offset)
    tokens: Tensor | None = None
    covered = CoveringModel(model, strength=coverage_penalty) if coverage_penalty else None
    model = model if covered is None else covered
    state: Any = model.start(source)
    for t in itertools.count():
        for sentence, extras in zip(sentences, _extras(covered, state, len(sentences), width), strict=True):
            if sentence.active and sentence.is_done(t, alpha=length_penalty, n_best=n_best):
                sentence.active = False
                results[sentence.place] = sentence.found(t, alpha=length_penalty, extras=extras)[:n_best]
        rows = rows_to_keep(torch.tensor([sentence.active for sentence in sentences], dtype=torch.bool))
        if rows is not None:
            if not len(rows):
                return results
            rows = rows.to(source.device)
            sentences, state = [sentences[row] for row in rows.tolist()], state.keep(rows)
        if t:
            tokens = torch.tensor([token for sentence in sentences for token in sentence.last_tokens(width)])
        log_probs, state = model.step(None if tokens is None else tokens.to(source), state)
        candidates = _candidates(log_probs, sentences, required, t, width=width)
        all_extras = _extras(covered, state, len(sentences), width)
        parents = [
            sentence.advance(found, extras, width=width, penalty=penalty_of(t + 1, length_penalty))
            for sentence, found, extras in zip(sentences, candidates, all_extras, strict=True)
        ]
        if t:
            order = torch.tensor([row * width + parent for row, own in enumerate(parents) for parent in own])
            state = state.reorder(order.to(source.device))
        else:
            state = state.expand(width)
    raise AssertionError("every sentence has a limit")


def _sentences(source: Tensor, required: Required, *, max_length_offset: int) -> list[Sentence]:
    """The searches of the sentences of a batch, each with one hypothesis of no tokens."""
    left, right = (
        edges.to(torch.uint8).cpu().numpy().tobytes() for edges in (required.joins_left, required.joins_right)
    )
    sentences = []
    for place, (length, wanted) in enumerate(zip((source != PAD).sum(1).tolist(), required.phrases, strict=True)):
        phrases = [Phrase(tokens, left, right) for tokens in dict.fromkeys(map(tuple, wanted))]
        limit = length + max_length_offset + sum(len(phrase.tokens) + 1 for phrase in phrases)
        start = Alive(0.0, (), (0,) * len(phrases))
        sentences.append(Sentence(place, limit, phrases, [start]))
    return sentences


def _extras(covered: CoveringModel[Any] | None, state: Any, sentences: int, width: int) -> list[list[float]]:
    """What is added to the score of each hypothesis [B, K] if it ends."""
    return [[0.0] * width] * sentences if covered is None else covered.penalties(state).tolist()


def _candidates(
    log_probs: Tensor, sentences: Sequence[Sentence], required: Required, t: int, *, width: int
) -> list[list[Candidate]]:
    """The candidates of the hypotheses of each sentence; `log_probs` [N, V] is overwritten."""
    slots = len(log_probs) // len(sentences)
    totals_before = [sentence.totals(slots) for sentence in sentences]
    before = torch.tensor(totals_before, dtype=log_probs.dtype, device=log_probs.device)  # [B, slots]
    log_probs[:, PAD] = -math.inf
    if not t:
        log_probs[:, EOS] -= FIRST_EOS_PENALTY
    places = [
        (row, slot, sentence, one)
        for row, sentence in enumerate(sentences)
        if sentence.phrases
        for slot, one in enumerate(sentence.alive)
    ]
    unfinished = [row * slots + slot for row, slot, sentence, one in places if not sentence.is_complete(one.states)]
    log_probs[unfinished, EOS] = -math.inf
    totals = log_probs + before.view(-1, 1)
    found: list[dict[tuple[int, int], float]] = [{} for _ in sentences]

    def add(rows: Iterable[int], words: Iterable[int], values: Iterable[float]) -> None:
        for row, word, value in zip(rows, words, values, strict=True):
            found[row // slots][row % slots, word] = value

    if places:
        constrained = torch.tensor([row * slots + slot for row, slot, *_ in places], device=log_probs.device)
        own = best_words(totals[constrained], Choice(2, normalize=False))
        for column in range(2):
            add(constrained.tolist(), own.words[:, column].tolist(), own.values[:, column].tolist())
        rows, words = _leading_further(places, slots)
        add(rows, words, totals[rows, words].tolist())
        for (left, right), rows in _needing_new_words(places, slots).items():
            excluded = (required.joins_left & left) | (required.joins_right & right)
            values, words_found = totals[rows].masked_fill(excluded, -math.inf).max(1)
            add(rows, words_found.tolist(), values.tolist())
    best = best_words(log_probs, Choice(2 * width, before=before, normalize=False))
    for row in range(len(sentences)):
        of_row = [row * slots + slot for slot in best.hypotheses[row].tolist()]
        add(of_row, best.words[row].tolist(), best.values[row].tolist())
    return [
        [Candidate(total, slot, word) for (slot, word), total in sentence.items() if math.isfinite(total)]
        for sentence in found
    ]


def _leading_further(places: Sequence[Any], slots: int) -> tuple[list[int], list[int]]:
    """Rows, and next tokens of phrases that they do not have yet, or the end where they have just got the last one."""
    pairs = []
    for row, slot, sentence, one in places:
        states = list(zip(sentence.phrases, one.states, strict=True))
        pairs += [
            (row * slots + slot, token) for phrase, state in states if (token := phrase.next_token(state)) is not None
        ]
        if sentence.is_complete(one.states) and any(state == len(phrase.tokens) for phrase, state in states):
            pairs.append((row * slots + slot, EOS))
    return [row for row, _ in pairs], [token for _, token in pairs]


def _needing_new_words(places: Sequence[Any], slots: int) -> dict[tuple[bool, bool], list[int]]:
    """Rows that need a token to advance, by whether it must not join the text before or after it."""
    needing: dict[tuple[bool, bool], list[int]] = {}
    for row, slot, sentence, one in places:
        states = list(zip(sentence.phrases, one.states, strict=True))
        ended = any(phrase.last_joins and state == len(phrase.tokens) for phrase, state in states)
        missing = [(phrase, state) for phrase, state in states if not phrase.is_there(state)]
        if ended or (missing and all(state == BLOCKED for _, state in missing)):
            right = bool(missing) and all(phrase.first_joins for phrase, _ in missing)
            needing.setdefault((ended, right), []).append(row * slots + slot)
    return needing
