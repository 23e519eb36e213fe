"""What a look inside a model gives, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Numbers = NDArray[float32]


@dataclass(frozen=True, eq=False)
class UnitTrace:
    """The values of a recurrent unit while it read N tokens, in fp32 and in the order of the tokens."""

    unit: str
    """Its name in the configuration, such as `lrn`; for an unregistered class, the class name."""
    reverse: bool
    """Whether it read from the last token to the first."""
    tokens: tuple[str, ...] = field(repr=False)
    """The N tokens: the source tokens or, in a decoder, `<bos>` and all target tokens except the last, because each
    token is predicted from the tokens before it. Empty if unknown, in parts of plugins."""
    states: Numbers = field(repr=False)
    """[N, H]: h after each token, before an activation of the output alone, if the unit has one."""
    gates: dict[str, Numbers] = field(repr=False)
    """Gates, [N, H] each, by their names in the unit's equation; empty for a unit that names none."""
    memory: Numbers | None = field(repr=False)
    """[N, N]: how much of token k (column) is in the state after token t (row): the mean over the dimensions of
    |i_k * f_(k+1) * ... * f_t|, including the factors by which other cells of the layer multiply this unit's state.
    None if a state is not updated in this way: no input and forget gate, or a tanh around the new state."""
    cell: Numbers | None = field(default=None, repr=False)
    """[N, H]: the memory c after each token, for units that have one in addition to h."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """A sentence and its translation as a model reads them, with NumPy arrays in fp32.

    S and T are the numbers of source and target tokens. Everything is computed in fp32 by the equations of the units,
    without kernels, whatever the precision of the search. For an ensemble, `token_scores` and `token_entropies` belong
    to the averaged probabilities, and each name in `attention` and `units` begins with the number of the model:
    `0.decoder.0`.
    """

    source: str
    target: str
    """The given target, or else the best translation."""
    source_tokens: tuple[str, ...] = field(repr=False)
    """Source tokens as the model reads them, with the end symbol."""
    target_tokens: tuple[str, ...] = field(repr=False)
    """The same for the target; without the end symbol if the length limit has cut the best translation."""
    token_scores: Numbers = field(repr=False)
    """[T]: log-probability of each target token given the tokens before it."""
    token_entropies: Numbers = field(repr=False)
    """[T]: entropy of the distribution of each target token, in nats."""
    attention: dict[str, Numbers] = field(repr=False)
    """[heads, T, S] by the layer that attends, lowest first: `decoder.0`, ...; [heads, N, N] for self-attention, whose
    names end with `.self`. Modules of plugins that do not report their attention are missing."""
    units: dict[str, UnitTrace] = field(repr=False)
    """By side, layer and direction: `encoder.0.forward`, `encoder.0.backward`, `encoder.1`, `decoder.0`, ...; for a
    layer with two cells `decoder.0.lower`, which reads the tokens, and `decoder.0.higher`, which reads the context."""

    @property
    def source_attention(self) -> Numbers:
        """The mean over all heads of all attentions to the source [T, S], as `details=["attention"]` gives it.

        For an ensemble, models are averaged without their weights. Zeros if no attention is reported.
        """
        import numpy as np

        heads = [weights for name, weights in self.attention.items() if not name.endswith(".self")]
        if not heads:
            return np.zeros((len(self.target_tokens), len(self.source_tokens)), dtype=np.float32)
        found: Any = np.concatenate(heads).mean(0, dtype=np.float32)
        return found

    def __repr__(self) -> str:
        return f"Inspection({self.source!r}, {self.target!r}, units={[*self.units]}, attention={[*self.attention]})"
