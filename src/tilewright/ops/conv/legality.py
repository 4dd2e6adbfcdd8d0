"""The one place that says no to a convolution spec.

Rules common to all targets are here; each arch family adds its own from its module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    generic_schedule     the floor
    copied               optional: the problem a kernel serves in copies, where that is not the dense channels-last one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import DTYPES
from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.base import KernelSpec, Violation, read_spec
from tilewright.ops.conv import amd, cpu, nvidia
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import DIMENSIONS, OP, VARIANTS, ConvSignature, accumulator
from tilewright.ops.fused import epilogue_violations

FAMILIES: dict[str, ModuleType] = {"cpu": cpu, "cdna": amd, "rdna": amd, "nvidia": nvidia}
SCHEDULES: tuple[type[Any], ...] = tuple(dict.fromkeys(one for each in FAMILIES.values() for one in each.SCHEDULES))

Rule = Callable[[ConvSignature, ConvSchedule, Arch], Iterator[Violation]]


def _known(rule: str, what: str, value: str, known: tuple[str, ...] | list[str]) -> Iterator[Violation]:
    if value not in known:
        yield Violation(rule, f"{what} {value!r} is not known", nearest(value, list(known)))


def names(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from _known("variant-name", "variant", signature.variant, VARIANTS)
    yield from epilogue_violations(signature.epilogue, signature.num_d)
    for field in ("dtype", "dtype_acc", "dtype_out", "dtype_d"):
        yield from _known("dtype-name", field, getattr(signature, field), list(DTYPES))


def words(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    for field, known in schedule.words.items():
        yield from _known("schedule-name", field, getattr(schedule, field), known)


@lru_cache(maxsize=64)
def _numbers(kind: Any) -> tuple[tuple[str, int | None, str, int], ...]:
    """Field, place in it, name for people and least value of every number of a schedule."""
    found: list[tuple[str, int | None, str, int]] = []
    hints, named = get_type_hints(kind), getattr(kind, "axis_names", {})
    for one in fields(kind):
        least = 0 if one.name in kind.may_be_zero else 1
        if hints[one.name] is int:
            found.append((one.name, None, one.name, least))
        elif get_origin(hints[one.name]) is tuple and get_args(hints[one.name])[0] is int:
            axes = named.get(one.name) or tuple(map(str, range(len(get_args(hints[one.name])))))
            found.extend((one.name, place, f"{one.name}_{axis}", least) for place, axis in enumerate(axes))
    return tuple(found)


def positive(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    kind: Any = type(schedule)
    for field, place, name, least in _numbers(kind):
        value = getattr(schedule, field)
        number = value if place is None else value[place]
        if number < least:
            yield Violation("positive", f"{name} is {number}", f"use {least} or more")


def spatial(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.spatial not in DIMENSIONS:
        message = f"a kernel of {signature.spatial} spatial dimensions"
        yield Violation("kernel-rank", message, "use 2 or 3; a problem of one is a 2D problem of height 1")


def fused(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.variant != "forward" and (signature.epilogue != "PassThrough" or signature.num_d):
        message = f"{signature.variant} with {signature.epilogue} and {signature.num_d} D tensors"
        yield Violation("fused-backward", message, "only forward has fused work")
    if not signature.num_d and signature.dtype_d != signature.dtype_out:
        message = f"dtype_d is {signature.dtype_d} and there is no D tensor"
        yield Violation("dtype-d", message, f"use dtype_d {signature.dtype_out}, as the result is")


def accumulates(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    expected = accumulator(signature.dtype)
    if signature.dtype_acc != expected:
        message = f"{signature.dtype} accumulates in {expected}, not {signature.dtype_acc}"
        yield Violation("accumulator", message, f"use dtype_acc {expected}")


COMMON: tuple[Rule, ...] = (names, words, positive, spatial, fused, accumulates)


def check(spec: KernelSpec) -> list[Violation]:
    """Every rule the spec breaks; empty means legal."""
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    family = FAMILIES.get(arch.family)
    if family is None:
        return [_no_family(arch)]
    kinds = family.SCHEDULES
    if type(spec.schedule) not in kinds:
        mine = ", ".join(one.__name__ for one in kinds)
        return [Violation("schedule-family", f"{arch.name} has no {type(spec.schedule).__name__}", f"use {mine}")]
    found = [one for rule in COMMON for one in rule(spec.signature, spec.schedule, arch)]
    if any(one.rule.endswith("-name") or one.rule == "positive" for one in found):
        return found  # the family's arithmetic would only echo these
    return found + [one for rule in family.RULES for one in rule(spec.signature, spec.schedule, arch)]


def _no_family(arch: Arch) -> Violation:
    return Violation("family", f"conv has no kernels for {arch.family} yet", "use a cpu arch")


def problem_check(problem: ConvProblem, arch_name: str) -> list[Violation]:
    """Why no kernel of the arch could serve the problem; empty means it is legal."""
    found = problem_violations(problem)
    if found:
        return found
    arch = arch_by_name(arch_name)
    family = FAMILIES.get(arch.family)
    return [_no_family(arch)] if family is None else list(family.signature_rules(problem.signature, arch))


def supports(spec: KernelSpec, problem: ConvProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if spec.signature != problem.signature:
        return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}", "")]
    return list(FAMILIES[arch_by_name(spec.arch).family].limits(spec.schedule, problem))


def padded(spec: KernelSpec, problem: ConvProblem) -> ConvProblem | None:
    """The problem the kernel serves in copies of the operands, where copies mend what it lacks: channels side by side.

    A family's `copied` may ask for more channels or filters a group than there are, which copies fill up with zeros.
    What is laid out backwards in memory is not copied; nor are channels that lie apart on a GPU, where nothing but
    rows is copied at more than a crawl.
    """
    if not supports(spec, problem) or min((*problem.x_strides, *problem.w_strides, *problem.y_strides)) < 0:
        return None
    arch = arch_by_name(spec.arch)
    if arch.family != "cpu" and not problem.channels_last:
        return None
    family = FAMILIES[arch.family]
    copied: Callable[[ConvSchedule, ConvProblem], ConvProblem] | None = getattr(family, "copied", None)
    larger = copied(spec.schedule, problem) if copied else problem.dense()
    return larger if larger != problem and not problem_violations(larger) and not supports(spec, larger) else None


def schedule_class(arch: str, given: Mapping[str, Any]) -> type[Any]:
    """The dataclass that a pipeline of an arch belongs to."""
    family, pipeline = FAMILIES.get(arch_by_name(arch).family), given.get("pipeline")
    by_pipeline = {name: one for one in (family.SCHEDULES if family else ()) for name in one.pipelines}
    found: type[Any] | None = by_pipeline.get(pipeline) if isinstance(pipeline, str) else None
    if found is None:
        raise UnknownNameError(
            f"{pipeline!r} is not a conv pipeline of {arch}",
            rule="pipeline-name",
            value=pipeline,
            remedy=nearest(str(pipeline), list(by_pipeline)),
        )
    return found


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, OP, ConvSignature, schedule_class)
