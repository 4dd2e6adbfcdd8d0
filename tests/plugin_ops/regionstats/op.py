"""Regionstats behind the contract of `tilewright.ops.base.Op`: rules, pools and problems of both stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regionstats import problem as problems
from regionstats import spec as of
from regionstats.problem import RegionstatsProblem
from regionstats.spec import CombineSchedule, CombineSignature, LoopsSchedule, PartialSchedule, PartialSignature
from tilewright.arch import Arch, all_archs
from tilewright.errors import RequestError, nearest
from tilewright.ops.base import Axis, KernelSpec, Op, OpDefaults, Option, Violation, from_plain
from tilewright.ops.pooling import Pools, demand_known

Signature = PartialSignature | CombineSignature


def check(spec: KernelSpec) -> list[Violation]:
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    s, h = spec.signature, spec.schedule
    found = list(CPU.signature_rules(s, arch))
    if arch.family != "cpu":
        found.append(Violation("family", f"regionstats has no kernels for {arch.name}", "use an arch of a CPU"))
    known = of.SCHEDULES.get(s.stage, {})
    if known.get(h.pipeline) is not type(h):
        message = f"{h.pipeline} is no pipeline of stage {s.stage}"
        return [*found, Violation("stage-pipeline", message, f"use {' or '.join(known) or ' or '.join(of.STAGES)}")]
    if isinstance(h, PartialSchedule):
        # A sum, a maximum, a weight and a shift for each, and three to work with.
        need, most = 4 * h.vectors + 3, (arch.vector_registers - 3) // 4
        if h.vectors < 1 or need > max(7, arch.vector_registers):
            message = f"{h.vectors} vectors need {need} registers, {arch.name} has {arch.vector_registers}"
            found.append(Violation("registers", message, f"use 1 to {most}"))
    if isinstance(h, CombineSchedule) and not 1 <= h.entries <= 64:
        found.append(Violation("combine-entries", f"{h.entries} entries at a time", "use 1 to 64"))
    return found


class CpuFamily:
    """The schedules of each stage."""

    def schedules(self, pool: str, signature: Signature, arch: Arch) -> Iterator[PartialSchedule | CombineSchedule]:
        if signature.stage == "partial":
            yield from (PartialSchedule(one) for one in ((4, 2, 1) if pool == "default" else range(1, 9)))
        else:
            yield from (CombineSchedule(one) for one in ((1, 8) if pool == "default" else (1, 2, 4, 8, 16, 64, 128)))

    def fallback_schedule(self, signature: Signature, arch: Arch) -> LoopsSchedule:
        return LoopsSchedule()

    def signature_rules(self, signature: Signature, arch: Arch) -> Iterator[Violation]:
        if signature.dtype not in of.DTYPES:
            yield Violation("dtype-name", f"regionstats of {signature.dtype}", f"use {', '.join(of.DTYPES)}")


FUSED = {"none": (False, False), "weight": (True, False), "shift": (False, True), "both": (True, True)}
CPU = CpuFamily()
POOLS = Pools(of.OP, {"cpu": CPU}, check, names=("default", "full"))


def signatures(
    stages: Sequence[str] = of.STAGES, datatypes: Sequence[str] = ("fp32",), fused: Sequence[str] = ("none",)
) -> list[Signature]:
    """What values of the axes mean; a name that is not known is one error."""
    demand_known("stage-name", "stage of regionstats", stages, of.STAGES)
    demand_known("dtype-name", "element type of regionstats", datatypes, of.DTYPES)
    demand_known("fused-name", "thing to fuse into partial", fused, list(FUSED))
    found: list[Signature] = []
    if "partial" in stages:
        found += [PartialSignature(one, *FUSED[what]) for one in datatypes for what in fused]
    if "combine" in stages:
        found += [CombineSignature(one) for one in datatypes]
    return found


def _sizes(option: str, text: str) -> tuple[int, ...]:
    parts = [one.strip() for one in text.split("x")]
    if not all(one.isdecimal() for one in parts):
        raise RequestError(
            f"--{option} {text!r} is not sizes", rule="option-value", value=text, remedy=f"--{option} 64x64"
        )
    return tuple(int(one) for one in parts)


OPTIONS = (
    Option("n", "Entries of the batch."),
    Option("spatial", "One to three spatial sizes, such as 64x64.", kind=str),
    Option("channels", "Channels."),
    Option("datatype", "Element type of x and the peak: fp32, fp16 or bf16.", "fp32", str),
    Option("dilation", "Every how many-th index takes part, such as 2x1; by default every one.", "", str),
    Option("weight", "A factor for each channel.", False, bool),
    Option("shift", "A summand for each channel.", False, bool),
    Option("stage", "One stage alone: partial or combine.", "", str),
    Option("scale", "Factor of x.", 1.0, float, scalar=True),
)


class Regionstats(OpDefaults):
    name = of.OP
    summary = "mean and peak of channels over regions of different lengths, in two stages"
    pool_names = POOLS.names
    schedules: tuple[type[Any], ...] = (LoopsSchedule, PartialSchedule, CombineSchedule)
    axes: tuple[Axis, ...] = (
        Axis("stages", "--stage", "Stages: partial, combine."),
        Axis("datatypes", "--datatype", "Element types of x and the peak."),
        Axis("fused", "--fused", "What is fused into partial: none, weight, shift, both."),
    )
    options: tuple[Option, ...] = OPTIONS

    # -- specs -------------------------------------------------------------------------------------

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return of.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return check(spec)

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        return POOLS.proposals(pool, arch, signatures(**axes))

    def axes_of(self, signature: Signature) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {"stages": (signature.stage,), "datatypes": (signature.dtype,)}
        if isinstance(signature, PartialSignature):
            names = {value: name for name, value in FUSED.items()}
            found["fused"] = (names[signature.weight, signature.shift],)
        return found

    def signatures_of(self, text: str) -> Iterator[Signature]:
        every = signatures(datatypes=of.DTYPES, fused=list(FUSED))
        return (one for one in every if text.startswith(one.label()))

    def fallback_spec(self, signature: Signature, arch: str) -> KernelSpec:
        return POOLS.fallback_spec(signature, arch)

    def candidates(self, signature: Signature, arch: str) -> Sequence[KernelSpec]:
        return POOLS.candidates(signature, arch)

    # -- problems ----------------------------------------------------------------------------------

    def problem(self, values: Mapping[str, Any]) -> RegionstatsProblem:
        given = {one.name: values.get(one.name, one.default) for one in OPTIONS}
        demand_known("dtype-name", "element type of regionstats", [given["datatype"]], of.DTYPES)
        demand_known("stage-name", "stage of regionstats", [given["stage"]], ("", *of.STAGES))
        return RegionstatsProblem(
            n=given["n"],
            spatial=_sizes("spatial", given["spatial"]),
            channels=given["channels"],
            dtype=given["datatype"],
            dilation=_sizes("dilation", given["dilation"]) if given["dilation"] else (),
            weight=given["weight"],
            shift=given["shift"],
            stage=given["stage"],
        )

    def problem_from_dict(self, data: Mapping[str, Any]) -> RegionstatsProblem:
        made: RegionstatsProblem = from_plain(RegionstatsProblem, "a regionstats problem", data)
        return made

    def words(self, problem: RegionstatsProblem) -> list[str]:
        p = problem
        found = ["--n", str(p.n), "--spatial", "x".join(map(str, p.spatial)), "--channels", str(p.channels)]
        found += ["--datatype", p.dtype] if p.dtype != "fp32" else []
        found += ["--dilation", "x".join(map(str, p.dilation))] if set(p.dilation) != {1} else []
        found += ["--weight"] * p.weight + ["--shift"] * p.shift
        return found + (["--stage", p.stage] if p.stage else [])

    def stages(self, problem: RegionstatsProblem, arch: str) -> Sequence[RegionstatsProblem]:
        return (problem,) if problem.stage else tuple(problem.at(one) for one in of.STAGES)

    def problem_violations(self, problem: RegionstatsProblem, arch: str) -> list[Violation]:
        found = problems.violations(problem)
        if all_archs()[arch].family != "cpu":
            found.append(Violation("family", f"regionstats has no kernels for {arch}", "use an arch of a CPU"))
        return found

    def supports(self, spec: KernelSpec, problem: RegionstatsProblem) -> list[Violation]:
        if not problem.stage:
            return [Violation("stage", "a kernel computes one stage of the problem", "select a kernel for each stage")]
        if spec.signature != problem.signature:
            return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}")]
        return []


REGIONSTATS: Op = Regionstats()
