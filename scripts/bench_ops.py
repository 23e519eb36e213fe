#!/usr/bin/env python3
"""Time the operations on a GPU; compare kernels with the loops they replace, cuDNN and the measured copy bandwidth.

    scripts/bench_ops.py [-o FILE.json]

Needs PyTorch, Triton and NumPy. Targets: those of each Row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from bench_stack import Stack
from gpu_timing import Bench, Group, Row, copy_bandwidth, parse, replayed, run_groups, time_on_gpu
from torch import Tensor, nn

from nmt.ops.dispatch import selected
from nmt.registry import CELLS

PARTS: Final = {"lrn": (3, 4, 8), "olrn": (4, 5, 10), "sru": (4, 6, 10)} | {
    "ssru": (2, 5, 7),
    "min_gru": (2, 3, 6),
    "min_lstm": (3, 4, 8),
}
"""For each unit: its products of the input; the fewest tensors [B, T, H] that a forward pass must read or write, and
the fewest for a backward pass. A tensor in fp32 counts twice."""
STACKED: Final = 3
"""Layers of a language model."""


class Shapes(NamedTuple):
    """The sizes of the measurements."""

    elementwise: tuple[int, int, int] = (256, 64, 512)
    """B, T, H"""
    recurrent: tuple[int, int, int] = (64, 64, 512)
    attention: tuple[int, int, int, int] = (64, 32, 32, 512)
    """B, S, T, H"""
    loss: tuple[int, int, int] = (3000, 27700, 1024)
    """rows, words, width"""
    stack: tuple[int, int, int] = (20, 70, 1024)
    dropped: tuple[int, int, int] = (64, 64, 512)
    """B, T, W"""
    copied: int = 2**30


def sequence(unit: str, bench: Bench, shape: tuple[int, int, int]) -> tuple[Callable[[], Any], list[Tensor]]:
    """A function that runs a unit over projected inputs, and the tensors that have gradients."""
    batch, length, hidden = shape
    cell = CELLS.get(unit)(hidden, hidden).to(bench.device)
    with torch.no_grad():
        width = cell.project(bench.randn(1, hidden, dtype=torch.float32)).size(-1)
    x = bench.randn(batch, length, width, grad=True)

    def run() -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16):
            outputs: Tensor = cell.sequence(x)[0]
        return outputs

    of_input = "input_weight", "input_scale", "input_offset"
    parameters = [parameter for name, parameter in cell.named_parameters() if name not in of_input]
    return run, [x, *parameters]


def both_ways(
    bench: Bench, run: Callable[[], Tensor], leaves: list[Tensor], *, replay: bool = False
) -> tuple[float, float]:
    """Microseconds of the forward pass, and of forward and backward pass; with `replay` each is one CUDA graph."""
    gradient = torch.ones_like(run())

    def step() -> object:
        return torch.autograd.grad(run(), leaves, gradient)

    def forward() -> object:
        with torch.no_grad():
            return run()

    if replay:
        return bench.time(replayed(forward, bench)), bench.time(replayed(step, bench))
    return bench.time(forward), bench.time(step)


def elementwise(unit: str, bench: Bench, shapes: Shapes, *, bandwidth: Callable[[], float]) -> Iterator[Row]:
    """Compare a unit that has no matrices with the copy bandwidth (bytes per second) and with the loop."""
    batch, length, hidden = shapes.elementwise
    run, leaves = sequence(unit, bench, shapes.elementwise)
    with selected(bench.fast):
        forward, both = both_ways(bench, run, leaves)
        outputs = run()
        backward = bench.time(lambda: torch.autograd.grad(outputs, leaves, torch.ones_like(outputs), retain_graph=True))
    for way, time, tensors in (("forward", forward, PARTS[unit][1]), ("backward", backward, PARTS[unit][2])):
        rate = tensors * 2 * batch * length * hidden / (time * 1e-6)
        details = {"us": time, "GB/s": rate / 1e9, "us a step": time / length}
        yield Row(f"{unit} {way}, share of copy bandwidth", rate / bandwidth(), "", 0.7, details=details)
    with selected(bench.plain):
        _, plain = both_ways(bench, run, leaves)
    yield Row(f"{unit} against the loop with autograd", plain / both, "x", 50, details={"us": both, "loop": plain})


def peer_type(bench: Bench) -> torch.dtype:
    """The type of torch's layers: bf16 as in our kernels, or fp16, which has the same size.

    fp16 is needed with cuDNN before 9.13 or PyTorch before 2.10, whose recurrent layers do not take bf16: PyTorch would
    run its own loop without a warning.
    """
    if bench.device.type != "cuda":
        return torch.bfloat16
    like = torch.empty(1, dtype=torch.bfloat16, device=bench.device)
    takes = torch.cudnn_is_acceptable(like) and (torch.backends.cudnn.version() or 0) >= 91300
    return torch.bfloat16 if takes else torch.float16


def torch_layers(bench: Bench, shapes: Shapes) -> dict[str, tuple[float, float]]:
    """Microseconds of torch's layers for the forward pass, and for forward and backward pass; on a GPU with cuDNN.

    In fp16 PyTorch requests cuDNN's persistent LSTM if the widths are multiples of 128 and the number of sentences is a
    multiple of 8 from 8 to 128.
    """
    _, _, hidden = shapes.recurrent
    dtype, times = peer_type(bench), {}
    for name, kind, storage in (
        ("GRU", nn.GRU, dtype),
        ("LSTM", nn.LSTM, dtype),
        ("LSTM in fp16", nn.LSTM, torch.float16),
    ):
        x = bench.randn(*shapes.recurrent, dtype=storage, grad=True)
        peer = kind(hidden, hidden, batch_first=True).to(bench.device, storage)
        times[name] = both_ways(bench, lambda peer=peer, x=x: peer(x)[0], [x, *peer.parameters()])
    return times


def layer_rows(bench: Bench, layers: Mapping[str, tuple[float, float]]) -> Iterator[Row]:
    """The times of torch's layers, with which the units are compared."""
    for name, times in layers.items():
        details = {"us": times, "type": "fp16" if "fp16" in name else str(peer_type(bench)).removeprefix("torch.")}
        yield Row(f"torch {name} layer, forward and backward", times[1], "us", details=details)


