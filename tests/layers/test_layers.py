"""Recurrent layers against their cells, one step and one sequence at a time, and against torch.nn.GRU and nn.LSTM."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from nmt import layers
from nmt.layers import ATR, GRU, LRN, LSTM, OLRN, SRU, SSRU, MinGRU, MinLSTM, RecurrentLayers
from nmt.ops.dropout import Masks, masked_by
from tests.fake_gpu import FAKE_GPU, pretend_a_gpu

UNITS = [ATR, GRU, LRN, LSTM, OLRN, SRU, SSRU, MinGRU, MinLSTM]
B, T, D, H = 3, 4, 5, 6
LENGTHS = (3, 1, 4)
MASK = torch.arange(T) < torch.tensor(LENGTHS).unsqueeze(1)
HOLES = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]]).bool()


def make(unit: type[RecurrentLayers[Any]], *, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """Layers whose every parameter matters, biases included."""
    torch.manual_seed(2)
    made = unit(D, H, **{"num_layers": 2, "bidirectional": True, "batch_first": True, **options})  # type: ignore[call-arg]
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.7, 0.7)
    return made.to(dtype)


def tensor(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def states(made: Any, *, rows: int = B, seed: int = 5, dtype: torch.dtype = torch.float64) -> Any:
    parts = [
        tensor(len(made.cells), rows, H, seed=seed + number, dtype=dtype).requires_grad_()
        for number in range(len(made.cell.State._fields))
    ]
    return parts[0] if len(parts) == 1 else tuple(parts)


def parts_of(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def by_steps(made: Any, x: Tensor, hx: Any, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What the layers compute of x [B, T, D], by one call of a cell for each value of each sequence alone."""
    per_row, last = [], []
    for row in range(len(x)):
        values = [x[row, t] for t in range(T) if mask[row, t]]
        ends = []
        for layer in range(made.num_layers):
            found = []
            for direction in range(2 if made.bidirectional else 1):
                place = (2 if made.bidirectional else 1) * layer + direction
                cell = made.cells[place]
                state = cell.State(*(part[place, row : row + 1] for part in parts_of(hx)))
                outputs: list[Tensor] = []
                for value in values[::-1] if direction else values:
                    state = cell.step(cell.project(value.unsqueeze(0)), state)
                    outputs.append(cell.output(state)[0])
                found.append(outputs[::-1] if direction else outputs)
                ends.append(torch.stack([part[0] for part in state]))
            values = [torch.cat(pair) for pair in zip(*found, strict=True)]
        rest = iter(values)
        zeros = x.new_zeros(made.hidden_size * (2 if made.bidirectional else 1))
        per_row.append(torch.stack([next(rest) if mask[row, t] else zeros for t in range(T)]))
        last.append(torch.stack(ends, 1))  # [P, L R, H]
    return torch.stack(per_row), list(torch.stack(last, 2).unbind())


