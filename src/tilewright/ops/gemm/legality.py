"""The one place that says no to a GEMM spec.

Rules common to all targets are here; each arch family adds its own from its module.  A rule is a
function that yields violations, so that one spec can be told everything that is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import lru_cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from tilewright.arch import Arch, all_archs
from tilewright.dtypes import DTYPES
from tilewright.errors import nearest
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.fused import epilogue_violations
from tilewright.ops.gemm import amd, cpu, nvidia
from tilewright.ops.gemm.problem import GemmProblem, accumulator, problem_violations
from tilewright.ops.gemm.schedule import SCHEDULES, GemmSchedule
from tilewright.ops.gemm.spec import LAYOUTS, VARIANTS, GemmSignature

FAMILIES: dict[str, ModuleType] = {"cpu": cpu, "cdna": amd, "rdna": amd, "nvidia": nvidia}

Rule = Callable[[GemmSignature, GemmSchedule, Arch], Iterator[Violation]]


def _known(rule: str, what: str, value: str, known: tuple[str, ...] | list[str]) -> Iterator[Violation]:
    if value not in known:
        yield Violation(rule, f"{what} {value!r} is not known", nearest(value, list(known)))


def names(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    yield from _known("variant-name", "variant", signature.variant, VARIANTS)
    yield from _known("layout-name", "layout", signature.layout, LAYOUTS)
    yield from epilogue_violations(signature.epilogue, signature.num_d)
    for field in ("dtype_a", "dtype_b", "dtype_acc", "dtype_c", "dtype_d"):
        yield from _known("dtype-name", field, getattr(signature, field), list(DTYPES))


def words(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    for field, known in schedule.words.items():
        yield from _known("schedule-name", field, getattr(schedule, field), known)


@lru_cache(maxsize=64)
def _numbers(kind: Any) -> tuple[tuple[str, int | None, str, int], ...]:
    """Field, place in it, name for people and least value of every number of a schedule."""
    found: list[tuple[str, int | None, str, int]] = []
    hints = get_type_hints(kind)
    for one in fields(kind):
        least = 0 if one.name in kind.may_be_zero else 1
        if hints[one.name] is int:
            found.append((one.name, None, one.name, least))
        elif get_origin(hints[one.name]) is tuple and get_args(hints[one.name])[0] is int:
            axes = kind.axis_names[one.name]
            found.extend((one.name, place, f"{one.name}_{axis}", least) for place, axis in enumerate(axes))
    return tuple(found)


def positive(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    kind: Any = type(schedule)
    for field, place, name, least in _numbers(kind):
        value = getattr(schedule, field)
        number = value if place is None else value[place]
        if number < least:
            yield Violation("positive", f"{name} is {number}", f"use {least} or more")


def divisible(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    for i, axis in enumerate("mnk"):
        step = schedule.warp_tile[i] * schedule.warp_grid[i]
        if step > 0 and schedule.tile[i] % step:
            below = schedule.tile[i] // step * step
            yield Violation(
                "tile-multiple",
                f"tile_{axis} {schedule.tile[i]} is not a multiple of warp_grid_{axis} * warp_tile_{axis} = {step}",
                f"use tile_{axis} {f'{below} or ' if below > 0 else ''}{max(below, 0) + step}",
            )


def fused(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    plain = signature.epilogue == "PassThrough" and signature.num_d == 0
    if signature.variant == "standard" and not plain:
        yield Violation(
            "variant-epilogue",
            f"variant standard has no fused epilogue, but {signature.epilogue} with {signature.num_d} D was asked",
            "use variant multi_d",
        )
    if signature.variant == "multi_d" and plain:
        yield Violation("variant-epilogue", "variant multi_d with nothing to fuse", "use variant standard")


def accumulates(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    expected = accumulator(signature.dtype_a)
    if signature.dtype_acc != expected:
        yield Violation(
            "accumulator",
            f"{signature.dtype_a} accumulates in {expected}, not {signature.dtype_acc}",
            f"use dtype_acc {expected}",
        )


COMMON: tuple[Rule, ...] = (names, words, positive, divisible, fused, accumulates)


def check(spec: KernelSpec) -> list[Violation]:
    """Every rule the spec breaks; empty means legal."""
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    family = FAMILIES.get(arch.family)
    if family is None:
        return [Violation("family", f"gemm has no kernels for {arch.family} yet", "use a cpu arch")]
    kinds = SCHEDULES[arch.family]
    if type(spec.schedule) not in kinds:
        mine = ", ".join(one.__name__ for one in kinds)
        return [Violation("schedule-family", f"{arch.name} has no {type(spec.schedule).__name__}", f"use {mine}")]
    found = [one for rule in COMMON for one in rule(spec.signature, spec.schedule, arch)]
    if any(one.rule.endswith("-name") or one.rule == "positive" for one in found):
        return found  # the family's arithmetic would only echo these
    return found + [one for rule in family.RULES for one in rule(spec.signature, spec.schedule, arch)]


def problem_check(problem: GemmProblem, arch_name: str) -> list[Violation]:
    """Why no kernel of the arch could serve the problem; empty means it is legal."""
    found = problem_violations(problem)
    if found:
        return found
    arch = all_archs()[arch_name]
    family = FAMILIES.get(arch.family)
    if family is None:
        return [Violation("family", f"gemm has no kernels for {arch.family} yet", "use a cpu arch")]
    return list(family.signature_rules(problem.signature, arch))


def supports(spec: KernelSpec, problem: GemmProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if spec.signature != problem.signature:
        return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}", "")]
    schedule: GemmSchedule = spec.schedule
    name = all_archs()[spec.arch].family
    family = FAMILIES[name]
    found: list[Violation] = list(family.limits(schedule, problem))
    if name != "cpu" and 0 in (problem.m, problem.n, problem.batch):
        return found  # a device is not even asked
    other = "give b unpacked" if problem.preshuffled else "use a kernel with pad_{}"
    for axis, grain in zip("mnk", family.grains(schedule), strict=True):
        size = getattr(problem, axis)
        if size % grain:
            found.append(
                Violation(
                    "no-edge-code",
                    f"{axis} = {size} is not a multiple of {grain} and the kernel has no edge code along {axis}",
                    f"pad {axis} to {-(-size // grain) * grain}, or {other.format(axis)}",
                )
            )
    return found


def padded(spec: KernelSpec, problem: GemmProblem) -> GemmProblem | None:
    """The problem the kernel serves in zero-padded, aligned copies of the operands, where copies mend what it lacks.

    A size grows to what the kernel needs; strides and alignment are those of fresh dense buffers.  A packed B stays
    as it is, and so do the sizes it was packed for.
    """
    if not supports(spec, problem):
        return None
    if problem.variant == "preshuffle":
        beside = replace(problem, a_stride=0, c_stride=0, broadcast_a=False, aligned=True)
        return beside if not problem_violations(beside) and not supports(spec, beside) else None
    schedule: GemmSchedule = spec.schedule
    family = FAMILIES[all_archs()[spec.arch].family]
    wanted, grains = family.copied_sizes(schedule, problem), family.grains(schedule)
    m, n, k = (-(-size // grain) * grain for size, grain in zip(wanted, grains, strict=True))
    larger = replace(
        problem, m=m, n=n, k=k, a_stride=0, b_stride=0, c_stride=0, broadcast_a=False, broadcast_b=False,
        preshuffled=False, aligned=True,
    )  # fmt: skip
    return larger if not problem_violations(larger) and not supports(spec, larger) else None


def pack_format(spec: KernelSpec) -> tuple[object, ...]:
    """What the bytes of a packed B depend on; kernels of equal formats read each other's buffers."""
    s = spec.signature
    family = FAMILIES[all_archs()[spec.arch].family]
    return (spec.arch, s.dtype_a, s.dtype_b, *family.pack_format(spec.schedule))
