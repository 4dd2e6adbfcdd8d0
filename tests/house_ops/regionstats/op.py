"""Regionstats behind the contract of `tilewright.ops.base.Op`: rules, pools and problems of both stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from regionstats import problem as problems
from regionstats import spec as of
from regionstats.problem import RegionstatsProblem
from regionstats.spec import CombineSchedule, CombineSignature, GenericSchedule, PartialSchedule, PartialSignature
from tilewright.arch import all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.errors import RequestError, UnknownNameError, nearest
from tilewright.ops.base import Axis, KernelSpec, Option, Violation, from_plain

POOLS = ("default", "full")
FAMILY = "cpu"
Signature = PartialSignature | CombineSignature


def check(spec: KernelSpec) -> list[Violation]:
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    found = []
    if arch.family != FAMILY:
        found.append(Violation("family", f"regionstats has no kernels for {arch.name}", "use an arch of a CPU"))
    s, h = spec.signature, spec.schedule
    if s.dtype not in of.DTYPES:
        found.append(Violation("dtype-name", f"regionstats of {s.dtype}", f"use {', '.join(of.DTYPES)}"))
    known = of.SCHEDULES.get(s.stage, {})
    if known.get(h.pipeline) is not type(h):
        message = f"{type(h).__name__} {h.pipeline!r} is no schedule of stage {s.stage!r}"
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


def schedules(pool: str, stage: str) -> Iterator[PartialSchedule | CombineSchedule]:
    if stage == "partial":
        yield from (PartialSchedule(one) for one in ((4, 2, 1) if pool == "default" else range(1, 9)))
    else:
        yield from (CombineSchedule(one) for one in ((1, 8) if pool == "default" else (1, 2, 4, 8, 16, 32, 64)))


@lru_cache(maxsize=1024)
def candidates(signature: Signature, arch: str) -> tuple[KernelSpec, ...]:
    specs = (KernelSpec(of.OP, signature, one, arch) for one in schedules("default", signature.stage))
    return tuple(spec for spec in specs if not check(spec))


def _demand_known(rule: str, what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnknownNameError(f"{value!r} is not {what}", rule=rule, value=value, remedy=nearest(value, list(known)))


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


class Regionstats:
    name = of.OP
    summary = "mean and peak of channels over regions of different lengths, in two stages"
    pool_names = POOLS
    axes = (
        Axis("stages", "--stage", "Stages: partial, combine."),
        Axis("datatypes", "--datatype", "Element types of x and the peak."),
        Axis("fused", "--fused", "What is fused into partial: none, weight, shift, both."),
    )
    options = OPTIONS

    # -- specs -------------------------------------------------------------------------------------

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return of.spec_from_dict(data)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return check(spec)

    def proposals(
        self,
        pool: str,
        arch: str,
        *,
        stages: Sequence[str] = of.STAGES,
        datatypes: Sequence[str] = ("fp32",),
        fused: Sequence[str] = ("none",),
    ) -> Iterator[KernelSpec]:
        _demand_known("pool-name", "a pool of regionstats", pool, POOLS)
        for one in stages:
            _demand_known("stage-name", "a stage of regionstats", one, of.STAGES)
        for one in datatypes:
            _demand_known("dtype-name", "an element type of regionstats", one, of.DTYPES)
        for one in fused:
            _demand_known("fused-name", "something to fuse into partial", one, ("none", "weight", "shift", "both"))
        arch_by_name(arch)
        signatures: list[Signature] = []
        for datatype in datatypes:
            if "partial" in stages:
                signatures += [
                    PartialSignature(datatype, weight=one in ("weight", "both"), shift=one in ("shift", "both"))
                    for one in fused
                ]
            if "combine" in stages:
                signatures.append(CombineSignature(datatype))
        return (KernelSpec(of.OP, one, how, arch) for one in signatures for how in schedules(pool, one.stage))

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        raise UnknownNameError(
            f"{name!r} is not a preselected set", rule="preselected-name", value=name, remedy="regionstats has none"
        )

    def axes_of(self, signature: Signature) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {"stages": (signature.stage,), "datatypes": (signature.dtype,)}
        if isinstance(signature, PartialSignature):
            names = {(False, False): "none", (True, False): "weight", (False, True): "shift", (True, True): "both"}
            found["fused"] = (names[signature.weight, signature.shift],)
        return found

    def generic_spec(self, signature: Signature, arch: str) -> KernelSpec:
        return KernelSpec(of.OP, signature, GenericSchedule(), arch)

    def candidates(self, signature: Signature, arch: str) -> Sequence[KernelSpec]:
        return candidates(signature, arch)

    # -- problems ----------------------------------------------------------------------------------

    def problem(self, values: Mapping[str, Any]) -> RegionstatsProblem:
        given = {one.name: values.get(one.name, one.default) for one in OPTIONS}
        _demand_known("dtype-name", "an element type of regionstats", given["datatype"], of.DTYPES)
        if given["stage"]:
            _demand_known("stage-name", "a stage of regionstats", given["stage"], of.STAGES)
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

    def signature_of(self, problem: RegionstatsProblem) -> Signature:
        return problem.signature

    def problem_violations(self, problem: RegionstatsProblem, arch: str) -> list[Violation]:
        found = problems.violations(problem)
        if all_archs()[arch].family != FAMILY:
            found.append(Violation("family", f"regionstats has no kernels for {arch}", "use an arch of a CPU"))
        return found

    def supports(self, spec: KernelSpec, problem: RegionstatsProblem) -> list[Violation]:
        if not problem.stage:
            return [Violation("stage", "a kernel computes one stage of the problem", "ask for each stage")]
        if spec.signature != problem.signature:
            return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}")]
        return []

    def padded(self, spec: KernelSpec, problem: RegionstatsProblem) -> RegionstatsProblem | None:
        return None

    def measured_as(self, problem: RegionstatsProblem) -> RegionstatsProblem:
        return problem


REGIONSTATS = Regionstats()
