"""Which operations run on this machine's GPU with `kernels: auto`: those that compute there what PyTorch does.

The kernels are the same everywhere, compilers, drivers and GPUs are not. So the first command on a kind of GPU and
with a version of PyTorch, Triton and this package checks each operation against the reference, values and gradients,
and keeps what it finds in the cache directory, where the C kernels are too.
"""

from __future__ import annotations

import functools
import logging

import torch

from nmt.errors import ConfigError
from nmt.kernel_check import record, trials
from nmt.kernel_check.record import Findings
from nmt.ops.dispatch import TRITON_KERNELS, set_kernels, triton_problem

logger = logging.getLogger(__name__)

WITHOUT_TRITON = frozenset({"decoding_step", "lstm_layer"})
OPERATIONS = WITHOUT_TRITON | TRITON_KERNELS.keys()


def choose_kernels(choice: str, *, device: torch.device) -> None:
    """`nmt.ops.dispatch.set_kernels` for a model on this device; `auto` may take minutes at first.

    Raises ConfigError as that does, and for `triton` on a CPU.
    """
    if choice == "triton" and device.type == "cpu":
        raise ConfigError("kernels: 'triton' was asked for, but the device is the CPU, where it has none. Use auto.")
    verified = verified_on(device) if choice == "auto" and device.type == "cuda" else frozenset()
    set_kernels(choice, verified=verified)


@functools.cache
def verified_on(device: torch.device) -> frozenset[str]:
    """Operations that are right on this GPU. What is not is said, and that PyTorch does it."""
    problem = triton_problem()
    if problem:
        logger.warning("kernels: slower PyTorch code runs on this GPU, because %s", problem)
    findings, undecided = find_out(device)
    for operation, reason in sorted(findings.refused.items()):
        logger.warning("kernels: PyTorch runs %s, because on this GPU our form of it is wrong: %s", operation, reason)
    for operation, reason in sorted(undecided.items()):
        logger.warning("kernels: PyTorch runs %s, because our form of it could not be tried: %s", operation, reason)
    return findings.verified


def find_out(device: torch.device, *, again: bool = False) -> tuple[Findings, dict[str, str]]:
    """What is known of the operations on this GPU, and why nothing is of others; `again` also what is known."""
    wanted = WITHOUT_TRITON if triton_problem() else OPERATIONS
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    path = record.record_file(device)
    with record.alone(path):
        known = record.NOTHING if again else record.read(path)
        missing = sorted(wanted - known.known)
        if not missing:
            return known, {}
        name = torch.cuda.get_device_name(device)
        kept = f"once: what is found is kept in {path}" if path else "each time, as there is no cache directory"
        logger.warning("kernels: checking %d operations on %s, %s", len(missing), name, kept)
        found, undecided = trials.try_out(missing, device)
        findings = Findings(known.verified | found.verified, {**known.refused, **found.refused})
        if path:
            try:
                record.write(path, findings)
            except OSError as error:
                logger.warning("kernels: what was found could not be kept in %s: %s", path, error.strerror or error)
    return findings, undecided
