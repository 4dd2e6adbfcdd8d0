"""The table of executed attention kernels in docs/reports/amd.md, from what the tests (or rows by hand) left.

python -m tests.amd_emulated.attention.table build/amd_emulated_attention.json docs/reports/amd.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN = "<!-- attention executed: written by tests/amd_emulated/attention/table.py, do not edit -->"
END = "<!-- end of attention executed -->"


def _row(one: dict[str, Any]) -> str:
    spec = one["kernel"].split("_gfx")[0].removeprefix("attention_")
    wrong = [each for each in one["results"] if each["detail"]]
    share = max((each.get("of_bound", 0.0) for each in one["results"]), default=0.0)
    said = f"{len(one['results'])} right" if not wrong else f"wrong: {wrong[0]['detail'][:120]}"
    return f"| {one['shows']} | {one['arch']} | `{spec}` | {said} | {share:.0%} |"


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| shows | arch | kernel | problems | largest share of the bound |", "| --- | --- | --- | --- | ---: |"]
    return "\n".join([*lines, *map(_row, rows)])


def main() -> None:
    source, document = Path(sys.argv[1]), Path(sys.argv[2])
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