def gradients(outputs: Tensor, last: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Of everything that came out, each value with a weight of its own, with respect to everything that went in."""
    results = [outputs, *last]
    loss = sum((result.double() * tensor(*result.shape, seed=20 + n)).sum() for n, result in enumerate(results))
    found = torch.autograd.grad(loss, inputs, allow_unused=True)  # type: ignore[arg-type]
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(inputs, found, strict=True)]


@pytest.mark.parametrize(
    ("options", "mask"),
    [({}, HOLES), ({"layer_norm": True}, MASK), ({"bidirectional": False}, torch.ones(B, T).bool())],
    ids=["holes", "lengths", "full"],
)
@pytest.mark.parametrize("unit", UNITS)
def test_layers_are_their_cells_run_step_by_step(
    unit: type[RecurrentLayers[Any]], options: dict[str, Any], mask: Tensor
) -> None:
    """Outputs, last states, and the gradients of parameters, input and first states, in fp64 by PyTorch."""
    made = make(unit, **options)
    x, hx = tensor(B, T, D).requires_grad_(), states(made)
    inputs = [x, *parts_of(hx), *made.parameters()]
    outputs, last = made(x, hx, mask=mask)
    expected, expected_last = by_steps(made, x, hx, mask)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(list(parts_of(last)), expected_last)
    found = gradients(outputs, parts_of(last), inputs)
    torch.testing.assert_close(found, gradients(expected, expected_last, inputs))


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_compute_the_same(unit: type[RecurrentLayers[Any]]) -> None:
    """In fp32, by the C kernels where there is a compiler, without first states."""
    made = make(unit, dtype=torch.float32)
    x = tensor(B, T, D, dtype=torch.float32).requires_grad_()
    inputs = [x, *made.parameters()]
    zeros = copy.deepcopy(parts_of(states(made, dtype=torch.float32)))
    expected, expected_last = by_steps(made, x, [part.detach() * 0 for part in zeros], MASK)
    outputs, last = made(x, mask=MASK)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(list(parts_of(last)), expected_last, atol=1e-5, rtol=1e-5)
    found = gradients(outputs, parts_of(last), inputs)
    torch.testing.assert_close(found, gradients(expected, expected_last, inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("unit", UNITS)
def test_every_form_of_a_batch_gives_the_same(unit: type[RecurrentLayers[Any]]) -> None:
    """Padded, time first, packed in either order, and each sequence alone."""
    made = make(unit)
    x, hx = tensor(B, T, D), states(made)
    outputs, last = made(x, hx, mask=MASK)
    assert outputs[~MASK].count_nonzero() == 0

    packed, packed_last = made(
        pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False), hx
    )
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == list(LENGTHS)
    torch.testing.assert_close(padded, outputs)
    torch.testing.assert_close(parts_of(packed_last), parts_of(last))

    order = torch.tensor(LENGTHS).argsort(descending=True)
    ordered = pack_padded_sequence(x[order], torch.tensor(LENGTHS)[order], batch_first=True)
    assert ordered.sorted_indices is None
    found, ordered_last = made(ordered, tuple(p[:, order] for p in hx) if isinstance(hx, tuple) else hx[:, order])
    assert isinstance(found, PackedSequence) and found.sorted_indices is None
    torch.testing.assert_close(pad_packed_sequence(found, batch_first=True)[0], outputs[order])
    torch.testing.assert_close(parts_of(ordered_last), tuple(part[:, order] for part in parts_of(last)))

    for row, length in enumerate(LENGTHS):
        own = tuple(part[:, row] for part in parts_of(hx))
        alone, alone_last = made(x[row, :length], own if len(own) > 1 else own[0])
        torch.testing.assert_close(alone, outputs[row, :length])
        torch.testing.assert_close(parts_of(alone_last), tuple(part[:, row] for part in parts_of(last)))
        masked, _ = made(x[row], own if len(own) > 1 else own[0], mask=MASK[row])
        torch.testing.assert_close(masked, outputs[row])

    made.batch_first = False
    time_first, time_last = made(x.transpose(0, 1), hx, mask=MASK.t())
    torch.testing.assert_close(time_first, outputs.transpose(0, 1))
    torch.testing.assert_close(parts_of(time_last), parts_of(last))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_weights_of_torch_give_what_torch_gives(kind: str, batch_first: bool) -> None:
    """nn.LSTM has the same equations, and nn.GRU has those of `reset="after"` if b_in is 0: in all forms of a batch."""
    torch.manual_seed(3)
    theirs = getattr(nn, kind)(D, H, 2, bidirectional=True, batch_first=batch_first).double()
    if kind == "GRU":
        for name, parameter in theirs.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.zeros_(parameter[2 * H :])
    ours = getattr(layers, kind).from_torch(theirs)
    x = tensor(B, T, D) if batch_first else tensor(T, B, D)
    parts = tuple(tensor(4, B, H, seed=7 + n) for n in range(1 + (kind == "LSTM")))
    hx = parts if len(parts) > 1 else parts[0]
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=batch_first, enforce_sorted=False)
    one = tuple(part[:, 0] for part in parts)
    for arguments in (
        (x,),
        (x, hx),
        (packed,),
        (packed, hx),
        (tensor(T, D),),
        (tensor(T, D), one if len(one) > 1 else one[0]),
    ):
        outputs, last = ours(*arguments)
        expected, expected_last = theirs(*arguments)
        if isinstance(expected, PackedSequence):
            assert torch.equal(outputs.batch_sizes, expected.batch_sizes)
            assert torch.equal(outputs.sorted_indices, expected.sorted_indices)
            outputs, expected = outputs.data, expected.data
        assert outputs.shape == expected.shape
        torch.testing.assert_close(outputs, expected)
        torch.testing.assert_close(last, expected_last)
    other = getattr(layers, kind).from_torch(getattr(nn, kind)(D, H, 2, bias=False, dropout=0.25))
    assert other.dropout == 0.25 and not other.bidirectional
    assert other.cells[0].recurrent_bias.count_nonzero() == 0


def test_weights_that_cannot_be_taken_over_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^GRU: from_torch: bias b_in is not 0 in this nn.GRU"):
        GRU.from_torch(nn.GRU(D, H))
    nearly = nn.GRU(D, H)
    with torch.no_grad():
        nearly.bias_ih_l0[2 * H :] = torch.eye(H)[0]
    with pytest.raises(ValueError, match=r"^GRU: from_torch: bias b_in is not 0 in this nn.GRU"):
        GRU.from_torch(nearly)
    with pytest.raises(ValueError, match=r"^LSTM: from_torch: proj_size is 2 in this nn.LSTM"):
        LSTM.from_torch(nn.LSTM(D, H, proj_size=2))


def test_padding_is_not_read() -> None:
    """A NaN there is in no output and in no gradient."""
    made = make(LRN)
    x = tensor(B, T, D)
    clean, _ = made(x, mask=MASK)
    x = x.masked_fill(~MASK.unsqueeze(-1), torch.nan).requires_grad_()
    outputs, last = made(x, mask=MASK)
    assert torch.equal(outputs, clean)
    outputs.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in made.parameters())
    _, kept = made(x, states(made), mask=torch.zeros(B, T))
    assert torch.equal(kept, states(made)), "rows that are all padding keep their state"


def test_dropout_is_between_layers_and_in_training_only() -> None:
    made = make(LRN, dropout=1.0)
    x = tensor(B, T, D)
    nothing, last = made(x)
    assert nothing.count_nonzero() == 0 and last[:2].count_nonzero() > 0, "layer 1 reads nothing, layer 0 all"
    made.eval()
    outputs, _ = made(x)
    assert torch.equal(outputs, make(LRN)(x)[0])
    some = make(LRN, dropout=0.5)
    first, second = some(x)[0], some(x)[0]
    assert not torch.equal(first, second)
    with masked_by(Masks(key=1)):  # in a training of nmt masks are those of the batch
        assert torch.equal(some(x)[0], some(x)[0])
    with pytest.warns(UserWarning, match="GRU: dropout is between layers"):
        GRU(D, H, dropout=0.1)


@pytest.mark.parametrize("unit", UNITS)
def test_types_are_those_of_the_input_or_of_autocast(unit: type[RecurrentLayers[Any]]) -> None:
    made = make(unit, dtype=torch.float32)
    x = tensor(B, T, D, dtype=torch.float32)
    expected, _ = made(x)
    for dtype in (torch.bfloat16, torch.float16):
        small = copy.deepcopy(made).to(dtype)
        outputs, last = small(x.to(dtype), mask=MASK)
        assert outputs.dtype == dtype and {part.dtype for part in parts_of(last)} == {dtype}
        again, _ = small(x.to(dtype), last)
        assert bool(again.isfinite().all())
        torch.testing.assert_close(outputs[2].float(), expected[2], atol=0.05, rtol=0.05)
        outputs.float().sum().backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in small.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, last = made(x)
    assert outputs.dtype == torch.bfloat16 and {part.dtype for part in parts_of(last)} == {torch.bfloat16}
    torch.testing.assert_close(outputs.float(), expected, atol=0.05, rtol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again, _ = made(x.bfloat16())
    assert again.dtype == torch.bfloat16
    torch.testing.assert_close(again.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("unit", UNITS)
def test_gradients_are_right(unit: type[RecurrentLayers[Any]]) -> None:
    made = make(unit)
    x, parts = tensor(2, 3, D).requires_grad_(), parts_of(states(made, rows=2))

    def run(x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        outputs, last = made(x, parts if len(parts) > 1 else parts[0], mask=MASK[:2, 1:])
        return outputs, *parts_of(last)

    assert torch.autograd.gradcheck(run, (x, *parts), fast_mode=True)


def test_they_are_modules_like_others(tmp_path: Any) -> None:
    """State dicts, copies, pickles, a model around them, and parameters that start as nn.GRU's do."""
    made = make(OLRN, dtype=torch.float32)
    x = tensor(B, T, D, dtype=torch.float32)
    expected, _ = made(x)
    other = OLRN(D, H, 2, bidirectional=True, batch_first=True, dtype=torch.float64).float()
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x)[0], expected)
    assert sorted(made.state_dict())[0] == "cells.0.input_weight"
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(twin(x)[0], expected)
    assert "OLRN(\n  5, 6, num_layers=2, batch_first=True, bidirectional=True" in repr(made)

    class First(nn.Module):
        def forward(self, found: tuple[Tensor, Tensor]) -> Tensor:
            return found[0]

    model = nn.Sequential(nn.Embedding(9, D), made, First(), nn.Linear(2 * H, 2))
    assert model(torch.zeros(B, T, dtype=torch.int64)).shape == (B, T, 2)
    fresh = GRU(D, 100)
    assert 0.09 < max(float(p.detach().abs().max()) for p in fresh.parameters()) <= 0.1
    assert fresh.cells[0].recurrent_bias.count_nonzero() == 0
    fresh.reset_parameters(0.01)
    assert max(float(p.detach().abs().max()) for p in fresh.parameters()) <= 0.01
    assert LSTM(D, H, forget_bias=1.0).cells[0].recurrent_bias[H : 2 * H].tolist() == [1.0] * H
    assert ATR(D, H, device="meta").cells[0].input_weight.is_meta


