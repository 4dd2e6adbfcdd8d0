"""GEMM on the CPU beside NumPy (OpenBLAS) and PyTorch, shape by shape, in one interleaved run.

    python benchmarks/gemm_cpu.py                    everything; writes benchmarks/results/gemm_cpu.json
    python benchmarks/gemm_cpu.py --quick            a few shapes, nothing written
    python benchmarks/gemm_cpu.py --dtypes fp32 --shapes "rcr .*4096" --rounds 21
    python benchmarks/gemm_cpu.py --random SEED      problems nobody tuned for: _gemm_shapes.py says from what

Each library has a process of its own with the same data and the same number of threads.  They take
turns, round after round, in rotating order; one that is not in turn is stopped, so that its waiting
threads cost nobody a core.  A ratio is the median of the best peer over our median: above 1 we are
faster.  Our result is checked against the float64 reference before a shape is timed.

Our side is timed in two forms: `call` is the bare kernel with prepared arguments, `gemm` is
`tw.gemm(a, b, out=out)`.  The headline compares `call` for fp32; the narrow types are compared with
our own fp32 on the same shape, and beside it with PyTorch's.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path
from typing import Any

from _cpu_race import Bench as Libraries
from _cpu_race import Entrant, Usual, finish, geometric_mean, kept, listed, parser_of, race, ratio, run
from _gemm_shapes import FAMILIES, QUICK, Shape, as_message, random_shapes, shapes_for
from _machine import installed

WORKER = Path(__file__).parent / "_gemm_worker.py"
DTYPES = ("fp32", "bf16", "fp16", "int8")
# What each type is held against, and what its geometric mean should reach.
TARGETS = {
    "fp32": ("best peer", 1.0),
    "bf16": ("our fp32", 0.85),
    "fp16": ("our fp32", 0.85),
    "int8": ("our fp32", 1.2),
}
FLOOR = 0.8  # no fp32 shape under this


class Bench(Libraries):
    def __init__(self, options: argparse.Namespace) -> None:
        if not installed("torch"):
            print("torch is not installed: NumPy is the only peer")
        super().__init__(options, ["numpy"] + (["torch"] if installed("torch") else []), WORKER)

    def _prepare(self, name: str, shape: Shape, dtype: str) -> dict[str, Any]:
        request = {"do": "prepare", "key": f"{dtype}.", "shape": as_message(shape, dtype), "seed": self.seed}
        return self.workers[name].ask(request)

    def measure(self, shape: Shape, dtype: str) -> dict[str, Any]:
        """One line of the table."""
        ours = self.workers["tilewright"]
        about = self._prepare("tilewright", shape, dtype)
        entrants = [Entrant("call", ours, f"{dtype}.call"), Entrant("gemm", ours, f"{dtype}.gemm")]
        for name in self.peers:
            if "" in self._prepare(name, shape, dtype)["forms"]:
                entrants.append(Entrant(name, self.workers[name], f"{dtype}."))
        if dtype != "fp32":
            self._prepare("tilewright", shape, "fp32")
            entrants.append(Entrant("our fp32", ours, "fp32.call"))
        beside = race(entrants, self.options)
        for one in self.workers.values():
            one.ask({"do": "forget"})
        by_label = {one.label: one for one in entrants}
        call = by_label["call"]
        peers = [by_label[name] for name in self.peers if name in by_label]
        best = min(peers, key=lambda one: one.median) if peers else None
        row: dict[str, Any] = {
            "shape": shape.name,
            "group": shape.group,
            "dtype": dtype,
            "kernel": about["kernel"],
            "tier": about["tier"],
            "gflops": 2 * shape.m * shape.n * shape.k / call.median / 1e9,
            "seconds": {one.label: one.median for one in entrants},
            "rounds": {one.label: len(one.samples) for one in entrants},
            "others_cores": beside,
        }
        if best is not None:
            row["best_peer"] = best.label
            row["over_best_peer"] = ratio(best, call)
            row["gemm_over_best_peer"] = ratio(best, by_label["gemm"])
        if dtype != "fp32":
            row["over_our_fp32"] = ratio(by_label["our fp32"], call)
        return row


def digest_of(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Geometric mean, worst shape and how many are under the floor, of one kind of ratio."""
    values = [(row[key]["ratio"], row["shape"]) for row in rows if key in row]
    if not values:
        return {}
    least, shape = min(values)
    return {
        "shapes": len(values),
        "geometric_mean": geometric_mean([value for value, _ in values]),
        "least": least,
        "least_shape": shape,
        "under_floor": [name for value, name in values if value < FLOOR],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        of_type = [row for row in rows if row["dtype"] == dtype]
        against, target = TARGETS[dtype]
        key = "over_best_peer" if dtype == "fp32" else "over_our_fp32"
        headline = digest_of(of_type, key)
        met = headline["geometric_mean"] >= target and not (dtype == "fp32" and headline["under_floor"])
        found[dtype] = {"against": against, "target": target, "met": met, "headline": headline}
        for other in ("over_best_peer", "gemm_over_best_peer"):
            if other != key and digest_of(of_type, other):
                found[dtype][other] = digest_of(of_type, other)
    return found


HEAD = (
    f"{'type':<5} {'shape':<20} {'tier':<9}{'GFLOP/s':>8} {'call us':>10} {'tw.gemm':>10} "
    f"{'best peer':>10} {'':<6} {'call x':>6} {'middle half':>13} {'gemm x':>6} {'x fp32':>6}"
)


def line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    peer, over, gemm = row.get("best_peer"), row.get("over_best_peer"), row.get("gemm_over_best_peer")
    text = f"{row['dtype']:<5} {row['shape']:<20} {row['tier']:<9}{row['gflops']:>8.1f} "
    text += f"{seconds['call'] * 1e6:>10.1f} {seconds['gemm'] * 1e6:>10.1f} "
    if peer and over and gemm:
        text += f"{seconds[peer] * 1e6:>10.1f} {peer:<6} {over['ratio']:>6.2f} "
        text += f"{over['quartile_1']:>6.2f}-{over['quartile_3']:<6.2f} {gemm['ratio']:>6.2f}"
    else:
        text += f"{'-':>10} {'':<6} {'':>6} {'':>13} {'':>6}"
    mine = row.get("over_our_fp32")
    return text + (f" {mine['ratio']:>6.2f}" if mine else "")


def by_family(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of random problems: geometric mean, P10 and least by type and family, beside the best peer."""
    found = []
    kinds = dict.fromkeys((row["dtype"], row["group"]) for row in rows)
    for dtype, family in (*sorted(kinds), *((dtype, "all") for dtype in dict.fromkeys(row["dtype"] for row in rows))):
        mine = [row for row in rows if row["dtype"] == dtype and family in (row["group"], "all")]
        for key in ("over_best_peer", "gemm_over_best_peer"):
            values = [row[key]["ratio"] for row in mine if key in row]
            if values:
                tenth = statistics.quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]
                about = {"dtype": dtype, "family": family, "ratio": key, "count": len(values)}
                found.append(about | {"geometric_mean": geometric_mean(values), "p10": tenth, "least": min(values)})
    return found


def tell_families(found: list[dict[str, Any]]) -> None:
    print(f"{'type':<6}{'family':<8}{'ratio':<21}{'n':>4}{'mean':>7}{'P10':>7}{'least':>7}")
    for one in found:
        print(f"{one['dtype']:<6}{one['family']:<8}{one['ratio']:<21}{one['count']:>4}{one['geometric_mean']:>7.3f}"
              f"{one['p10']:>7.3f}{one['least']:>7.3f}")  # fmt: skip


def tell(found: dict[str, Any]) -> None:
    for dtype, one in found.items():
        best = one["headline"]
        print(
            f"{dtype}: geometric mean {best['geometric_mean']:.3f} of {one['against']} over {best['shapes']} shapes "
            f"(target {one['target']}), least {best['least']:.2f} at {best['least_shape']}, "
            f"{len(best['under_floor'])} under {FLOOR}: {'met' if one['met'] else 'MISSED'}"
        )
        for key, label in (("over_best_peer", "beside the best peer"), ("gemm_over_best_peer", "tw.gemm, best peer")):
            other = one.get(key)
            if other:
                print(
                    f"      {label}: geometric mean {other['geometric_mean']:.3f}, "
                    f"least {other['least']:.2f} at {other['least_shape']}"
                )


def arguments() -> argparse.Namespace:
    parser = parser_of("GEMM beside NumPy and PyTorch.", "rcr .*4096", Usual(",".join(DTYPES), 60, 0.03, 0.003))
    options = parser.parse_args()
    options.dtypes = listed(parser, "dtypes", options.dtypes, DTYPES)
    options.rounds = options.rounds or (5 if options.quick else 15)
    return kept(options, "gemm_cpu", whole=options.dtypes == list(DTYPES))


def asked(options: argparse.Namespace) -> list[tuple[Shape, str]]:
    """The problems of the run: of the list, or drawn; then every turn of the families has the next type."""
    if options.random is not None:
        drawn = enumerate(random_shapes(options.random, options.count))
        return [(shape, options.dtypes[at // len(FAMILIES) % len(options.dtypes)]) for at, shape in drawn]
    wanted = [
        (shape, dtype)
        for dtype in options.dtypes
        for shape in shapes_for(dtype)
        if re.search(options.shapes, shape.name) and (not options.quick or shape.name in QUICK)
    ]
    if not wanted:
        raise SystemExit(f"no shape matches {options.shapes!r}")
    return wanted


def main() -> None:
    options = arguments()
    rows, about = run("gemm_cpu", asked(options), Bench(options), HEAD, line)
    found = summary(rows)
    tell(found)
    whole: dict[str, Any] = found
    if options.random is not None:
        families = by_family(rows)
        tell_families(families)
        whole = {**found, "families": families}
    finish(options, {**about, "floor": FLOOR, "summary": whole, "rows": rows}, found)


if __name__ == "__main__":
    main()
