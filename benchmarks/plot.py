"""Draw docs/images/gemm_cpu.svg from the results of gemm_cpu.py, and gemm_h200.svg where gemm_h200.py has some.

    python benchmarks/plot.py            writes the picture of each result there is
    python benchmarks/plot.py --check    exits with 1 where a picture is not what the results say

The SVG is written by hand: no library is needed, and the same results give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT

PAIRS = (("gemm_cpu_random", "gemm_cpu"), ("gemm_cpu", "gemm_cpu"), ("gemm_h200", "gemm_h200"))  # result, picture
PICTURES = ROOT / "docs" / "images"

WIDTH, LEFT, RIGHT, STEP = 860, 190, 40, 15
INK, FAINT, GRID = "#1f2328", "#6e7781", "#d8dee4"
TICKS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of mark: where its ratio is found in a row."""

    label: str
    color: str
    key: str
    filled: bool = True
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    axis: str
    rows: Sequence[tuple[str, dict[str, dict[str, Any]]]]  # label, and the result rows by dtype
    series: Sequence[Series]
    lines: Sequence[tuple[float, str]]  # reference values


def text(
    x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", color: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{color}"{weight}>{escape(words)}</text>'


def circle(x: float, y: float, one: Series, title: str = "") -> str:
    fill = one.color if one.filled else "#ffffff"
    inner = f"<title>{escape(title)}</title>" if title else ""
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="3.8"'
    return f'<circle {place} fill="{fill}" stroke="{one.color}" stroke-width="1.5">{inner}</circle>'


def line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def value_of(series: Series, rows: dict[str, dict[str, Any]]) -> dict[str, float] | None:
    row = rows.get(series.dtype)
    return None if row is None else row.get(series.key)


def draw(panel: Panel, top: float) -> tuple[list[str], float]:
    """The panel's marks, and where it ends."""
    found = [value for _, rows in panel.rows for one in panel.series if (value := value_of(one, rows))]
    low = min([0.75, *(one["ratio"] for one in found)]) * 0.93
    high = max([1.3, *(one["ratio"] for one in found)]) * 1.07

    def at(value: float) -> float:
        part = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    made = [text(20, top + 18, panel.title, size=14, bold=True)]
    x = float(LEFT)
    for one in panel.series:
        made.append(circle(x + 5, top + 33, one))
        made.append(text(x + 14, top + 37, one.label, color=FAINT))
        x += 30 + 6.2 * len(one.label)
    first = top + 62
    bottom = first + STEP * len(panel.rows)
    for tick in TICKS:
        if low <= tick <= high:
            made.append(line(at(tick), first - 10, at(tick), bottom - 6, GRID))
            made.append(text(at(tick), bottom + 8, f"{tick:g}", anchor="middle", color=FAINT))
    for mark, label in panel.lines:
        if low <= mark <= high:
            dashes = "" if mark == 1.0 else ' stroke-dasharray="4 3"'
            made.append(line(at(mark), first - 12, at(mark), bottom - 6, INK, dashes))
            made.append(text(at(mark), first - 15, label, size=10, anchor="middle", color=FAINT))
    made.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 24, panel.axis, anchor="middle", color=FAINT))
    for number, (label, rows) in enumerate(panel.rows):
        y = first + STEP * number
        made.append(text(LEFT - 10, y + 4, label, anchor="end"))
        made.append(line(LEFT, y, WIDTH - RIGHT, y, GRID, ' stroke-width="0.5"'))
        for one in panel.series:
            ratio = value_of(one, rows)
            if ratio is None:
                continue
            if one.filled:
                spread = ' stroke-width="2" opacity="0.4"'
                made.append(line(at(ratio["quartile_1"]), y, at(ratio["quartile_3"]), y, one.color, spread))
            made.append(circle(at(ratio["ratio"]), y, one, f"{label}, {one.label}: {ratio['ratio']:.2f}"))
    return made, bottom + 44


