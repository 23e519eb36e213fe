"""The recurrent units: their options, their parameters, and the `Unit` that computes their steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nmt import ops
from nmt.cells.base import HiddenState, InputGatedCell, MemoryState, RecurrentCell, UnitCell
from nmt.cells.initializers import INIT_RANGE
from nmt.ops.atr import Activation, Gates
from nmt.ops.gru import Reset
from nmt.ops.lstm import OutputActivation
from nmt.ops.lstm.fused import lstm_layer
from nmt.ops.recurrence import Recurrent
from nmt.ops.rnn import Activation as PlainActivation
from nmt.ops.unit import flat
from nmt.registry import CELLS, NoOptions


@dataclass(frozen=True, kw_only=True)
class RecurrentOptions:
    """Options of all units with recurrent matrices."""

    recurrent_init: Literal["uniform", "orthogonal"] = "uniform"
    """Initial recurrent matrices: `uniform`, as other weights, or `orthogonal`."""


@dataclass(frozen=True, kw_only=True)
class ATROptions(RecurrentOptions):
    activation: Activation = "none"
    """Where a tanh is applied: `none`, to the `output` (h is carried), the `state`, h = tanh(i * p + f * h'), or the
    `candidate`, h = i * tanh(p) + f * h'."""
    gates: Gates = "twin"
    """`twin`: i = sigmoid(p + q), f = sigmoid(p - q); `coupled`: the same f, and i = 1 - f, as in the authors' code;
    `coupled_input`: the same i, and f = 1 - i."""


@CELLS.register("atr")
class ATR(RecurrentCell[HiddenState]):
    """Addition-subtraction twin-gated recurrent network (Zhang et al., EMNLP 2018).

        q = U h' + b
        i = sigmoid(p + q)
        f = sigmoid(p - q)
        h = i * p + f * h'

    p [H] is the product of the input, h' the previous state. U, b: `recurrent_weight` [H, H],
    `recurrent_bias` [H]. Input products (H): p.
    """

    Options = ATROptions
    options: ATROptions
    input_parts = (1,)
    recurrent_parts = (1,)

    def unit(self) -> ops.ATR:
        activation, gates = self.options.activation, self.options.gates
        return ops.ATR(weights=flat(self.recurrent), normalized=self.layer_norm, activation=activation, gates=gates)


@dataclass(frozen=True, kw_only=True)
class GRUOptions(RecurrentOptions):
    reset: Reset = "before"
    """Where the reset gate acts: `before` the product, g = tanh(x_h + V (r * h') + d), or, as in cuDNN, `after` it,
    g = tanh(x_h + r * (V h' + d))."""


@CELLS.register("gru")
class GRU(RecurrentCell[HiddenState]):
    """Gated recurrent unit (Cho et al., EMNLP 2014), in which z keeps the old state.

        z = sigmoid(x_z + U_z h' + b_z)
        r = sigmoid(x_r + U_r h' + b_r)
        g = tanh(x_h + V (r * h') + d)
        h = z * h' + (1 - z) * g

    With `reset: after` g = tanh(x_h + r * (V h' + d)), as in cuDNN and in `torch.nn.GRU`, whose b_in is 0 here.
    The x [H] are products of the input, h' the previous state. U, b: `recurrent_weight` [2H, H] (z, r),
    `recurrent_bias`; V, d: `candidate_weight` [H, H], `candidate_bias`; with layer norm
    `recurrent_scale`, `recurrent_offset`, `candidate_scale`, `candidate_offset`.
    Input products (3H; layer norm over the first 2H and the last H): x_z, x_r, x_h.
    """

    Options = GRUOptions
    options: GRUOptions
    input_parts = (2, 1)
    recurrent_parts = (2,)

    @property
    def candidate(self) -> Recurrent:
        """The parameters of the candidate's recurrent product, in the form that a `Unit` takes."""
        weight = self.dropped_weight(self.candidate_weight, number=2)
        return Recurrent(weight, self.candidate_bias, self.candidate_scale, self.candidate_offset)

    def _make_recurrent(self) -> None:
        super()._make_recurrent()
        # A separate parameter, because autocast caches the converted copy of a parameter, but not of a slice.
        self.candidate_weight = nn.Parameter(torch.empty(self.hidden_size, self.hidden_size))
        self.candidate_bias = self._vector()
        self.candidate_scale = self._normalised(self.hidden_size)
        self.candidate_offset = self._normalised(self.hidden_size)

    def unit(self) -> ops.GRU:
        weights = flat(self.recurrent, self.candidate)
        return ops.GRU(weights=weights, normalized=self.layer_norm, reset=self.options.reset)


@dataclass(frozen=True, kw_only=True)
class LSTMOptions(RecurrentOptions):
    forget_bias: float = 0.0
    """Initial bias of the forget gate (Jozefowicz et al., ICML 2015, recommend 1)."""
    peepholes: bool = False
    """Gates also read the memory through vectors: i and f read c', o reads c."""
    output_activation: OutputActivation = "tanh"
    """What c goes through: h = o * tanh(c); with `identity` h = o * c."""


@CELLS.register("lstm")
class LSTM(RecurrentCell[MemoryState]):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000).

        i = sigmoid(x_i + U_i h' + b_i)      f, o likewise
        g = tanh(x_g + V h' + d)
        c = i * g + f * c'
        h = o * tanh(c)

    The x [H] are products of the input; h', c' the previous state. U above V: `recurrent_weight` [4H, H]
    (i, f, o, g), b and d: `recurrent_bias` [4H]; layer norm over the first 3H and the last H.
    Input products (4H; layer norm over the first 3H and the last H): x_i, x_f, x_o, x_g.

    With peepholes (Gers and Schmidhuber, IJCNN 2000, in the form of Graves, 2013) there are three vectors [H], which
    are not normalised:

        i = sigmoid(x_i + U_i h' + w_i * c' + b_i)      f likewise
        o = sigmoid(x_o + U_o h' + w_o * c + b_o)

    w_i: `peephole_input`, w_f: `peephole_forget`, w_o: `peephole_output`.
    """

    Options = LSTMOptions
    State = MemoryState
    options: LSTMOptions
    input_parts = (3, 1)
    recurrent_parts = (3, 1)

    def _make_recurrent(self) -> None:
        super()._make_recurrent()
        self.peephole_input = self._vector() if self.options.peepholes else None
        self.peephole_forget = self._vector() if self.options.peepholes else None
        self.peephole_output = self._vector() if self.options.peepholes else None

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        forget = self.recurrent_bias.detach()[self.hidden_size : 2 * self.hidden_size]
        nn.init.constant_(forget, self.options.forget_bias)

    def unit(self) -> ops.LSTM:
        vectors = self.peephole_input, self.peephole_forget, self.peephole_output
        return ops.LSTM(
            weights=(*flat(self.recurrent), *(vector for vector in vectors if vector is not None)),
            normalized=self.layer_norm,
            peepholes=self.options.peepholes,
            output_activation=self.options.output_activation,
        )

    def layer(
        self, x: Tensor, state: MemoryState | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, MemoryState]:
        before = None if state is None else tuple(state)
        found = lstm_layer(self.unit(), x, self.input_weight, before, mask, reverse=reverse)
        if found is None:
            return super().layer(x, state, mask, reverse=reverse)
        return found[0], MemoryState(*found[1])


@dataclass(frozen=True, kw_only=True)
class RNNOptions(RecurrentOptions):
    activation: PlainActivation = "tanh"
    """The function applied to the sum."""


@CELLS.register("rnn")
class RNN(RecurrentCell[HiddenState]):
    """Plain recurrent unit without gates (Elman 1990), for comparison with the others.

        h = tanh(x + U h' + b)

    x [H] is the product of the input, h' the previous state. U, b: `recurrent_weight` [H, H], `recurrent_bias` [H].
    Input products (H): x.
    """

    Options = RNNOptions
    options: RNNOptions
    input_parts = (1,)
    recurrent_parts = (1,)

    def unit(self) -> ops.RNN:
        return ops.RNN(weights=flat(self.recurrent), normalized=self.layer_norm, activation=self.options.activation)


@dataclass(frozen=True, kw_only=True)
class LRNOptions:
    tanh: bool = False
    """The new state is the tanh of the equation."""


@CELLS.register("lrn")
class LRN(UnitCell[HiddenState]):
    """Lightweight recurrent network (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        h = i * r + f * h'

    p, q, r [H] are products of the input, h' the previous state. There is no recurrent matrix.
    Input products (3H, normalised together): p, q, r.
    """

    Options = LRNOptions
    options: LRNOptions
    input_parts = (3,)

    def unit(self) -> ops.LRN:
        return ops.LRN(tanh=self.options.tanh)


@dataclass(frozen=True, kw_only=True)
class OLRNOptions:
    tanh: bool = False
    """The cell value c is the tanh of its equation, before the output gate."""


@CELLS.register("olrn")
class OLRN(UnitCell[HiddenState]):
    """Lightweight recurrent network with an output gate (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        c = i * r + f * h'
        o = sigmoid(s - c)
        h = o * c

    p, q, r, s [H] are products of the input, h' the previous state: the gated h is carried,
    there is no other memory. Input products (4H, normalised together): p, q, r, s.
    """

    Options = OLRNOptions
    options: OLRNOptions
    input_parts = (4,)

    def unit(self) -> ops.OLRN:
        return ops.OLRN(tanh=self.options.tanh)


@CELLS.register("sru")
class SRU(UnitCell[MemoryState]):
    """Simple recurrent unit (Lei et al., EMNLP 2018), as in Zero: no bias, no tanh, no scaling.

        f = sigmoid(x_f + v_f * c')
        c = f * c' + (1 - f) * x_c
        r = sigmoid(x_r + v_r * c')
        h = r * c + (1 - r) * x_h

    The x [H] are products of the input, c' the previous memory; both gates read c' through the
    vectors v_f, `peephole_forget` [H], and v_r, `peephole_reset` [H].
    Input products (4H, normalised together): x_r, x_f, x_c, x_h.
    """

    State = MemoryState
    options: NoOptions
    input_parts = (4,)

    def _make_recurrent(self) -> None:
        self.peephole_forget = self._vector()
        self.peephole_reset = self._vector()

    def unit(self) -> ops.SRU:
        return ops.SRU(weights=(self.peephole_forget, self.peephole_reset))


@dataclass(frozen=True, kw_only=True)
class SSRUOptions:
    forget_bias: float = 0.0
    """Initial bias of the forget gate."""


@CELLS.register("ssru")
class SSRU(InputGatedCell[MemoryState]):
    """Simpler simple recurrent unit (Kim et al., "From Research to Production and Back", WNGT 2019), as in Marian.

        f = sigmoid(x_f + b_f)
        c = f * c' + (1 - f) * x_c
        h = relu(c)

    The x [H] are products of the input, c' the previous memory; b_f [H]: `forget_gate_bias`. The gate depends on the
    input only. Input products (2H, normalised separately): x_f, x_c.
    """

    Options = SSRUOptions
    State = MemoryState
    options: SSRUOptions
    input_parts = (1, 1)

    def _make_recurrent(self) -> None:
        self.forget_gate_bias = self._vector()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.forget_gate_bias, self.options.forget_bias)

    def unit(self) -> ops.SSRU:
        return ops.SSRU(weights=(self.forget_gate_bias,))


@dataclass(frozen=True, kw_only=True)
class MinOptions:
    positive: bool = False
    """Make the candidate positive: g + 0.5 where g >= 0, sigmoid(g) elsewhere."""
    forget_bias: float = 0.0
    """Initial bias of the gate that keeps the old state."""


@CELLS.register("min_gru")
class MinGRU(InputGatedCell[HiddenState]):
    """Minimal gated recurrent unit (Feng et al., "Were RNNs All We Needed?", 2024).

        z = sigmoid(x_z + b_z)
        g = x_h + b_h
        h = (1 - z) * h' + z * g

    The x [H] are products of the input, h' the previous state; b_z, b_h [H]: `update_gate_bias`, `candidate_bias`. The
    gate depends on the input only. Input products (2H, normalised separately): x_z, x_h.
    """

    Options = MinOptions
    options: MinOptions
    input_parts = (1, 1)

    def _make_recurrent(self) -> None:
        self.update_gate_bias = self._vector()
        self.candidate_bias = self._vector()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.update_gate_bias, -self.options.forget_bias)

    def unit(self) -> ops.MinGRU:
        weights = self.update_gate_bias, self.candidate_bias
        return ops.MinGRU(weights=weights, positive=self.options.positive)


@CELLS.register("min_lstm")
class MinLSTM(InputGatedCell[HiddenState]):
    """Minimal long short-term memory (Feng et al., "Were RNNs All We Needed?", 2024).

        f = sigmoid(x_f + b_f)      i likewise
        g = x_h + b_h
        h = f / (f + i) * h' + i / (f + i) * g

    The x [H] are products of the input, h' the previous state; b_f, b_i, b_h [H]: `forget_gate_bias`,
    `input_gate_bias`, `candidate_bias`. The gates depend on the input only; there is no memory besides h.
    Input products (3H; layer norm over the first 2H and the last H): x_f, x_i, x_h.
    """

    Options = MinOptions
    options: MinOptions
    input_parts = (2, 1)

    def _make_recurrent(self) -> None:
        self.forget_gate_bias = self._vector()
        self.input_gate_bias = self._vector()
        self.candidate_bias = self._vector()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.forget_gate_bias, self.options.forget_bias)

    def unit(self) -> ops.MinLSTM:
        weights = self.forget_gate_bias, self.input_gate_bias, self.candidate_bias
        return ops.MinLSTM(weights=weights, positive=self.options.positive)
