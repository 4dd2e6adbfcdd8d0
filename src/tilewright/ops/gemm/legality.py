"""The one place that says no to a GEMM spec.

Rules common to all targets are here and in `ops.rules`; each arch family adds its own from its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.ops import rules
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.fused import epilogue_violations
from tilewright.ops.gemm.problem import GemmProblem, problem_violations
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import LAYOUTS, MAX_D, VARIANTS, GemmSignature
from tilewright.ops.spaces import Spaces

SPACES = Spaces("gemm")


def names(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    yield from rules.known("variant-name", "variant", signature.variant, VARIANTS)
    yield from rules.known("layout-name", "layout", signature.layout, LAYOUTS)
    yield from epilogue_violations(signature.epilogue, signature.num_d, gates=True, most=MAX_D)
    yield from rules.known_dtypes(signature, ("dtype_a", "dtype_b", "dtype_acc", "dtype_c", "dtype_d"))


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
            f"variant standard has no fused epilogue, but {signature.epilogue} with {signature.num_d} D was requested",
            "use variant multi_d",
        )
    if signature.variant == "multi_d" and plain:
        yield Violation("variant-epilogue", "variant multi_d with nothing to fuse", "use variant standard")


def two_bs(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.dual and not SPACES[arch.family].family_of(schedule).dual:
        yield Violation(
            "dual-kernel",
            f"{schedule.pipeline} multiplies by one B, and {signature.epilogue} without a D tensor by two",
            "use a family that has both, or give the second product as a D tensor",
        )


def accumulates(signature: GemmSignature, schedule: GemmSchedule, arch: Arch) -> Iterator[Violation]:
    yield from rules.accumulates(signature.dtype_a, signature.dtype_acc)


COMMON: tuple[rules.Rule, ...] = (names, rules.words, rules.positive, divisible, fused, two_bs, accumulates)
LEGALITY = rules.Legality(
    "gemm", SPACES, COMMON, problem_violations, GemmSignature, of_signature=(names, fused, accumulates)
)
check, is_legal, problem_check = LEGALITY.check, LEGALITY.is_legal, LEGALITY.problem_check
legal_schedules = LEGALITY.legal_schedules
supports = LEGALITY.supports
spec_from_dict = LEGALITY.spec_from_dict


def has_dual_kernels(problem: GemmProblem, target: str) -> bool:
    """Whether a family of the target has fast kernels for a problem of two B."""
    arch = arch_by_name(target)
    return any(
        family.dual and family.serves_dual(problem, arch) for family in getattr(SPACES[arch.family], "families", ())
    )


def padded(spec: KernelSpec, problem: GemmProblem) -> GemmProblem | None:
    """The problem the kernel serves in zero-padded, aligned copies of the operands, where copies fix what it lacks.

    A size grows to what the kernel needs; strides and alignment are those of fresh dense buffers.  A packed B stays
    as it is, and so do the sizes it was packed for.
    """
    if not supports(spec, problem):
        return None
    if problem.variant == "preshuffle":
        beside = replace(problem, a_stride=0, c_stride=0, broadcast_a=False, aligned=True, unaligned="")
        return beside if not problem_violations(beside) and not supports(spec, beside) else None
    schedule: GemmSchedule = spec.schedule
    family = LEGALITY.family_of(spec)
    wanted = family.copied_sizes(schedule, problem.signature).grown(problem.m, problem.n, problem.k)
    grains = family.grains(schedule)
    m, n, k = (-(-size // grain) * grain for size, grain in zip(wanted, grains, strict=True))
    larger = replace(
        problem, m=m, n=n, k=k, a_stride=0, b_stride=0, c_stride=0, broadcast_a=False, broadcast_b=False,
        preshuffled=False, aligned=True, unaligned="",
    )  # fmt: skip
    return larger if not problem_violations(larger) and not supports(spec, larger) else None


def copied_grains(spec: KernelSpec) -> tuple[int, ...] | None:
    """What m, n and k of padded copies are multiples of; and on GPUs below which k they have which.

    None where steps and grains do not divide each other.
    """
    family = LEGALITY.family_of(spec)
    wanted = family.copied_sizes(spec.schedule, spec.signature)
    grains = family.grains(spec.schedule)
    if any(max(pair) % min(pair) for pair in zip(wanted.steps, grains, strict=True)):
        return None
    steps = tuple(max(pair) for pair in zip(wanted.steps, grains, strict=True))
    on_host = arch_by_name(spec.arch).backend == "cpu"
    return steps if on_host else (*steps, wanted.short_k, wanted.least_k)


def pack_format(spec: KernelSpec) -> tuple[object, ...]:
    """What the bytes of a packed B depend on; kernels of equal formats read each other's buffers."""
    s = spec.signature
    return (spec.arch, s.dtype_a, s.dtype_b, *LEGALITY.family_of(spec).pack_format(spec.schedule))
