"""The one place that says no to a convolution spec.

Rules common to all targets are here and in `ops.rules`; each arch family adds its own from its module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    fallback_schedule     of the fallback kernel
    remarks              optional: what a kernel does on a problem that people should know
    copied               optional: the problem a kernel serves in copies, where that is not the dense channels-last one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.ops import rules
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import DIMENSIONS, OP, VARIANTS, ConvSignature
from tilewright.ops.fused import epilogue_violations
from tilewright.ops.spaces import Spaces

SPACES = Spaces(OP)


def names(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from rules.known("variant-name", "variant", signature.variant, VARIANTS)
    yield from epilogue_violations(signature.epilogue, signature.num_d)
    yield from rules.known_dtypes(signature, ("dtype", "dtype_acc", "dtype_out", "dtype_d"))


def spatial(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.spatial not in DIMENSIONS:
        message = f"a kernel of {signature.spatial} spatial dimensions"
        yield Violation("kernel-rank", message, "use 2 or 3; a problem of one is a 2D problem of height 1")


def fused(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.variant != "forward" and (signature.epilogue != "PassThrough" or signature.num_d):
        message = f"{signature.variant} with {signature.epilogue} and {signature.num_d} D tensors"
        yield Violation("fused-backward", message, "only forward has a fused epilogue")
    if not signature.num_d and signature.dtype_d != signature.dtype_out:
        message = f"dtype_d is {signature.dtype_d} and there is no D tensor"
        yield Violation("dtype-d", message, f"use dtype_d {signature.dtype_out}, as the result is")


def accumulates(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from rules.accumulates(signature.dtype, signature.dtype_acc)


COMMON: tuple[rules.Rule, ...] = (names, rules.words, rules.positive, spatial, fused, accumulates)
LEGALITY = rules.Legality(
    OP, SPACES, COMMON, problem_violations, ConvSignature, of_signature=(names, spatial, fused, accumulates)
)
check, is_legal, problem_check = LEGALITY.check, LEGALITY.is_legal, LEGALITY.problem_check
legal_schedules = LEGALITY.legal_schedules
supports = LEGALITY.supports
spec_from_dict = LEGALITY.spec_from_dict


def remarks(spec: KernelSpec, problem: ConvProblem) -> list[str]:
    """What people should know of a kernel on a problem that it serves."""
    describe: Callable[[ConvSchedule, ConvProblem], list[str]] | None
    describe = getattr(LEGALITY.family_of(spec), "remarks", None)
    return describe(spec.schedule, problem) if describe else []


def padded(spec: KernelSpec, problem: ConvProblem) -> ConvProblem | None:
    """The problem the kernel serves in copies of the operands, where copies fix what it lacks: channels side by side.

    A family's `copied` may ask for more channels or filters a group than there are, which copies fill up with zeros.
    What is laid out backwards in memory is not copied; nor are channels with gaps, but where the space says
    that such copies are fast (`copies_any_layout`).
    """
    if not supports(spec, problem) or min((*problem.x_strides, *problem.w_strides, *problem.y_strides)) < 0:
        return None
    space = SPACES.get(arch_by_name(spec.arch).family)
    if not problem.channels_last and not getattr(space, "copies_any_layout", False):
        return None
    copied: Callable[[ConvSchedule, ConvProblem], ConvProblem] | None
    copied = getattr(LEGALITY.family_of(spec), "copied", None)
    larger = copied(spec.schedule, problem) if copied else problem.dense()
    return larger if larger != problem and not problem_violations(larger) and not supports(spec, larger) else None


def copied_grains(spec: KernelSpec) -> tuple[int, ...] | None:
    """Of a kernel that wants dense copies: whether channels that are not contiguous are copied too.

    None where its family asks for other copies than dense ones: C++ does not make those.
    """
    if getattr(type(LEGALITY.family_of(spec)), "copied", ConvFamily.copied) is not ConvFamily.copied:
        return None
    return (int(getattr(SPACES.get(arch_by_name(spec.arch).family), "copies_any_layout", False)),)
