"""compute-sanitizer on a sample of kernels of each pipeline: memcheck, racecheck, synccheck, one line a kernel.

    python benchmarks/sanitize_cuda.py                          all tools on every op, pipeline and way of it
    python benchmarks/sanitize_cuda.py --ops conv --tools memcheck --only depthwise

The kernels are built first, all together.  Then one process under the tool loads them through the runtime, without
PyTorch, which the tool would slow down, and runs each on one small problem with edges, twice, checking the result.
A process that a finding ended is followed by another for the kernels after it.  The exit status is 1 where there are
findings; where there is no GPU or no compute-sanitizer, nothing is checked and the last line says why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.arch import arch as facts
from tilewright.backends.cuda import driver
from tilewright.backends.cuda.gemm.multistage import MultistageSchedule
from tilewright.backends.cuda.gemm.skinny import SkinnySchedule
from tilewright.backends.cuda.gemm.tma_ws import TmaWsSchedule
from tilewright.ops.base import KernelSpec, plain
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.pools import signatures

GEMM = ops.op("gemm")
OPS = ("gemm", "conv", "attention", "attention_backward")
TOOLS = ("memcheck", "racecheck", "synccheck")
# Several tiles and steps along k, edges along each axis, rows of whole 16 bytes; then few rows, few columns, oddness.
SIZES = ((136, 272, 200), (8, 272, 264), (136, 8, 264), (37, 41, 43))
LONG = ((72, 136, 1032), (37, 41, 1043))  # k that is cut into parts
MOST_STOPPED = 2  # processes that reach the limit before a tool is given up
BEGIN, END = "kernel begins: ", "kernel ends: "
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
NOT_FINDINGS = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "Copyright", "SANITIZER:")


# Of other ops, as the command line says a problem: small, with edges, groups, strides and windows of each kind.
_CONV: tuple[dict[str, Any], ...] = (
    {"batch": 2, "channels": 72, "filters": 136, "size": "9x14", "window": "3x3", "padding": "1x1"},
    {"batch": 2, "channels": 64, "filters": 72, "size": "9x14", "window": "3x3", "padding": "1x1", "stride": "2x2"},
    {"batch": 2, "channels": 24, "filters": 24, "size": "9x14", "window": "3x3", "padding": "1x1"},
    {"batch": 2, "channels": 64, "filters": 64, "size": "9x14", "window": "3x3", "padding": "1x1", "groups": 16},
    {"batch": 2, "channels": 64, "filters": 64, "size": "9x14", "window": "3x3", "padding": "1x1", "groups": 2},
    {"batch": 3, "channels": 72, "filters": 72, "size": "11x15", "window": "3x3", "padding": "1x1", "groups": 72},
    {"batch": 1, "channels": 40, "filters": 40, "size": "9x9", "window": "7x7", "padding": "3x3", "groups": 40},
    {"batch": 2, "channels": 3, "filters": 24, "size": "17x19", "window": "7x7", "padding": "3x3", "stride": "2x2"},
    {"batch": 2, "channels": 21, "filters": 35, "size": "9x7", "window": "3x3", "padding": "1x1"},
    {"batch": 1, "channels": 64, "filters": 64, "size": "3x5x6", "window": "3x3x3", "padding": "1x1x1"},
)
_ATTENTION: tuple[dict[str, Any], ...] = (
    {"batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 150, "seqlen_k": 200, "head_dim": 64,
     "causal": "bottom_right"},
    {"batch": 1, "heads_q": 2, "seqlen_q": 130, "seqlen_k": 150, "head_dim": 128, "return_lse": True},
    {"batch": 2, "heads_q": 8, "heads_kv": 2, "seqlen_q": 1, "seqlen_k": 700, "head_dim": 128},
    {"batch": 5, "heads_q": 2, "seqlen_q": 210, "seqlen_k": 170, "head_dim": 64, "varlen": True, "total_q": 500,
     "total_k": 450, "causal": "bottom_right"},
    {"batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 70, "seqlen_k": 200, "head_dim": 128,
     "causal": "bottom_right",
     "pages": "strided", "page_size": 16, "seqlens_k": True},
    {"batch": 3, "heads_q": 8, "heads_kv": 2, "seqlen_q": 2, "seqlen_k": 900, "head_dim": 128, "pages": "strided",
     "page_size": 16, "seqlens_k": True},
    {"batch": 2, "heads_q": 8, "heads_kv": 2, "seqlen_q": 2, "seqlen_k": 700, "head_dim": 128, "family": "split",
     "num_splits": 3,
     "pages": "strided", "page_size": 64, "seqlens_k": True},
    {"batch": 2, "heads_q": 8, "seqlen_q": 2, "seqlen_k": 700, "head_dim": 128, "family": "combine", "num_splits": 9,
     "output": "bf16"},
    {"batch": 1, "heads_q": 16, "heads_kv": 1, "seqlen_q": 1, "seqlen_k": 300, "head_dim": 576, "head_dim_v": 512},
    {"batch": 2, "heads_q": 8, "heads_kv": 2, "seqlen_q": 1, "seqlen_k": 300, "head_dim": 128,
     "kv_datatype": "fp8_e4m3",
     "kv_scales": "head"},
    {"batch": 1, "heads_q": 2, "seqlen_q": 130, "seqlen_k": 200, "head_dim": 128, "datatype": "fp8_e4m3",
     "output": "bf16",
     "causal": "top_left"},
)  # fmt: skip


# Gradients: tiles with edges, blocks that share keys, turns, packed rows, and what is done to scores.  Blocks of `ws`
# meet three tiles of rows or more: they have two stages, and what orders the second use of one is looked at too.
_BACKWARD: tuple[dict[str, Any], ...] = (
    {"batch": 1, "heads_q": 4, "heads_kv": 2, "seqlen_q": 150, "seqlen_k": 200, "head_dim": 128, "family": "grad",
     "causal": "bottom_right", "accumulate": "dq"},
    {"batch": 1, "heads_q": 4, "heads_kv": 2, "seqlen_q": 280, "seqlen_k": 200, "head_dim": 128, "family": "grad",
     "causal": "bottom_right", "accumulate": "all", "dkv_splits": 3, "deterministic": True},
    {"batch": 3, "heads_q": 4, "heads_kv": 2, "seqlen_q": 400, "seqlen_k": 130, "head_dim": 64, "family": "grad",
     "varlen": True, "total_q": 700, "total_k": 250, "accumulate": "all", "dkv_splits": 2},
    {"batch": 1, "heads_q": 2, "seqlen_q": 210, "seqlen_k": 150, "head_dim": 64, "family": "grad", "softcap": True,
     "accumulate": "dq", "deterministic": True},
    {"batch": 1, "heads_q": 2, "seqlen_q": 130, "seqlen_k": 150, "head_dim": 64, "family": "grad", "bias": "tensor",
     "dropout": True, "accumulate": "none", "dbias": True},
    {"batch": 2, "heads_q": 2, "seqlen_q": 290, "seqlen_k": 140, "head_dim": 64, "family": "grad", "bias": "alibi",
     "dropout": True, "accumulate": "dq", "causal": "top_left", "window_left": 140, "deterministic": True},
    {"batch": 1, "heads_q": 2, "seqlen_q": 170, "seqlen_k": 140, "head_dim": 192, "head_dim_v": 128, "family": "grad",
     "causal": "bottom_right", "accumulate": "dq", "deterministic": True},
    {"batch": 1, "heads_q": 2, "seqlen_q": 20, "seqlen_k": 30, "head_dim": 32, "family": "grad", "datatype": "fp32",
     "accumulate": "none"},
    {"batch": 2, "heads_q": 4, "seqlen_q": 150, "seqlen_k": 150, "head_dim": 128, "family": "dot", "dlse": True,
     "dsink": True},
    {"batch": 2, "heads_q": 4, "heads_kv": 2, "seqlen_q": 150, "seqlen_k": 200, "head_dim": 128, "family": "convert",
     "accumulate": "all", "dkv_splits": 3},
)  # fmt: skip


def asked(op: str) -> Iterator[Any]:
    """The problems of an op that kernels are tried on."""
    if op == "conv":
        for variant in ("forward", "backward_data", "backward_weight"):
            yield from (ops.op(op).problem({**one, "variant": variant, "datatype": "bf16"}) for one in _CONV)
        yield ops.op(op).problem({**_CONV[0], "datatype": "bf16", "epilogue": "Relu", "num_d": 1})
    else:
        problems = _ATTENTION if op == "attention" else _BACKWARD
        yield from (ops.op(op).problem({"datatype": "bf16", **one}) for one in problems)


def ways(op: str, arch: str, only: str = "") -> list[tuple[KernelSpec, Any]]:
    """One kernel of each way a problem's schedules differ in, sizes aside: pipeline, words and switches.  Of what is
    fused and of three dimensions one a pipeline: what multiplies is the same."""
    found: dict[tuple[Any, ...], tuple[KernelSpec, Any]] = {}
    for problem in asked(op):
        for spec in ops.op(op).candidates(problem.signature, arch):
            fields = asdict(spec.schedule)
            way = [fields[name] for name in sorted(fields) if isinstance(fields[name], (str, bool))]
            key = (problem.signature, *way, bool(fields.get("slice")), bool(fields.get("rows")))
            if fields["pipeline"] == "halo":  # a band for each residue of the taps, or half a stage
                key = (*key, max(problem.stride) > 1, fields["tile"][2])
            if getattr(problem, "num_d", 0) or getattr(problem.signature, "spatial", 2) == 3:
                key = (problem.signature, fields["pipeline"])
            if key not in found and only in spec.name and not ops.op(op).supports(spec, problem):
                found[key] = spec, problem
    return list({spec.digest: (spec, problem) for spec, problem in found.values()}.values())


def sample(arch: str, only: str = "") -> list[tuple[KernelSpec, GemmProblem]]:
    """One kernel for each pipeline, way and store of the pool that has one of everything, by rows and by lines; fp8; of
    tf32 by lines each multistage kernel that selection can choose."""
    found: dict[tuple[str, ...], tuple[KernelSpec, GemmProblem]] = {}
    from tilewright.ops.gemm.pools import POOLS

    for datatype, output, layout in (("bf16", "bf16", "rcr"), ("bf16", "bf16", "crr"), ("fp8_e4m3", "fp32", "rcr")):
        one = next(iter(signatures([datatype], [layout], ["standard"], (), [output])))
        for schedule in POOLS.family(facts(arch)).schedules("tests", one, facts(arch)):
            spec = KernelSpec("gemm", one, schedule, arch)
            # Of fp8 one kernel a pipeline: what differs from bf16 is the multiply alone.
            key = (datatype, layout, schedule.pipeline, *(_way(schedule) if datatype == "bf16" else ()))
            problem = None if key in found or GEMM.check(spec) else serving(spec, datatype, output)
            if problem is not None and only in spec.name:
                found[key] = spec, problem
    one = next(iter(signatures(["tf32"], ["crr"], ["standard"], (), ["fp32"])))
    for spec in GEMM.candidates(one, arch):
        problem = serving(spec, "tf32", "fp32", LONG) if spec.schedule.pipeline == "multistage" else None
        if problem is not None and only in spec.name:
            found[(spec.digest,)] = spec, problem
    return list(found.values())


def _way(schedule: Any) -> tuple[str, ...]:
    match schedule:
        case TmaWsSchedule():
            return (
                schedule.grouping,
                str(schedule.groups),
                str(schedule.swap_ab),
                schedule.tile_scheduler,
                schedule.store,
            )
        case MultistageSchedule():
            return (schedule.tile_scheduler,)
        case SkinnySchedule():
            return (schedule.skinny_dim,)
    return ()


def serving(
    spec: KernelSpec, datatype: str, output: str, sizes: Sequence[tuple[int, int, int]] = SIZES
) -> GemmProblem | None:
    for size in sizes:
        asked = GemmProblem(*size, datatype, dtype_c=output, layout=spec.signature.layout)
        if not GEMM.supports(spec, asked):
            return asked
    return None


# -- the process under the tool --------------------------------------------------------------------------------------


def child(work: Path) -> None:
    """Run what the file lists; marks around each kernel tell the parent whose a finding is."""
    from tilewright.dispatch import kernels
    from tilewright.runtime import cuda, samples
    from tilewright.runtime.bindings import binding

    device = cuda.device()
    for one in json.loads(work.read_text(encoding="utf-8")):
        op = ops.op(one["spec"]["op"])
        spec, problem, bound = op.spec_from_dict(one["spec"]), op.problem_from_dict(one["problem"]), binding(op.name)
        say(BEGIN + spec.name)
        sample = samples.make(bound, problem, one["seed"], device)
        run = samples.runner(bound, kernels.kernel(spec), problem, sample, device, 1)
        for _ in range(2):
            samples.poison_results(bound, sample)
            run()
            device.synchronize()
        check = samples.check(bound, problem, sample, (spec,))
        if not check.ok and not getattr(problem, "dtype_a", "").startswith(
            "fp8"
        ):  # fp8 sums lose more than this check allows
            say(f"========= wrong result: {check.detail}")
        say(END + spec.name)


def say(text: str) -> None:
    print(text, flush=True)


# -- the parent ------------------------------------------------------------------------------------------------------


def findings(output: str) -> dict[str, list[str]]:
    """What the tool said while each kernel ran; a kernel that began and never ended says that too."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in output.splitlines():
        text = line.strip()
        if text.startswith(BEGIN):
            current = text.removeprefix(BEGIN)
            found[current] = []
        elif text.startswith(END):
            current = ""
        elif current and text.startswith("=========") and not any(one in text for one in NOT_FINDINGS):
            words = text.strip("= ")
            if words:
                found[current].append(words)
    if current:
        found[current].append("the process ended in it")
    return found


