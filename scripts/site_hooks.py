"""What MkDocs does not do by itself for the site: README.md as its first page, and links to files outside docs/.

MkDocs calls the functions by their names (`hooks` in .mkdocs.yml).
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.hooks")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")
"""A link that leaves its own folder: text, steps up, path."""


def first_page(readme: str) -> str:
    """README.md with its links as they are for a page in docs/."""
    outside = re.sub(r"\]\((?!https?:|docs/|#)([^)]+)\)", r"](../\1)", readme)
    return outside.replace("](docs/", "](")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds README.md as index.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=first_page(text)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Names the files outside docs/ that a page links to: the site does not contain them. They must exist."""
    folder = Path(config["docs_dir"], page.file.src_uri).parent

    def named(match: re.Match[str]) -> str:
        text, up, path = match.groups()
        target = (folder / up / path).resolve()
        if target.is_relative_to(config["docs_dir"]):
            return match[0]
        if not target.exists():
            LOG.warning("%s: links to %s, which does not exist", page.file.src_uri, up + path)
        name = str(target.relative_to(ROOT))
        return f"`{name}`" if text.strip("`") == name else f"{text} (`{name}`)"

    return LINK.sub(named, markdown)
