"""What every op is made of: spec, violation, problem, and the contract the rest of the house uses.

A spec is identity: its JSON is canonical (sorted keys, every field), its digest is the hash of that
JSON, and its name is derived and never read back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

from tilewright.errors import IllegalSpecError, RequestError, nearest

SPEC_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, a sentence with the value, and what would work."""

    rule: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"[{self.rule}] {self.message}" + (f" ({self.remedy})" if self.remedy else "")


class Signature(Protocol):
    """What a kernel computes.  A frozen dataclass; equal signatures are interchangeable."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Schedule(Protocol):
    """How it is computed.  A frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def plain(value: object) -> Any:
    """A dataclass as JSON-ready data: dicts, lists, numbers, strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return value


def _fits(value: object, kind: Any) -> bool:
    """Whether a value read from JSON (lists already tuples) is what the field's annotation says."""
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    return type(value) is kind


_kinds: dict[type, dict[str, Any]] = {}  # the annotations of each dataclass, read once


def from_plain(cls: type[Any], what: str, data: object) -> Any:
    """A dataclass back from `plain` data; a field too many, too few or of another type is an error by name."""
    if not isinstance(data, Mapping):
        raise RequestError(
            f"{what} is {type(data).__name__}, not an object",
            rule="spec-field",
            value=data,
            remedy="give its fields by name",
        )
    fields = {one.name: one for one in dataclasses.fields(cls)}
    kinds = _kinds.get(cls)
    if kinds is None:
        kinds = _kinds[cls] = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, given in data.items():
        if name not in fields:
            raise RequestError(
                f"{what} has no field {name!r}",
                rule="spec-field",
                value=name,
                remedy=nearest(str(name), sorted(fields)),
            )
        values[name] = tuple(given) if isinstance(given, list) else given
        if not _fits(values[name], kinds[name]):
            kind = kinds[name]
            raise RequestError(
                f"field {name!r} of {what} cannot be {given!r}",
                rule="spec-field",
                value=given,
                remedy=f"give a {kind.__name__ if isinstance(kind, type) else kind}",
            )
    for name, one in fields.items():
        if name not in values and one.default is dataclasses.MISSING:
            raise RequestError(
                f"{what} lacks the field {name!r}", rule="spec-field", value=name, remedy=f"give {name!r}"
            )
    return cls(**values)


def read_spec(data: Mapping[str, Any], op: str, signature: type[Any], schedule: type[Any]) -> KernelSpec:
    """A spec back from `KernelSpec.to_dict`, for an op with these two dataclasses."""
    if not isinstance(data, Mapping) or data.get("schema") != SPEC_SCHEMA:
        found = data.get("schema") if isinstance(data, Mapping) else data
        raise RequestError(
            f"spec schema {found!r} is not {SPEC_SCHEMA}",
            rule="spec-schema",
            value=found,
            remedy="write the spec again with this version",
        )
    known = ("schema", "op", "arch", "signature", "schedule")
    for name in (*data, *known):
        if name not in known or name not in data:
            verb = "lacks" if name in known else "has an unknown field"
            raise RequestError(
                f"the spec {verb} {name!r}", rule="spec-field", value=name, remedy=f"the fields are {', '.join(known)}"
            )
    if data["op"] != op or not isinstance(data["arch"], str):
        raise RequestError(
            f"this is a spec of op {data['op']!r} for arch {data['arch']!r}, not one of {op}",
            rule="spec-op",
            value=data["op"],
            remedy=f"read it with the op {data['op']!r}",
        )
    return KernelSpec(
        op=op,
        signature=from_plain(signature, f"a {op} signature", data["signature"]),
        schedule=from_plain(schedule, f"a {op} schedule", data["schedule"]),
        arch=data["arch"],
    )


