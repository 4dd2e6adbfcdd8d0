"""The same kernels made of several trees of headers, side by side on random problems: what a change is worth.

    python benchmarks/headers_h200.py --random SEED --trees before=OTHER/src/tilewright --output out.json

Trees take turns in one process, as contestants of gemm_h200.py do; "here" is the tree the script runs from, and the
first tree named is what the others are measured against.  For each problem the kernels with the lowest estimates race;
a kernel that only one tree has belongs into gemm_h200.py.  With --names the kernels PyTorch calls are written down.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from _cuda_report import geometric_mean, provenance, write
from _cuda_timing import Clock, GraphClock, Run
from _h200_bench import Kernels
from _h200_operands import Operands, problem_of
from _h200_random import FAMILIES, LAYOUTS, Drawn, random_problems

import tilewright as tw
from tilewright.backends.cuda import driver, toolchain
from tilewright.ops.base import KernelSpec

HERE = Path(tw.__file__).parent


@contextmanager
def headers_of(tree: Path) -> Iterator[None]:
    """Kernels are built from this tree's headers, into a store of its own."""
    real = toolchain.include_dirs

    def include_dirs(ops: Sequence[str] = ()) -> tuple[Path, ...]:
        return tuple(tree / one.relative_to(HERE) if one.is_relative_to(HERE) else one for one in real(ops))

    toolchain.include_dirs = include_dirs
    store = tw.settings.current().cache_dir / f"headers_{abs(hash(str(tree)))}"
    try:
        with tw.settings.override(cache_dir=store):
            yield
    finally:
        toolchain.include_dirs = real


class Trees(Kernels):
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        self.trees: dict[str, Path] = {
            name: Path(where).resolve() for name, _, where in (one.partition("=") for one in options.trees)
        }
        self.trees.setdefault("here", HERE)
        self.rows: list[dict[str, Any]] = []

    def chosen(self, drawn: Drawn) -> list[KernelSpec]:
        found = self.candidates(problem_of(drawn.m, drawn.n, drawn.k, drawn.dtype, drawn.layout))
        parts = self.options.kernels
        return [one for one in found if not parts or any(part in one.name for part in parts)][: self.options.best]

    def build_all(self, drawn: Sequence[Drawn]) -> None:
        specs = list({spec.digest: spec for one in drawn for spec in self.chosen(one)}.values())
        for name, tree in self.trees.items():
            with headers_of(tree):
                print(f"{name}: ", end="")
                self.build_specs(specs)

    def problem(self, drawn: Drawn) -> None:
        one = Operands(problem_of(drawn.m, drawn.n, drawn.k, drawn.dtype, drawn.layout), self.clock.device)
        calls: dict[str, Run] = {}
        for name, tree in self.trees.items():
            with headers_of(tree):
                if name in self.options.unchecked:
                    runs = {spec.name: self.run_of(spec, one) for spec in self.chosen(drawn)}
                    calls |= {f"{name} {kernel}": self.clock.captured(run) for kernel, run in runs.items()}
                else:
                    ready = self.checked(self.chosen(drawn), one)
                    calls |= {f"{name} {kernel}": call for kernel, (_, call) in ready.items()}
        peer = one.peer()
        calls["cublas"] = self.clock.captured(peer)
        times = self.clock.rounds(list(calls.values()), self.options.rounds, "cold")
        taken = {name: statistics.median(some) for name, some in zip(calls, times, strict=True)}
        row: dict[str, Any] = {
            "family": drawn.family,
            "shape": drawn.name,
            "layout": drawn.layout,
            "dtype": drawn.dtype,
        }
        row |= {"seconds": taken, "peer": kernel_names(peer) if self.options.names else []}
        self.rows.append(row)
        self.tell(row)

    def best(self, row: dict[str, Any], tree: str) -> tuple[float, str]:
        mine = [(s, name) for name, s in row["seconds"].items() if name.startswith(f"{tree} ")]
        return min(mine, default=(float("inf"), "none"))

    def tell(self, row: dict[str, Any]) -> None:
        text = f"{row['family']:<7}{row['layout']} {row['shape']:>17}: cublas {row['seconds']['cublas'] * 1e6:.1f}"
        for tree in self.trees:
            seconds, name = self.best(row, tree)
            text += f" {tree} {seconds * 1e6:.1f}"
        print(text, name.partition("_sm_")[0].partition(" ")[2], *row["peer"], flush=True)

    def ratios(self, tree: str, family: str) -> tuple[list[float], list[float], list[float]]:
        """The first tree's times over this one's, kernel by kernel and best by best; cuBLAS over this one's best."""
        first = next(iter(self.trees))
        same, best, peer = [], [], []
        for row in (one for one in self.rows if family in (one["family"], "all")):
            seconds = row["seconds"]
            for name, taken in seconds.items():
                base = seconds.get(name.replace(f"{tree} ", f"{first} ", 1))
                if name.startswith(f"{tree} ") and base:
                    same.append(base / taken)
            mine = self.best(row, tree)[0]
            if mine < float("inf"):
                best.append(self.best(row, first)[0] / mine)
                peer.append(seconds["cublas"] / mine)
        return same, best, peer

    def summary(self) -> list[dict[str, Any]]:
        found = []
        for family in (*dict.fromkeys(one["family"] for one in self.rows), "all"):
            for tree in self.trees:
                some = self.ratios(tree, family)
                if some[0]:
                    same, best, peer = (geometric_mean(one) for one in some)
                    found.append({"family": family, "tree": tree, "same": same, "best": best, "of_cublas": peer})
                    print(f"{family:<8}{tree:<10} kernels {same:.3f} best {best:.3f} cublas/best {peer:.3f}")
        return found


def kernel_names(call: Run) -> list[str]:
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    return [one.name for one in profile.events() if "Memset" not in one.name and "Context" not in one.name]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="SEED", required=True)
    parser.add_argument("--count", type=int, default=36)
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--dtypes", nargs="+", default=["bf16"])
    parser.add_argument("--trees", nargs="+", metavar="NAME=DIR", default=[], help="folders of the package tilewright")
    unchecked = "trees that leave something out on purpose, to see what it costs"
    parser.add_argument("--unchecked", nargs="+", metavar="NAME", default=[], help=unchecked)
    parser.add_argument("--best", type=int, default=4, help="kernels of a problem")
    parser.add_argument("--kernels", nargs="+", metavar="PART", help="only those with such a name")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no problem begins after these")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.l2, options.measured, options.sweep = ["cold"], False, None
    return options


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    from tilewright.runtime import cuda

    bench = Trees(options, GraphClock(cuda.device().cache_bytes), cuda.device().arch)
    drawn = random_problems(options.random, options.count, options.dtypes, options.families, options.layouts)
    started = time.perf_counter()
    bench.build_all(drawn)
    for one in drawn:
        if time.perf_counter() - started < options.most_seconds:
            bench.problem(one)
    told = {"summary": bench.summary(), "wrong": bench.wrong, "rows": bench.rows}
    write(options.output, provenance(options, bench.clock) | told)


if __name__ == "__main__":
    main()
