"""One kernel, several problems: fresh operands in fenced memory, the library's own launch, the reference.

Runs in the worker process.  The libraries are the real ones, host code included; `Session` stands in for the
device behind their HIP runtime.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.backends.cpu.gemm.harness import FENCE, Array, Block, ordinary
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.reference import error_bound, exact
from tilewright.ops.numerics import INT_RANGE, round_to
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.loader import Kernel

ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Call:
    """A problem by its sizes, and what it is meant to show."""

    why: str
    m: int
    n: int
    k: int
    batch: int = 1
    slack: int = 0  # elements between the rows of every operand, in multiples of the widest access
    alpha: float = 1.0
    beta: float = 0.0
    in_place: bool = False  # E is C


@dataclass(slots=True)
class Result:
    why: str
    sizes: str
    ok: bool
    max_error: float = 0.0
    bound_ratio: float = 0.0
    detail: str = ""
    seconds: float = 0.0
    launches: list[dict[str, Any]] = field(default_factory=list)


def problem_of(spec: KernelSpec, call: Call) -> GemmProblem:
    s, h = spec.signature, spec.schedule
    extra = call.slack * 16  # a multiple of every access width
    return GemmProblem(
        m=call.m,
        n=call.n,
        k=call.k,
        dtype_a=s.dtype_a,
        dtype_b=s.dtype_b,
        dtype_c=s.dtype_c,
        dtype_d=s.dtype_d,
        layout=s.layout,
        batch=call.batch,
        epilogue=s.epilogue,
        num_d=s.num_d,
        beta=call.beta != 0,
        preshuffled=h.pipeline == "preshuffle",
        a_stride=(call.k if s.layout[0] == "r" else call.m) + extra,
        b_stride=(call.n if s.layout[1] == "r" else call.k) + extra,
        c_stride=call.n + extra,
    )


def aligned(size: int, itemsize: int) -> tuple[Array, int]:
    """As `heap` of the harness, but aligned as device allocations are."""
    memory = np.empty(size + 2 * FENCE + ALIGNED, np.uint8)
    return memory, FENCE + (-(int(memory.ctypes.data) + FENCE)) % ALIGNED


LOOPS = [
    Call("one tile", 64, 64, 32),
    Call("2 x 3 tiles, gaps, batch of 2", 67, 131, 19, 2, slack=1),
    Call("hardly anything", 1, 1, 1),
    Call("no k", 5, 7, 0),
    Call("a bit over", 65, 66, 17, slack=1),
]


def calls(spec: KernelSpec) -> list[Call]:
    """Every number of turns of the k loop that another tail serves, several tiles, edges, a batch with gaps."""
    s, h = spec.signature, spec.schedule
    m, n, k = h.tile
    if isinstance(h, GpuLoopsSchedule):
        return [*LOOPS, *(replace(LOOPS[-1], why=f"alpha, beta, {why}", alpha=-0.75, beta=1.5, in_place=why == "C is E")
                          for why in ("and C", "C is E"))]  # fmt: skip
    k *= h.split_k
    preshuffle = h.pipeline == "preshuffle"
    least = 2 if h.pipeline in ("compv4", "preshuffle") else 1
    step = 2 if preshuffle else 1
    stages = shape.prefetch_stages(s, h)
    # Each tail first without, then with the hot loop, and one turn of it more.
    turns = range(least, (8 if preshuffle else 2 * stages + 2 if stages > 2 else 6) + 1, step)
    found = [Call(f"{one} turns of the k loop", m, n, one * k) for one in turns]
    found.append(Call("2 x 3 tiles, gaps, batch of 2", 2 * m, 3 * n, max(3, least) // step * step * k or k, 2, slack=1))
    if any(h.pad):
        found += [replace(one, why=f"edges: {one.why}") for one in edges(spec)]
    last = found[-1]
    scaled = replace(last, alpha=-0.75, beta=1.5)
    return [*found, replace(scaled, why=f"alpha, beta and C, {last.why}"),
            replace(scaled, why=f"C is E, {last.why}", in_place=True, slack=1)]  # fmt: skip


def edges(spec: KernelSpec) -> list[Call]:
    """Sizes as odd as the widths of the accesses allow."""
    s, h = spec.signature, spec.schedule
    m, n, k = h.tile
    wide_m = shape.width_a(s, h) if s.layout[0] == "c" else 1
    wide_n = shape.width_b(s, h) if s.layout[1] == "r" else 1
    wide_k = max(shape.width_a(s, h) if s.layout[0] == "r" else 1, shape.width_b(s, h) if s.layout[1] == "c" else 1)
    if h.pipeline == "preshuffle":
        wide_n = max(wide_n, h.warp_tile[1])
    turns = 2 * k * h.split_k
    ragged_k = turns + wide_k if h.pad[2] else turns
    rows = m + 3 * wide_m if wide_m > 1 else m + 13
    # compv4 and preshuffle need two turns of the k loop.
    short_k = wide_k if ragged_k != turns and h.pipeline != "compv4" else ragged_k
    return [
        Call("a bit over", rows, n + wide_n, ragged_k, slack=1),
        Call("hardly anything", wide_m, wide_n, short_k),
    ]


def judge(problem: GemmProblem, arrays: dict[str, Any], given: Array) -> tuple[float, float, str]:
    """Largest error, its largest share of the bound, and where it is worst when that is over 1."""
    found = exact(problem, arrays)
    value = np.broadcast_to(found.value, given.shape)
    bound = np.broadcast_to(error_bound(problem, found), given.shape)
    numbers = given.astype(np.float64)
    with np.errstate(all="ignore"):
        if problem.dtype_c in INT_RANGE:
            error = np.abs(numbers - round_to(value, problem.dtype_c).astype(np.float64))
            ratio = np.where(error > 0, np.inf, 0.0)
        else:
            error = np.abs(numbers - value)
            ratio = np.where(np.isnan(error), np.inf, error / bound)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    top = float(ratio[worst])
    detail = ""
    if top > 1.0:
        wrong = int(np.count_nonzero(~(ratio <= 1.0)))
        where = tuple(int(one) for one in worst)
        detail = f"element {where} is {numbers[worst]:.8g}, expected {value[worst]:.8g} within {bound[worst]:.3g}"
        detail += f"; {wrong} of {ratio.size} are wrong"
    return float(np.nanmax(np.where(np.isinf(error), np.nan, error), initial=0.0)), top, detail


def _operands(spec: KernelSpec, p: GemmProblem, slack: int, rng: np.random.Generator) -> dict[str, Block]:
    blocks = {}
    gap = 16 * slack

    def put(name: str, lines: int, length: int, ld: int, dtype: str) -> None:
        block = Block.make(p.batch, lines, length, ld, gap, dtype, aligned)
        block.view()[...] = ordinary(rng, block.shape, dtype)
        blocks[name] = block

    put("a", *((p.m, p.k) if p.layout[0] == "r" else (p.k, p.m)), p.a_stride, p.dtype_a)
    put("b", *((p.k, p.n) if p.layout[1] == "r" else (p.n, p.k)), p.b_stride, p.dtype_b)
    for index in range(p.num_d):
        put(f"d{index}", p.m, p.n, p.n + gap, p.dtype_d)
    if p.beta:
        put("c", p.m, p.n, p.c_stride, p.dtype_c)
    return blocks


def prove(kernel: Kernel, call: Call, seed: int, session: Any) -> Result:
    """Run one problem and judge it; every way to be wrong ends in a result that is not ok."""
    spec, p = kernel.spec, problem_of(kernel.spec, call)
    started, first = time.perf_counter(), len(session.launches)
    outcome = Result(call.why, f"{p.m}x{p.n}x{p.k}" + (f" batch {p.batch}" if p.batch > 1 else ""), False)
    blocks = _operands(spec, p, call.slack, np.random.default_rng(seed))
    e = Block.make(p.batch, p.m, p.n, p.c_stride, 16 * call.slack, p.dtype_c, aligned)
    args = GemmArgs()
    args.m, args.n, args.k, args.batch, args.alpha, args.beta = p.m, p.n, p.k, p.batch, call.alpha, call.beta
    args.a, args.a_stride, args.a_batch_stride = blocks["a"].address, p.a_stride, blocks["a"].strides[0]
    args.b, args.b_stride, args.b_batch_stride = blocks["b"].address, p.b_stride, blocks["b"].strides[0]
    args.e, args.e_stride, args.e_batch_stride = e.address, e.strides[1], e.strides[0]
    for index in range(p.num_d):
        d = blocks[f"d{index}"]
        args.d[index], args.d_row_stride[index], args.d_col_stride[index] = d.address, d.strides[1], 1
        args.d_batch_stride[index] = d.strides[0]
    if p.beta:
        old = blocks["c"]
        if call.in_place:
            e.view()[...] = old.view()
        args.c, args.c_stride, args.c_batch_stride = (
            (e if call.in_place else old).address,
            old.strides[1],
            old.strides[0],
        )
    before = {name: block.memory.copy() for name, block in blocks.items()}
    outcome.detail = _launch(kernel, args, session)
    outcome.launches = session.launches[first:]
    if not outcome.detail:
        changed = [name for name, memory in before.items() if not np.array_equal(memory, blocks[name].memory)]
        if changed:
            outcome.detail = f"the kernel changed {', '.join(changed)}"
        elif not e.untouched_around():
            outcome.detail = "the kernel wrote outside E"
    if not outcome.detail:
        arrays: dict[str, Any] = {
            "a": blocks["a"].view() if p.layout[0] == "r" else blocks["a"].view().swapaxes(1, 2),
            "b": blocks["b"].view() if p.layout[1] == "r" else blocks["b"].view().swapaxes(1, 2),
            "c": blocks["c"].view() if p.beta else None,
            "ds": tuple(blocks[f"d{index}"].view() for index in range(p.num_d)),
            "alpha": call.alpha,
            "beta": call.beta,
        }
        outcome.max_error, outcome.bound_ratio, outcome.detail = judge(p, arrays, e.view())
    multiplies = not isinstance(spec.schedule, GpuLoopsSchedule)
    if not outcome.detail and multiplies and not sum(one["matrix_instructions"] for one in outcome.launches):
        outcome.detail = "no matrix instruction was executed"
    outcome.ok, outcome.seconds = not outcome.detail, time.perf_counter() - started
    return outcome


def _launch(kernel: Kernel, args: GemmArgs, session: Any) -> str:
    """Pack, check and launch as the runtime does; what went wrong, or nothing."""
    at = ctypes.addressof(args)
    if kernel.pack is not None:
        size = kernel.packed_bytes(args)
        packed = Block.make(1, 1, size, size, 0, "int8", aligned)
        if kernel.pack(at, packed.address, None) != 0:
            session.raise_failure()
            return "packing failed"
        if not packed.untouched_around():
            return "pack wrote past its buffer"
        args.b, args.b_stride = packed.address, 0
    refusal = kernel.refusal(args)
    if refusal:
        return f"refused: {refusal}"
    size = kernel.workspace_bytes(args, 1)
    workspace = Block.make(1, 1, max(1, size), max(1, size), 0, "int8", aligned)
    status = kernel.launch(at, workspace.address, None)
    session.raise_failure()
    return f"launch answered {status}" if status else ""
