"""Fill the generated section of docs/reports/gemm_cpu.md from benchmarks/results/*.json; no number is typed by hand.

python benchmarks/cpu_table.py            writes the section
python benchmarks/cpu_table.py --check    exits with 1 where docs/reports/gemm_cpu.md says something else
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT

PAGE = ROOT / "docs" / "reports" / "gemm_cpu.md"
BEGIN = "<!-- results: written by benchmarks/cpu_table.py, do not edit -->"
END = "<!-- end of results -->"
GROUPS = {
    "square": "square",
    "skinny": "skinny: m by 4096 by 4096",
    "tall": "tall",
    "deep": "long k",
    "odd": "odd and prime",
    "large": "large",
    "mid": "of middling size",
    "decode": "few rows",
    "small": "small",
}


def read(name: str, place: Path) -> dict[str, Any] | None:
    path = place / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(head: list[str], rows: list[list[str]], numbers: int = 0) -> list[str]:
    """A Markdown table; the columns from `numbers` on are right-aligned."""
    rule = ["---" if not numbers or index < numbers else "---:" for index in range(len(head))]
    return ["| " + " | ".join(one) + " |" for one in (head, rule, *rows)]


def missing(name: str) -> list[str]:
    return [f"*No results of `benchmarks/{name}.py` are stored yet.*", ""]


def about(result: dict[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores", machine["system"], f"Python {versions['python']}"]
    for label, key in (("NumPy", "numpy"), ("BLAS", "blas"), ("PyTorch", "torch"), ("", "compiler")):
        if versions.get(key):
            parts.append(f"{label} {versions[key]}".strip())
    commit = f", commit {versions['commit']}" if versions.get("commit") else ""
    return f"`{result['command']}`, {result['date']}{commit}: {'; '.join(parts)}."


def group_lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """fp32 by kind of shape."""
    import math

    lines = []
    for group, label in GROUPS.items():
        of_group = [row for row in rows if row["dtype"] == "fp32" and row["group"] == group and "over_best_peer" in row]
        if not of_group:
            continue
        cells = [label, str(len(of_group))]
        for key in ("over_best_peer", "gemm_over_best_peer"):
            ratios = [row[key]["ratio"] for row in of_group]
            cells.append(f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
            cells.append(f"{min(ratios):.2f}")
        lines.append([*cells, f"{max(row['gflops'] for row in of_group):.0f}"])
    return lines


def shape_lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for row in rows:
        seconds = row["seconds"]

        def micro(name: str, seconds: dict[str, float] = seconds) -> str:
            return f"{seconds[name] * 1e6:.1f}" if name in seconds else ""

        over, narrow = row.get("over_best_peer"), row.get("over_our_fp32")
        spread = f"{over['ratio']:.2f} ({over['quartile_1']:.2f} to {over['quartile_3']:.2f})" if over else ""
        times = [micro(name) for name in ("call", "gemm", "numpy", "torch")]
        ratios = [spread, f"{narrow['ratio']:.2f}" if narrow else ""]
        lines.append([row["dtype"], row["shape"], row["tier"], *times, f"{row['gflops']:.1f}", *ratios])
    return lines


def gemm_section(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return missing("gemm_cpu")
    lines = ["![Speed relative to NumPy, PyTorch and our own fp32](../images/gemm_cpu.svg)", ""]
    rows = []
    for dtype, one in result["summary"].items():
        if dtype == "families":
            continue  # of drawn problems: the table of groups has them
        head = one["headline"]
        verdict = "met" if one["met"] else "missed"
        peer = one.get("over_best_peer")
        least = f"{head['least']:.2f} ({head['least_shape']})"
        beside = f"{peer['geometric_mean']:.2f}" if peer else "-" if dtype != "fp32" else "see below"
        mean = f"{head['geometric_mean']:.2f}"
        rows.append([dtype, one["against"], str(head["shapes"]), mean, least, f"{one['target']:g}: {verdict}", beside])
    lines += table(["type", "relative to", "shapes", "geometric mean", "least", "goal", "relative to PyTorch"], rows)
    floor = result["summary"].get("fp32", {}).get("headline", {}).get("under_floor", [])
    lines += ["", f"fp32 shapes under {result['floor']:g} of the best peer: {', '.join(floor) or 'none'}.", ""]
    lines += table(
        ["fp32 shapes", "count", "kernel call", "its least", "tw.gemm", "its least", "most GFLOP/s"],
        group_lines(result["rows"]),
        numbers=1,
    )
    lines += ["", "<details><summary>Every shape (microseconds, medians)</summary>", ""]
    head = [
        "type",
        "layout, m x n x k",
        "tier",
        "call",
        "tw.gemm",
        "NumPy",
        "PyTorch",
        "GFLOP/s",
        "call over best peer",
    ]
    lines += table([*head, "over our fp32"], shape_lines(result["rows"]), numbers=3)
    return [*lines, "", "</details>", "", about(result), ""]


def seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.1f} ms" if value < 0.1 else f"{value:.2f} s"


COSTS = {
    "import_seconds": "`import tilewright`",
    "load_seconds": "loading a built kernel (store lookup, verification, dlopen)",
    "gemm_over_bare_seconds": "a cached `tw.gemm` over the bare kernel call",
    "conv_over_bare_seconds": "a cached `tw.conv` over the bare kernel call",
    "attention_over_bare_seconds": "a cached `tw.attention` over the bare kernel call",
    "select_seconds": "`select` without a cached answer",
    "compile_cpu_seconds": "compiling the slowest kernel (CPU time)",
}


def latency_section(result: dict[str, Any]) -> list[str]:
    rows = []
    for key, label in COSTS.items():
        if key not in result:
            continue  # stored before it was timed
        verdict = "met" if result["met"][key] else "missed"
        rows.append([label, seconds(result[key]), f"at most {seconds(result['targets'][key])}: {verdict}"])
    return [*table(["what", "time", "goal"], rows), "", about(result), ""]


def generate_section(result: dict[str, Any]) -> list[str]:
    text = f"{result['count']} specs become files in {result['median_seconds']:.2f} s with a peak of "
    text += f"{result['peak_mib']:.0f} MiB; a second run writes {result['second_run_written']}."
    return [text, "", about(result), ""]


def section(place: Path) -> str:
    listed = read("gemm_cpu", place) or read("gemm_cpu_random", place)
    lines = [BEGIN, "", "### GEMM beside NumPy and PyTorch", "", *gemm_section(listed)]
    latency, generation = read("latency", place), read("generate", place)
    lines += ["### Around the kernel", "", *latency_section(latency)] if latency else []
    lines += ["### Generation", "", *generate_section(generation)] if generation else []
    return "\n".join([*lines, END])


def filled(readme: str, new: str) -> str:
    before, found, rest = readme.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"docs/reports/gemm_cpu.md has no section between {BEGIN} and {END}")
    return before + new + after


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the results into docs/reports/gemm_cpu.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    old = options.page.read_text(encoding="utf-8")
    new = filled(old, section(options.results))
    if options.check:
        if new != old:
            raise SystemExit("docs/reports/gemm_cpu.md does not say what the results say: run benchmarks/cpu_table.py")
    elif new != old:
        options.page.write_text(new, encoding="utf-8")
        print("docs/reports/gemm_cpu.md is up to date with the results")


if __name__ == "__main__":
    main()
