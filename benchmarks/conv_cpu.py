"""Convolution on the CPU beside PyTorch (oneDNN), shape by shape and direction by direction, in one interleaved run.

    python benchmarks/conv_cpu.py                    the fixed shapes; writes benchmarks/results/conv_cpu.json
    python benchmarks/conv_cpu.py --quick            a few shapes, nothing written
    python benchmarks/conv_cpu.py --random SEED      problems nobody tuned for: _conv_shapes.py says from what
    python benchmarks/conv_cpu.py --random SEED --rare     one dimension, long and large windows, hardly any pixels
    python benchmarks/conv_cpu.py --layout nchw      channels-first memory on both sides
    python benchmarks/conv_cpu.py --cpu-time         one thread by its CPU time, where others share the machine
    python benchmarks/conv_cpu.py --directions backward_data --shapes "w7" --dtypes fp32,bf16

Processes, turns and ratios are those of gemm_cpu.py: each library has a process of its own and the same number of
threads, and is stopped while it is not in turn.  PyTorch is timed with channels-last and with default tensors, and the
faster of the two is who we are held against; our own operands are channels-last.  With --layout nchw both have
channels-first memory, PyTorch's default.  Results are checked against float64 before a shape is timed.  bf16 and fp16
are compared with our own fp32 on the same problem, and beside it with PyTorch.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _conv_shapes import DIRECTIONS, FAMILIES, FIXED, QUICK, RARE, SPECIAL, Shape, as_message, random_shapes
from _cpu_race import Bench as Libraries
from _cpu_race import Entrant, Usual, finish, geometric_mean, kept, listed, parser_of, race, ratio, run, tell
from _machine import installed

WORKER = Path(__file__).parent / "_conv_worker.py"
DTYPES = ("fp32", "bf16", "fp16")
TARGET, SPECIAL_TARGET, NARROW_TARGET = 1.05, 1.5, 0.9
LOOKS = 3  # turns after which the slower of PyTorch's two formats leaves


class Bench(Libraries):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options, ["torch"] if installed("torch") else [], WORKER, cpu_time=options.cpu_time)

    def _prepare(self, name: str, shape: Shape, direction: str, dtype: str) -> dict[str, Any]:
        message = as_message(shape, direction, dtype, self.options.layout)
        return self.workers[name].ask({"do": "prepare", "key": f"{dtype}.", "shape": message, "seed": self.seed})

    def _faster(self, dtype: str, forms: list[str]) -> Entrant:
        """Of PyTorch's formats."""
        both = [Entrant(f"torch {form}", self.workers["torch"], f"{dtype}.{form}") for form in forms]
        if len(both) == 1:
            return both[0]
        return min(both, key=lambda one: min(one.turn() for _ in range(LOOKS)))

    def measure(self, shape: Shape, direction: str, dtype: str) -> dict[str, Any]:
        """One line of the table."""
        ours = self.workers["tilewright"]
        about = self._prepare("tilewright", shape, direction, dtype)
        entrants = [Entrant("call", ours, f"{dtype}.call"), Entrant("conv", ours, f"{dtype}.conv")]
        peer = None
        if "torch" in self.workers:
            peer = self._faster(dtype, self._prepare("torch", shape, direction, dtype)["forms"])
            entrants.append(peer)
        if dtype != "fp32":
            self._prepare("tilewright", shape, direction, "fp32")
            entrants.append(Entrant("our fp32", ours, "fp32.call"))
        beside = race(entrants, self.options)
        for one in self.workers.values():
            one.ask({"do": "forget"})
        call = entrants[0]
        row: dict[str, Any] = {
            "shape": shape.name,
            "group": shape.group,
            "direction": direction,
            "dtype": dtype,
            "kernel": about["kernel"],
            "tier": about["tier"],
            "gflops": 2 * shape.products / call.median / 1e9,
            "seconds": {one.label: one.median for one in entrants},
            "rounds": {one.label: len(one.samples) for one in entrants},
            "others_cores": beside,
        }
        if peer is not None:
            row |= {"peer": peer.label, "over_torch": ratio(peer, call), "conv_over_torch": ratio(peer, entrants[1])}
        if dtype != "fp32":
            row["over_our_fp32"] = ratio(entrants[-1], call)
        return row