def recurrent(
    unit: str, bench: Bench, shapes: Shapes, *, layers: Callable[[], Mapping[str, tuple[float, float]]]
) -> Iterator[Row]:
    """Compare a unit that has a recurrent matrix with the loop and with cuDNN: one step, and a whole layer."""
    _, length, hidden = shapes.recurrent
    x = bench.randn(*shapes.recurrent, grad=True)
    run, leaves = sequence(unit, bench, shapes.recurrent)
    with selected(bench.fast):
        forward, both = both_ways(bench, run, leaves, replay=unit == "atr")  # the others run as CUDA graphs already
    details: dict[str, Any] = {"us": (forward, both), "both ways a step": both / length}
    target = 3.0 if unit == "atr" else None
    yield Row(f"{unit} forward", forward / length, "us a step", target, most=True, details=details)
    with selected(bench.plain):
        _, plain = both_ways(bench, run, leaves)
    yield Row(f"{unit} against the loop with autograd", plain / both, "x", details={"us": both, "loop": plain})
    cell = CELLS.get(unit)(hidden, hidden).to(bench.device)

    def layer() -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16):
            outputs: Tensor = cell.sequence(F.linear(x, cell.input_weight))[0]
        return outputs

    with selected(bench.fast):
        forward, both = both_ways(bench, layer, [x, *cell.parameters()])
    for name, times in layers().items():
        limit = 1.0 if (unit, name) == ("atr", "GRU") else None
        details = {"forward": times[0] / forward, "us": (forward, both)}
        yield Row(f"{unit} layer against torch {name}", times[1] / both, "x", limit, details=details)
    if unit == "lstm":
        yield cudnn_layer(bench, x)


def cudnn_layer(bench: Bench, x: Tensor) -> Row:
    """Compare cuDNN with our kernels: an LSTM layer over padded sentences in fp16."""
    cell = CELLS.get("lstm")(x.size(-1), x.size(-1)).to(bench.device)
    mask = torch.arange(x.size(1), device=bench.device) < torch.arange(1, len(x) + 1, device=bench.device)[:, None]
    ways = {"cuDNN": lambda: cell.layer(x, mask=mask), "ours": lambda: cell.sequence(cell.project(x), None, mask)}
    times = {}
    for name, way in ways.items():

        def layer(way: Callable[[], Any] = way) -> Tensor:
            with torch.autocast(bench.device.type, torch.float16):
                outputs: Tensor = way()[0]
            return outputs

        with selected(bench.fast):
            times[name] = both_ways(bench, layer, [x, *cell.parameters()])
    ratio = times["ours"][1] / times["cuDNN"][1]
    return Row("lstm layer by cuDNN against our kernels, in fp16 with masks", ratio, "x", 1, details={"us": times})


def attention_loop(unit: str, bench: Bench, shapes: Shapes) -> Iterator[Row]:
    """The loop of the decoder's first layer in a training step."""
    from nmt.models.decoder import AttentionRNN
    from nmt.ops import graphs, product

    batch, source, target, hidden = shapes.attention
    model = AttentionRNN(partial(CELLS.get(unit), hidden_size=hidden), hidden, hidden).to(bench.device)
    x, memory = bench.randn(batch, target, hidden, grad=True), bench.randn(batch, source, hidden, grad=True)
    mask = torch.ones(batch, source, dtype=torch.bool, device=bench.device)

    def run() -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16):
            result = model.sequence(x, model.attention.prepare(memory, mask))
        return torch.cat([result.outputs.float(), result.contexts.float()], -1)

    leaves = [x, memory, *(p for n, p in model.named_parameters() if n != "attention.score_bias")]
    times = {}
    for choice in (bench.fast, bench.plain):
        with selected(choice):
            times[choice] = both_ways(bench, run, leaves)[1]
    details = {"us": times, "us a step": times[bench.fast] / target}
    ratio = times[bench.plain] / times[bench.fast]
    yield Row(f"attention loop ({unit}) against the loop with autograd", ratio, "x", 5, details=details)
    if unit == "lrn":
        found = {}
        for once, limit in ((True, float("inf")), (False, float("-inf"))):
            graphs._recorder.cache_clear()  # its graphs were recorded with another limit
            with selected(bench.fast), patch.object(product, "MOVED_MEANWHILE", limit):
                found[once] = both_ways(bench, run, leaves)[1]
        graphs._recorder.cache_clear()
        ratio, details = found[False] / found[True], {"us": {str(once): us for once, us in found.items()}}
        yield Row("attention loop (lrn), memory multiplied before it against inside", ratio, "x", details=details)


