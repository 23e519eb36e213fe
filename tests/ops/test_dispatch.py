"""Which implementation runs, and what a user is told when the one asked for does not exist."""

from __future__ import annotations

import contextvars
from types import MappingProxyType

import pytest
import torch

from nmt.errors import ConfigError
from nmt.ops import dispatch


def reference() -> str:
    return "reference"


def kernel() -> str:
    return "kernel"


def chosen(choice: str, operation: str = "lrn") -> str:
    """What runs on the CPU after `choice`, without leaving the choice behind."""

    def run() -> str:
        dispatch.set_kernels(choice)
        return dispatch.choose(operation, reference, like=torch.zeros(1))()

    return contextvars.copy_context().run(run)


@pytest.mark.parametrize("choice", ["auto", "reference"])
def test_the_reference_runs_on_a_cpu(choice: str) -> None:
    assert chosen(choice) == "reference"


def test_triton_without_kernels_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "TRITON_KERNELS", MappingProxyType({}))
    with pytest.raises(ConfigError, match="^kernels: 'triton' .* no Triton kernels") as error:
        chosen("triton")
    assert "\n" not in str(error.value)


def test_triton_without_a_kernel_for_this_operation_or_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "TRITON_KERNELS", MappingProxyType({"lrn": f"{__name__}:kernel"}))
    for operation in ("lrn", "gru"):
        with pytest.raises(ConfigError, match=f"no kernel for {operation} on cpu"):
            chosen("triton", operation)
    assert chosen("auto") == "reference"


def test_unknown_choice_names_the_near_miss() -> None:
    with pytest.raises(ConfigError, match="'trition' .* mean 'triton'.* Allowed: auto, triton, reference"):
        chosen("trition")
