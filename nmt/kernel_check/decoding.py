"""Whether the steps of a search give the same as CUDA graphs as they do launched kernel by kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor

from nmt.kernel_check.comparison import TOLERANCES, DifferenceError, autocast
from nmt.kernel_check.needs import needed
from nmt.models.base import PAD
from nmt.models.build import build_model
from nmt.models.graphed import GraphedModel
from nmt.models.parts import OutputWords
from nmt.ops.dispatch import Selection, selected
from nmt.ops.matrices.best_words import BestWords, Choice

SENTENCES: Final = 5
BEAM: Final = 3
STEPS: Final = 5
"""A step of new sizes is done, recorded, then replayed; when sentences leave the batch it begins again."""


def check_steps(device: torch.device, *, words: int, hidden: int, storage: torch.dtype, by: Selection) -> None:
    """Raise DifferenceError unless beam search's steps are the same: with all words, and with a shortlist."""
    config: Any = SimpleNamespace(
        architecture="deepnmt", cell="lrn", cell_options={}, encoder_cell=None, encoder_cell_options={},
        decoder_cell=None, decoder_cell_options={}, hidden_size=hidden, encoder_hidden_size=None,
        embedding_size=hidden, encoder_layers=1, decoder_layers=2, context_aware_encoder=False, deep_attention=False,
        deep_output=True, attention_heads=1, layer_norm=False, tie_embeddings="target_softmax", dropout=0.0,
        recurrent_dropout=0.0, layer_norm_scale=1.0, initializer="uniform", initializer_options={}, init_range=0.08,
    )  # fmt: skip
    torch.manual_seed(3)
    model = build_model(config, words, words).eval().to(device)
    source = torch.randint(4, words, (SENTENCES, 9), generator=torch.Generator().manual_seed(1)).to(device)
    source[1, 5:] = PAD
    listed = torch.arange(0, words, 2, device=device)
    verified = by.verified.union(needed(model, "search"))  # so that there are kernels to record
    with torch.inference_mode(), selected(by.choice, verified=verified), autocast(device, storage):
        for ids in (None, listed):
            _follow(model, GraphedModel(model), source, ids, tolerance=TOLERANCES[storage])


def _follow(model: Any, graphed: GraphedModel, source: Tensor, ids: Tensor | None, *, tolerance: float) -> None:
    """Run both searches in parallel; the plain model's choices decide how both continue."""
    forbidden = None if ids is None else torch.zeros(len(source), len(ids), dtype=torch.bool, device=ids.device)
    among: list[OutputWords | None] = [
        None if ids is None or forbidden is None else one.among(ids, forbidden) for one in (model, graphed)
    ]
    states: list[Any] = [one.start(source).expand(BEAM) for one in (model, graphed)]
    # Equal hypotheses would tie, and words of ties are not compared.
    totals = -torch.arange(BEAM, dtype=torch.float32, device=source.device).repeat(len(source), 1)
    tokens = None
    for step in range(2 * STEPS):
        choice = Choice(2 * BEAM, before=totals, banned=PAD)
        right, states[0] = model.best(tokens, states[0], choice, among[0])
        found, states[1] = graphed.best(tokens, states[1], choice, among[1])
        _compare(found, right, tolerance=tolerance)
        totals, beams, chosen = (part[:, :BEAM] for part in right)
        rows = torch.arange(len(beams), device=beams.device).unsqueeze(1) * BEAM + beams
        states, tokens = [state.reorder(rows.flatten()) for state in states], chosen.flatten()
        if step == STEPS and ids is None:  # the first sentence is finished; a shortlist is the whole batch's
            kept = torch.arange(1, len(source), device=source.device)
            states = [state.keep(kept) for state in states]
            tokens, totals = tokens[BEAM:], totals[1:]


def _compare(found: BestWords, right: BestWords, *, tolerance: float) -> None:
    """Values may differ by rounding, words only where values are as near."""
    allowed = 10 * tolerance * right.values.abs().clamp_min(1)
    if not bool(((found.values - right.values).abs() <= allowed).all()):
        raise DifferenceError("the values of the best words differ")
    gaps = (right.values[:, 1:] - right.values[:, :-1]).abs() <= allowed[:, 1:]
    near = torch.zeros_like(right.words, dtype=torch.bool)
    near[:, 1:] |= gaps
    near[:, :-1] |= gaps
    near[:, -1] = True  # the next one is not known
    same = (found.words == right.words) & (found.hypotheses == right.hypotheses)
    if not bool((same | near).all()):
        raise DifferenceError("the best words differ")
