"""Compare a unit of your own with LRN: the same model and text, the same number of updates.

    python docs/examples/own_unit.py [CONFIG] [--updates 300]

The unit is in leaky.py, next to this file, which nmt loads as a plugin. CONFIG is demo.yaml unless you give another.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nmt

PLUGIN = Path(__file__).with_name("leaky.py")

parser = argparse.ArgumentParser(description="Compare a unit of your own with LRN.")
parser.add_argument("config", nargs="?", default="demo.yaml")
parser.add_argument("--updates", type=int, default=300)
arguments = parser.parse_args()

for cell in ("lrn", "leaky"):
    training = nmt.train(
        arguments.config,
        overrides={
            "run_dir": f"runs/compare_{cell}",
            "plugins": [str(PLUGIN)],
            "model.cell": cell,
            "training.max_steps": arguments.updates,
        },
    )
    seconds = [line["cpu_seconds"] for line in training.log() if line["event"] == "end"][-1]
    print(f"{cell}: {training.validation} after {training.step} updates and {seconds:.0f} CPU seconds")
