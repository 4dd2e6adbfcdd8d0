"""Rowscale behind the contract of `tilewright.ops.base.Op`: rules, pools, problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from rowscale import spec as of
from rowscale.spec import BlockSchedule, LoopsSchedule, RowscaleProblem, Schedule, Signature, VectorSchedule
from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.errors import nearest
from tilewright.ops.base import Axis, KernelSpec, Op, OpDefaults, Option, Violation, from_plain
from tilewright.ops.demo import Demo
from tilewright.ops.pooling import Pools, demand_known

MOST_UNROLL, MOST_ROWS = 8, 1024


def lanes(arch: Arch) -> int:
    """32-bit words of a vector: what a kernel computes in, whatever it reads."""
    return arch.vector_bytes // 4


def _signature_rules(signature: Signature) -> Iterator[Violation]:
    if signature.dtype not in of.DTYPES:
        yield Violation("dtype-name", f"rowscale of {signature.dtype}", f"use {' or '.join(of.DTYPES)}")
    if signature.activation not in of.ACTIVATIONS:
        remedy = nearest(signature.activation, list(of.ACTIVATIONS))
        yield Violation("activation-name", f"activation {signature.activation!r} is not known", remedy)


def _vector_rules(schedule: VectorSchedule) -> Iterator[Violation]:
    if schedule.unroll not in (1, 2, 4, MOST_UNROLL):
        yield Violation("vector-unroll", f"unroll is {schedule.unroll}", f"use 1, 2, 4 or {MOST_UNROLL}")
    if not 1 <= schedule.rows <= MOST_ROWS:
        yield Violation("vector-rows", f"a thread takes {schedule.rows} rows at a time", f"use 1 to {MOST_ROWS}")


def _block_rules(schedule: BlockSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.threads < 1 or schedule.threads % arch.warp_size or schedule.threads > 1024:
        whole = max(arch.warp_size, min(1024, schedule.threads) // arch.warp_size * arch.warp_size)
        message = f"a block of {schedule.threads} threads is not 1 to {1024 // arch.warp_size} warps of {arch.name}"
        yield Violation("block-threads", message, f"use {whole}")
    if schedule.items not in (1, 2, 4):
        yield Violation("block-items", f"a thread takes {schedule.items} elements a turn", "use 1, 2 or 4")


def check(spec: KernelSpec) -> list[Violation]:
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    found = list(_signature_rules(spec.signature))
    schedule, known = spec.schedule, of.FAMILIES.get(arch.family, ())
    if type(schedule) not in known:
        names = " or ".join(one.__name__ for one in known) or "another arch"
        return [*found, Violation("pipeline", f"{schedule.pipeline} is no pipeline of {arch.name}", f"use {names}")]
    if isinstance(schedule, VectorSchedule):
        found += _vector_rules(schedule)
    if isinstance(schedule, BlockSchedule):
        found += _block_rules(schedule, arch)
    return found


def grain(spec: KernelSpec) -> int:
    """What the columns must be a multiple of."""
    schedule = spec.schedule
    if isinstance(schedule, VectorSchedule) and not schedule.edge:
        return schedule.unroll * lanes(arch_by_name(spec.arch))
    return 1


def supports(spec: KernelSpec, problem: RowscaleProblem) -> list[Violation]:
    if spec.signature != problem.signature:
        return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}")]
    each = grain(spec)
    if problem.columns % each:
        message = f"columns = {problem.columns} is not a multiple of {each} and the kernel has no edge code"
        return [Violation("no-edge-code", message, "use a kernel with edge code")]
    return []


class CpuFamily:
    """The schedules of a CPU; a pool proposes, legality disposes."""

    def schedules(self, pool: str, signature: Signature, arch: Arch) -> Iterator[Schedule]:
        if pool == "default":
            yield VectorSchedule(unroll=4, rows=16)
            yield VectorSchedule(unroll=1, rows=64)
            yield VectorSchedule(unroll=4, rows=4)
        else:
            for unroll, rows, edge in product((1, 2, 3, 4, 8), (1, 4, 16, 64), (True, False)):
                yield VectorSchedule(unroll=unroll, rows=rows, edge=edge)

    def fallback_schedule(self, signature: Signature, arch: Arch) -> Schedule:
        return LoopsSchedule()

    def signature_rules(self, signature: Signature, arch: Arch) -> Iterator[Violation]:
        return _signature_rules(signature)


class GpuFamily(CpuFamily):
    """The schedules of a GPU, of either vendor."""

    def schedules(self, pool: str, signature: Signature, arch: Arch) -> Iterator[Schedule]:
        for threads in (256, 1024) if pool == "default" else (48, 64, 128, 256, 512, 1024, 2048):
            for items in (1, 4) if pool == "default" else (1, 2, 4):
                yield BlockSchedule(threads=threads, items=items)

    def fallback_schedule(self, signature: Signature, arch: Arch) -> Schedule:
        return BlockSchedule()


GPU = GpuFamily()
POOLS = Pools(of.OP, {"cpu": CpuFamily(), "nvidia": GPU, "cdna": GPU, "rdna": GPU}, check, names=("default", "full"))


AXES = (
    Axis("datatypes", "--datatype", "Element types of x and y."),
    Axis("activations", "--activation", "Fused activations."),
)


def signatures(datatypes: Sequence[str] = ("fp32",), activations: Sequence[str] = ("PassThrough",)) -> list[Signature]:
    """What values of the axes mean; a name that is not known is one error."""
    demand_known("dtype-name", "element type of rowscale", datatypes, of.DTYPES)
    demand_known("activation-name", "activation of rowscale", activations, of.ACTIVATIONS)
    return [Signature(*one) for one in product(datatypes, activations)]


OPTIONS = (
    Option("rows", "Rows of x and y."),
    Option("columns", "Columns of x and y."),
    Option("datatype", "Element type of x and y: fp32 or bf16.", "fp32", str),
    Option("activation", "PassThrough, Relu or Silu.", "PassThrough", str),
    Option("alpha", "Factor of every element.", 1.0, float, scalar=True),
    Option("x_stride", "Elements from row to row of x; 0 is dense.", 0),
    Option("y_stride", "Elements from row to row of y; 0 is dense.", 0),
)


class Rowscale(OpDefaults):
    name = of.OP
    summary = "y[i, j] = activation(alpha * x[i, j] * scale[i])"
    pool_names = POOLS.names
    schedules: tuple[type[Any], ...] = of.SCHEDULES
    axes: tuple[Axis, ...] = AXES
    options: tuple[Option, ...] = OPTIONS
    demo = Demo(problems={"300x1000 fp32": {"rows": 300, "columns": 1000}})

    # -- specs -------------------------------------------------------------------------------------

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return of.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return check(spec)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return POOLS.proposals(pool, arch, signatures(**axes))

    def axes_of(self, signature: Signature) -> dict[str, tuple[Any, ...]]:
        return {"datatypes": (signature.dtype,), "activations": (signature.activation,)}

    def signatures_of(self, text: str) -> Iterator[Signature]:
        return (one for one in signatures(of.DTYPES, of.ACTIVATIONS) if text.startswith(one.label()))

    def fallback_spec(self, signature: Signature, arch: str) -> KernelSpec:
        return POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: Signature, arch: str) -> Sequence[KernelSpec]:
        return POOLS.candidates(signature, arch)

    # -- problems ----------------------------------------------------------------------------------

    def problem(self, values: Mapping[str, Any]) -> RowscaleProblem:
        given = {one.name: values.get(one.name, one.default) for one in OPTIONS if not one.scalar}
        demand_known("dtype-name", "element type of rowscale", [given["datatype"]], of.DTYPES)
        demand_known("activation-name", "activation of rowscale", [given["activation"]], of.ACTIVATIONS)
        return RowscaleProblem(dtype=given.pop("datatype"), **given)

    def problem_from_dict(self, data: Mapping[str, Any]) -> RowscaleProblem:
        made: RowscaleProblem = from_plain(RowscaleProblem, "a rowscale problem", data)
        return made

    def words(self, problem: RowscaleProblem) -> list[str]:
        p, dense = problem, problem.dense()
        found = ["--rows", str(p.rows), "--columns", str(p.columns)]
        for flag, value, usual in (
            ("--datatype", p.dtype, "fp32"),
            ("--activation", p.activation, "PassThrough"),
            ("--x-stride", p.x_stride, dense.x_stride),
            ("--y-stride", p.y_stride, dense.y_stride),
        ):
            found += [flag, str(value)] if value != usual else []
        return found

    def problem_violations(self, problem: RowscaleProblem, arch: str) -> list[Violation]:
        p, found = problem, list(_signature_rules(problem.signature))
        for name in ("rows", "columns"):
            if not 0 <= getattr(p, name) < 1 << 40:
                found.append(Violation("size", f"{name} is {getattr(p, name)}", "sizes are 0 to 2^40"))
        for name in ("x_stride", "y_stride"):
            if getattr(p, name) < p.columns:
                message = f"{name} is {getattr(p, name)}, shorter than a row of {p.columns}"
                found.append(Violation("stride-short", message, f"use {p.columns} or more"))
        return found

    def supports(self, spec: KernelSpec, problem: RowscaleProblem) -> list[Violation]:
        return supports(spec, problem)

    def padded(self, spec: KernelSpec, problem: RowscaleProblem) -> RowscaleProblem | None:
        """The same rows with zeros behind them, which a kernel without edge code serves."""
        if not supports(spec, problem):
            return None
        columns = -(-problem.columns // grain(spec)) * grain(spec)
        larger = replace(problem, columns=columns, x_stride=0, y_stride=0)
        return None if supports(spec, larger) else larger

    def measured_as(self, problem: RowscaleProblem) -> RowscaleProblem:
        return problem.dense()


ROWSCALE: Op = Rowscale()
