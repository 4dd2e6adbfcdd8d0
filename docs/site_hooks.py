"""Links of the pages to files of the repository, for the site: such files are not part of it.

A page says `[settings.py](../src/tilewright/settings.py)`, which works in a checkout and where the repository is shown.
On the site the same place becomes text in the repository's own words, or a link where `repo_url` is set; that the file
exists is checked here, so that a broken one fails the build as others do.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.tilewright")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace the links of a page that lead out of docs/."""
    docs = Path(config.docs_dir).resolve()
    root = docs.parent
    source = Path(page.file.abs_src_path).resolve()

    def replaced(match: re.Match[str]) -> str:
        label, place = match.group(1), match.group(2)
        if "://" in place or place.startswith("mailto:"):
            return match.group(0)
        target = (source.parent / place).resolve()
        if target.is_relative_to(docs):
            return match.group(0)
        if not target.exists() or not target.is_relative_to(root):
            log.warning("%s links to %s, which is not there", page.file.src_path, place)
            return match.group(0)
        path = target.relative_to(root).as_posix()
        if config.repo_url:
            return f"[{label}]({config.repo_url.rstrip('/')}/blob/main/{path})"
        return label if path in label or "`" in label else f"{label} (`{path}`)"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(replaced, part) for part in parts)
