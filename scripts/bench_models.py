#!/usr/bin/env python3
"""Time training steps and decoding steps of models of the published size on a GPU, and compare the units.

    scripts/bench_models.py [-o FILE.json]

Needs PyTorch, Triton and NumPy. Targets: those of each Row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
from gpu_timing import Bench, Group, Row, parse, run_groups, time_on_gpu

from nmt.models.base import PAD, Seq2Seq
from nmt.models.build import build_model
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.ops.dispatch import selected
from nmt.ops.matrices.best_words import Choice
from nmt.registry import CELLS

TRAINING: Final = {"lrn": 0.37, "olrn": 0.43, "atr": 0.50, "sru": 0.50}
"""Published times of a training step as a share of GRU's."""
DECODING: Final = {"atr": 0.76, "lrn": 0.80, "olrn": 0.89}
"""Published times of a decoding step as a share of GRU's."""


class Size(NamedTuple):
    """Sizes of a model and a batch; the defaults are the sizes of configs/wmt14_*.yaml."""

    width: int = 1024
    layers: int = 6
    words: int = 27700
    sentences: int = 100
    length: int = 30
    beam: int = 4


def make_model(unit: str, size: Size, device: torch.device) -> Seq2Seq:
    """The model of configs/wmt14_*.yaml with this unit, random weights and no dropout."""
    config: Any = SimpleNamespace(
        architecture="deepnmt", unit_of=lambda side: SimpleNamespace(name=unit, options={}), cell=unit,
        hidden_size=size.width, encoder_hidden_size=None,
        embedding_size=size.width, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_direction="both", context_aware_encoder=True, deep_attention=False, deep_output=True,
        attention_heads=1, layer_norm=True,
        tie_embeddings="target_softmax", dropout=0.0, recurrent_dropout=0.0, layer_norm_scale=0.5,
        initializer="uniform", initializer_options={}, init_range=0.08,
    )  # fmt: skip
    assert CELLS.get(unit).Options() is not None
    with device:  # a CPU would take seconds for so many random weights
        return build_model(config, size.words, size.words)


def training_step(unit: str, size: Size, bench: Bench) -> Callable[[], None]:
    """Forward and backward pass and update of a new model, in bf16 with fp32 weights."""
    model = make_model(unit, size, bench.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(4, size.words, (size.sentences, size.length), device=bench.device)
    weights, words = torch.full(ids.shape, 1 / ids.numel(), device=bench.device), torch.arange(ids.numel()).to(ids)

    def step() -> None:
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss, *_ = model.weighted_loss(ids, ids, weights=weights, label_smoothing=0.1, words=words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def training_time(unit: str, size: Size, bench: Bench, choice: str) -> float:
    """Microseconds of a training step."""
    with selected(choice):
        return bench.time(training_step(unit, size, bench))


def training(unit: str, bench: Bench, size: Size, *, gru: Callable[[str], float]) -> Iterator[Row]:
    """Compare a unit that uses its kernels with GRU as a loop, and with GRU that uses its kernels."""
    time = training_time(unit, size, bench, bench.fast)
    if unit == "lrn":
        yield Row(
            "training, lrn", size.sentences * size.length / (time * 1e-6), "target tokens/s", details={"us": time}
        )
    loop, best = gru(bench.plain), gru(bench.fast)
    details = {"us": time, "gru as a loop": loop, "our best gru": best}
    yield Row(f"training step, {unit} of gru as a loop", time / loop, "", TRAINING[unit], most=True, details=details)
    yield Row(f"training step, {unit} of our best gru", time / best, "", details=details)
    if unit == "lrn":
        plain = training_time(unit, size, bench, bench.plain)
        yield Row("training step, lrn against its eager form", plain / time, "x", 3, details={"eager": plain})


def decode(model: GraphedModel, source: torch.Tensor, size: Size, *, steps: int | None = None) -> None:
    """Run `steps` steps of a beam search (default: one for each source word), without its rules for ending."""
    state = model.start(source).expand(size.beam)
    first = torch.arange(len(source), device=source.device).unsqueeze(1) * size.beam
    tokens, totals = None, source.new_zeros(len(source), size.beam, dtype=torch.float32)
    for _ in range(steps or source.size(1)):
        choice = Choice(2 * size.beam, before=totals, banned=PAD)
        best, state = model.best(tokens, state, choice)
        totals, beams, words = (part[:, : size.beam] for part in best)
        state, tokens = state.reorder((first + beams).flatten()), words.flatten()


def decoding_step(unit: str, bench: Bench, size: Size) -> float:
    """Microseconds of a step of a search, with weights in bf16 as in nmt-translate."""
    model = GraphedModel(inference_copy(make_model(unit, size, bench.device).eval(), bf16=True))
    source = torch.randint(4, size.words, (size.sentences, size.length), device=bench.device)
    with selected(bench.fast), torch.inference_mode(), torch.autocast(bench.device.type, torch.bfloat16):
        return bench.time(lambda: decode(model, source, size)) / size.length


def decoding(unit: str, bench: Bench, size: Size, *, gru: Callable[[], float]) -> Iterator[Row]:
    """Compare a unit with GRU."""
    time = decoding_step(unit, bench, size)
    yield Row(f"decoding, {unit} of gru", time / gru(), "", DECODING[unit], most=True, details={"us a step": time})


def groups(bench: Bench, size: Size) -> dict[str, Group]:
    """All measurements, the most important ones first."""
    gru = cache(partial(training_time, "gru", size, bench))
    gru_step = cache(partial(decoding_step, "gru", bench, size))
    found: dict[str, Group] = {"training lrn": partial(training, "lrn", bench, size, gru=gru)}
    found["decoding gru"] = lambda: [Row("decoding, gru", gru_step(), "us a step")]
    found |= {f"decoding {unit}": partial(decoding, unit, bench, size, gru=gru_step) for unit in DECODING}
    rest = [unit for unit in TRAINING if unit != "lrn"]
    return found | {f"training {unit}": partial(training, unit, bench, size, gru=gru) for unit in rest}


def main(argv: list[str] | None = None) -> int:
    arguments = parse(__doc__, argv)
    bench = Bench(torch.device("cuda"), time_on_gpu)
    return run_groups("bench_models", groups(bench, Size()), arguments.output, after=arguments.after)


if __name__ == "__main__":
    sys.exit(main())
