"""CPU seconds that kernels for NVIDIA GPUs take to compile, by nvcc and by NVRTC; no GPU is needed.

    python benchmarks/compile_cuda.py            prints the numbers and writes benchmarks/results/compile_cuda.json
    python benchmarks/compile_cuda.py --quick    one kernel of each pipeline
    python benchmarks/compile_cuda.py --op attention          writes benchmarks/results/compile_cuda_attention.json
    python benchmarks/compile_cuda.py --op attention_backward

Compiled are of GEMM all tiles of the default pool for bf16, and the largest of each pipeline for every other type,
layout and a fused epilogue; of attention the largest of each pipeline for each head size with and without a window, and
for each feature, way of packing and stage at a head of 128; of its gradients alike.  The seconds are user and system
time of all processes of the one command a build runs: the device's code and the library around it.  What else the
machine does changes them little, so one run is enough.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda.gemm import KERNELS
from tilewright.backends.cuda.toolchain import CudaToolchain, find_toolchain
from tilewright.errors import ToolchainError
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import GemmSignature

TARGET_SECONDS = {"gemm": 2.5, "attention": 4.0, "attention_backward": 5.0}
ARCH = "sm_90a"
TYPES = ("fp16", "fp8_e4m3", "int8", "fp32")
TURNED = ("rrr", "crr", "ccr")


def _signature(datatype: str, layout: str = "rcr", epilogue: str = "") -> GemmSignature:
    variant, fused, count = ("multi_d", [epilogue], 2) if epilogue else ("standard", (), 0)
    return next(iter(signatures([datatype], [layout], [variant], fused, (), [count])))


def _legal(one: GemmSignature) -> Iterator[KernelSpec]:
    for schedule in dict.fromkeys(KERNELS.schedules("default", one, arch(ARCH))):
        spec = KernelSpec("gemm", one, schedule, ARCH)
        if not op("gemm").check(spec):
            yield spec


def _area(spec: KernelSpec) -> int:
    return math.prod(spec.schedule.tile[:2])


def specs(quick: bool) -> list[KernelSpec]:
    """What is compiled, by pipeline."""
    tiles: dict[tuple[str, tuple[int, ...]], KernelSpec] = {}
    for spec in _legal(_signature("bf16")):
        tiles.setdefault((spec.schedule.pipeline, spec.schedule.tile), spec)
    plain = list(tiles.values())
    others = [_signature(one) for one in TYPES] + [_signature("bf16", one) for one in TURNED]
    others.append(_signature("bf16", epilogue="Gelu"))
    found = list(plain)
    for one in others:
        by_pipeline: dict[str, KernelSpec] = {}
        for spec in sorted(_legal(one), key=_area):
            by_pipeline[spec.schedule.pipeline] = spec
        found += by_pipeline.values()
    if quick:
        found = list({spec.schedule.pipeline: spec for spec in reversed(plain)}.values())
    return sorted(found, key=lambda spec: (spec.schedule.pipeline, -_area(spec)))


_PAGES: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "seqlens_k": True}
_FP8: dict[str, Any] = {"dtype_q": "fp8_e4m3", "dtype_out": "bf16", "q_scale": "tensor", "kv_scales": "head"}
_FEATURES: tuple[dict[str, Any], ...] = (
    {"dtype_q": "fp16", "window_right": 0},
    {"varlen": True, "window_right": 0},
    _PAGES,
    {**_PAGES, "pages": "vectorised"},
    {"window_left": 1, "window_right": 0, "sink_tokens": 1, "sink": True, "return_lse": True},
    {"softcap": True, "bias": "alibi", "window_right": 0},
    {"bias": "tensor", "mask_shape": (1, 1, 1, 1), "dtype_aux": "bf16"},
    {"dropout": True, "window_right": 0},
    {"family": "split", "num_splits": 2},
    {"family": "split", "num_splits": 2, **_PAGES},
    {"family": "combine", "num_splits": 2, "dtype_out": "bf16"},
    _FP8,
    {**_FP8, "window_right": 0},
    {"dtype_kv": "fp8_e4m3", "kv_scales": "head", **_PAGES},
)


def attention_specs(quick: bool) -> list[KernelSpec]:
    """What is compiled, by pipeline."""

    def asked(head: int, head_dim_v: int = 0, **more: Any) -> AttentionProblem:
        return AttentionProblem(1, 1, 1, 1, head, head_dim_v=head_dim_v, **{"dtype_q": "bf16", **more})

    problems = [asked(head, **one) for head in (32, 64, 96, 128, 160, 192, 256) for one in ({}, {"window_right": 0})]
    problems += [asked(128, **one) for one in _FEATURES]
    problems += [asked(192, 128, window_right=0), asked(576, 512, family="split", num_splits=2, **_PAGES)]
    found: dict[tuple[Any, ...], KernelSpec] = {}
    for one in problems:
        legal = [spec for spec in op("attention").candidates(one.signature, ARCH) if not op("attention").check(spec)]
        for spec in sorted(legal, key=_keys):
            found[(spec.schedule.pipeline, *(() if quick else (one.signature,)))] = spec
    return sorted(found.values(), key=lambda spec: spec.schedule.pipeline)


_BACKWARD_FEATURES: tuple[dict[str, Any], ...] = (
    {"dtype": "fp16", "window_right": 0},
    {"varlen": True, "window_right": 0},
    {"window_left": 1, "window_right": 0, "sink_tokens": 1},
    {"softcap": True, "window_right": 0},
    {"bias": "alibi", "window_right": 0},
    {"bias": "tensor", "mask_shape": (1, 1, 1, 1), "dtype_aux": "bf16"},
    {"bias": "tensor", "dbias": True},
    {"dropout": True, "window_right": 0},
    {"dtype": "fp32"},
)


def attention_backward_specs(quick: bool) -> list[KernelSpec]:
    """What is compiled, by pipeline: of `grad` what sums it leaves, and the stages around it."""

    def asked(head: int, head_dim_v: int = 0, **more: Any) -> AttentionBackwardProblem:
        return AttentionBackwardProblem(1, 1, 1, 1, head, head_dim_v=head_dim_v, **{"dtype": "bf16", **more})

    whole = [asked(head, **more) for head in (32, 64, 96, 128, 256) for more in ({}, {"window_right": 0})]
    whole += [asked(128, **more) for more in _BACKWARD_FEATURES] + [asked(192, 128, window_right=0)]
    stages = [each.stage("grad", sums) for each in whole for sums in ("dq", "none")]
    stages += [asked(128, window_right=0).stage("grad", "all"), asked(128, dlse=True, dsink=True).stage("dot", "none")]
    stages += [asked(128).stage("convert", sums) for sums in ("dq", "all")]
    backward, chosen = op("attention_backward"), {}
    for stage in stages:
        legal = [spec for spec in backward.candidates(stage.signature, ARCH) if not backward.check(spec)]
        for spec in sorted(legal, key=_keys):
            chosen[(spec.schedule.pipeline, *(() if quick else (stage.signature,)))] = spec
    return sorted(chosen.values(), key=lambda spec: spec.schedule.pipeline)


_SPECS = {"gemm": specs, "attention": attention_specs, "attention_backward": attention_backward_specs}


def _keys(spec: KernelSpec) -> int:
    return getattr(spec.schedule, "tile_m", 1) * getattr(spec.schedule, "tile_n", 1)


def compilers() -> dict[str, CudaToolchain]:
    """Those of the two that are here."""
    found = {}
    for kind in ("nvcc", "nvrtc"):
        try:
            with settings.override(cuda_compiler=kind):
                found[kind] = find_toolchain()
        except ToolchainError as error:
            print(f"{kind}: {error.message}")
    return found


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compiled(spec: KernelSpec, tools: CudaToolchain, folder: Path) -> float:
    source = folder / f"{spec.name}.cu"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    command = tools.command(source, folder / "kernel.so", spec.arch, spec.op)
    return round(cpu_seconds(command, settings.child_environment(tools.environment(folder))), 3)


def told(spec: KernelSpec) -> dict[str, Any]:
    """What a row says of its kernel beside the seconds."""
    row = {"kernel": spec.name, "pipeline": spec.schedule.pipeline}
    if spec.op != "gemm":
        return row
    s = spec.signature
    return row | {"tile": list(spec.schedule.tile), "dtype": s.dtype_a, "layout": s.layout, "epilogue": s.epilogue}


def summary(rows: list[dict[str, Any]], kinds: list[str]) -> dict[str, Any]:
    """Median and worst of each pipeline and compiler."""
    answer: dict[str, Any] = {}
    for pipeline in dict.fromkeys(row["pipeline"] for row in rows):
        mine = [row for row in rows if row["pipeline"] == pipeline]
        answer[pipeline] = {
            kind: {
                "kernels": len(mine),
                "median": round(statistics.median(row["cpu_seconds"][kind] for row in mine), 3),
                "most": max(row["cpu_seconds"][kind] for row in mine),
            }
            for kind in kinds
        }
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark compiling for NVIDIA GPUs.")
    parser.add_argument("--quick", action="store_true", help="one kernel of each pipeline")
    parser.add_argument("--op", choices=tuple(TARGET_SECONDS), default="gemm")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    named = "compile_cuda.json" if options.op == "gemm" else f"compile_cuda_{options.op}.json"
    output, target = options.output or RESULTS / named, TARGET_SECONDS[options.op]
    tools = compilers()
    if not tools:
        print("no CUDA compiler: nothing was measured; `pip install tilewright[cuda]` brings one")
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-compile-") as folder:
        for spec in _SPECS[options.op](options.quick):
            seconds = {kind: compiled(spec, one, Path(folder)) for kind, one in tools.items()}
            rows.append(told(spec) | {"cpu_seconds": seconds})
            print("  ".join(f"{kind} {one:5.2f} s" for kind, one in seconds.items()), spec.name, flush=True)
    short = summary(rows, list(tools))
    for pipeline, by_kind in short.items():
        for kind, one in by_kind.items():
            times = f"median {one['median']:.2f} s, most {one['most']:.2f} s"
            print(f"{pipeline:11} {kind:6} {one['kernels']:3} kernels, {times}")
    most = max(max(row["cpu_seconds"].values()) for row in rows)
    met = most <= target
    print(f"most {most:.2f} s of CPU a kernel (target {target}): {'met' if met else 'MISSED'}")
    result = {
        "benchmark": "compile_cuda",
        **provenance(f"python benchmarks/compile_cuda.py --op {options.op}" + (" --quick" if options.quick else "")),
        "arch": ARCH,
        "compilers": {kind: one.identity.version for kind, one in tools.items()},
        "target_cpu_seconds": target,
        "most_cpu_seconds": most,
        "met": met,
        "summary": short,
        "rows": rows,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
