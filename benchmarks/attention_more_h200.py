"""Attention that no backend of SDPA takes, on an NVIDIA GPU: latent decode, fp8, vectorised pages, mma.sync.

    python benchmarks/attention_more_h200.py                 every group
    python benchmarks/attention_more_h200.py --only latent   shapes whose group or name has this
    python benchmarks/attention_more_h200.py --kernels       each kernel of the default pool apart, too
    python benchmarks/attention_more_h200.py --dry-run       a rehearsal without a GPU: nothing of it means anything

The cache cold; every contestant is checked against float64 on some rows first.  Decode is held against the copy
bandwidth of the run, fp8 prefill against our own bf16 of the same shape, beside it in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from _cuda_report import provenance
from _cuda_timing import Clock, GraphClock, HostClock, Run, copy_bandwidth
from _h200_operands import Wrong

import tilewright as tw
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.dispatch.registry import Registry
from tilewright.errors import TilewrightError
from tilewright.ops.attention import AttentionProblem, pools
from tilewright.ops.base import KernelSpec

RESULT = Path(__file__).parent / "results" / "attention_more_h200.json"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8_e4m3": torch.float8_e4m3fn}
ROUNDING = {
    "bf16": 2.0**-7,
    "fp16": 2.0**-7,
    "fp8_e4m3": 2.0**-4 + 2.0**-8,
}  # of weights, by the type of V, and results
ROWS_CHECKED = 16
ATTENTION = ops.op("attention")


@dataclass(frozen=True)
class Shape:
    group: str  # latent, fp8_decode, fp8_prefill, vectorised or mma
    batch: int
    heads_q: int
    heads_kv: int
    rows: int
    keys: int
    head: int
    head_v: int = 0
    dtype_q: str = "bf16"
    dtype_kv: str = ""
    causal: bool = False
    page_size: int = 0
    layout: str = "linear"
    latent: bool = False  # values are the first elements of their keys
    pipelines: tuple[str, ...] = ()  # only these, where some are named

    @property
    def name(self) -> str:
        types = self.dtype_q + (f":{self.dtype_kv}" if self.dtype_kv else "")
        said = f"{types} {self.batch}x{self.heads_q}/{self.heads_kv}x{self.rows}x{self.keys} d{self.head}"
        said += f"/{self.head_v}" if self.head_v else ""
        said += f" pages {self.page_size} {self.layout}" if self.page_size else ""
        return said + (" causal" if self.causal else "")

    def problem(self) -> AttentionProblem:
        more: dict[str, Any] = {"window_right": 0, "align": "bottom_right"} if self.causal else {}
        if self.page_size:
            layout = "vectorised" if self.layout == "vectorised" else "strided"
            more |= {"pages": layout, "page_lookup": "table", "page_size": self.page_size, "seqlens_k": True}
        return AttentionProblem(
            self.batch, self.heads_q, self.rows, self.keys, self.head, self.heads_kv, self.head_v,
            dtype_q=self.dtype_q, dtype_kv=self.dtype_kv, **more,
        )  # fmt: skip


def _shapes() -> Iterator[Shape]:
    for batch, keys, heads in ((64, 4096, 16), (16, 32768, 16), (64, 4096, 64), (64, 4096, 128), (1, 65536, 16)):
        yield Shape("latent", batch, heads, 1, 1, keys, 576, 512, latent=True)
    yield Shape("latent", 64, 16, 1, 1, 4096, 576, 512, page_size=64, latent=True)
    for batch, keys in ((64, 4096), (4, 65536), (256, 2048)):
        yield Shape("fp8_decode", batch, 32, 8, 1, keys, 128, dtype_kv="fp8_e4m3")
    yield Shape("fp8_decode", 64, 32, 8, 1, 4096, 128, dtype_kv="fp8_e4m3", page_size=16)
    yield Shape("fp8_decode", 64, 32, 8, 1, 4096, 128, dtype_q="fp8_e4m3")
    for causal in (False, True):
        yield Shape("fp8_prefill", 2, 16, 16, 8192, 8192, 128, dtype_q="fp8_e4m3", causal=causal)
        yield Shape("mma", 2, 16, 16, 8192, 8192, 128, causal=causal, pipelines=("mma",))
    yield Shape("mma", 2, 32, 32, 8192, 8192, 64, causal=True, pipelines=("mma",))
    yield Shape("mma", 64, 32, 8, 1, 4096, 128, pipelines=("mma_decode",))
    yield Shape("vectorised", 64, 32, 8, 1, 4096, 128, page_size=16, layout="vectorised")


class OtherOperands:
    """Fresh random operands of a shape."""

    def __init__(self, shape: Shape, device: str) -> None:
        s, self.shape, self.device = shape, shape, device
        kv = s.dtype_kv or s.dtype_q
        self.q = self._made(s.dtype_q, s.batch, s.rows, s.heads_q, s.head)
        self.k = self._made(kv, s.batch, s.keys, s.heads_kv, s.head)
        size = s.head_v or s.head
        self.v = self.k[..., :size] if s.latent else self._made(kv, s.batch, s.keys, s.heads_kv, size)
        out = torch.bfloat16 if s.dtype_q == "fp8_e4m3" else TYPES[s.dtype_q]
        self.out = torch.empty(s.batch, s.rows, s.heads_q, size, device=device, dtype=out)
        self.more: dict[str, Any] = {"out": self.out, "causal": "bottom_right" if s.causal else False}
        self.given = (self.q, self.k, self.v)
        if s.page_size:
            self._page()

    def _made(self, dtype: str, *sizes: int) -> Any:
        return torch.randn(sizes, device=self.device, dtype=torch.float32).to(TYPES[dtype])

    def _page(self) -> None:
        """The same keys in pages that lie in no order."""
        s, each = self.shape, self.shape.keys // self.shape.page_size
        places = torch.randperm(s.batch * each, device=self.device)
        self.more |= {"block_table": places.view(s.batch, each).to(torch.int32), "kv_layout": s.layout}
        self.more["seqlens_k"] = torch.full((s.batch,), s.keys, device=self.device, dtype=torch.int32)
        paged = []
        for one in (self.k,) if s.latent else (self.k, self.v):
            whole = one.reshape(s.batch * each, s.page_size, s.heads_kv, one.shape[-1]).view(torch.uint8)
            pages = torch.empty_like(whole)
            pages[places] = whole
            paged.append(pages.view(one.dtype))
        keys, values = paged[0], paged[-1]
        if s.latent:
            values = keys[..., : s.head_v]
        if s.layout == "vectorised":
            vec = 16 // keys.element_size()
            keys = keys.unflatten(3, (-1, vec)).permute(0, 2, 3, 1, 4).contiguous()
            values = values.unflatten(1, (-1, vec)).permute(0, 3, 1, 4, 2).contiguous()
        self.given = (self.q, keys, values)

    @property
    def bytes(self) -> int:
        """What must be read and written: a latent once."""
        used = {one.data_ptr(): one.numel() * one.element_size() for one in (self.v, self.k, self.q, self.out)}
        return sum(used.values())

    def check(self, name: str, run: Run) -> None:
        self.out.fill_(float("nan"))
        run()
        s, rows = self.shape, torch.linspace(0, self.shape.rows - 1, ROWS_CHECKED).long().unique().to(self.device)
        group = s.heads_q // s.heads_kv
        for index in {0, s.batch - 1}:
            q = self.q[index, rows].double().transpose(0, 1)
            k, v = (one[index].double().transpose(0, 1).repeat_interleave(group, 0) for one in (self.k, self.v))
            scores = q @ k.transpose(1, 2) * s.head**-0.5
            if s.causal:
                scores.masked_fill_(
                    rows[:, None] + (s.keys - s.rows) < torch.arange(s.keys, device=q.device), -torch.inf
                )
            weights = scores.softmax(2)
            error = (self.out[index, rows].double().transpose(0, 1) - weights @ v).abs()
            most = ROUNDING[s.dtype_kv or s.dtype_q] * (weights @ v.abs())
            if not bool((error <= most).all()):
                raise Wrong(f"{name} is wrong on {s.name}: {float((error / most).max()):.2f} times as far as allowed")


class MoreBench:
    def __init__(self, options: argparse.Namespace, clock: Clock, target: str) -> None:
        self.options, self.clock, self.target = options, clock, target
        self.rows: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self.copy_rate = copy_bandwidth(clock, 1 << 20 if options.dry_run else 1 << 30)

    def pool(self, registry: Registry, stage: AttentionProblem) -> list[KernelSpec]:
        if not self.options.full:
            return list(registry.candidates(stage))
        proposed = pools.proposals("full", self.target, **pools.axes_of(stage.signature))
        return [spec for spec in proposed if not ATTENTION.check(spec)]

    def registries(self, shape: Shape) -> dict[str, Registry]:
        """What is selected among all, or among named pipelines; and each kernel by itself."""
        plain = Registry(self.target)
        if self.options.dry_run:
            return {"default": plain}
        first, *after = (self.pool(plain, stage) for stage in plain.stages(shape.problem()))
        behind = [spec for pool in after for spec in pool]
        named = [spec for spec in first if spec.schedule.pipeline in shape.pipelines] or first
        found = {"default": Registry(self.target, [*named, *behind]) if shape.pipelines else plain}
        if self.options.kernels:
            apart = [spec for spec in named if spec.schedule.pipeline != "loops"]
            found |= {spec.name: Registry(self.target, [spec, *behind]) for spec in apart}
        return found

    def build(self, shapes: list[Shape]) -> None:
        """All kernels of the run in one parallel build."""
        wanted: dict[str, KernelSpec] = {}
        asked = [(shape, one) for shape in shapes for one in self.registries(shape).values()]
        beside = [replace(one, dtype_q="bf16") for one in shapes if one.group == "fp8_prefill"]
        for shape, registry in [*asked, *((one, Registry(self.target)) for one in beside)]:
            for stage in registry.stages(shape.problem()):
                spec = registry.select(stage).spec
                wanted.setdefault(spec.digest, spec)
        kernels.kernels(list(wanted.values()))
        print(f"{len(wanted)} kernels built", flush=True)

    def entrants(self, one: OtherOperands) -> dict[str, Run]:
        found: dict[str, Run] = {}
        for name, registry in self.registries(one.shape).items():

            def run(registry: Registry = registry) -> Any:
                return registry.run("attention", *one.given, **one.more)

            try:
                one.check(name, run)
                found[name] = self.clock.captured(run)
            except (Wrong, TilewrightError) as error:
                self.wrong.append(f"{name}: {error}")
                print(f"WRONG: {name}: {error}", flush=True)
        return found

    def one(self, shape: Shape) -> None:
        one = OtherOperands(shape, self.clock.device)
        ours = self.entrants(one)
        beside = None
        if shape.group == "fp8_prefill":
            beside = OtherOperands(replace(shape, dtype_q="bf16"), self.clock.device)
            ours["bf16"] = self.clock.captured(lambda: tw.attention(*beside.given, **beside.more))
        times = self.clock.rounds(list(ours.values()), self.options.rounds, "cold")
        for name, taken in zip(ours, times, strict=True):
            seconds = statistics.median(taken)
            row = {"group": shape.group, "shape": shape.name, "kernel": name, "seconds": seconds, "bytes": one.bytes}
            row |= {"tflops": shape.problem().flops / seconds / 1e12, "of_copy": one.bytes / seconds / self.copy_rate}
            self.rows.append(row)
            print(
                f"{shape.group:12}{shape.name:52} {seconds * 1e6:9.1f} us {row['tflops']:5.0f} TF "
                f"{row['of_copy']:5.2f} of copy  {name}",
                flush=True,
            )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="PART", help="shapes whose names or groups contain one of these")
    parser.add_argument("--kernels", action="store_true", help="each kernel of the default pool apart, too")
    parser.add_argument("--full", action="store_true", help="those of the full pool")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU: the floor's numbers mean nothing")
    parser.add_argument("--output", type=Path, default=RESULT)
    return parser.parse_args()


def rehearsed(shape: Shape) -> Shape:
    """Small enough for a CPU."""
    rows, keys = max(1, shape.rows // 256), max(shape.page_size, shape.keys // 256)
    return replace(shape, batch=1, heads_q=shape.heads_q // shape.heads_kv, heads_kv=1, rows=min(rows, keys), keys=keys)


def main() -> None:
    options = parsed()
    shapes = list(_shapes())
    if options.only:
        shapes = [one for one in shapes if any(part in one.name or part == one.group for part in options.only)]
    if options.dry_run:
        clock: Clock = HostClock()
        shapes, target = [rehearsed(one) for one in shapes], "generic"
    else:
        from tilewright.runtime import cuda

        clock, target = GraphClock(cuda.device().cache_bytes), cuda.device().arch
    bench = MoreBench(options, clock, target)
    if not options.dry_run:
        bench.build(shapes)
    for shape in shapes:
        bench.one(shape)
    said = provenance(options, clock)
    said |= {"copy_rate": bench.copy_rate, "wrong": bench.wrong, "rows": bench.rows}
    options.output.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong[:20]))


if __name__ == "__main__":
    main()
