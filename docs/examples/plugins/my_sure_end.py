"""A search (plugins.md)."""

import math
from dataclasses import dataclass

import torch

from nmt.data import EOS, PAD
from nmt.registry import SEARCHES
from nmt.search import Hypothesis, Search


@SEARCHES.register("sure_end")
class SureEnd(Search):
    """The most probable word at every step, but the end of a sentence only if it is probable enough."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        at_least: float = 0.5
        """The probability from which on the end symbol ends a translation."""

    @classmethod
    def check(cls, decoding):  # what of the section `decoding` it cannot do
        return [] if decoding.beam_size == 1 else [("beam_size", f"'sure_end' has 1, not {decoding.beam_size}")]

    def search(self, model, source, *, beam_size, length_penalty, max_length_offset, n_best, scores):
        limits = ((source != PAD).sum(1) + max_length_offset).tolist()
        state, tokens = model.start(source), None
        ids, totals = torch.empty(len(source), 0, dtype=torch.long, device=source.device), 0.0
        for _ in range(max(limits)):
            log_p, state = model.step(tokens, state)  # [B, V]
            unsure = (log_p[:, EOS] < math.log(self.options.at_least)).unsqueeze(1)
            words = torch.arange(log_p.size(1), device=source.device)
            log_p = log_p.masked_fill((unsure & (words == EOS)) | (words == PAD), -math.inf)
            values, tokens = log_p.max(1)
            ended = (ids == EOS).any(1)
            ids, totals = torch.cat([ids, tokens.unsqueeze(1)], 1), totals + values.masked_fill(ended, 0.0)
            if bool((ids == EOS).any(1).all()):
                break
        found = zip(ids.tolist(), totals.tolist(), limits, strict=True)
        return [[self.hypothesis(words[:limit], total)] for words, total, limit in found]

    def hypothesis(self, words, total):
        length = words.index(EOS) if EOS in words else len(words)
        return Hypothesis(words[:length], total, has_ended=EOS in words, is_finite=math.isfinite(total))
