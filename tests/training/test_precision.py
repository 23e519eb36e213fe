"""Choice of the number format, and the allocator's settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from nmt.errors import ConfigError
from nmt.ops import hardware
from nmt.system import keep_large_blocks
from nmt.training.update import choose_precision

CPU = torch.device("cpu")
TESTS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")


@pytest.fixture
def cpu_with(monkeypatch):
    """Pretend that the CPU has exactly these abilities."""

    def pretend(*abilities: str, vendor: str = "AuthenticAMD") -> None:
        for name in TESTS:
            monkeypatch.setattr(torch.cpu, name, lambda name=name: name in abilities, raising=False)
        monkeypatch.setattr(hardware, "cpu_info", {"vendor_id": vendor}.get)

    return pretend


@pytest.mark.parametrize(
    ("ability", "words"), [("_is_amx_tile_supported", "AMX"), ("_is_avx512_bf16_supported", "avx512_bf16")]
)
def test_auto_takes_bf16_where_the_cpu_has_it(cpu_with, ability, words):
    cpu_with(ability)
    precision = choose_precision("auto", device=CPU)
    assert precision.name == "bf16"
    assert str(precision) == f"precision: bf16 autocast, fp32 weights (auto: this CPU has {words})"


def test_intel_cpus_are_fast_in_bf16_with_amx_alone(cpu_with):
    cpu_with("_is_avx512_bf16_supported", vendor="GenuineIntel")
    assert str(choose_precision("auto", device=CPU)) == "precision: fp32 (auto: this CPU has no fast bf16 arithmetic)"
    cpu_with(*TESTS, vendor="GenuineIntel")
    assert choose_precision("auto", device=CPU).name == "bf16"


def test_auto_takes_fp32_elsewhere(cpu_with):
    cpu_with()
    precision = choose_precision("auto", device=CPU)
    assert precision.dtype is None
    assert str(precision) == "precision: fp32 (auto: this CPU has no fast bf16 arithmetic)"


def test_a_gpu_that_has_fp16_but_no_bf16_is_told_of_it(monkeypatch):
    for capability, hint in (((7, 5), "; it has fp16, for which set training.precision: fp16"), ((6, 1), "")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        precision = choose_precision("auto", device=torch.device("cuda"))
        assert str(precision) == f"precision: fp32 (auto: this GPU has no fast bf16 arithmetic{hint})"


def test_torch_without_the_private_tests(monkeypatch):
    for name in TESTS:
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert choose_precision("auto", device=CPU).name == "fp32"


def test_what_is_configured_is_taken(cpu_with):
    cpu_with()
    assert "slow in bf16" in str(choose_precision("bf16", device=CPU))
    cpu_with(*TESTS)
    assert str(choose_precision("bf16", device=CPU)) == "precision: bf16 autocast, fp32 weights (as configured)"
    assert str(choose_precision("fp32", device=CPU)) == "precision: fp32 (as configured)"


def test_fp16_needs_cuda():
    with pytest.raises(ConfigError, match="training.precision: 'fp16' needs a CUDA GPU.*auto, fp32, bf16"):
        choose_precision("fp16", device=CPU)
    precision = choose_precision("fp16", device=torch.device("cuda"))
    assert precision.dtype is torch.float16


@pytest.mark.parametrize(("capability", "name"), [((7, 0), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_gpus(monkeypatch, capability, name):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    assert choose_precision("auto", device=torch.device("cuda")).name == name


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_weights_stay_fp32(name):
    precision = choose_precision(name, device=CPU)
    layer = torch.nn.Linear(4, 4)
    with precision.autocast():
        outputs = layer(torch.ones(2, 4))
    assert outputs.dtype is (precision.dtype or torch.float32)
    scaler = precision.grad_scaler()
    scaler.scale(outputs.sum()).backward()
    assert layer.weight.grad.dtype is torch.float32
    assert not scaler.is_enabled() and scaler.get_scale() == 1


def test_allocator_respects_the_environment(monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1000")
    assert not keep_large_blocks()


def test_allocator_without_glibc(monkeypatch):
    for name in list(os.environ):
        if name.startswith("MALLOC_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_large_blocks()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted on Linux only")
def test_allocator_keeps_large_blocks():
    """In a process of its own: the settings cannot be undone."""
    program = """
import resource, sys
from nmt.system import keep_large_blocks
if sys.argv[1] == "keep" and not keep_large_blocks():
    sys.exit(77)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * (40 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    faults = []
    for mode in ("leave", "keep"):
        done = subprocess.run(
            [sys.executable, "-c", program, mode], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode == 77:
            pytest.skip("this C library is not glibc")
        assert done.returncode == 0, done.stderr
        faults.append(int(done.stdout))
    assert faults[1] < faults[0] / 2