def test_the_output_of_atr_may_be_another_one_than_its_state() -> None:
    made = make(ATR, activation="output", num_layers=1, bidirectional=False)
    outputs, last = made(tensor(B, T, D))
    torch.testing.assert_close(outputs[:, -1], last[0].tanh())


OPTIONS: dict[type[RecurrentLayers[Any]], dict[str, Any]] = {
    ATR: {"activation": "state", "gates": "coupled", "recurrent_init": "orthogonal"},
    GRU: {"reset": "after", "recurrent_init": "orthogonal"},
    LRN: {"tanh": True},
    LSTM: {"forget_bias": 1.0, "peepholes": True, "output_activation": "identity", "recurrent_init": "orthogonal"},
    OLRN: {"tanh": True},
    SRU: {},
    SSRU: {"forget_bias": 1.0},
    MinGRU: {"positive": True, "forget_bias": 1.0},
    MinLSTM: {"positive": True, "forget_bias": 1.0},
}
"""All options of the units, each with another value than its default."""


@pytest.mark.parametrize("unit", UNITS)
def test_each_option_changes_the_outputs(unit: type[RecurrentLayers[Any]]) -> None:
    def outputs(**options: Any) -> Tensor:
        torch.manual_seed(4)
        found, _ = unit(D, H, **options)(tensor(T, B, D, dtype=torch.float32))  # type: ignore[call-arg]
        return found.detach()

    usual = set(inspect.signature(SRU).parameters)
    assert inspect.signature(unit).parameters.keys() - usual == OPTIONS[unit].keys()
    told = unit.__doc__ or ""
    assert all(f"    {name}: " in told for name in OPTIONS[unit]) and "h = " in told
    for name, value in {"layer_norm": True, **OPTIONS[unit]}.items():
        assert not torch.allclose(outputs(**{name: value}), outputs(), atol=1e-4), name


