"""Writes what a seed gave into docs/reports/amd_random.md: a table by arch, inputs and pipeline, and every failure.

The document's other words stand, and so do other seeds; a seed that was there is replaced.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BEGIN = "<!-- drawn: written by tests/amd_emulated/random_report.py -->"
END = "<!-- end of drawn -->"
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run was made with."""

    seed: int
    count: int
    compiler: str
    emulator: str
    op: str = "gemm"

    @property
    def of_op(self) -> str:
        """What tells the ops of one seed apart."""
        return "" if self.op == "gemm" else f" of {self.op}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return text.strip().splitlines()[0][:240].replace("|", "/") if text.strip() else "no reason recorded"


def section(facts: Facts, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The words of one seed."""
    problems = [one for row in rows for one in row["problems"]]
    verdicts = Counter(one["verdict"] for one in problems)
    right = sum(row["verdict"] == RIGHT for row in rows)
    elements = sum(one.get("elements", 0) for one in problems if one["verdict"] == RIGHT)
    opened = sum(one.get("open", 0) for one in problems if one["verdict"] == RIGHT)
    yield f"### Seed {facts.seed}, {facts.count} kernels{facts.of_op}"
    yield ""
    if len(rows) < facts.count:
        yield f"- **unfinished**: {len(rows)} of {facts.count} were executed when the run was stopped"
    refused = sum("now_refused" in row for row in rows)
    yield (
        f"- {right} of {len(rows)} kernels right, {refused} wrong then and refused by a rule now "
        f"({time.strftime('%Y-%m-%d', time.gmtime())})"
    )
    yield (
        f"- {sum(verdicts.values())} problems: {verdicts['right']} executed and right, {verdicts['wrong']} wrong, "
        f"{verdicts['refused']} refused by the kernel as by the rules; {elements} elements compared, "
        f"{opened} of them open (sums that may leave fp32)"
    )
    instead = sum("instead_of" in one for one in problems)
    if instead:
        yield f"- {instead} problems took the emulator too long and were executed smaller"
    rules = Counter[str]()
    for row in rows:
        rules.update(row["rules"])
    said = ", ".join(f"{name} {count}" for name, count in rules.most_common())
    yield f"- drawn and refused by a rule: {said or 'none'}"
    yield f"- compiler: {facts.compiler}; emulator: {facts.emulator}"
    yield ""
    yield from _table(rows)
    wrong = [row for row in rows if row["verdict"] != RIGHT]
    if wrong:
        yield ""
        yield "Wrong:"
        yield ""
        for row in wrong:
            now = f" Now refused: {row['now_refused']}." if "now_refused" in row else ""
            yield f"- {row['index']}: `{row['name']}`: {_one_line(row.get('detail', ''))}{now}"


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["arch"], row["inputs"], row["pipeline"]), []).append(row)
    yield _row(["arch", "inputs", "pipeline", "kernels", "right", "problems", "largest share of the bound", "compiled"])
    yield _row(["---", "---", "---", "---:", "---:", "---:", "---:", "---:"])
    for key, held in sorted(groups.items()):
        problems = [one for row in held for one in row["problems"] if one["verdict"] == RIGHT]
        share = max((one["of_bound"] for one in problems), default=0.0)
        right = sum(row["verdict"] == RIGHT for row in held)
        numbers = [str(len(held)), str(right), str(len(problems)), f"{100 * share:.0f} %"]
        yield _row([*key, *numbers, _compiled([row.get("cpu_seconds", 0.0) for row in held])])


def _compiled(seconds: Sequence[float]) -> str:
    """CPU seconds a kernel, of those that were not found in the store."""
    taken = [one for one in seconds if one]
    return f"{sum(taken) / len(taken):.0f} s" if taken else ""


def write(document: Path, facts: Facts, rows: Sequence[dict[str, Any]]) -> None:
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{document} lacks the marks {BEGIN!r} and {END!r}")
    kept = [one for one in re.split(r"(?m)^(?=### Seed )", inside) if one.strip()]
    mine = re.compile(rf"### Seed {facts.seed}, \d+ kernels{re.escape(facts.of_op)}\n")
    kept = [one.strip() for one in kept if not mine.match(one)]
    body = "\n\n".join([*kept, "\n".join(section(facts, rows))])
    document.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")
