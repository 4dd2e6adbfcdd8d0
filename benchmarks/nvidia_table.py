"""Fill the generated sections of docs/reports/nvidia.md from benchmarks/results; no number is typed by hand.

python benchmarks/nvidia_table.py            writes the section
python benchmarks/nvidia_table.py --check    exits with 1 where docs/reports/nvidia.md says something else
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _h200_shapes import GROUPS
from _machine import RESULTS, ROOT
from cpu_table import missing, table

PAGE = ROOT / "docs" / "reports" / "nvidia.md"
BEGIN = "<!-- speed: written by benchmarks/nvidia_table.py, do not edit -->"
END = "<!-- end of speed -->"
RANDOM_BEGIN = "<!-- random problems: written by benchmarks/nvidia_table.py, do not edit -->"
RANDOM_END = "<!-- end of random problems -->"
RANDOM_RESULTS = ("gemm_h200_random.json",)
Row = dict[str, Any]


def about(result: dict[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    parts = [f"{machine['gpu']} ({machine['multiprocessors']} multiprocessors)", f"driver {machine['driver']}"]
    parts += [f"PyTorch {versions['torch']} with CUDA {versions['cuda']}", versions["compiler"]]
    parts += [f"Python {versions['python']}", f"commit {versions['commit']}"]
    return f"`{result['command']}`, {result['date']}: {'; '.join(parts)}."


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def cells(rows: Sequence[Row], selection: str) -> list[str]:
    """Geometric mean and least of the ratios to cuBLAS."""
    ratios = [row[f"{selection}_over_cublas"]["ratio"] for row in rows if f"{selection}_over_cublas" in row]
    return [f"{mean(ratios):.2f}", f"{min(ratios):.2f}"] if ratios else ["", ""]


def group_lines(rows: Sequence[Row]) -> list[list[str]]:
    lines = []
    for group, label in (*GROUPS.items(), ("", "all")):
        for dtype in sorted({row["dtype"] for row in rows}):
            mine = [row for row in rows if row["dtype"] == dtype and (not group or row["group"] == group)]
            cold, warm = ([row for row in mine if row["l2"] == l2] for l2 in ("cold", "warm"))
            if mine:
                shapes = str(len({row["shape"] for row in mine}))
                ratios = [*cells(cold, "default"), *cells(cold, "measured"), *cells(warm, "measured")]
                lines.append([label, dtype, shapes, *ratios])
    return lines


def shape_lines(rows: Sequence[Row]) -> list[list[str]]:
    lines = []
    for row in rows:
        line = [row["dtype"], row["l2"], row["shape"]]
        line += [
            f"{row['seconds'][name] * 1e6:.1f}" if name in row["seconds"] else ""
            for name in ("cublas", "default", "measured")
        ]
        for name in ("default", "measured"):
            ratio = row.get(f"{name}_over_cublas")
            line.append(
                f"{ratio['ratio']:.2f} ({ratio['quartile_1']:.2f} to {ratio['quartile_3']:.2f})" if ratio else ""
            )
        lines.append([*line, f"{row['tflops']:.0f}", f"{row['bytes_per_second'] / 1e9:.0f}"])
    return lines


def section(result: dict[str, Any] | None) -> str:
    if result is None:
        return "\n".join([BEGIN, "", *missing("gemm_h200"), END])
    method = result["method"]
    lines = [BEGIN, "", "![Speed relative to cuBLAS on an H200](../images/gemm_h200.svg)", ""]
    lines += ["Times of cuBLAS (`torch.matmul`) over ours: above 1 we are faster.", ""]
    head = ["shapes", "type", "count", "default, cold", "its least", "measured, cold", "its least"]
    lines += table([*head, "measured, warm", "its least"], group_lines(result["rows"]), numbers=2)
    lines += [
        "",
        f"{method['clock']}, {method['rounds']} rounds.  Cold: {method['cold']}.  Warm: {method['warm']}.",
        "",
    ]
    goals = [[one["goal"], f"{one['found']:.2f}", "met" if one["met"] else "missed"] for one in result["goals"]]
    lines += table(["goal (cold)", "found", ""], goals)
    lines += [
        "",
        f"Copy bandwidth of the same run: {result['copy_bytes_per_second'] / 1e9:.0f} GB/s, read plus written.",
    ]
    if result["fp8"]:
        fp8 = [
            [one["shape"], one["selection"], f"{one['fp8'] * 1e6:.1f}", f"{one['over_bf16']['ratio']:.2f}"]
            for one in result["fp8"]
        ]
        lines += ["", *table(["fp8 (e4m3)", "selection", "microseconds", "over our bf16"], fp8, numbers=2)]
    if result["wrong"]:
        lines += ["", "Kernels whose results were wrong, and which were left out:", ""]
        lines += [f"- {one}" for one in result["wrong"]]
    lines += ["", "<details><summary>Every shape (microseconds, medians)</summary>", ""]
    head = ["type", "L2", "m x n x k", "cuBLAS", "default", "measured", "default over cuBLAS", "measured over cuBLAS"]
    lines += table([*head, "TFLOP/s", "GB/s"], shape_lines(result["rows"]), numbers=3)
    return "\n".join([*lines, "", "</details>", "", about(result), "", END])


def family_lines(result: dict[str, Any]) -> list[list[str]]:
    """A line a family: of every ratio the geometric mean, P10 and the least."""
    told = {(one["family"], one["ratio"]): one for one in result["summary"]}
    lines = []
    for family in dict.fromkeys(one["family"] for one in result["summary"]):
        line = [family, str(told[family, "default_over_cublas"]["count"])]
        for ratio in ("default_over_cublas", "measured_over_cublas", "measured_over_tuned"):
            one = told.get((family, ratio))
            line += [f"{one[part]:.2f}" for part in ("geometric_mean", "p10", "least")] if one else ["", "", ""]
        lines.append(line)
    return lines


def choice_lines(result: dict[str, Any]) -> list[list[str]]:
    """A line a family of selection_h200.py: what the model chose and what the estimate would have, over cuBLAS."""
    lines = []
    for one in result["summary"]:
        ratios = [one[f"{who}_over_cublas"][part] for who in ("model", "estimate") for part in ("mean", "p10", "least")]
        lines.append([one["family"], str(one["problems"]), *(f"{ratio:.2f}" for ratio in ratios), str(one["same"])])
    return lines


def type_lines(rows: Sequence[Row]) -> list[list[str]]:
    """A line an element type: how many problems have a peer, geometric mean, P10, the least and whose that is."""
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        raced = [row for row in rows if row["dtype"] == dtype and "default_over_cublas" in row]
        ratios = sorted(row["default_over_cublas"]["ratio"] for row in raced)
        if not ratios:
            continue
        tenth = statistics.quantiles(ratios, n=10, method="inclusive")[0] if len(ratios) > 1 else ratios[0]
        least = min(raced, key=lambda row: float(row["default_over_cublas"]["ratio"]))
        numbers = [f"{one:.2f}" for one in (mean(ratios), tenth, ratios[0])]
        lines.append([dtype, str(len(ratios)), *numbers, f"{least['layout']} {least['shape']}"])
    return lines


def random_section(results: Sequence[dict[str, Any]]) -> str:
    lines = [RANDOM_BEGIN, ""]
    for result in results:
        dtypes = sorted({row["dtype"] for row in result["rows"]})
        head = [", ".join(dtypes), "count", "default", "P10", "least"]
        if "model_over_cublas" in result["summary"][0]:
            head += ["by the estimate", "P10", "least", "same kernel"]
            lines += [*table(head, choice_lines(result), numbers=1), "", about(result), ""]
            continue
        head += ["measured", "P10", "least", "measured, of tuned cublasLt", "P10", "least"]
        lines += [*table(head, family_lines(result), numbers=1), ""]
        if len(dtypes) > 1:
            head = ["type", "count", "default", "P10", "least", "which"]
            lines += [*table(head, type_lines(result["rows"]), numbers=1), ""]
        lines += [about(result), ""]
    return "\n".join([*lines, RANDOM_END])


def filled(page: str, new: str, begin: str = BEGIN, end: str = END) -> str:
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"docs/reports/nvidia.md has no section between {begin} and {end}")
    return before + new + after


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the results on an H200 into docs/reports/nvidia.md.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--result", type=Path, default=RESULTS / "gemm_h200.json")
    parser.add_argument("--random-results", type=Path, nargs="*", default=[RESULTS / one for one in RANDOM_RESULTS])
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    result = json.loads(options.result.read_text(encoding="utf-8")) if options.result.exists() else None
    old = options.page.read_text(encoding="utf-8")
    drawn = [json.loads(one.read_text(encoding="utf-8")) for one in options.random_results if one.exists()]
    listed = filled(old, section(result)) if result or BEGIN in old else old  # a page without the list stays without
    new = filled(listed, random_section(drawn), RANDOM_BEGIN, RANDOM_END)
    if options.check:
        if new != old:
            raise SystemExit("docs/reports/nvidia.md does not say what the results say: run benchmarks/nvidia_table.py")
    elif new != old:
        options.page.write_text(new, encoding="utf-8")
        print("docs/reports/nvidia.md is up to date with the results")


if __name__ == "__main__":
    main()