@dataclass(frozen=True)
class KernelSpec:
    """Signature + schedule + arch: the identity of a kernel."""

    op: str
    signature: Any
    schedule: Any
    arch: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SPEC_SCHEMA,
            "op": self.op,
            "arch": self.arch,
            "signature": plain(self.signature),
            "schedule": plain(self.schedule),
        }

    def to_json(self) -> str:
        """Canonical: the same spec is the same text on every machine.  Computed once."""
        known = self.__dict__.get("_json")
        if known is None:
            known = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
            self.__dict__["_json"] = known
        return str(known)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, computed once."""
        known = self.__dict__.get("_digest")
        if known is None:
            known = hashlib.sha256(self.to_json().encode()).hexdigest()
            self.__dict__["_digest"] = known
        return str(known)

    @property
    def name(self) -> str:
        """For people: what matters most, made unique by a piece of the digest."""
        known = self.__dict__.get("_name")
        if known is None:
            known = f"{self.op}_{self.signature.label()}_{self.schedule.label()}_{self.arch}_{self.digest[:8]}"
            self.__dict__["_name"] = known
        return str(known)


class Problem(Protocol):
    """What the user has at run time.  A frozen dataclass with these derived values."""

    op: ClassVar[str]

    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def describe(self) -> str: ...


class _Required:
    """The default of an option that must be given."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Axis:
    """One keyword argument that `Op.proposals` takes, and the option a command line offers for it."""

    name: str  # datatypes
    option: str  # --datatype
    help: str
    kind: type[Any] = str  # of one value: str or int


@dataclass(frozen=True, slots=True)
class Option:
    """One value that describes a problem on a command line, or a scalar of the call."""

    name: str  # a_stride, offered as --a-stride
    help: str
    default: Any = REQUIRED
    kind: type[Any] = int  # int, float, str, or bool for a switch
    scalar: bool = False  # an argument of the call and not part of the problem: alpha


@runtime_checkable
class Op(Protocol):
    """What dispatch, codegen, build, tune and the command line may ask of any op."""

    name: str
    summary: str  # one line for people
    pool_names: tuple[str, ...]
    axes: tuple[Axis, ...]  # what pools can be asked for
    options: tuple[Option, ...]  # what describes a problem

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        """Read a spec back from `KernelSpec.to_dict`; unknown or missing fields are errors."""

    def check(self, spec: KernelSpec) -> list[Violation]:
        """Every rule the spec breaks on its arch; empty means legal."""

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]:
        """Why this (legal) kernel cannot serve this problem; empty means it can."""

    def padded(self, spec: KernelSpec, problem: Any) -> Any | None:
        """The problem this kernel serves in zero-padded, aligned copies, where copies mend what it lacks."""

    def measured_as(self, problem: Any) -> Any:
        """The problem whose measurements this one shares: what hardly matters to time is left out."""

    def problem_violations(self, problem: Any, arch: str) -> list[Violation]:
        """Why no kernel of the arch's family can serve the problem; empty means it is legal."""

    def signature_of(self, problem: Any) -> Any:
        """The signature a kernel must have to serve the problem."""

    def problem(self, values: Mapping[str, Any]) -> Any:
        """The problem that values of `options` describe; those not given have their defaults."""

    def problem_from_dict(self, data: Mapping[str, Any]) -> Any:
        """Read a problem back from `plain(problem)`; unknown or wrong fields are errors."""

    def words(self, problem: Any) -> list[str]:
        """The command-line words that describe the problem."""

    def stages(self, problem: Any, arch: str) -> Sequence[Any]:
        """The problems of the kernels that are launched one after another; (problem,) where one kernel does it all.

        Each stage is a problem of this op with a signature of its own: it is chosen, measured and checked apart.
        """

    def axes_of(self, signature: Any) -> dict[str, tuple[Any, ...]]:
        """The axes under which pools propose exactly this signature."""

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        """What a pool proposes, before legality; an unknown name is an error at once."""

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        """The specs of a named set, before legality; a set is for one arch family."""

    def generic_spec(self, signature: Any, arch: str) -> KernelSpec:
        """The floor: a kernel that serves every problem of the signature on the arch's family."""

    def candidates(self, signature: Any, arch: str) -> Sequence[KernelSpec]:
        """The default kernels to choose from for a signature, all legal."""


def demand_legal(op: Op, spec: KernelSpec) -> None:
    """Raise one error that lists every rule the spec breaks."""
    violations = op.check(spec)
    if violations:
        raise IllegalSpecError(
            f"{spec.name} breaks {len(violations)} rule(s): " + "; ".join(str(one) for one in violations),
            rule=violations[0].rule,
            value=spec.to_dict(),
            remedy=violations[0].remedy or "see `tilewright specs --why-not` for the legal neighbours",
        )
