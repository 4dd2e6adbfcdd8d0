"""Fill the generated section of docs/reports/models.md from benchmarks/results/*.json; no number is typed by hand.

python benchmarks/models_table.py            writes the section
python benchmarks/models_table.py --check    exits with 1 where docs/reports/models.md says something else
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT
from _model_race import shown as ratio_text
from cpu_table import about, missing, read, table

PAGE = ROOT / "docs" / "reports" / "models.md"
BEGIN = "<!-- results: written by benchmarks/models_table.py, do not edit -->"
END = "<!-- end of results -->"
WAYS = {
    "replaced": "`replace_modules`",
    "packed": "with `pack=True`",
    "calls": "`tw.*` calls",
    "replaced, own threads": "on a pool of our own",
}


def models_section(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return missing("models_cpu")
    ways = [one for one in WAYS if one in result["summary"]["all"]]
    rows = []
    for row in result["rows"]:
        shown = [ratio_text(row["ratio"][way]) for way in ways]
        eager = 1e3 * row["seconds"]["torch"]["median"]
        rows.append([f"{row['model']}: {row['about']}", row["dtype"], f"{eager:.1f} ms", *shown])
    for kind, means in result["summary"].items():
        rows.append([f"geometric mean, {kind}", "", "", *(f"**{means[way]:.2f}**" for way in ways)])
    lines = table(["model", "type", "PyTorch eager", *(WAYS[way] for way in ways)], rows, numbers=2)
    return [*lines, "", f"Seed {result['seed']}, {result['threads']} threads. {about(result)}", ""]


ON_GPU = {
    "eager": "eager", "drop-in": "`replace_modules`, eager", "graph": "graph of graph", "compiled": "compiled",
    "compiled + graph": "compiled + graph", "in Inductor + graph": "Inductor with ours, + graph",
    "max-autotune + graph": "beside max-autotune", "graph beside compiled": "graph of compiled + graph",
}  # fmt: skip


def gpu_section(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return missing("models_h200")
    ways = [one for one in ON_GPU if one in result["summary"]["all"]]
    rows = []
    for row in result["rows"]:
        shown = [ratio_text(row["ratio"][way]) if way in row["ratio"] else "" for way in ways]
        times = [row["seconds"].get(who) for who in ("torch eager", "torch graph")]
        us = [f"{1e6 * one['median'] / row['layers']:.0f}" if one else "" for one in times]
        rows.append([f"{row['model']}: {row['about']}", *us, *shown])
    for kind, means in result["summary"].items():
        rows.append(
            [f"geometric mean, {kind}", "", "", *(f"**{means[way]:.2f}**" if way in means else "" for way in ways)]
        )
    head = ["model", "PyTorch eager, us a layer", "as a graph", *(ON_GPU[way] for way in ways)]
    lines = [*table(head, rows, numbers=1), "", f"{result['gpu']}, bf16, seed {result['seed']}. {about(result)}", ""]
    failed = [f"{row['model']}, {name}: {why}" for row in result["rows"] for name, why in row["failed"].items()]
    if failed:
        lines += ["Failed, and in no mean:", "", *(f"- {one}" for one in failed), ""]
    if result["left_out"]:
        lines += [f"Left out for time: {', '.join(result['left_out'])}.", ""]
    return lines


def _us(of: dict[str, float] | None) -> str:
    return f"{of['median_us']:.0f} (P99 {of['p99_us']:.0f})" if of else "not run here"


def shapes_section(results: list[dict[str, Any] | None]) -> list[str]:
    known = [one for one in results if one is not None]
    if not known:
        return missing("new_shapes")
    rows = [
        [row["op"], row["target"], _us(row["select"]), _us(row.get("plan")), _us(row.get("call"))]
        for result in known
        for row in result["rows"]
    ]
    lines = table(["op", "target", "selection, us", "selection and plan, us", "whole call less kernels, us"], rows, 2)
    for result in known:
        lines += ["", f"Seed {result['seed']}, {result['rows'][0]['select']['count']} sizes. {about(result)}"]
    return [*lines, ""]


def cold_call(cold: dict[str, Any]) -> dict[str, float]:
    """What a cold process waits for because of us; `first_call_ms` in results before that was told apart."""
    figures: dict[str, float] = cold.get("ours_ms") or cold["first_call_ms"]
    return figures


def prepared_section(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return missing("prepared")
    rows = [
        [
            row["op"], str(len(row["kernels"])), f"{row['prepared']['worst']:.1%}", str(len(row["compiled"])),
            f"{row['new']['median_us']:.0f}", f"{row['new']['slowest_us']:.0f}",
            f"{row['memory_mib'][0]:.0f} to {row['memory_mib'][-1]:.0f}",
            f"{cold_call(row['cold'])['least']:.0f} ({cold_call(row['cold'])['median']:.0f})",
        ]
        for row in result["rows"]
    ]  # fmt: skip
    head = [
        "op", "kernels", "worst loss", "compiled in 10,000 calls", "new size, median us", "slowest, us", "memory, MiB",
        "first call of a cold process, ms: least (median)",
    ]  # fmt: skip
    return [*table(head, rows, 1), "", f"Seed {result['seed']}. {about(result)}", ""]


def section(place: Path) -> str:
    lines = [BEGIN, "", "## Whole models on the H200", "", *gpu_section(read("models_h200", place))]
    lines += ["## Whole models on the CPU", "", *models_section(read("models_cpu", place))]
    shapes = [read(f"new_shapes_{one}", place) for one in ("cpu", "sm_90a")]
    lines += ["## Sizes never seen before", "", *shapes_section(shapes)]
    lines += ["## Prepared ranges", "", *prepared_section(read("prepared", place)), END]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the results into docs/reports/models.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    before, _, rest = old.partition(BEGIN)
    new = before + section(RESULTS) + rest.partition(END)[2]
    if options.check:
        if new != old:
            raise SystemExit("docs/reports/models.md does not say what the results say: run benchmarks/models_table.py")
    elif new != old:
        PAGE.write_text(new, encoding="utf-8")
        print("docs/reports/models.md is up to date with the results")


if __name__ == "__main__":
    main()
