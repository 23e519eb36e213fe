"""How the kernels are cut up, and that all of them compile for the GPUs we care about."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

scan = pytest.importorskip("nmt.ops.scan.triton", reason="Triton is not installed")
atr = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "compile_kernels"


def compile_kernels(*arguments: str, interpret: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("arch", ["90", pytest.param("80", marks=pytest.mark.slow)])
def test_every_kernel_compiles_without_spilling(arch: str) -> None:
    done = compile_kernels("--quick", "--arch", arch)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 27  # three kernels of attention, four of GRU, one of loss and dropout, two of all else
    assert all(16 <= int(row[5]) <= 255 for row in rows)
    assert all(row[7] == "0 |" for row in rows)


VECTORS_OF_THE_LOSS = """
import sys
from importlib.machinery import SourceFileLoader
import torch
sys.path.insert(0, "scripts")
script = SourceFileLoader("compile_kernels", "scripts/compile_kernels").load_module()
from kernel_cases import VECTORS, loss_cases
from nmt.ops.recurrence import aligned_rows
case = next(loss_cases())
for words in (27850, 5000):
    for step in (aligned_rows(2, words, like=torch.empty(0)).stride(0), words):
        odd = tuple(name for name, value in (("V", words), ("s_row", step)) if value % 16)
        missing = script.compile_case(case._replace(odd=odd), 80)[1]
        assert missing == (() if step > words else VECTORS), (words, step, missing)
"""


def test_logits_are_read_and_written_as_vectors_where_their_rows_are_aligned() -> None:
    """And one by one where rows are as long as a vocabulary of 27,850 or 5,000 words."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", "-c", VECTORS_OF_THE_LOSS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=SCRIPT.parents[1], check=False)
    assert done.returncode == 0, done.stderr


def test_products_and_sums_are_one_instruction_if_nobody_objects() -> None:
    """Whatever the version of Triton takes for the usual thing."""
    program = "import os, nmt.ops.triton_tools; print(os.environ['TRITON_DEFAULT_FP_FUSION'])"
    for given, found in (({}, "1"), ({"TRITON_DEFAULT_FP_FUSION": "0"}, "0")):
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_DEFAULT_FP_FUSION"}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment | given, check=True
        )
        assert done.stdout.strip() == found


def test_nothing_is_compiled_where_the_interpreter_is_on() -> None:
    done = compile_kernels(interpret=True)
    assert done.returncode == 2
    assert done.stderr == "error: TRITON_INTERPRET is set, so nothing would be compiled.\n"


def test_the_more_is_loaded_in_a_step_the_fewer_steps_are_loaded_ahead() -> None:
    assert scan.launch_rule(64 * 512, loaded=6) == scan.Launch(block=64, unroll=1, stages=12)
    assert scan.launch_rule(64 * 512, loaded=20) == scan.Launch(block=64, unroll=1, stages=7)
    assert scan.launch_rule(256 * 512, loaded=6) == scan.Launch(block=128, unroll=1, stages=7)
    assert scan.launch_rule(256 * 512, loaded=24) == scan.Launch(block=128, unroll=1, stages=4)


def test_the_rule_counts_what_a_kernel_loads() -> None:
    x = torch.empty(1, 64, 3, 3 * 512, dtype=torch.bfloat16)
    assert scan.launch_for(x, hidden=512) == scan.launch_rule(64 * 512, loaded=3 * 2)
    assert scan.launch_for(x.float(), hidden=512, backward=True) == scan.launch_rule(64 * 512, loaded=5 * 4)
    odd = torch.empty(1, 64, 3, 3 * 500, dtype=torch.bfloat16)  # rows that do not begin at multiples of 16 bytes
    assert scan.launch_for(odd, hidden=500) == (64, 4, 1)
    assert scan.launch_for(odd.float(), hidden=500).stages == 12


def test_every_sentence_and_step_is_launched_once() -> None:
    tiles = atr.Tiles(rows=16, columns=32, depth=32, warps=4, persistent=False)
    weight = torch.empty(1, 32, 32)

    def cut(persistent: bool, *, normalized: bool) -> list[tuple[object, ...]]:
        launches = atr.launches(20, 2, tiles._replace(persistent=persistent), weight=weight, normalized=normalized)
        return [(launch.steps, launch.sums, launch.rest) for launch in launches if launch.rows == (0, 20)]

    assert cut(False, normalized=False) == [((0, 1), True, True), ((1, 2), True, True)]
    halves = [(step, part, not part) for step in ((0, 1), (1, 2)) for part in (True, False)]
    assert cut(False, normalized=True) == halves
    assert cut(True, normalized=False) == cut(True, normalized=True) == [((0, 2), True, True)]


def test_a_batch_whose_programs_do_not_fit_is_shared_by_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGPU:
        """What `launches` asks of a weight on a GPU."""

        is_cuda = True

        def size(self, axis: int) -> int:
            return (2, 64, 64)[axis]

    monkeypatch.setattr(atr, "programs_resident", lambda hidden, tiles, *, weight: 9)
    tiles = atr.Tiles(rows=16, columns=32, depth=64, warps=4, persistent=True)  # 2 directions x 2 programs a group
    cut = [launch.rows for launch in atr.launches(70, 5, tiles, weight=OnGPU(), normalized=True)]
    assert cut == [(0, 32), (32, 64), (64, 70)]


def test_programs_share_a_multiprocessor_where_memory_and_registers_are_enough() -> None:
    def each(hidden: int, *, dtype: torch.dtype, shared: int = 227 * 1024) -> int:
        tiles = atr.tile_rule(torch.empty(1, hidden, hidden, dtype=dtype, device="meta"), batch=64)
        return atr.programs_each(hidden, tiles, shared=shared, element_size=dtype.itemsize)

    assert [each(hidden, dtype=torch.bfloat16) for hidden in (512, 1024, 1280, 2048)] == [2, 2, 1, 1]
    assert each(1024, dtype=torch.bfloat16, shared=163 * 1024) == 1  # an A100
    assert [each(hidden, dtype=torch.float32) for hidden in (512, 1024, 2048)] == [1, 1, 0]  # of eight warps
