"""Which specs a request means: a pool, a preselected set or a configuration proposes, filter and legality dispose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.codegen.filter import Filter
from tilewright.errors import RequestError, an
from tilewright.ops import op as op_by_name
from tilewright.ops.base import KernelSpec, Op, Violation
from tilewright.ops.neighbours import Neighbour, as_remedy, neighbours


@dataclass(frozen=True)
class Rejection:
    """A proposal that breaks rules."""

    spec: KernelSpec

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """Every rule it breaks; worked out when somebody asks, since a pool may reject a hundred thousand."""
        return tuple(op_by_name(self.spec.op).check(self.spec))


@dataclass(frozen=True, slots=True)
class Correction:
    """A proposal that broke rules, and the nearest legal kernel that was taken for it."""

    proposal: KernelSpec
    violations: tuple[Violation, ...]
    taken: Neighbour


@dataclass(frozen=True, slots=True)
class SpecSet:
    """The legal specs of a request, in the order proposed, and what happened to the others."""

    specs: tuple[KernelSpec, ...]
    rejected: tuple[Rejection, ...] = ()
    filtered: int = 0  # proposals the filter did not let pass
    repeated: int = 0  # proposals that were made before
    corrected: tuple[Correction, ...] = ()
    configured: bool = False  # the proposals are a person's own, and not those of a pool or a named set

    def rejections_by_rule(self) -> dict[str, tuple[int, Violation]]:
        """How many proposals each rule refused, most first, with one example."""
        counts: Counter[str] = Counter()
        examples: dict[str, Violation] = {}
        for rejection in self.rejected:
            for rule, violation in {violation.rule: violation for violation in rejection.violations}.items():
                counts[rule] += 1
                examples.setdefault(rule, violation)
        return {rule: (count, examples[rule]) for rule, count in counts.most_common()}


def demand_some(selection: SpecSet) -> None:
    """A request that no kernel matches is taken for a mistake; what refused most says what would work."""
    if selection.specs:
        return
    rules = selection.rejections_by_rule()
    why = [f"{selection.filtered} proposals did not pass the filter"] if selection.filtered else []
    why += [f"{count} broke {rule} ({example.message})" for rule, (count, example) in list(rules.items())[:3]]
    first = next((example.remedy for _, example in rules.values()), "")
    near = nearest_legal(selection.rejected[0]) if selection.configured and selection.rejected else ""
    if near:
        first = f"the nearest legal kernels: {near}; --correct takes the first"
    raise RequestError(
        f"no kernel matches: {'; '.join(why) or 'nothing was proposed'}",
        rule="no-specs",
        value=0,
        remedy=f"{first or 'widen the filter or the pool'}; `tilewright specs --why-not` lists every rejection",
    )


def nearest_legal(rejection: Rejection) -> str:
    """What to change of a refused proposal, closest first; empty where nothing helps."""
    return as_remedy(neighbours(op_by_name(rejection.spec.op), rejection.spec))


def split_legal(specs: Iterable[KernelSpec]) -> Iterator[KernelSpec | Rejection]:
    """Each spec as it is when legal, else as a rejection with its reasons."""
    tests: dict[str, Callable[[KernelSpec], bool]] = {}
    for spec in specs:
        is_legal = tests.get(spec.op)
        if is_legal is None:
            is_legal = tests[spec.op] = _legal_test(op_by_name(spec.op))
        yield spec if is_legal(spec) else Rejection(spec)


def _legal_test(op: Op) -> Callable[[KernelSpec], bool]:
    """Whether a spec is legal, the quick way where the op has one."""
    quick: Callable[[KernelSpec], bool] | None = getattr(op, "is_legal", None)
    return quick or (lambda spec: not op.check(spec))


class _Seen:
    """Which specs were there before.  Pools propose all schedules of a signature in a row, and a signature is long to
    hash: it is looked up when it changes."""

    def __init__(self) -> None:
        self._schedules: dict[tuple[str, Any, str], set[Any]] = {}
        self._signature: Any = None
        self._current: set[Any] = set()

    def add(self, spec: KernelSpec) -> bool:
        """Whether it is new."""
        if spec.signature is not self._signature:
            self._signature = spec.signature
            self._current = self._schedules.setdefault((spec.op, spec.signature, spec.arch), set())
        before = len(self._current)
        self._current.add(spec.schedule)
        return len(self._current) > before


def _axes(op: Op, arch: str, axes: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The values of each axis in the op's own spelling; an axis has several, or one by itself."""
    known = {axis.name: axis for axis in op.axes}
    normalized: dict[str, tuple[Any, ...]] = {}
    for name, values in axes.items():
        if name not in known:
            raise RequestError(
                f"{op.name} kernels have no axis {name!r}",
                rule="axis-name",
                value=name,
                remedy=f"use {', '.join(known)}",
            )
        normal = known[name].normal
        listed = (values,) if isinstance(values, (str, int)) else tuple(values)
        kind = known[name].kind
        odd = [item for item in listed if not isinstance(item, kind) or (kind is int and isinstance(item, bool))]
        if odd:
            wanted = "whole numbers" if kind is int else "names"
            example = int(odd[0]) if kind is int and str(odd[0]).isdecimal() else 2 if kind is int else str(odd[0])
            # What is neither a number nor a name says nothing about the name that was meant: the axis does.
            known_form = isinstance(odd[0], (str, int))
            such_as = f"such as {name}=({example!r},)" if known_form else f"each a text: {known[name].help}"
            raise RequestError(
                f"the axis {name} of {op.name} kernels has {wanted}, not {odd[0]!r:.60}",
                rule="axis-value",
                value=odd[0],
                remedy=f"give {wanted}, {such_as}",
            )
        normalized[name] = tuple(normal(item, arch_by_name(arch)) for item in listed) if normal else listed
    return normalized