def loss(bench: Bench, shapes: Shapes) -> Iterator[Row]:
    """Compare output layer and loss with a loss over all logits at once."""
    from nmt.ops.linear_cross_entropy import linear_cross_entropy

    rows, words, width = shapes.loss
    features, matrix = bench.randn(rows, width, grad=True), bench.randn(words, width, grad=True)
    targets = torch.randint(words, (rows,), device=bench.device)
    weights = torch.full((rows,), 1 / rows, device=bench.device)

    def fused() -> None:
        total, *_ = linear_cross_entropy(features, matrix, targets=targets, weights=weights, label_smoothing=0.1)
        torch.autograd.grad(total, [features, matrix])

    def plain() -> None:
        total = F.cross_entropy(F.linear(features, matrix).float(), targets, label_smoothing=0.1)
        torch.autograd.grad(total, [features, matrix])

    with selected(bench.fast):
        ours = bench.time(fused)
    yield Row("output layer and loss against all logits at once", bench.time(plain) / ours, "x", details={"us": ours})


def dropped(bench: Bench, shapes: Shapes) -> Iterator[Row]:
    """Compare dropout by place with PyTorch's dropout, which draws from a generator and keeps its mask."""
    from nmt.ops.dropout import Masks, layer_dropout, masked_by

    x = bench.randn(*shapes.dropped, grad=True)

    def ours() -> Tensor:
        with masked_by(Masks(1)):
            return layer_dropout(x, 0.3, layer=1)

    with selected(bench.fast):
        forward, both = both_ways(bench, ours, [x])
    plain = both_ways(bench, lambda: F.dropout(x, 0.3), [x])
    details = {"us": (forward, both), "PyTorch": plain}
    yield Row("dropout by place against PyTorch's", plain[1] / both, "x", 1, details=details)


def stack(bench: Bench, shapes: Shapes) -> Iterator[Row]:
    """Compare the layers of a language model with torch's layers."""
    x, dtype = bench.randn(*shapes.stack, grad=True), peer_type(bench)
    peer = nn.LSTM(x.size(-1), x.size(-1), STACKED, batch_first=True).to(bench.device, dtype)
    theirs = x.detach().to(dtype).requires_grad_()
    times = both_ways(bench, lambda: peer(theirs)[0], [theirs, *peer.parameters()])
    yield Row(f"{STACKED} layers of torch LSTM, forward and backward", times[1], "us", details={"us": times})
    for unit, target in (("lstm", 1.0), ("gru", None), ("atr", None), ("sru", None), ("lrn", 2.0), ("olrn", None)):
        layers = Stack(unit, STACKED, x.size(-1)).to(bench.device)

        def run(layers: Stack = layers) -> Tensor:
            with torch.autocast(bench.device.type, torch.bfloat16):
                outputs: Tensor = layers(x)
            return outputs

        with selected(bench.fast):
            own = both_ways(bench, run, [x, *layers.parameters()])
        yield Row(f"{STACKED} layers of {unit} against torch LSTM", times[1] / own[1], "x", target, details={"us": own})


def groups(bench: Bench, shapes: Shapes) -> dict[str, Group]:
    """All measurements."""
    bandwidth = cache(partial(copy_bandwidth, bench, size=shapes.copied))
    layers = cache(partial(torch_layers, bench, shapes))
    found: dict[str, Group] = {"copy": lambda: [Row("copy bandwidth", bandwidth() / 1e9, "GB/s")]}
    found |= {unit: partial(elementwise, unit, bench, shapes, bandwidth=bandwidth) for unit in PARTS}
    found["torch layers"] = lambda: layer_rows(bench, layers())
    found |= {unit: partial(recurrent, unit, bench, shapes, layers=layers) for unit in ("atr", "gru", "lstm")}
    units = ("lrn", "atr", "gru")
    found |= {f"attention loop ({unit})": partial(attention_loop, unit, bench, shapes) for unit in units}
    found["stack"] = partial(stack, bench, shapes)
    found["loss"] = partial(loss, bench, shapes)
    found["dropout"] = partial(dropped, bench, shapes)
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parse(__doc__, argv)
    bench = Bench(torch.device("cuda"), time_on_gpu)
    return run_groups("bench_ops", groups(bench, Shapes()), arguments.output, after=arguments.after)


if __name__ == "__main__":
    sys.exit(main())
