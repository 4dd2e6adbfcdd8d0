"""Our attention beside the best of PyTorch's SDPA backends on an NVIDIA GPU, interleaved in one run.

    python benchmarks/attention_h200.py                          the table that peers were measured on
    python benchmarks/attention_h200.py --random SEED --count N  problems nobody tuned for (_attention_h200_shapes.py)
    python benchmarks/attention_h200.py --random SEED --varlen     decoding steps whose sequences differ in length
    python benchmarks/attention_h200.py --only decode            shapes whose group or name has this
    python benchmarks/attention_h200.py --dry-run                a rehearsal without a GPU: nothing of it means anything

bf16, the cache cold.  Every contestant is checked against float64 on some rows before it is timed.  Default: what
`tw.attention` runs with nothing measured, splits by its rule.  Measured: the fastest, in a race of its own, of the
default kernels and of numbers of splits.  Peers: each SDPA backend that takes the problem, the fastest of a race; mixed
lengths are padded for them, pages gathered beforehand; FlexAttention on packed lengths, of the first few shapes that
have such (it compiles for each).  Decode is also held against the copy bandwidth of the run: as everything else after
writes that fill the cache, which are written back beside the kernel; and, where it reads more than 200 MB, beside a
cache full of what was only read (`clean`).

Sequences that differ in a decoding step (--varlen) are padded and masked for SDPA; ours is also raced with parts of the
keys and a second stage (`parts`), where the default deals them in equal shares.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from _attention_flex import flex
from _attention_h200_shapes import TABLE, Shape, drawn, drawn_varlen
from _cuda_report import provenance
from _cuda_timing import Clock, GraphClock, HostClock, Run, copy_bandwidth, spread
from _h200_bench import Kernels
from _h200_operands import Wrong

import tilewright as tw
from tilewright.backends.cuda import driver
from tilewright.dispatch import kernels
from tilewright.ops.attention import AttentionProblem, split_plans
from tilewright.ops.attention.splits import independent_splits, splits_of
from tilewright.ops.base import KernelSpec

RESULTS = Path(__file__).parent / "results"
RESULT, RANDOM_RESULT = RESULTS / "attention_h200.json", RESULTS / "attention_h200_random.json"
VARLEN_RESULT = RESULTS / "attention_h200_varlen.json"
ROUNDING = 2.0**-7  # of weights and of results, both to eight bits
ROWS_CHECKED = 48
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LARGE = 2e8  # bytes of a decoding step that is held against a copy
SLOW = 4.0  # a peer so many times slower than another is looked at once


class AttentionOperands:
    """Fresh random operands of a shape, and its exact result on some rows with a tolerance."""

    def __init__(self, shape: Shape, device: str) -> None:
        self.shape, self.problem, self.device = shape, shape.problem(), device
        s, total = shape, sum(shape.lengths)
        if s.lengths:
            self.q = self._made(total, s.heads_q, s.head)
            self.k, self.v = (self._made(total, s.heads_kv, s.head) for _ in "kv")
        else:
            self.q = self._made(s.batch, s.heads_q, s.rows, s.head)
            self.k, self.v = (self._made(s.batch, s.heads_kv, s.keys, s.head) for _ in "kv")
        self.out = torch.empty_like(self.q)
        self.table: Any = None
        if s.page_size:
            self._page()

    def _made(self, *sizes: int) -> Any:
        return torch.randn(sizes, device=self.device, dtype=torch.float32).to(torch.bfloat16)

    def _page(self) -> None:
        """The same keys in pages that lie in no order."""
        s, each = self.shape, -(-self.shape.keys // self.shape.page_size)
        places = torch.randperm(s.batch * each, device=self.device)
        self.table = places.view(s.batch, each).to(torch.int32)
        self.lengths = torch.tensor(s.varlen or (s.keys,) * s.batch, device=self.device, dtype=torch.int32)
        self.paged = []
        for one in (self.k, self.v):
            pages = torch.zeros(s.batch * each, s.page_size, s.heads_kv, s.head, device=self.device, dtype=one.dtype)
            rows = torch.zeros(s.batch, each * s.page_size, s.heads_kv, s.head, device=self.device, dtype=one.dtype)
            rows[:, : s.keys] = one.transpose(1, 2)
            pages[places] = rows.view(s.batch * each, s.page_size, s.heads_kv, s.head)
            self.paged.append(pages)

    # -- ours --------------------------------------------------------------------------------------

    def asked(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        s = self.shape
        more: dict[str, Any] = {"out": self.out, "causal": False}
        if s.causal:
            more["causal"] = self.problem.align
        if s.lengths:
            starts = torch.tensor((0, *s.lengths), device=self.device).cumsum(0).to(torch.int32)
            return (self.q, self.k, self.v), more | {
                "cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": s.rows, "max_seqlen_k": s.keys,
            }  # fmt: skip
        if s.page_size:
            more["out"] = self.out.transpose(1, 2)
            return (self.q.transpose(1, 2), *self.paged), more | {"block_table": self.table, "seqlens_k": self.lengths}
        return (self.q, self.k, self.v), more | {"layout": "bhsd"}

    def ours(self, kernel: Any) -> Run:
        operands, more = self.asked()
        return lambda: kernel(*operands, num_splits=1, **more)

    def call(self, splits: int | None = None) -> Run:
        operands, more = self.asked()
        return lambda: tw.attention(*operands, num_splits=splits, **more)

    # -- PyTorch's ---------------------------------------------------------------------------------

    def padded(self) -> tuple[Any, Any, Any]:
        if not self.shape.lengths:
            return self.q, self.k, self.v
        found = []
        for one in (self.q, self.k, self.v):
            pieces = torch.split(one, list(self.shape.lengths))
            found.append(torch.nn.utils.rnn.pad_sequence(list(pieces), batch_first=True).transpose(1, 2).contiguous())
        return found[0], found[1], found[2]

    def peers(self) -> Iterator[tuple[str, Run]]:
        """Each backend of SDPA; a decoding step that sees all keys is not causal for it."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = self.padded()
        s = self.shape
        mask = None
        if s.causal and s.rows != s.keys and s.rows > 1:
            mask = torch.ones(s.rows, s.keys, dtype=torch.bool, device=self.device).tril(s.keys - s.rows)
        if s.varlen:
            mask = (torch.arange(s.keys, device=self.device) < self.lengths[:, None])[:, None, None, :]
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

            def run(backend: Any = backend) -> Any:
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, mask, is_causal=s.causal and s.rows == s.keys, enable_gqa=s.heads_q != s.heads_kv
                    )

            yield backend.name.lower(), run

    # -- what is right -----------------------------------------------------------------------------

    def sequences(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """q, k, v and out of some sequences, heads first."""
        s = self.shape
        if not s.lengths:
            for index in {0, s.batch - 1}:
                keys = s.varlen[index] if s.varlen else s.keys
                yield self.q[index], self.k[index, :, :keys], self.v[index, :, :keys], self.out[index]
            return
        starts = [sum(s.lengths[:i]) for i in range(len(s.lengths))]
        for index in {0, len(starts) - 1, s.lengths.index(max(s.lengths))}:
            at = slice(starts[index], starts[index] + s.lengths[index])
            q, k, v, out = (one[at].transpose(0, 1) for one in (self.q, self.k, self.v, self.out))
            yield q, k, v, out

    def check(self, name: str, run: Run, clock: Clock) -> None:
        self.out.fill_(float("nan"))
        clock.wait()
        run()
        clock.wait()
        if bool(self.out.isnan().any()):
            raise Wrong(f"{name} left {int(self.out.isnan().sum())} elements of {self.shape.name} unwritten, or NaN")
        for q, k, v, out in self.sequences():
            rows = torch.unique(torch.linspace(0, q.shape[1] - 1, ROWS_CHECKED).long()).to(q.device)
            group = q.shape[0] // k.shape[0]
            wide_k, wide_v = (one.double().repeat_interleave(group, 0) for one in (k, v))
            scores = q[:, rows].double() @ wide_k.transpose(1, 2) * q.shape[2] ** -0.5
            if self.shape.causal:
                far = rows[:, None] + (k.shape[1] - q.shape[1]) < torch.arange(k.shape[1], device=q.device)
                scores.masked_fill_(far, float("-inf"))
            weights = scores.softmax(2)
            exact, most = weights @ wide_v, weights @ wide_v.abs()
            error = (out[:, rows].double() - exact).abs()
            if not bool((error <= ROUNDING * most).all()):
                worst = float((error / most).max())
                raise Wrong(f"{name} is wrong on {self.shape.name}: {worst:.2e} of the values, at most {ROUNDING:.2e}")


class AttentionBench(Kernels):
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        self.rows: list[dict[str, Any]] = []
        self.copy_rate = copy_bandwidth(clock, 1 << 20 if self.dry else 1 << 30)
        self.flexed = 0

    def build_stages(self, problems: Sequence[AttentionProblem]) -> None:
        """What calls will run, stages of parts too, and where a selection is measured the candidates, all at once."""
        wanted: dict[str, KernelSpec] = {}
        for one in problems:
            specs = self.candidates(one) if self.options.measured else []
            stages = split_plans.stages(one, splits_of(one, self.registry.arch))
            if one.seqlens_k and one.batch > 1:
                stages = (*stages, *split_plans.stages(one, max(2, independent_splits(one, self.registry.arch))))
            for spec in (*specs, *map(self.default, stages)):
                wanted.setdefault(spec.digest, spec)
        self.build_specs(list(wanted.values()))

    def entrants(self, one: AttentionOperands) -> dict[str, Run]:
        """`default` and, where a selection is measured, kernels by name and numbers of splits; checked."""
        wanted: dict[str, Run] = {"default": one.call()}
        if one.shape.varlen:
            wanted["parts"] = one.call(max(2, independent_splits(one.problem, self.registry.arch)))
        if self.options.measured:
            for spec in self.candidates(one.problem):
                wanted[spec.name] = one.ours(kernels.kernel(spec))
            few = one.shape.rows * one.shape.heads_q // one.shape.heads_kv <= 64
            wanted |= {f"splits {n}": one.call(n) for n in SPLITS if few and n * 256 <= one.shape.keys}
        found = {}
        for name, run in wanted.items():
            try:
                one.check(name, run, self.clock)
                found[name] = self.clock.captured(run)
            except (Wrong, tw.TilewrightError) as error:
                self.wrong.append(f"{name}: {error}")
                print(f"WRONG: {name}: {error}", flush=True)
        return found

    def peers(self, one: AttentionOperands) -> dict[str, Run]:
        """Those that take the problem, without the slow ones."""
        found: dict[str, Run] = {}
        took: dict[str, float] = {}
        for name, run in one.peers():
            try:
                found[name] = self.clock.captured(run)
            except RuntimeError:  # a problem it does not take
                continue
            took[name] = self.clock.rounds([found[name]], 1, "cold")[0][0]
        if one.shape.lengths and self.flexed < self.options.flex and not self.dry:
            self.flexed += 1
            found["flex_attention"] = self.clock.captured(
                flex(one.q, one.k, one.v, one.shape.lengths, one.shape.causal)
            )
        best = min(took.values(), default=0.0)
        return {name: run for name, run in found.items() if took.get(name, 0.0) <= SLOW * best}

    def one(self, shape: Shape) -> None:
        one = AttentionOperands(shape, self.clock.device)
        ours, peers = self.entrants(one), self.peers(one)
        if "default" not in ours or not peers:
            print(f"{shape.name}: no kernel, or no peer", flush=True)
            return
        medians, winner = self.race(ours, "default")
        if not self.options.measured:
            winner = "default"
        _, peer = self.race(peers)
        names = list(dict.fromkeys(("default", winner)))
        times = self.clock.rounds([peers[peer], *(ours[name] for name in names)], self.options.rounds, "cold")
        taken = dict(zip(names, times[1:], strict=True))
        nbytes, flops = shape.nbytes, shape.flops
        row: dict[str, Any] = {"shape": shape.name, "group": shape.group, "flops": flops, "bytes": nbytes}
        row |= {"peer": peer, "peer_seconds": statistics.median(times[0])}
        for label, name in (("default", "default"), ("measured", winner)):
            seconds = statistics.median(taken[name])
            row[label] = {"kernel": name, "seconds": seconds, "tflops": flops / seconds / 1e12}
            row[label] |= {"of_copy": nbytes / seconds / self.copy_rate} | spread(times[0], taken[name])
        row["race"] = {name: round(seconds * 1e6, 2) for name, seconds in medians.items()}  # microseconds
        if shape.group in ("decode", "varlen") and nbytes > LARGE:
            row["clean"] = self.clean(nbytes, peers[peer], ours["default"])
        self.rows.append(row)
        self.say(shape, row, winner)

    def clean(self, nbytes: int, peer: Run, ours: Run) -> dict[str, float]:
        """Of a cache that has nothing to write back; and copies that read and write as many bytes in all."""
        source = torch.ones(nbytes // 4, dtype=torch.bfloat16, device=self.clock.device)
        target = torch.empty_like(source)
        copy = self.clock.captured(lambda: torch.mul(source, 1.0, out=target))
        times = self.clock.rounds([peer, ours, copy], self.options.rounds, "clean")
        theirs, seconds, alike = map(statistics.median, times)
        cold = statistics.median(self.clock.rounds([copy], self.options.rounds, "cold")[0])
        found = {"peer_seconds": theirs, "seconds": seconds, "of_copy": nbytes / seconds / self.copy_rate}
        return found | {"equal_copy_seconds": alike, "equal_copy_cold_seconds": cold}

    def say(self, shape: Shape, row: dict[str, Any], winner: str) -> None:
        said = "  ".join(
            f"{label} {row[label]['seconds'] * 1e6:8.1f} us {row[label]['tflops']:4.0f} TF "
            f"{row[label]['of_copy']:4.2f} of copy {row[label]['ratio']:6.3f}"
            for label in ("default", "measured")
        )
        if "clean" in row:
            said += f"  clean {row['clean']['of_copy']:4.2f} of copy"
            said += f", {row['clean']['equal_copy_seconds'] / row['clean']['seconds']:4.2f} of an equal one"
        print(
            f"{shape.group:8}{shape.name:40} {row['peer']:16} {row['peer_seconds'] * 1e6:8.1f} us  {said}  {winner}",
            flush=True,
        )


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Geometric means and the least of the peer's time over ours, by group; large decoding steps of the copy."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for label in ("default", "measured"):
            for part in ("all", row["group"]):
                found.setdefault(f"{label} {part}", []).append(row[label]["ratio"])
    summary = {}
    for name, ratios in sorted(found.items()):
        summary[f"{name} mean"] = math.exp(statistics.fmean(map(math.log, ratios)))
        summary[f"{name} least"] = min(ratios)
    against = [
        row["race"]["parts"] / row["race"]["default"] for row in rows if {"parts", "default"} <= set(row["race"])
    ]
    if against:
        summary["parts over shares mean"] = math.exp(statistics.fmean(map(math.log, against)))
        summary["parts over shares least"] = min(against)
    large = [row for row in rows if "clean" in row]
    if large:
        summary["decode over 200 MB, least of copy"] = min(row["default"]["of_copy"] for row in large)
        summary["decode over 200 MB, least of copy, clean"] = min(row["clean"]["of_copy"] for row in large)
    return summary


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("--count", type=int, default=40, help="of random problems")
    parser.add_argument("--varlen", action="store_true", help="with --random: decoding steps of sequences that differ")
    parser.add_argument("--only", nargs="+", metavar="PART", help="shapes whose names or groups contain one of these")
    parser.add_argument("--no-measured", action="store_false", dest="measured", help="default selection only")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--flex", type=int, default=4, metavar="N", help="shapes that FlexAttention is raced on")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no shape begins after these")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU: the floor's numbers mean nothing")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def rehearsed(shape: Shape) -> Shape:
    """Small enough for a CPU."""
    lengths = tuple(max(1, one // 256) for one in shape.lengths[:4])
    rows, keys = (max(lengths),) * 2 if lengths else (max(1, shape.rows // 256), max(1, shape.keys // 256))
    return Shape(shape.group, len(lengths) or 1, shape.heads_q // shape.heads_kv, 1, min(rows, keys), keys, shape.head,
                 shape.causal, lengths, shape.page_size, (keys,) if shape.varlen else ())  # fmt: skip


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why and not options.dry_run:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    started = time.perf_counter()
    made = drawn_varlen if options.varlen else drawn
    shapes = TABLE if options.random is None else made(options.random, options.count)
    if options.only:
        shapes = [one for one in shapes if any(part in one.name or part == one.group for part in options.only)]
    if options.dry_run:
        clock: Clock = HostClock()
        options.measured = False
        shapes, target = [rehearsed(one) for one in shapes], "sm_90a"
    else:
        from tilewright.runtime import cuda

        clock, target = GraphClock(cuda.device().cache_bytes), cuda.device().arch
    bench = AttentionBench(options, clock, target)
    if not bench.dry:
        bench.build_stages([one.problem() for one in shapes])
    said = provenance(options, clock)
    usual = RESULT if options.random is None else VARLEN_RESULT if options.varlen else RANDOM_RESULT
    place = options.output or usual
    for shape in shapes:
        if time.perf_counter() - started > options.most_seconds:
            break
        bench.one(shape)
        result = said | {"copy_rate": bench.copy_rate, "summary": summary(bench.rows)}
        place.write_text(
            json.dumps(result | {"wrong": bench.wrong, "rows": bench.rows}, indent=1) + "\n", encoding="utf-8"
        )
    for name, value in summary(bench.rows).items():
        print(f"{name}: {value:.3f}")
    print(f"{time.perf_counter() - started:.0f} s after the start")
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong[:20]))


if __name__ == "__main__":
    main()
