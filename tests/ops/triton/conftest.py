"""Kernels are tested on a GPU where there is one, else in Triton's interpreter on CPU tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.ops.dispatch import triton_problem

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    problem = triton_problem()
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if problem:
            item.add_marker(pytest.mark.skip(reason=problem))
        elif INTERPRETED and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where kernels run in these tests."""
    if not INTERPRETED:
        return torch.device("cuda")
    _read_scalars_as_numpy_wants()
    _multiply_bf16_as_numbers()
    _patch_the_language_once()
    _leave_out_what_nobody_reads()
    _check_memory()
    return torch.device("cpu")


def _read_scalars_as_numpy_wants() -> None:
    """Since NumPy 2.4 int() refuses the arrays of one value that Triton 3.6's interpreter keeps scalars in."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patch(tensor: type, scope: object) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))  # type: ignore[attr-defined]

    interpreter._patch_lang_tensor = patch


def _multiply_bf16_as_numbers() -> None:
    """The interpreter keeps bf16 as uint16, and its dot multiplies those integers: give it what they stand for."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    builder = type(interpreter.interpreter_builder)
    original = builder.create_dot

    def to_fp32(x: object) -> object:
        if x.dtype.scalar != tl.bfloat16:  # type: ignore[attr-defined]
            return x
        bits = x.data.astype(np.uint32) << 16  # type: ignore[attr-defined]
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def dot(self: object, a: object, b: object, *rest: object) -> object:
        return original(self, to_fp32(a), to_fp32(b), *rest)

    builder.create_dot = dot


def _patch_the_language_once() -> None:
    """The interpreter patches Triton's language at each launch and each call of a function: most of the time."""
    import triton.language as tl
    from triton.runtime import interpreter

    original, patched = interpreter._patch_lang, set()

    def patch(function: Any) -> object:
        namespaces = {id(value) for value in function.__globals__.values() if isinstance(value, ModuleType)}
        if namespaces & {id(tl), id(tl.core)} - patched:
            original(function)
            patched.update(namespaces)
        return SimpleNamespace(restore=lambda: None)

    interpreter._patch_lang = patch


def _leave_out_what_nobody_reads() -> None:
    """The interpreter computes all integers twice, for an assertion against overflow that its options switch off."""
    from triton.runtime import interpreter

    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


def _check_memory() -> None:
    """Accesses out of bounds and races are errors, as they should be."""
    from tests.ops.triton import memory_check

    memory_check.install()


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN, so that what a kernel should have written and did not is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