def digest(rows: list[dict[str, Any]], key: str, target: float) -> dict[str, Any]:
    values = [(row[key]["ratio"], row["shape"]) for row in rows if key in row]
    if not values:
        return {}
    only = [value for value, _ in values]
    mean, (least, shape) = geometric_mean(only), min(values)
    tenth = statistics.quantiles(only, n=10, method="inclusive")[0] if len(only) > 1 else only[0]
    return {"shapes": len(values), "geometric_mean": mean, "p10": tenth, "least": least, "least_shape": shape,
            "target": target, "met": mean >= target}  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By type and direction, all shapes and the special ones apart; the rest of the families for the eye."""
    found: dict[str, dict[str, Any]] = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        for direction in DIRECTIONS:
            mine = [row for row in rows if (row["dtype"], row["direction"]) == (dtype, direction)]
            if not mine:
                continue
            if dtype != "fp32":
                found[f"{dtype} {direction} over our fp32"] = digest(mine, "over_our_fp32", NARROW_TARGET)
                found[f"{dtype} {direction}"] = digest(mine, "over_torch", 0.0)
                continue
            found[f"{dtype} {direction}"] = digest(mine, "over_torch", TARGET)
            special = [row for row in mine if row["group"] in SPECIAL]
            found[f"{dtype} {direction} special"] = digest(special, "over_torch", SPECIAL_TARGET)
            for group in dict.fromkeys(row["group"] for row in mine):
                part = [row for row in mine if row["group"] == group]
                found[f"{dtype} {direction} {group}"] = digest(part, "over_torch", 0.0)
    return {name: one for name, one in found.items() if one}


HEAD = (
    f"{'type':<5} {'direction':<16} {'shape':<34} {'kernel':<12} {'GFLOP/s':>8} {'call us':>9} {'conv us':>9} "
    f"{'torch us':>9} {'x':>6} {'middle half':>13} {'x fp32':>6}"
)


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    pipeline = row["kernel"].split(row["direction"])[1].split("_")[3:5] if row["direction"] in row["kernel"] else [""]
    text = f"{row['dtype']:<5} {row['direction']:<16} {row['shape']:<34} {'_'.join(pipeline)[:12]:<12} "
    text += f"{row['gflops']:>8.1f} {seconds['call'] * 1e6:>9.1f} {seconds['conv'] * 1e6:>9.1f} "
    over = row.get("over_torch")
    if over:
        text += f"{seconds[row['peer']] * 1e6:>9.1f} {over['ratio']:>6.2f} "
        text += f"{over['quartile_1']:>6.2f}-{over['quartile_3']:<6.2f}"
    mine = row.get("over_our_fp32")
    return text + (f" {mine['ratio']:>6.2f}" if mine else "")


def arguments() -> argparse.Namespace:
    parser = parser_of("Convolution beside PyTorch.", "w7", Usual("fp32", 42, 0.02, 0.002))
    parser.add_argument("--directions", default=",".join(DIRECTIONS), help="comma-separated")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of one thread: for a machine others work on")
    parser.add_argument(
        "--layout", choices=("nhwc", "nchw"), default="nhwc", help="of our memory; nchw: of PyTorch's too"
    )
    parser.add_argument("--rare", action="store_true", help="draw what networks have now and then; with --random")
    options = parser.parse_args()
    if options.rare and options.random is None:
        parser.error("--rare: give --random SEED, from which such problems are drawn")
    options.dtypes = listed(parser, "dtypes", options.dtypes, DTYPES)
    options.directions = listed(parser, "directions", options.directions, DIRECTIONS)
    if options.cpu_time:
        options.threads = 1
    options.rounds = options.rounds or (3 if options.quick else 11)
    name = "conv_cpu" + ("_nchw" if options.layout == "nchw" else "") + ("_rare" if options.rare else "")
    return kept(options, name, whole=options.directions == list(DIRECTIONS))


def drawn(options: argparse.Namespace) -> Iterator[Shape]:
    return random_shapes(options.random, options.count, RARE if options.rare else FAMILIES)


def asked(options: argparse.Namespace) -> list[tuple[Shape, str, str]]:
    shapes = FIXED if options.random is None else tuple(drawn(options))
    wanted = [
        (shape, direction, dtype)
        for dtype in options.dtypes
        for shape in shapes
        if re.search(options.shapes, shape.name) and (not options.quick or shape.name in QUICK)
        for direction in options.directions
    ]
    if not wanted:
        raise SystemExit(f"no shape matches {options.shapes!r}")
    return wanted


def main() -> None:
    options = arguments()
    rows, about = run("conv_cpu", asked(options), Bench(options), HEAD, line)
    about["method"] |= {"cpu_time": options.cpu_time, "layout": options.layout}
    found = summary(rows)
    tell(found)
    finish(options, {**about, "summary": found, "rows": rows}, found)


if __name__ == "__main__":
    main()
