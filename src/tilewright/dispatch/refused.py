"""What a registry says no to: a problem that no kernel serves, and a record whose winner it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.dispatch.records import Record
from tilewright.dispatch.selection import Selection
from tilewright.errors import NoKernelError, RequestError, counted
from tilewright.ops.base import KernelSpec, Op

STRICT = "strict mode refuses the padded and fallback tiers"


def winner_of(op: Op, record: Record, candidates: tuple[KernelSpec, ...], registered: bool) -> KernelSpec | None:
    """The kernel that a record names; None where the registry has no such kernel."""
    for spec in candidates:
        if spec.digest == record.choice:
            return spec
    if registered:
        return None  # the winner is not among the kernels this registry was given
    try:
        spec = op.spec_from_dict(dict(record.winner.spec))
    except RequestError:
        return None  # written before a field changed
    return spec if spec.digest == record.choice and not op.check(spec) else None


def refusal(op: Op, problem: Any, candidates: tuple[KernelSpec, ...], why: str, strict: bool = False) -> NoKernelError:
    """The error of a problem that none of these kernels serves: why each of them does not."""
    reasons = [
        f"{spec.name}: {'; '.join(str(support) for support in op.supports(spec, problem))}" for spec in candidates
    ]
    listing = "".join(f"\n  {reason}" for reason in reasons[:8])
    if len(reasons) > 8:
        listing += f"\n  and {len(reasons) - 8} more"
    unfit = f"{counted(len(reasons), 'kernel')} of its signature cannot serve it:{listing}"
    return NoKernelError(
        f"no kernel for {problem.describe()}: {why}; {unfit if reasons else 'none has its signature'}",
        rule="no-kernel",
        value=tuple(reasons),
        remedy="register a kernel with edge code for it (Registry.add_pool), or allow fallbacks (strict=False)"
        if strict
        else "change the problem as one of these kernels says in its brackets",
    )


def as_fallback(op: Op, problem: Any, chosen: Selection, strict: bool) -> Selection:
    """The choice where an op has one kernel of a signature: of the last tier if that is the fallback kernel.

    Not so of stages that only move or join what others compute (`auxiliary` of their signature): strict mode would
    refuse a problem in parts whose work is done by fast kernels.
    """
    if getattr(chosen.spec.signature, "auxiliary", False):
        return chosen
    if chosen.spec.digest != op.fallback_spec(chosen.spec.signature, chosen.spec.arch).digest:
        return chosen
    if strict:
        what = f"{chosen.spec.signature.label()} on {chosen.spec.arch}"
        raise NoKernelError(
            f"no kernel for {problem.describe()}: {STRICT}; the op has only the fallback kernel for {what}",
            rule="no-kernel",
            value=chosen.name,
            remedy="register a kernel for it (Registry.add), ask for another dtype, layout or target, "
            "or allow fallbacks (strict=False)",
        )
    return replace(chosen, tier="fallback", reason=no_other(chosen.spec))


def no_other(fallback: KernelSpec) -> str:
    """Why the fallback kernel serves a problem, where nothing else could on its arch."""
    return f"the op has no other kernel for {fallback.signature.label()} on {fallback.arch}"


def other_signature(spec: KernelSpec, wanted: Sequence[Any]) -> NoKernelError:
    """The error of a kernel that someone named and that computes something else."""
    labels = ", ".join(signature.label() for signature in wanted)
    return NoKernelError(
        f"{spec.name} computes {spec.signature.label()}, and the call asks for {labels}",
        rule="kernel-signature",
        value=spec.name,
        remedy="describe a problem of its signature",
    )
