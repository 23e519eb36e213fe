"""The configurations that come with nmt, found by name from any directory."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def _folder() -> Path:
    """`configs` inside the installed package, or at the top of a checkout."""
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def bundled_path(name: str) -> Path | None:
    """The bundled configuration of that file name, or None."""
    return _folder() / name if name in bundled_names() else None


def bundled_names() -> list[str]:
    """File names of all bundled configurations, sorted."""
    return sorted(path.name for path in _folder().glob("*.yaml"))


def bundled_descriptions() -> dict[str, str]:
    """What each bundled configuration trains, in the words of its first line, by name."""
    lines = {name: (_folder() / name).read_text(encoding="utf-8").partition("\n")[0] for name in bundled_names()}
    return {name: line.removeprefix("# ") for name, line in lines.items()}
