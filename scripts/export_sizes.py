"""Sizes of exported weights by configuration and number format, see docs/exporting.md; nothing is trained."""

from __future__ import annotations

import sys

import torch

from nmt.config import find_config, load_config
from nmt.interop.engine.lowering import lower
from nmt.interop.exported import FORMATS, layout
from nmt.models import build_model

CONFIGS = {"demo.yaml": 2000, "multi30k_lrn.yaml": 5000, "wmt14_lrn.yaml": 27700}
"""Entries of each vocabulary; with tied tables both languages have the same vocabulary."""


def main() -> int:
    """Print a row of a Markdown table for each configuration."""
    print(f"| configuration | parameters | {' | '.join(FORMATS)} | engine, int8 |")
    print("|---|---" + "|---" * (len(FORMATS) + 1) + "|")
    for name, entries in CONFIGS.items():
        config = load_config(find_config(name))
        with torch.device("meta"):
            model = build_model(config.model, entries, entries)
        count = sum(weight.numel() for weight in model.parameters())
        sizes = []
        for form in FORMATS.values():
            tensors = layout(model, form).values()
            sizes.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
        sizes.append(lower(model.eval(), precision="int8").tensors.size())
        print(f"| `{name}` | {count / 1e6:.1f}M | {' | '.join(f'{size / 1e6:,.1f} MB' for size in sizes)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
