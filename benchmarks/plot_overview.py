"""Draw docs/images/results.svg: every op beside its peer on an H200 and on a CPU, from the stored results.

    python benchmarks/plot_overview.py            writes the picture
    python benchmarks/plot_overview.py --check    exits with 1 where the picture is not what the results say

One dot is one problem, drawn by a seed nobody tuned to.  The SVG is written by hand: no library is needed, and the same
results give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT
from plot import FAINT, GRID, INK, line, text

PICTURE = ROOT / "docs" / "images" / "results.svg"
WIDTH, LEFT, RIGHT, ROW, RADIUS = 860, 206, 164, 46, 3.0
BLUE, GREEN, VIOLET = "#0969da", "#1a7f37", "#8250df"
TICKS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LOW, HIGH = 0.42, 22.0  # of the axis; a problem beyond it is drawn at its end


@dataclass(frozen=True, slots=True)
class Strip:
    """One row of dots: a result, and where its ratios are found."""

    op: str
    peer: str
    result: str
    key: str  # of a row: a mapping with `ratio`, the peer's time over ours
    color: str
    types: str  # element types, as the label says them
    dtypes: tuple[str, ...] = ()  # rows of these alone


PANELS: tuple[tuple[str, tuple[Strip, ...]], ...] = (
    (
        "NVIDIA H200",
        (
            Strip("GEMM", "cuBLAS", "gemm_h200_random", "default_over_cublas", BLUE, "bf16"),
            Strip("convolution", "cuDNN, 3 directions", "conv_h200_random", "default", GREEN, "bf16"),
            Strip("attention", "PyTorch's SDPA", "attention_h200_random", "default", VIOLET, "bf16"),
        ),
    ),
    (
        "CPU: {cpu}, {cores} cores",
        (
            Strip(
                "GEMM", "NumPy and PyTorch", "gemm_cpu_random", "gemm_over_best_peer", BLUE, "fp32, bf16",
                ("fp32", "bf16"),
            ),
            Strip("convolution", "PyTorch, 3 directions", "conv_cpu_random", "conv_over_torch", GREEN, "fp32"),
            Strip("attention", "PyTorch's SDPA", "attention_cpu_random", "call_over_torch", VIOLET, "fp32, bf16"),
        ),
    ),
)  # fmt: skip


def read(strip: Strip, folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / f"{strip.result}.json").read_text(encoding="utf-8"))
    return data


def ratios(strip: Strip, folder: Path) -> list[float]:
    rows = read(strip, folder)["rows"]
    values = [row[strip.key]["ratio"] for row in rows if row.get(strip.key)]
    if strip.dtypes:
        values = [row[strip.key]["ratio"] for row in rows if row["dtype"] in strip.dtypes and row.get(strip.key)]
    return sorted(values)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def at(value: float) -> float:
    part = math.log(min(max(value, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def dots(values: Sequence[float], middle: float, color: str) -> Iterator[str]:
    """Dots that would cover each other lie above and below the line, as near to it as there is room."""
    taken: list[tuple[float, int]] = []
    for value in values:
        x, level = at(value), 0
        near = {place for other, place in taken if abs(other - x) < 2 * RADIUS - 1}
        while level in near:
            level = -level if level > 0 else 1 - level
        taken.append((x, level))
        y = middle - max(-4, min(4, level)) * (2 * RADIUS - 2)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{color}" fill-opacity="0.55"/>'


def draw_strip(strip: Strip, folder: Path, middle: float) -> list[str]:
    values = ratios(strip, folder)
    mean = geometric_mean(values)
    made = [
        text(LEFT - 24, middle - 2, strip.op, size=13, anchor="end", bold=True),
        text(LEFT - 24, middle + 13, f"{strip.types}; {strip.peer}", anchor="end", color=FAINT),
        *dots(values, middle, strip.color),
        line(at(mean), middle - 17, at(mean), middle + 17, INK, ' stroke-width="2"'),
        text(WIDTH - RIGHT + 16, middle - 2, f"{mean:.2f}x", size=15, bold=True),
        text(WIDTH - RIGHT + 16, middle + 13, f"{len(values)} problems, least {values[0]:.2f}", color=FAINT),
    ]
    return made


def draw(folder: Path) -> str:
    made: list[str] = []
    top = 16.0
    for title, strips in PANELS:
        machine = read(strips[0], folder)["machine"]
        words = title.format(cpu=machine.get("cpu", ""), cores=machine.get("cores", ""))
        made.append(text(20, top + 12, words, size=14, bold=True))
        first = top + 44
        bottom = first + ROW * len(strips) - 16
        for tick in TICKS:
            color, width = (INK, "1.2") if tick == 1.0 else (GRID, "1")
            made.append(line(at(tick), first - 22, at(tick), bottom, color, f' stroke-width="{width}"'))
            made.append(text(at(tick), bottom + 14, f"{tick:g}x", anchor="middle", color=FAINT))
        for number, strip in enumerate(strips):
            made += draw_strip(strip, folder, first + ROW * number)
        top = bottom + 34
    note = "speed relative to the peer named (right of 1x Tilewright is faster); a dot: a problem drawn by seed; "
    made.append(text(20, top + 4, note + "a bar: the geometric mean", color=FAINT))
    height = top + 18
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>', *made, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw every op beside its peers from the stored results.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    picture = draw(options.results)
    if options.check:
        if not options.output.exists() or options.output.read_text(encoding="utf-8") != picture:
            raise SystemExit(f"{options.output.name} is not what the results say: run benchmarks/plot_overview.py")
        return
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(picture, encoding="utf-8")
    print(f"wrote {options.output.name}")


if __name__ == "__main__":
    main()
