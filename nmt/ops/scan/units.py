"""The units without matrices as equations; scan/units.h and scan/triton.py have the same steps with their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("lrn")
@dataclass(frozen=True, kw_only=True)
class LRN(ScanUnit):
    """LRN, the lightweight recurrent network (Zhang and Sennrich, ACL 2019).

    i = sigmoid(p + h'), f = sigmoid(q - h'), h = i * r + f * h', or the tanh of it; x holds p, q, r.
    """

    inputs: ClassVar[int] = 3

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        r, i, f = self._update(x, seen)
        h = i * r + f * state[0]
        return (torch.tanh(h) if self.tanh else h,)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        update = self._update(x, state)
        return GateValues({"i": update.input, "f": update.forget}, None if self.tanh else update)

    def _update(self, x: Tensor, seen: State) -> Update:
        p, q, r = x.chunk(3, -1)
        return Update(r, torch.sigmoid(p + seen[0]), torch.sigmoid(q - seen[0]))


@register("olrn")
@dataclass(frozen=True, kw_only=True)
class OLRN(ScanUnit):
    """oLRN, LRN with an output gate (Zhang and Sennrich, ACL 2019).

    c = the state of LRN after p, q, r and h'; h = o * c, o = sigmoid(s - c), is carried on; x holds p, q, r, s.
    """

    inputs: ClassVar[int] = 4

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        return self._step(x, state, seen)[1]

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        return self._step(x, state, state)[0]

    def _step(self, x: Tensor, state: State, seen: State) -> tuple[GateValues, State]:
        """The gates and the new state."""
        p, q, r, s = x.chunk(4, -1)
        i, f = torch.sigmoid(p + seen[0]), torch.sigmoid(q - seen[0])
        c = i * r + f * state[0]
        c = torch.tanh(c) if self.tanh else c
        o = torch.sigmoid(s - c)
        # The carried state is o * c, so the output gate is a factor of both the input and the forget gate.
        return GateValues({"i": i, "f": f, "o": o}, None if self.tanh else Update(r, o * i, o * f)), (o * c,)


@register("sru")
@dataclass(frozen=True, kw_only=True)
class SRU(ScanUnit):
    """SRU, the simple recurrent unit (Lei et al., EMNLP 2018), as in Zero.

    f = sigmoid(x_f + v_f * c'), c = f * c' + (1 - f) * x_c, r = sigmoid(x_r + v_r * c'), h = r * c + (1 - r) * x_h.
    x holds x_r, x_f, x_c, x_h; weights are v_f and v_r; the state is h, which no step reads, and c.
    """

    inputs: ClassVar[int] = 4
    states: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 2

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        _, _, x_c, x_h = x.chunk(4, -1)
        f, r = self._gates(x, seen)
        c = torch.lerp(x_c, state[1], f)  # f * c' + (1 - f) * x_c
        return torch.lerp(x_h, c, r), c

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        f, r = self._gates(x, state)
        return GateValues({"f": f, "r": r}, Update(x.chunk(4, -1)[2], 1 - f, f))

    def _gates(self, x: Tensor, seen: State) -> tuple[Tensor, Tensor]:
        x_r, x_f, _, _ = x.chunk(4, -1)
        v_f, v_r = self.weights
        return torch.sigmoid(torch.addcmul(x_f, v_f, seen[1])), torch.sigmoid(torch.addcmul(x_r, v_r, seen[1]))


@register("ssru")
@dataclass(frozen=True, kw_only=True)
class SSRU(ScanUnit):
    """SSRU, the simpler simple recurrent unit (Kim et al., WNGT 2019).

    f = sigmoid(x_f + b_f), c = f * c' + (1 - f) * x_c, h = relu(c).
    x holds x_f, x_c; the weight is b_f; the state is h, which no step reads, and c.
    """

    inputs: ClassVar[int] = 2
    states: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 1
    wide_memory: ClassVar[bool] = True

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        x_f, x_c = x.chunk(2, -1)
        c = torch.lerp(x_c, state[1], torch.sigmoid(x_f + self.weights[0]))  # f * c' + (1 - f) * x_c
        return torch.relu(c), c

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        x_f, x_c = x.chunk(2, -1)
        f = torch.sigmoid(x_f + self.weights[0])
        return GateValues({"f": f}, Update(x_c, 1 - f, f))


@register("min_gru")
@dataclass(frozen=True, kw_only=True)
class MinGRU(ScanUnit):
    """minGRU, the GRU whose gate depends on the input only (Feng et al., 2024).

    z = sigmoid(x_z + b_z), g = x_h + b_h, h = (1 - z) * h' + z * g. With `positive`, `positive_part` is applied to g.
    x holds x_z, x_h; weights are b_z and b_h.
    """

    inputs: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 2

    positive: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        z, g = self._parts(x)
        return (torch.lerp(state[0], g, z),)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        z, g = self._parts(x)
        return GateValues({"z": z}, Update(g, z, 1 - z))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and g."""
        x_z, x_h = x.chunk(2, -1)
        b_z, b_h = self.weights
        g = x_h + b_h
        return torch.sigmoid(x_z + b_z), positive_part(g) if self.positive else g


def positive_part(x: Tensor) -> Tensor:
    """x + 0.5 where x >= 0 and sigmoid(x) elsewhere: continuous and positive (Feng et al., 2024, appendix B)."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


@register("min_lstm")
@dataclass(frozen=True, kw_only=True)
class MinLSTM(ScanUnit):
    """minLSTM, the LSTM whose gates depend on the input only and add up to 1 (Feng et al., 2024).

    f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) * h' + i / (f + i) * g.
    With `positive`, `positive_part` is applied to g. x holds x_f, x_i, x_h; weights are b_f, b_i and b_h.
    """

    inputs: ClassVar[int] = 3
    vectors_each: ClassVar[int] = 3

    positive: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        f, i, g = self._parts(x)
        return (torch.lerp(g, state[0], _share(f, i)),)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        f, i, g = self._parts(x)
        return GateValues({"f": torch.sigmoid(f), "i": torch.sigmoid(i)}, Update(g, _share(i, f), _share(f, i)))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of the sigmoids of f and i, and g."""
        f, i, g = (part + bias for part, bias in zip(x.chunk(3, -1), self.weights, strict=True))
        return f, i, positive_part(g) if self.positive else g


def _share(one: Tensor, other: Tensor) -> Tensor:
    """one / (one + other) for the sigmoids of both arguments, even if the sigmoids are too small for a float."""
    return torch.sigmoid(F.logsigmoid(one) - F.logsigmoid(other))
