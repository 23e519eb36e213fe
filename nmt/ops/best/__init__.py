"""The best words of a search step, from the logits."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.best.native import best_native
from nmt.ops.best.reference import best_reference
from nmt.ops.dispatch import use_native

__all__ = ["best_words"]


def best_words(
    logits: Tensor,
    k: int,
    *,
    before: Tensor | None = None,
    normalize: bool = True,
    banned: int | None = None,
    penalised: int | None = None,
    penalty: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The k best continuations of each of B hypotheses or groups of P hypotheses: values and places, both [B, k].

    A value is the log-probability of a word, in at least fp32, or its logit where it need not be `normalize`d, plus
    what is in `before` for its hypothesis. A place is p * V + the word's id. Largest first; of equal values the one at
    the smaller place, also where the cut falls among equals, so that results do not hang on batch or device.

    Args:
        logits: [B * P, V], may be overwritten.
        k: at most P * V.
        before: [B, P]; None for P = 1 and 0.
        banned: id of a word that counts as -infinity, though it has its part in the normalisation.
        penalised: id of a word from whose value `penalty` is taken.
    """
    implementation = best_native if use_native(logits) else best_reference
    return implementation(
        logits, k, before=before, normalize=normalize, banned=banned, penalised=penalised, penalty=penalty
    )
