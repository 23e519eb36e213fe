"""What a container grants: control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt import cpus


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def quota(root: Path, membership: str) -> float | None:
    (root / "membership").write_text(membership)
    return cpus.cpu_quota(root, root / "membership")


def test_version_2_takes_the_tightest_group_above(tmp_path: Path) -> None:
    group(tmp_path / "a" / "b", cpu__max="max 100000\n")
    group(tmp_path / "a", cpu__max="150000 100000\n")
    group(tmp_path, cpu__max="400000 100000\n")
    assert quota(tmp_path, "0::/a/b\n") == 1.5
    assert quota(tmp_path, "0::/\n") == 4
    assert quota(tmp_path, "0::/../other\n") == 4  # a path of the host, seen from inside a container


def test_version_1(tmp_path: Path) -> None:
    group(tmp_path / "cpu,cpuacct" / "a", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n")
    group(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    membership = "4:memory:/a\n1:cpu,cpuacct:/a\n"
    assert quota(tmp_path, membership) == 2.5


def test_no_limit(tmp_path: Path) -> None:
    group(tmp_path, cpu__max="max 100000\n")
    assert quota(tmp_path, "0::/\n") is None
    assert quota(tmp_path, "") is None
    assert cpus.cpu_quota(tmp_path, tmp_path / "absent") is None


@pytest.mark.parametrize(("granted", "expected"), [(None, 8), (2.5, 2), (0.5, 1), (64.0, 8)])
def test_usable_cores(monkeypatch: pytest.MonkeyPatch, granted: float | None, expected: int) -> None:
    monkeypatch.setattr(cpus, "available_cores", lambda: 8)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: granted)
    assert cpus.usable_cores() == expected
