#!/usr/bin/env python3
"""The table of docs/several_gpus.md: what 8 to 1,024 GPUs should gain in data-parallel training, by arithmetic.

    scripts/scaling_model.py [--config wmt14_lrn.yaml]

Nothing here is measured. For each number below, its text has the source or states that it is assumed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.cli.common import execute, make_parser

PEAK = 989e12
"""Floating-point operations a second of an H100 SXM in bf16, without sparsity, by NVIDIA's data sheet."""
UTILISATION = 0.25
"""Share of PEAK that is used. Assumed."""
FIXED = 10e-3
"""Seconds of an update that do not depend on its tokens: loops over time, kernel launches, optimizer. Assumed."""
IMBALANCE = 0.05
"""How much longer the slowest share takes than the mean, as a fraction. Assumed."""
TOKENS = 12_000
"""Target tokens of the published update, and of each GPU's share if updates grow with the GPUs."""
NODE = 8
BUS_NODE = 365e9
"""Bus bandwidth of an all-reduce between the 8 GPUs of a node, bytes a second, by issue 1455 of NVIDIA/nccl."""
NETWORKS = {"8 x 400 Gb/s": 300e9, "1 x 100 Gb/s": 12.2e9}
"""Bus bandwidth of an all-reduce between nodes, by its network: issues 283 (512 MiB; that pieces of 32 MiB get
as much is assumed) and 29 of NVIDIA/nccl-tests."""
LATENCY = 46e-6
"""Seconds of a small all-reduce between two nodes (issue 1244 of NVIDIA/nccl). That it is half of this in a node, and
grows by HOP with each doubling of the nodes, is assumed."""
HOP = 10e-6
SIZES = (8, 16, 1024)


@dataclass(frozen=True)
class Model:
    """The sizes of a model: all its weights, and the weights that multiply each source token, and each target token."""

    parameters: int
    source: int
    target: int
    bucket: int
    """Bytes of gradients in one all-reduce."""

    @property
    def gradient_bytes(self) -> int:
        """fp32, whatever the precision of the products."""
        return 4 * self.parameters

    def compute(self, tokens: float) -> float:
        """Seconds of an update with `tokens` target tokens, and as many source tokens, on one GPU."""
        # A product costs two operations for each weight and token, its two gradients four.
        return FIXED + tokens * 6 * (self.source + self.target) / (PEAK * UTILISATION)

    def exchange(self, gpus: int, network: float) -> float:
        """Seconds for adding up the gradients, after all are there."""
        if gpus == 1:
            return 0.0
        nodes = -(-gpus // NODE)
        bandwidth = BUS_NODE if nodes == 1 else min(BUS_NODE, network)
        latency = LATENCY + HOP * max(0.0, math.log2(nodes / 2)) if nodes > 1 else LATENCY / 2
        buckets = -(-self.gradient_bytes // self.bucket) + 2  # and the losses, and how to continue
        return self.gradient_bytes * 2 * (gpus - 1) / gpus / bandwidth + buckets * latency

    def update(self, tokens: float, gpus: int, network: float) -> float:
        """Seconds of an update with `tokens` target tokens for each GPU."""
        return self.compute(tokens) * (1 + IMBALANCE * (gpus > 1)) + self.exchange(gpus, network)


def of_configuration(name: str) -> Model:
    """The model of a configuration, built without memory for its weights."""
    import torch

    from nmt.config import load_config
    from nmt.distributed.process_group import BUCKET_BYTES
    from nmt.models import build_model, parameters_by_part

    config = load_config(name)
    vocabulary = int(config.data.tokenizer_options["vocab_size"])
    with torch.device("meta"):
        model = build_model(config.model, vocabulary, vocabulary)
    parts = parameters_by_part(model)
    softmax = model.embeddings.softmax_table.numel()
    others = parts["initial_states"] + parts["decoder"] + parts["readout"]
    return Model(sum(parts.values()), source=parts["encoder"], target=others + softmax, bucket=BUCKET_BYTES)


def report(model: Model) -> str:
    """Markdown: the model in numbers, then a table of speed-ups (and efficiencies)."""
    fast, slow = NETWORKS
    heads = ["GPUs", *(f"{TOKENS:,} tokens each, {name}" for name in (fast, slow)), f"{TOKENS:,} in all, {fast}"]
    lines = [
        f"{model.parameters:,} parameters, {model.gradient_bytes / 1e6:,.0f} MB of gradients, "
        f"{6 * (model.source + model.target) / 1e9:.2f} GFLOP for a pair of tokens, forward and backward:",
        "",
        f"| {' | '.join(heads)} |",
        "|-" * len(heads) + "|",
    ]
    alone = TOKENS / model.update(TOKENS, 1, 1)
    for gpus in SIZES:
        cells = [f"{gpus:,}"]
        for share, name in ((TOKENS, fast), (TOKENS, slow), (TOKENS / gpus, fast)):
            speedup = share * gpus / model.update(share, gpus, NETWORKS[name]) / alone
            cells.append(f"{speedup:,.1f} ({speedup / gpus:.0%})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = make_parser("scripts/scaling_model.py", "Print the expected gain of data-parallel training.")
    parser.add_argument("--config", default="wmt14_lrn.yaml", metavar="FILE", help="default wmt14_lrn.yaml")

    def run(arguments: object) -> int:
        print(report(of_configuration(vars(arguments)["config"])), end="")
        return 0

    return execute(parser, run, argv)


if __name__ == "__main__":
    sys.exit(main())
