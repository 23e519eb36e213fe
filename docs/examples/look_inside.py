"""Train a model and look inside: what it attends to, what its first unit remembers.

    python docs/examples/look_inside.py [CONFIG] [--text TEXT] [-o attention.svg]

CONFIG is demo.yaml unless you give another: two to three minutes on 2 CPU cores. A run that exists is used as it is.
"""

from __future__ import annotations

import argparse

import nmt
from nmt.plotting import attention_map, picture

parser = argparse.ArgumentParser(description="Train a model and look inside.")
parser.add_argument("config", nargs="?", default="demo.yaml")
parser.add_argument("--text", default="The teacher sells two new bicycles.")
parser.add_argument("-o", "--output", default="attention.svg")
arguments = parser.parse_args()

training = nmt.train(arguments.config)
print(training.ending, training.validation)
with nmt.load(training.run_dir) as translator:
    found = translator.inspect(arguments.text)

print(found.target)
for token, score, weights in zip(found.target_tokens, found.token_scores, found.source_attention, strict=True):
    print(f"{token:12} {score:6.2f}  attends to {found.source_tokens[weights.argmax()]}")

name, unit = next(iter(found.units.items()))
print(f"{name} ({unit.unit}): mean of its gates", {gate: round(float(x.mean()), 2) for gate, x in unit.gates.items()})
if unit.memory is not None:
    print(
        f"its state at {unit.tokens[-1]} holds", dict(zip(unit.tokens, unit.memory[-1].round(2).tolist(), strict=True))
    )

figure = attention_map(found.source_attention, found.source_tokens, found.target_tokens)
with open(arguments.output, "wb") as file:
    file.write(picture(figure, ".svg"))
print("wrote", arguments.output)
