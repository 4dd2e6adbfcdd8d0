"""Writes the tables of docs/reports/amd.md from the results of the emulated tests: report.py RESULTS DOCUMENT.

The document's words stand; only what lies between the two marks is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.amd_emulated.catalog import cases

BEGIN = "<!-- results: written by tests/amd_emulated/report.py -->"
END = "<!-- end of results -->"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def _outcome(record: dict[str, Any] | None) -> list[str]:
    """Compiled, problems executed, largest error, its share of the bound, matrix instructions."""
    if record is None:
        return ["not tried", "", "", "", ""]
    if not record["compiled"]:
        return [f"no: {_first_line(record['detail'])}", "", "", "", ""]
    found = record["results"]
    if not found:
        return ["yes", f"not executed: {_first_line(record['detail'])}", "", "", ""]
    right = [one for one in found if one["ok"]]
    executed = f"{len(right)} of {len(found)} right"
    if len(right) < len(found):
        wrong = next(one for one in found if not one["ok"])
        executed += f"; {wrong['why']}: {_first_line(wrong['detail'])}"
    matrix = sum(launch["matrix_instructions"] for one in found for launch in one["launches"])
    errors = [one["max_error"] for one in right] or [0.0]
    ratios = [one["bound_ratio"] for one in right] or [0.0]
    return ["yes", executed, _number(max(errors)), f"{100 * max(ratios):.0f} %", str(matrix)]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:140].replace("|", "/") if text.strip() else "no reason recorded"


def tables(records: dict[str, dict[str, Any]]) -> Iterator[str]:
    known = [(case, records.get(case.label)) for case in cases()]
    compilers = sorted({one["compiler"] for _, one in known if one})
    emulators = sorted({one["emulator"] for _, one in known if one})
    compiled = sum(1 for _, one in known if one and one["compiled"])
    executed = sum(1 for _, one in known if one and one["results"])
    problems = [each for _, one in known if one for each in one["results"]]
    right = sum(1 for one in problems if one["ok"])
    yield f"- compiler: {'; '.join(compilers) or 'none'}"
    yield f"- emulator: {'; '.join(emulators) or 'none'}"
    yield (
        f"- {len(known)} kernels in the catalog, {compiled} compiled, {executed} executed; "
        f"{len(problems)} problems executed, {right} right"
    )
    yield ""
    yield _row(
        ["kernel", "what it shows", "compiled", "executed", "largest error", "of its bound", "matrix instructions"]
    )
    yield _row(["---"] * 7)
    for case, record in known:
        yield _row([f"`{case.spec.name}`", case.label, *_outcome(record)])


def write(results: Path, document: Path) -> None:
    records = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    if not any(one["results"] for one in records.values()):
        raise SystemExit(f"{results} holds no kernel that was executed: {document} stays as it is")
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{document} lacks the marks {BEGIN!r} and {END!r}")
    body = "\n".join(tables(records))
    document.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
