#!/usr/bin/env python3
"""Count the host's operations on a GPU, without a GPU: launches, copies, allocations, waits of a training micro-batch.

    scripts/count_launches.py [--units lrn gru] [--sizes wmt14 ...] [--search]

With --search it counts the operations of a step of a beam search.

Prints a Markdown table. Models run on a CPU with tensors that pretend to be on a GPU: Triton's kernels and CUDA graphs
are counted, not run, and matrix products are left out. A PyTorch operation that computes counts as one launch, and so
does a replay of a graph. The fifth batch of a shape is counted, after graphs have been recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # or Triton looks for a GPU
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from bench_models import Size, decode, make_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import KernelInterface

from nmt.models import inference
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.models.parts import number_layers
from nmt.ops import dispatch, graphs, native
from nmt.ops.dispatch import selected
from nmt.ops.dropout import Masks, masked_by

SIZES: Final = {
    "multi30k": Size(width=256, layers=1, words=5000, sentences=128, length=15),
    "wmt14": Size(),
    "wmt14, 12,000 tokens": Size(sentences=400),
}
"""The models of configs/multi30k_*.yaml, with batches of 2,000 tokens, and of configs/wmt14_*.yaml, of 3,000."""
BATCHES: Final = 5
CPU: Final = torch.device("cpu")
COPIES: Final = ("copy_", "clone", "_foreach_copy_")
PRODUCTS: Final = ("mm", "addmm", "bmm", "baddbmm")


class Count(TorchDispatchMode):
    """Counts what operations would cost on a GPU; while a graph is recorded, they are counted as its nodes only."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: int | None = None
        """Nodes of the graph that is being recorded; None if none is."""
        self.recorded = 0
        self.reset()

    def reset(self) -> None:
        """Start to count from zero."""
        self.launches = self.copies = self.allocations = self.waits = self.replays = 0
        self.in_graphs = 0
        """Launches within the graphs that are replayed."""

    def launch(self, *, copy: bool = False) -> None:
        """Count one more launch."""
        if self.nodes is not None:
            self.nodes += 1
        else:
            self.launches += 1
            self.copies += copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        storages = {x.untyped_storage()._cdata for x in _tensors((args, kwargs))}
        changes = any(given.alias_info is not None and given.alias_info.is_write for given in func._schema.arguments)
        if name in PRODUCTS and changes:
            result = kwargs["out"]
        elif name in PRODUCTS:
            rows, columns = args[-2].shape[:-1], args[-1].shape[-1]
            result = args[-2].new_empty(*rows, columns)
        else:
            result = func(*args, **kwargs)
        found = _tensors(result)
        new = [x for x in found if x.numel() and x.untyped_storage()._cdata not in storages]
        chosen = [x for x in args[1] if x is not None and x.dtype == torch.bool] if name == "index" else []
        self.waits += name in ("_local_scalar_dense", "nonzero") or bool(chosen)
        if self.nodes is None:
            self.allocations += len(new)
        if name != "set_" and (changes or (new and not name.startswith(("empty", "new_empty")))):
            self.launch(copy=name in COPIES)
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, Tensor)]


@contextlib.contextmanager
def on_a_fake_gpu(count: Count) -> Iterator[None]:
    """In the block, code that looks for a GPU finds one."""

    def record(work: graphs.Replay) -> graphs.Replay:
        count.recorded += 1
        count.nodes = 0
        work()
        nodes, count.nodes = count.nodes, None

        def replay() -> None:
            count.replays += 1
            count.in_graphs += nodes
            count.launch()

        return replay

    recorder = graphs.Recorder(lambda: record, device=CPU)

    def run(work: graphs.Work, inputs: graphs.Inputs, **options: Any) -> list[Tensor]:
        options.pop("recorder", None)
        return recorder.run(work, inputs, **options) if count.nodes is None else list(work(*inputs))

    def launcher(kernel: Any, grid: Any) -> Any:
        return lambda *_, **__: count.launch()

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (KernelInterface, "__getitem__", launcher),
            (Tensor, "is_cuda", property(lambda x: True)),
            (dispatch, "_cannot_run", lambda like: None),
            (native, "usable", lambda like: False),
            (graphs, "run", run),
            (inference, "worth_packing", lambda device: False),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def micro_batch(unit: str, size: Size) -> Count:
    """The counts for the last of some batches, forward and backward, in bf16 with dropout."""
    model = make_model(unit, size, CPU).train()
    number_layers(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    ids = torch.full((size.sentences, size.length), 5)
    weights, words = torch.ones(ids.shape), torch.arange(ids.numel())
    count = Count()
    with on_a_fake_gpu(count), selected("triton"):
        for _ in range(BATCHES):
            model.zero_grad(set_to_none=True)
            count.reset()
            recorded = count.recorded
            with count, masked_by(Masks(1)), torch.autocast("cpu", torch.bfloat16):
                loss, *_ = model.weighted_loss(ids, ids, weights=weights, label_smoothing=0.1, words=words)
            with count:
                loss.backward()
    assert count.recorded == recorded, "graphs are still recorded"
    return count


def search_step(unit: str, size: Size) -> Count:
    """The counts for a step of a beam search, with weights in bf16: two searches differ by one step."""
    source = torch.full((size.sentences, size.length), 5)
    count = Count()
    with on_a_fake_gpu(count), selected("triton"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        model = GraphedModel(inference_copy(make_model(unit, size, CPU).eval(), bf16=True))
        for length in (*[size.length] * BATCHES, size.length - 1):
            longer = vars(count).copy()
            count.reset()
            with count:
                decode(model, source, size, steps=length)
    assert count.recorded == longer["recorded"], "graphs are still recorded"
    for name in ("launches", "copies", "replays", "in_graphs", "allocations", "waits"):
        setattr(count, name, longer[name] - getattr(count, name))
    return count


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", nargs="+", default=["lrn", "gru"])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--search", action="store_true", help="count a step of a search, not a micro-batch")
    arguments = parser.parse_args(argv)
    print(
        "| unit | size | launches | launches of copies | launches of graphs | in graphs | allocations | waits |\n"
        + 8 * "|-"
        + "|"
    )
    for unit in arguments.units:
        for name in arguments.sizes:
            count = (search_step if arguments.search else micro_batch)(unit, SIZES[name])
            counts = count.launches, count.copies, count.replays, count.in_graphs, count.allocations, count.waits
            cells = unit, name, *counts
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
