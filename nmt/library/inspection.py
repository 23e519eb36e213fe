"""What `Translator.inspect` returns: what went on inside a model, as plain values that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Numbers = NDArray[float32]

START: Final = "<bos>"
"""What a decoder reads before the first token; to the model it is a vector of zeros, and no token."""


@dataclass(frozen=True, eq=False)
class UnitTrace:
    """What a recurrent unit did while it read N tokens; numbers are fp32, in the order of the tokens."""

    unit: str
    """What the configuration calls it, such as `lrn`; of a class that is not registered the name of that."""
    reverse: bool
    """Whether it read from the last token to the first."""
    tokens: tuple[str, ...] = field(repr=False)
    """The N tokens: those of the source, or in a decoder `<bos>` and those of the target but the last, as it predicts
    each token from those before. Empty where that is not known, in parts of plugins."""
    states: Numbers = field(repr=False)
    """[N, H]: h after each token, before an activation of the output alone, if the unit has one."""
    gates: dict[str, Numbers] = field(repr=False)
    """[N, H] each, by the names in the unit's equation; empty for a unit that does not name any."""
    memory: Numbers | None = field(repr=False)
    """[N, N]: how much of token k (column) is in the state after token t (row): the mean over the dimensions of
    |i_k * f_(k+1) * ... * f_t|, with what the state of this unit is multiplied by in other cells of the layer. None
    where a state is not changed in this way: no input and forget gate, or a tanh around the new state."""
    cell: Numbers | None = field(default=None, repr=False)
    """[N, H]: the memory c after each token, of units that have one besides h."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A sentence and its translation as a model reads them; numbers are arrays of NumPy in fp32.

    S and T are the numbers of source and target tokens. All of it is computed in fp32 by the equations of the units,
    without kernels and whatever the precision of the search. Of an ensemble `token_scores` and `token_entropies` are
    those of the averaged probabilities, and each name in `attention` and `units` begins with the number of the model:
    `0.decoder.0`.
    """

    source: str
    target: str
    """As it was given, else the best translation."""
    source_tokens: tuple[str, ...] = field(repr=False)
    """As the model reads them, the end symbol counted."""
    target_tokens: tuple[str, ...] = field(repr=False)
    """The same; without the end symbol where the limit of its length has cut the best translation."""
    token_scores: Numbers = field(repr=False)
    """[T]: log-probability of each target token, those before it given."""
    token_entropies: Numbers = field(repr=False)
    """[T]: entropy of the distribution that each target token is from, in nats."""
    attention: dict[str, Numbers] = field(repr=False)
    """[heads, T, S] by the layer that attends, lowest first: `decoder.0`, ...; [heads, N, N] of self-attention, whose
    names end with `.self`. What modules of plugins do not tell is not there."""
    units: dict[str, UnitTrace] = field(repr=False)
    """By side, layer and direction: `encoder.0.forward`, `encoder.0.backward`, `encoder.1`, `decoder.0`, ...; of a
    layer with several cells in turn `decoder.0.lower`, which reads the tokens, and `decoder.0.higher`, which reads the
    context."""

    @property
    def source_attention(self) -> Numbers:
        """The mean over all heads of all attentions to the source [T, S], as `details=["attention"]` gives it.

        Of an ensemble without the weights of its models. Zeros where no attention is told.
        """
        import numpy as np

        heads = [weights for name, weights in self.attention.items() if not name.endswith(".self")]
        if not heads:
            return np.zeros((len(self.target_tokens), len(self.source_tokens)), dtype=np.float32)
        found: Any = np.concatenate(heads).mean(0, dtype=np.float32)
        return found

    def __repr__(self) -> str:
        return f"Inspection({self.source!r}, {self.target!r}, units={[*self.units]}, attention={[*self.attention]})"