def _proposals(op: Op, arch: str, source: Mapping[str, Any], axes: Mapping[str, Any]) -> Iterator[KernelSpec]:
    """Those of the one source that was named, else of the pool `default`."""
    sources = {what: value for what, value in source.items() if value not in ("", None)}
    named = [f"the {what} {value}" if isinstance(value, str) else an(what) for what, value in sources.items()]
    if len(named) > 1:
        raise RequestError(
            f"a request is for {' or for '.join(named)}, not for both",
            rule="preselected-pool",
            value=named[0],
            remedy="leave one of them out",
        )
    if source["configuration"] is not None:
        return op.configured(source["configuration"], arch, **axes)
    name = source["preselected set"]
    if name:
        return iter(_narrowed(op, name, list(op.preselected(name, arch)), axes))
    return op.proposals(source["pool"] or "default", arch, **axes)


def _narrowed(op: Op, name: str, specs: list[KernelSpec], axes: Mapping[str, Any]) -> list[KernelSpec]:
    """The specs of a set that have the values asked for; a value that none of them has is a mistake."""
    has = [{axis: [_folded(value) for value in values] for axis, values in op.axes_of(spec.signature).items()}
           for spec in specs]  # fmt: skip
    for axis, values in axes.items():
        for value in values:
            if not any(_folded(value) in fields.get(axis, ()) for fields in has):
                there = {str(known): None for spec in specs for known in op.axes_of(spec.signature).get(axis, ())}
                raise RequestError(
                    f"no kernel of the preselected set {name} has {axis} {value}",
                    rule="preselected-axes",
                    value=value,
                    remedy=f"it has {', '.join(there) or 'no kernels'}; or use a pool",
                )
    wanted = {axis: {_folded(value) for value in values} for axis, values in axes.items()}
    return [
        spec
        for spec, fields in zip(specs, has, strict=True)
        if all(values & set(fields.get(axis, ())) for axis, values in wanted.items())
    ]


def _folded(value: object) -> str:
    return str(value).casefold()


def collect(
    op: str,
    arch: str,
    *,
    pool: str = "",
    preselected: str = "",
    config: Mapping[str, Any] | None = None,
    correct: bool = False,
    expression: str = "",
    limit: int = 0,
    axes: Mapping[str, Any] | None = None,
) -> SpecSet:
    """The legal specs of a pool (`default` when nothing is named), a preselected set or a configuration on an arch.

    A limit of 0 means all.  Illegal proposals never come out as specs; they are listed as rejected, or with `correct`
    their nearest legal neighbours come out for them.  An axis has a tuple of values, or one by itself.
    """
    op_object = op_by_name(op)
    source = {"pool": pool, "preselected set": preselected, "configuration": config}
    proposals = _proposals(op_object, arch, source, _axes(op_object, arch, axes or {}))
    passes = Filter(expression) if expression else None
    specs: dict[KernelSpec, None] = {}
    rejected: list[Rejection] = []
    corrected: list[Correction] = []
    seen = _Seen()
    filtered = repeated = 0

    def wanted() -> Iterator[KernelSpec]:
        nonlocal filtered, repeated
        for spec in proposals:
            if passes is not None and not passes(spec):
                filtered += 1
            elif seen.add(spec):
                yield spec
            else:
                repeated += 1

    for verdict in split_legal(wanted()):
        if isinstance(verdict, KernelSpec):
            specs[verdict] = None
        else:
            near = neighbours(op_object, verdict.spec, 1) if correct else ()
            if near:
                corrected.append(Correction(verdict.spec, verdict.violations, near[0]))
                specs[near[0].spec] = None
            else:
                rejected.append(verdict)
        if limit and len(specs) >= limit:
            break
    return SpecSet(
        tuple(specs), tuple(rejected), filtered, repeated, corrected=tuple(corrected), configured=config is not None
    )