X = tensor(B, T, D)
PACKED = pack_padded_sequence(X, torch.tensor([4, 3, 1]), batch_first=True)
MISTAKES = [
    ((X[..., 1:],), {}, ValueError, "input: [3, 4, 4], but must be [B, T, D] or [T, D] with D = input_size = 5"),
    ((X.unsqueeze(2),), {}, ValueError, "input: [3, 4, 1, 5], but must be"),
    ((X[:, :0],), {}, ValueError, "input: [3, 0, 5] has no time step"),
    (([1.0],), {}, TypeError, "input: must be a tensor or a PackedSequence, not list"),
    ((X.float(),), {}, ValueError, "input: is float32, but the weights are float64; convert one of them"),
    ((X.to("meta"),), {}, ValueError, "input: is on meta, but the weights are on cpu"),
    ((X,), {"mask": MASK.t()}, ValueError, "mask: [4, 3], but must be [3, 4], true at values"),
    ((X,), {"mask": MASK[:, 1:]}, ValueError, "mask: [3, 3], but must be [3, 4], true at values"),
    ((X,), {"mask": [1]}, TypeError, "mask: must be a tensor, not list"),
    ((PACKED,), {"mask": MASK}, ValueError, "mask: a packed sequence has its lengths; give one of both"),
    ((X, tensor(4, 4, H)), {}, ValueError, "hx: h is [4, 4, 6], but must be [4, 3, 6] for this input"),
    ((X[0], tensor(4, 1, H)), {}, ValueError, "hx: h is [4, 1, 6], but must be [4, 6] for this input"),
    ((X, (tensor(4, B, H),)), {}, TypeError, "hx: h must be a tensor, not tuple"),
]


