"""Which CPU this is, and how many of its cores this process may use. Needs the standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_info(field: str) -> str:
    """What Linux says of the processor under a name as `model name` or `vendor_id`; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def available_cores() -> int:
    """Logical cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Of these, as many as a container's limit on CPU time keeps busy; at least 1."""
    quota = cpu_quota()
    return available_cores() if quota is None else max(1, min(available_cores(), int(quota)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs' worth of time that Linux control groups grant this process (docker --cpus); None without a limit."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":  # version 2
            quotas += [_quota_v2(folder) for folder in _with_parents(root, path)]
        elif "cpu" in controllers.split(","):
            quotas += [_quota_v1(folder) for folder in _with_parents(root / controllers, path)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _with_parents(root: Path, path: str) -> list[Path]:
    """The folder of a group and those above it; inside a container the path may be one of the host's."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # ValueError: "max"
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="utf-8"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError):
        return None
