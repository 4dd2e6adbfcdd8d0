"""The table of docs/settings.md, from the fields of `Settings` and their comments.

python -m tests.settings_page writes it; tests/test_docs.py compares.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

from tilewright import settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
BEGIN = "<!-- settings: written by tests/settings_page.py, do not edit -->"
END = "<!-- end of settings -->"
_FIELD = re.compile(r"^    (\w+): \w+ = .+?  # (.+)$", re.MULTILINE)


def table() -> str:
    meanings = dict(_FIELD.findall(Path(settings.__file__).read_text(encoding="utf-8")))
    rows = ["| option | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for field in fields(settings.Settings):
        default = "this user's cache folder" if field.default is MISSING else f"`{field.default!r}`"
        variable = f"`{settings.PREFIX}{field.name.upper()}`"
        rows.append(f"| `{field.name}` | {variable} | {default} | {meanings[field.name]} |")
    return "\n".join(rows)


def filled(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