def tool_path() -> str:
    found = shutil.which("compute-sanitizer")
    for place in PLACES if found is None else ():
        candidate = Path(place) / "compute-sanitizer"
        if candidate.is_file():
            return str(candidate)
    return found or ""


def run_tool(tool: str, name: str, work: Path, limit: float) -> tuple[str, int]:
    command = [tool, "--tool", name, "--error-exitcode", "86", "--print-limit", "20"]
    command += [sys.executable, str(Path(__file__).resolve()), "--child", str(work)]
    # A session of its own: what the tool started must end with it.
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = started.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        output, _ = started.communicate()
    return output, started.returncode


def under(tool: str, name: str, specs: Sequence[tuple[KernelSpec, Any]], limit: float) -> Iterator[str]:
    """Run all kernels under one tool and print a line for each; what was found, kernel by kernel."""
    left, seed, stopped = list(specs), time.time_ns() % 2**32, 0
    while left:
        if stopped == MOST_STOPPED:
            yield f"{name}: {len(left)} kernels were not looked at, since {stopped} processes took too long"
            return
        entries = [{"spec": spec.to_dict(), "problem": plain(problem), "seed": seed} for spec, problem in left]
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "kernels.json"
            work.write_text(json.dumps(entries), encoding="utf-8")
            output, status = run_tool(tool, name, work, limit)
        stopped += status == -signal.SIGKILL
        found = findings(output)
        if not found:
            last = output.strip().splitlines()[-3:] or ["it said nothing"]
            raise SystemExit(f"{name} ran no kernel (status {status}): " + " / ".join(last))
        for spec, _ in left:
            if spec.name in found:
                told = found[spec.name]
                say(f"{name:9} {'clean' if not told else 'FOUND'} {spec.name}{': ' + told[0] if told else ''}")
                yield from (f"{name} {spec.name}: {one}" for one in told[:5])
        if status == 86 and not any(found.values()):
            yield f"{name}: the tool answers that it found something, outside of any kernel's run"
        left = [(spec, problem) for spec, problem in left if spec.name not in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--only", nargs="+", default=[""], help="only kernels whose name contains one of these")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one process under a tool")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    tool, why = tool_path(), driver.why_unavailable()
    if why or not tool:
        say(f"skipped: {'no NVIDIA GPU: ' + why if why else 'compute-sanitizer is not installed (it comes with CUDA)'}")
        return
    from tilewright.dispatch import kernels

    arch = driver.available_archs()[0]
    specs: list[tuple[KernelSpec, Any]] = []
    for part in options.only:
        specs += sample(arch, part) if "gemm" in options.ops else []
        specs += [one for op in options.ops if op != "gemm" for one in ways(op, arch, part)]
    specs = list({spec.digest: (spec, problem) for spec, problem in specs}.values())
    if not specs:
        raise SystemExit(f"no kernel's name contains {options.only!r}")
    kernels.build([spec for spec, _ in specs])
    told = [one for name in options.tools for one in under(tool, name, specs, options.limit)]
    say(f"{len(specs)} kernels, {' and '.join(options.tools)}: " + (f"{len(told)} findings" if told else "clean"))
    if told:
        raise SystemExit("\n".join(told[:40]))


if __name__ == "__main__":
    main()