@pytest.mark.parametrize(("arguments", "options", "kind", "message"), MISTAKES, ids=[case[3][:30] for case in MISTAKES])
def test_what_does_not_fit_is_said_in_one_line(
    arguments: Any, options: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as found:
        make(LRN)(*arguments, **options)
    assert str(found.value).startswith(f"LRN: {message}") and "\n" not in str(found.value)


def test_a_state_without_its_memory_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^LSTM: hx: must be a tuple \(h, c\) of tensors, not Tensor$"):
        make(LSTM)(tensor(B, T, D), tensor(4, B, H))


def test_sizes_and_options_are_checked() -> None:
    for make_one, kind, message in (
        (lambda: LRN(0, 3), ValueError, "LRN: input_size: must be at least 1, not 0"),
        (lambda: LRN(3, 2.0), TypeError, "LRN: hidden_size: must be a whole number, not 2.0"),  # type: ignore[arg-type]
        (lambda: SRU(3, 2, 0), ValueError, "SRU: num_layers: must be at least 1, not 0"),
        (lambda: SRU(3, 2, 2, dropout=1.5), ValueError, "SRU: dropout: must be a number from 0 to 1, not 1.5"),
        (lambda: LRN(3, 2, tanh=1), TypeError, "LRN: tanh: must be True or False, not 1"),  # type: ignore[arg-type]
        (
            lambda: ATR(3, 2, gates="twins"),  # type: ignore[arg-type]
            ValueError,
            "ATR: gates: 'twins'. Did you mean 'twin'? Allowed: twin, coupled, coupled_input.",
        ),
    ):
        with pytest.raises(kind) as found:
            make_one()
        assert str(found.value) == message


def test_an_empty_batch_has_empty_outputs() -> None:
    outputs, last = make(GRU)(tensor(0, T, D))
    assert outputs.shape == (0, T, 2 * H) and last.shape == (4, 0, H)


def test_each_call_asks_for_the_kernels_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU they run only if they have been found right there; nobody has to ask by hand."""
    asked: list[Any] = []
    monkeypatch.setattr(layers, "verify_operations", lambda keys, *, device: asked.append((keys, device.type)))
    each_kind = make(LRN), make(LSTM, bidirectional=False), make(GRU, reset="after")
    each_kind[0](tensor(B, T, D))
    assert not asked
    pretend_a_gpu(monkeypatch)
    for each in each_kind:
        each.to(FAKE_GPU)(tensor(B, T, D).to(FAKE_GPU))
    needed = ("bidirectional lrn", "sequence lrn"), ("sequence lstm tanh", "lstm_layer"), ()
    assert asked == [(operations, FAKE_GPU.type) for operations in needed]


def test_layers_of_a_unit_of_ones_own_need_no_source_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook; then the help does not say what the options mean."""
    code = (
        "from dataclasses import dataclass\nfrom nmt import cells, layers\nclass Base(layers.RecurrentLayers): ...\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Options:\n    tanh: bool = False\n    'A meaning.'\n"
        "class Cell(cells.LRN):\n    Options = Options\nclass Own(Base):\n    cell = Cell\n"
    )
    notebook = types.ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    exec(code, vars(notebook))
    assert notebook.Own(D, H, tanh=True).options.tanh
    assert "tanh" in inspect.signature(notebook.Own).parameters and "Options:" not in notebook.Own.__doc__


def test_importing_nmt_imports_no_torch_and_has_layers() -> None:
    code = (
        "import sys, nmt; assert 'torch' not in sys.modules; nmt.layers.LRN(2, 3); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="module 'nmt' has no attribute 'layer'"):
        import nmt

        nmt.layer  # noqa: B018