def cpu_panels(result: dict[str, Any]) -> list[Panel]:
    by_shape: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        by_shape.setdefault(row["shape"], {})[row["dtype"]] = row
    wide = [(shape, rows) for shape, rows in by_shape.items() if "fp32" in rows]
    narrow = [(shape, rows) for shape, rows in by_shape.items() if rows.keys() - {"fp32"}]
    floor = result["floor"]
    return [
        Panel(
            "fp32: speed relative to the best of NumPy and PyTorch",
            "time of the best peer / our time (to the right of 1 we are faster); bars: middle half of the rounds",
            wide,
            (
                Series("tw.gemm(a, b, out=out)", "#8250df", "gemm_over_best_peer", filled=False, dtype="fp32"),
                Series("prepared kernel call", "#0969da", "over_best_peer", dtype="fp32"),
            ),
            ((1.0, "equal"), (floor, f"{floor:g}")),
        ),
        Panel(
            "bf16, fp16 and int8: speed relative to our own fp32",
            "time of our fp32 / time of this type, on the same shape",
            narrow,
            (
                Series("bf16", "#0969da", "over_our_fp32", dtype="bf16"),
                Series("fp16", "#bf8700", "over_our_fp32", dtype="fp16"),
                Series("int8", "#1a7f37", "over_our_fp32", dtype="int8"),
            ),
            ((1.0, "equal"),),
        ),
    ]


def gpu_panels(result: dict[str, Any]) -> list[Panel]:
    """Beside cuBLAS; here the rows of a shape are told apart by the state of the cache."""
    made = []
    for dtype in sorted({row["dtype"] for row in result["rows"]}):
        by_shape: dict[str, dict[str, dict[str, Any]]] = {}
        for row in result["rows"]:
            if row["dtype"] == dtype:
                by_shape.setdefault(row["shape"], {})[row["l2"]] = row
        made.append(
            Panel(
                f"{dtype}: speed relative to cuBLAS (torch.matmul)",
                "time of cuBLAS / our time (to the right of 1 we are faster); bars: middle half of the rounds",
                list(by_shape.items()),
                (
                    Series("default selection, cold L2", "#8250df", "default_over_cublas", filled=False, dtype="cold"),
                    Series("measured, warm L2", "#bf8700", "measured_over_cublas", dtype="warm"),
                    Series("measured, cold L2", "#0969da", "measured_over_cublas", dtype="cold"),
                ),
                ((1.0, "equal"), (0.92, "0.92")),
            )
        )
    return made


def on_gpu(result: dict[str, Any]) -> bool:
    return "gpu" in result["machine"]


def panels(result: dict[str, Any]) -> list[Panel]:
    return gpu_panels(result) if on_gpu(result) else cpu_panels(result)


def about(result: dict[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    if on_gpu(result):
        text = f"{machine['gpu']}, driver {machine.get('driver') or 'unknown'}; PyTorch {versions['torch']}"
        return f"{text}, CUDA {versions['cuda']}; {result['date']}"
    text = f"{machine['cpu']}, {result['method']['threads']} threads each; NumPy {versions['numpy']}"
    text += f" ({versions.get('blas', 'its BLAS')}), PyTorch {versions['torch'] or 'not installed'}"
    return f"{text}; {result['date']}"


def picture(result: dict[str, Any]) -> str:
    made: list[str] = []
    y = 14.0
    for panel in panels(result):
        if panel.rows:
            marks, y = draw(panel, y)
            made += marks
    made.append(text(20, y + 4, about(result), size=10, color=FAINT))
    height = y + 18
    size = f'width="{WIDTH}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height:.0f}"'
    head += ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    return "\n".join([head, f'<rect {size} fill="#ffffff"/>', *made, "</svg>", ""])


def draw_file(source: Path, output: Path, check: bool) -> None:
    drawn = picture(json.loads(source.read_text(encoding="utf-8")))
    if check:
        if not output.exists() or output.read_text(encoding="utf-8") != drawn:
            raise SystemExit(f"{output.name} is not what the results say: run benchmarks/plot.py")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(drawn, encoding="utf-8")
    print(f"written to {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the results of gemm_cpu.py and gemm_h200.py.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--source", type=Path, help="one result, with --output")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if (options.source is None) != (options.output is None):
        parser.error("--source and --output go together")
    pairs = [(RESULTS / f"{result}.json", PICTURES / f"{name}.svg") for result, name in PAIRS]
    if options.source is not None:
        pairs = [(options.source, options.output)]
    found = [(source, output) for source, output in pairs if source.exists()]
    if not found:
        raise SystemExit(f"no {pairs[0][0].name}: run the benchmark of that name first")
    newest = {output: source for source, output in found}  # a list of shapes before drawn ones
    for output, source in newest.items():
        draw_file(source, output, options.check)


if __name__ == "__main__":
    main()
