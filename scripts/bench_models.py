#!/usr/bin/env python3
"""Time training steps and decoding steps of models of the published size on a GPU, one unit against another.

    scripts/bench_models.py [-o FILE.json]

Needs PyTorch, Triton and NumPy. Targets and results: docs/benchmarks/gpu.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
from gpu_timing import Bench, Row, run_or_say_why_not, time_on_gpu

from nmt.models.base import PAD, Seq2Seq
from nmt.models.build import build_model
from nmt.models.graphed import GraphedModel
from nmt.ops.best import Choice
from nmt.ops.dispatch import selected
from nmt.registry import CELLS

TRAINING: Final = {"lrn": 0.37, "olrn": 0.43, "atr": 0.50, "sru": 0.50}
"""Published times of a training step as a share of GRU's."""
DECODING: Final = {"atr": 0.76, "lrn": 0.80, "olrn": 0.89}
"""The same of decoding."""


class Size(NamedTuple):
    """A model and a batch: those of configs/wmt14_*.yaml."""

    width: int = 1024
    layers: int = 6
    words: int = 27850
    sentences: int = 100
    length: int = 30
    beam: int = 4


def make_model(unit: str, size: Size, device: torch.device) -> Seq2Seq:
    """The model of a unit with random weights, as configs/wmt14_*.yaml have it but without dropout."""
    config: Any = SimpleNamespace(
        architecture="deepnmt", cell=unit, cell_options={}, hidden_size=size.width, encoder_hidden_size=None,
        embedding_size=size.width, encoder_layers=size.layers, decoder_layers=size.layers,
        context_aware_encoder=True, deep_attention=False, deep_output=True, attention_heads=1, layer_norm=False,
        tie_embeddings="target_softmax", dropout=0.0, init_range=0.08,
    )  # fmt: skip
    assert CELLS.get(unit).Options() is not None
    return build_model(config, size.words, size.words).to(device)


def training_step(unit: str, size: Size, bench: Bench, choice: str) -> float:
    """Microseconds of forward and backward pass and update, in bf16 with fp32 weights."""
    model = make_model(unit, size, bench.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    ids = torch.randint(4, size.words, (size.sentences, size.length), device=bench.device)

    def step() -> None:
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = model.loss(ids, ids, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with selected(choice):
        return bench.time(step)


def training(bench: Bench, size: Size) -> Iterator[Row]:
    """Each unit with its kernels against GRU as a loop, and against GRU with its kernels."""
    gru = training_step("gru", size, bench, bench.plain)
    best = training_step("gru", size, bench, bench.fast)
    for unit, target in TRAINING.items():
        time = training_step(unit, size, bench, bench.fast)
        details = {"us": time, "gru as a loop": gru, "of our best gru": time / best}
        yield Row(f"training step, {unit} of gru as a loop", time / gru, "", target, most=True, details=details)
        yield Row(f"training step, {unit} of our best gru", time / best, "")
        if unit == "lrn":
            plain = training_step(unit, size, bench, bench.plain)
            yield Row("training step, lrn against its eager form", plain / time, "x", 3, details={"eager": plain})
            tokens = size.sentences * size.length / (time * 1e-6)
            yield Row("training, lrn", tokens, "target tokens/s")


def decode(model: GraphedModel, source: torch.Tensor, size: Size) -> None:
    """As many steps of a beam search as the source has words; the rules for ending are left out."""
    state = model.start(source).expand(size.beam)
    first = torch.arange(len(source), device=source.device).unsqueeze(1) * size.beam
    tokens, totals = None, source.new_zeros(len(source), size.beam, dtype=torch.float32)
    for _ in range(source.size(1)):
        choice = Choice(2 * size.beam, before=totals, banned=PAD)
        best, state = model.best(tokens, state, choice)
        totals, beams, words = (part[:, : size.beam] for part in best)
        state, tokens = state.reorder((first + beams).flatten()), words.flatten()


def decoding(bench: Bench, size: Size) -> Iterator[Row]:
    """Each unit against GRU."""
    times = {}
    for unit in ("gru", *DECODING):
        model = GraphedModel(make_model(unit, size, bench.device).eval())
        source = torch.randint(4, size.words, (size.sentences, size.length), device=bench.device)
        with selected(bench.fast), torch.inference_mode(), torch.autocast(bench.device.type, torch.bfloat16):
            times[unit] = bench.time(lambda model=model, source=source: decode(model, source, size))
    yield Row("decoding, gru", times["gru"] / size.length, "us a step")
    for unit, target in DECODING.items():
        ratio = times[unit] / times["gru"]
        yield Row(f"decoding, {unit} of gru", ratio, "", target, most=True, details={"us": times[unit]})


def all_rows(bench: Bench, size: Size) -> list[Row]:
    """All measurements."""
    return [*training(bench, size), *decoding(bench, size)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the results there as JSON")
    output = parser.parse_args(argv).output
    bench = Bench(torch.device("cuda"), time_on_gpu)
    return run_or_say_why_not("bench_models", lambda: all_rows(bench, Size()), output)


if __name__ == "__main__":
    sys.exit(main())
