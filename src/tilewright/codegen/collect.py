"""Which specs a request means: a pool or a preselected set proposes, the filter and legality dispose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.filter import Filter
from tilewright.errors import RequestError
from tilewright.ops import op as op_by_name
from tilewright.ops.base import KernelSpec, Op, Violation


@dataclass(frozen=True, slots=True)
class Rejection:
    """A proposal that broke rules, with every rule it broke."""

    spec: KernelSpec
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class SpecSet:
    """The legal specs of a request, in the order proposed, and what happened to the others."""

    specs: tuple[KernelSpec, ...]
    rejected: tuple[Rejection, ...] = ()
    filtered: int = 0  # proposals the filter did not let pass
    repeated: int = 0  # proposals that were made before

    def rejections_by_rule(self) -> dict[str, tuple[int, Violation]]:
        """How many proposals each rule refused, most first, with one example."""
        counts: Counter[str] = Counter()
        examples: dict[str, Violation] = {}
        for rejection in self.rejected:
            for rule, violation in {one.rule: one for one in rejection.violations}.items():
                counts[rule] += 1
                examples.setdefault(rule, violation)
        return {rule: (count, examples[rule]) for rule, count in counts.most_common()}


def demand_some(selection: SpecSet) -> None:
    """A request that means no kernel is taken for a mistake; what refused most says what would work."""
    if selection.specs:
        return
    rules = selection.rejections_by_rule()
    why = [f"{selection.filtered} proposals did not pass the filter"] if selection.filtered else []
    why += [f"{count} broke {rule} ({example.message})" for rule, (count, example) in list(rules.items())[:3]]
    first = next((example.remedy for _, example in rules.values()), "") if not selection.filtered else ""
    raise RequestError(
        f"the request means no kernel: {'; '.join(why) or 'nothing was proposed'}",
        rule="no-specs",
        value=0,
        remedy=f"{first or 'widen the filter or the pool'}; `tilewright specs --why-not` lists every rejection",
    )


def split_legal(specs: Iterable[KernelSpec]) -> Iterator[KernelSpec | Rejection]:
    """Each spec as it is when legal, else as a rejection with its reasons."""
    ops: dict[str, Op] = {}
    for spec in specs:
        op = ops.setdefault(spec.op, op_by_name(spec.op))
        violations = op.check(spec)
        yield Rejection(spec, tuple(violations)) if violations else spec


def _proposals(op: Op, arch: str, pool: str, preselected: str, axes: Mapping[str, Any]) -> Iterator[KernelSpec]:
    known = [one.name for one in op.axes]
    for axis in axes:
        if axis not in known:
            raise RequestError(
                f"{op.name} kernels have no axis {axis!r}",
                rule="axis-name",
                value=axis,
                remedy=f"use {', '.join(known)}",
            )
    if not preselected:
        return op.proposals(pool or "default", arch, **axes)
    if pool:
        raise RequestError(
            f"a request is for the pool {pool} or for the preselected set {preselected}, not for both",
            rule="preselected-pool",
            value=pool,
            remedy="leave one of them out",
        )
    return iter(_narrowed(op, preselected, list(op.preselected(preselected, arch)), axes))


def _narrowed(op: Op, name: str, specs: list[KernelSpec], axes: Mapping[str, Any]) -> list[KernelSpec]:
    """The specs of a set that have the values asked for; a value that none of them has is a mistake."""
    has = [{axis: [_folded(one) for one in values] for axis, values in op.axes_of(spec.signature).items()}
           for spec in specs]  # fmt: skip
    for axis, values in axes.items():
        for value in values:
            if not any(_folded(value) in one.get(axis, ()) for one in has):
                there = {str(one): None for spec in specs for one in op.axes_of(spec.signature).get(axis, ())}
                raise RequestError(
                    f"no kernel of the preselected set {name} has {axis} {value}",
                    rule="preselected-axes",
                    value=value,
                    remedy=f"it has {', '.join(there) or 'no kernels'}; or use a pool",
                )
    wanted = {axis: {_folded(one) for one in values} for axis, values in axes.items()}
    return [
        spec
        for spec, one in zip(specs, has, strict=True)
        if all(values & set(one.get(axis, ())) for axis, values in wanted.items())
    ]


def _folded(value: object) -> str:
    return str(value).casefold()


def collect(
    op: str,
    arch: str,
    *,
    pool: str = "",
    preselected: str = "",
    expression: str = "",
    limit: int = 0,
    axes: Mapping[str, Any] | None = None,
) -> SpecSet:
    """The legal specs of a pool (`default` when none is named) or a preselected set on an arch.

    A limit of 0 means all.  Illegal proposals never come out as specs; they are listed as rejected.  An axis has a
    tuple of values, or one by itself.
    """
    listed = {name: (one,) if isinstance(one, (str, int)) else one for name, one in (axes or {}).items()}
    proposals = _proposals(op_by_name(op), arch, pool, preselected, listed)
    passes = Filter(expression) if expression else None
    specs: list[KernelSpec] = []
    rejected: list[Rejection] = []
    seen: set[KernelSpec] = set()
    filtered = repeated = 0

    def wanted() -> Iterator[KernelSpec]:
        nonlocal filtered, repeated
        for spec in proposals:
            if passes is not None and not passes(spec):
                filtered += 1
            elif spec in seen:
                repeated += 1
            else:
                seen.add(spec)
                yield spec

    for found in split_legal(wanted()):
        if isinstance(found, Rejection):
            rejected.append(found)
        else:
            specs.append(found)
            if limit and len(specs) >= limit:
                break
    return SpecSet(tuple(specs), tuple(rejected), filtered, repeated)
