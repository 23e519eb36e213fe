"""What cells and attentions of a model are called for people: `encoder.0.backward` rather than paths of modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

_UNSAID: Final = {"layers", "blocks", "rnn", "cell", "mixing", "attention", "attentions"}
"""Parts of a path that tell nothing."""
_SAID: Final = {"forward_rnn": "forward", "backward_rnn": "backward"}
_SIDES: Final = ("encoder", "decoder")


def layer_names(paths: Sequence[str]) -> list[str]:
    """A name for each path of a module: side, layer from 0, and what else tells it from the others of its layer."""
    names = [_name(path) for path in paths]
    count = Counter(names)
    return [name if count[name] == 1 else path for name, path in zip(names, paths, strict=True)]


def _name(path: str) -> str:
    parts = path.split(".")
    if parts[:2] == ["encoder", "first"]:  # of `nmt.models.encoder.Alternating`, below the layers that it calls above
        parts[1:2] = ["0"]
    elif parts[:2] == ["encoder", "above"]:
        parts[1:3] = [str(int(parts[2]) + 1)]
    side, *rest = [_SAID.get(part, part) for part in parts if part not in _UNSAID]
    if side in _SIDES and not (rest and rest[0].isdecimal()):
        rest.insert(0, "0")
    return ".".join([side, *rest])
