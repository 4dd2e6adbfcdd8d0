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
    return (spec if is_legal else Rejection(spec) for spec, is_legal in _judged(specs))


def _judged(specs: Iterable[KernelSpec]) -> Iterator[tuple[KernelSpec, bool]]:
    """Each spec, and whether it is legal.  Pools propose all schedules of a signature in a row: what is legal of it is
    asked when it changes."""
    signature: Any = None
    name = arch = ""
    is_legal: Callable[[Any], bool] | None = None
    for spec in specs:
        if spec.signature is not signature or spec.op != name or spec.arch != arch:
            signature, name, arch = spec.signature, spec.op, spec.arch
            quick = getattr(op_by_name(name), "legal_schedules", None)
            is_legal = quick(signature, arch) if quick is not None else None
        yield spec, is_legal(spec.schedule) if is_legal is not None else not op_by_name(name).check(spec)


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


class _Wanted:
    """The proposals of a request that pass its filter, each once."""

    def __init__(self, proposals: Iterator[KernelSpec], passes: Filter | None) -> None:
        self._proposals, self._passes = proposals, passes
        self.filtered = self.repeated = 0

    def __iter__(self) -> Iterator[KernelSpec]:
        passes, seen = self._passes, _Seen()
        for spec in self._proposals:
            if passes is not None and not passes(spec):
                self.filtered += 1
            elif seen.add(spec):
                yield spec
            else:
                self.repeated += 1


def _wanted(
    op: str, arch: str, pool: str, preselected: str, config: Mapping[str, Any] | None, expression: str,
    axes: Mapping[str, Any] | None,
) -> _Wanted:  # fmt: skip
    op_object = op_by_name(op)
    source = {"pool": pool, "preselected set": preselected, "configuration": config}
    proposals = _proposals(op_object, arch, source, _axes(op_object, arch, axes or {}))
    return _Wanted(proposals, Filter(expression) if expression else None)


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

    A limit of 0 means all.  Illegal proposals are never returned as specs; they are listed as rejected, or with
    `correct` their nearest legal neighbours are returned instead.  An axis has a tuple of values, or one by itself.
    """
    specs: dict[KernelSpec, None] = {}
    rejected: list[Rejection] = []
    corrected: list[Correction] = []
    wanted = _wanted(op, arch, pool, preselected, config, expression, axes)
    for verdict in split_legal(wanted):
        if isinstance(verdict, KernelSpec):
            specs[verdict] = None
        else:
            near = neighbours(op_by_name(op), verdict.spec, 1) if correct else ()
            if near:
                corrected.append(Correction(verdict.spec, verdict.violations, near[0]))
                specs[near[0].spec] = None
            else:
                rejected.append(verdict)
        if limit and len(specs) >= limit:
            break
    return SpecSet(
        tuple(specs), tuple(rejected), wanted.filtered, wanted.repeated, corrected=tuple(corrected),
        configured=config is not None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tally:
    """How many specs a request means."""

    specs: int
    rejected: int
    filtered: int


def tally(op: str, arch: str, *, pool: str = "", preselected: str = "", config: Mapping[str, Any] | None = None,
          expression: str = "", limit: int = 0, axes: Mapping[str, Any] | None = None) -> Tally:  # fmt: skip
    """How many specs `collect` would return of the same request; it keeps none of them, which halves the time."""
    wanted = _wanted(op, arch, pool, preselected, config, expression, axes)
    specs = rejected = 0
    for _, is_legal in _judged(wanted):
        if is_legal:
            specs += 1
            if specs == limit:
                break
        else:
            rejected += 1
    return Tally(specs, rejected, wanted.filtered)
