"""What MkDocs does not do for the site: README.md as its first page, links to files outside docs/, bars in code.

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
NAMED_BY_FILE = re.compile(r"\[(?:docs/)?[\w./-]*\.md\]\(((?!https?:)[^)#]+\.md)(#[^)]*)?\)")
"""A link to a page with the file's name as its text: path, place in the page."""
CODE_IN_A_ROW = re.compile(r"^\|.*\\\|.*$", re.MULTILINE)
"""A row of a table with an escaped bar."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(?:#[^)]*)?\)")
"""A link that leaves its own folder: text, steps up, path."""


def first_page(readme: str) -> str:
    """README.md with links that are right for a page in docs/."""
    outside = re.sub(r"\]\((?!https?:|docs/|#)([^)]+)\)", r"](../\1)", readme)
    return outside.replace("](docs/", "](")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds README.md as index.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=first_page(text)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Name pages by their titles and files outside docs/, which the site does not contain, by path; unescape bars."""
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

    def titled(match: re.Match[str]) -> str:
        target = folder / match[1]
        text = target.read_text(encoding="utf-8") if target.is_file() else ""
        title = re.match(r"# (.+)", text)  # MkDocs reports a page that does not exist
        return match[0] if title is None else f"[{title[1]}]({match[1]}{match[2] or ''})"

    return LINK.sub(named, NAMED_BY_FILE.sub(titled, CODE_IN_A_ROW.sub(unescaped, markdown)))


def unescaped(row: re.Match[str]) -> str:
    r"""A row of a table with | for \| in its code: GitHub needs the backslash, and MkDocs would show it."""
    return re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0])
