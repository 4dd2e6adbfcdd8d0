"""Attention on the CPU beside PyTorch's scaled_dot_product_attention, shape by shape, in one interleaved run.

    python benchmarks/attention_cpu.py                    the fixed shapes; writes benchmarks/results/attention_cpu.json
    python benchmarks/attention_cpu.py --quick            a few shapes, nothing written
    python benchmarks/attention_cpu.py --random SEED      problems nobody tuned for: _attention_shapes.py says from what
    python benchmarks/attention_cpu.py --shapes "decode|d64" --dtypes fp32

Processes, turns and ratios are those of _cpu_race.py: each library has a process of its own and the same number of
threads, and is stopped while it is not in turn.  Where query heads share keys PyTorch is timed with its own sharing and
with keys repeated beforehand, and the faster of the two is who we are held against.  Results are checked against
float64 before a shape is timed.  Decoding is held against a copy too: bytes of keys and values a second, over the bytes
a second that a copy by as many threads reads and writes, in turn with it.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path
from typing import Any

from _attention_shapes import FAMILIES, FIXED, QUICK, Shape, as_message, random_shapes
from _attention_worker import COPY_BYTES
from _cpu_race import Bench as Libraries
from _cpu_race import Entrant, Usual, finish, geometric_mean, kept, listed, parser_of, race, ratio, run, tell
from _machine import installed

WORKER = Path(__file__).parent / "_attention_worker.py"
DTYPES = ("fp32", "bf16")
ELEMENT_BYTES = {"fp32": 4, "bf16": 2}
TARGET, COPY_TARGET = 1.2, 0.88
LARGE_CACHE = 200 << 20  # bytes of keys and values from which on decoding is held to the copy
LOOKS = 2  # turns after which the slower of PyTorch's two forms leaves


class Bench(Libraries):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options, ["torch"] if installed("torch") else [], WORKER)

    def _prepare(self, name: str, shape: Shape, dtype: str) -> dict[str, Any]:
        return self.workers[name].ask(
            {"do": "prepare", "key": f"{dtype}.", "shape": as_message(shape, dtype), "seed": self.seed}
        )

    def _faster(self, forms: list[str], dtype: str) -> Entrant:
        """Of PyTorch's forms."""
        found = [Entrant(f"torch {form}", self.workers["torch"], f"{dtype}.{form}") for form in forms]
        return min(found, key=lambda one: min(one.turn() for _ in range(LOOKS))) if len(found) > 1 else found[0]

    def measure(self, shape: Shape, dtype: str) -> dict[str, Any]:
        """One line of the table."""
        ours = self.workers["tilewright"]
        about = self._prepare("tilewright", shape, dtype)
        entrants = [Entrant("call", ours, f"{dtype}.call"), Entrant("attention", ours, f"{dtype}.attention")]
        peer = None
        if "torch" in self.workers:
            peer = self._faster(self._prepare("torch", shape, dtype)["forms"], dtype)
            entrants.append(peer)
        if shape.group == "decode":
            entrants.append(Entrant("copy", ours, f"{dtype}.copy"))
        beside = race(entrants, self.options)
        for one in self.workers.values():
            one.ask({"do": "forget"})
        call, through_api = entrants[:2]
        row: dict[str, Any] = {
            "shape": shape.name,
            "group": shape.group,
            "dtype": dtype,
            "kernel": about["kernel"],
            "tier": about["tier"],
            "gflops": 4 * shape.pairs * shape.size / call.median / 1e9,
            "cache_bytes": shape.cache_elements * ELEMENT_BYTES[dtype],
            "seconds": {one.label: one.median for one in entrants},
            "rounds": {one.label: len(one.samples) for one in entrants},
            "others_cores": beside,
        }
        if peer is not None:
            row |= {"peer": peer.label, "over_torch": ratio(peer, call), "call_over_torch": ratio(peer, through_api)}
        if shape.group == "decode":
            row["over_copy"] = over_copy(row["cache_bytes"], entrants[-1], call)
        return row


def over_copy(cache_bytes: int, copy: Entrant, call: Entrant) -> dict[str, float]:
    """Bytes a second of ours over those of the copy, which reads and writes."""
    share = cache_bytes / (2 * COPY_BYTES)
    return {name: value * share for name, value in ratio(copy, call).items()}


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
    """By type, all shapes and each family; decoding of large caches beside the copy."""
    found: dict[str, dict[str, Any]] = {"all": digest(rows, "over_torch", TARGET)}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        mine = [row for row in rows if row["dtype"] == dtype]
        found[dtype] = digest(mine, "over_torch", TARGET)
        for family in FAMILIES:
            part = [row for row in mine if row["group"] == family]
            found[f"{dtype} {family}"] = digest(part, "over_torch", 0.0)
        large = [row for row in mine if row["group"] == "decode" and row["cache_bytes"] >= LARGE_CACHE]
        found[f"{dtype} decode of the copy"] = digest(mine, "over_copy", 0.0)
        found[f"{dtype} large decode of the copy"] = digest(large, "over_copy", COPY_TARGET)
    return {name: one for name, one in found.items() if one}


HEAD = (
    f"{'type':<5} {'family':<8} {'shape':<40} {'kernel':<10} {'GFLOP/s':>8} {'call us':>9} {'tw us':>9} "
    f"{'torch us':>9} {'x':>6} {'middle half':>13} {'x copy':>6}"
)


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    pipeline = next((one for one in ("tiled", "decode", "loops") if f"_{one}" in row["kernel"]), "?")
    text = f"{row['dtype']:<5} {row['group']:<8} {row['shape']:<40} {pipeline:<10} {row['gflops']:>8.1f} "
    text += f"{seconds['call'] * 1e6:>9.1f} {seconds['attention'] * 1e6:>9.1f} "
    over = row.get("over_torch")
    if over:
        text += f"{seconds[row['peer']] * 1e6:>9.1f} {over['ratio']:>6.2f} "
        text += f"{over['quartile_1']:>6.2f}-{over['quartile_3']:<6.2f}"
    copied = row.get("over_copy")
    return text + (f" {copied['ratio']:>6.2f}" if copied else "")


def arguments() -> argparse.Namespace:
    usual = Usual(",".join(DTYPES), 48, 0.02, 0.002)
    parser = parser_of("Attention beside PyTorch.", "decode|d64", usual)
    options = parser.parse_args()
    options.dtypes = listed(parser, "dtypes", options.dtypes, DTYPES)
    options.rounds = options.rounds or (3 if options.quick else 11)
    return kept(options, "attention_cpu", whole=options.dtypes == list(DTYPES))


def asked(options: argparse.Namespace) -> list[tuple[Shape, str]]:
    """Of the list with each type; or drawn, where every turn of the families has the next type."""
    if options.random is not None:
        drawn = enumerate(random_shapes(options.random, options.count))
        pairs = [(shape, options.dtypes[at // len(FAMILIES) % len(options.dtypes)]) for at, shape in drawn]
    else:
        pairs = [(shape, dtype) for dtype in options.dtypes for shape in FIXED]
    wanted = [
        (shape, dtype)
        for shape, dtype in pairs
        if re.search(options.shapes, f"{shape.group} {shape.name}") and (not options.quick or shape.name in QUICK)
    ]
    if not wanted:
        raise SystemExit(f"no shape matches {options.shapes!r}")
    return wanted


def main() -> None:
    options = arguments()
    rows, about = run("attention_cpu", asked(options), Bench(options), HEAD, line)
    found = summary(rows)
    tell(found)
    finish(options, {**about, "summary": found, "rows": rows}, found)


if __name__ == "__main__":
    main()
