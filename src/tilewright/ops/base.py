"""What every op is made of: spec, violation, problem, and the contract the rest of the house uses.

A spec is identity: its JSON is canonical (sorted keys, every field), its digest is the hash of that
JSON, and its name is derived and never read back.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    Union,
    cast,
    get_args,
    get_origin,
    runtime_checkable,
)

from tilewright.arch import Arch
from tilewright.dataclass import dataclass, field_hints
from tilewright.digests import sha256
from tilewright.errors import IllegalSpecError, ProblemError, RequestError, UnknownNameError, an, counted, nearest
from tilewright.renames import new_names, new_values, renamed_methods, renamed_value, stored_names, stored_values

SPEC_SCHEMA = 2


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

    def label(self) -> str:
        """Its part of a kernel's name: letters, digits and underscores."""


class Schedule(Protocol):
    """How it is computed.  A frozen dataclass with the fields its family of kernels has and no others.

    A class attribute `axis_names` may give names to the elements of fields (and properties) that hold tuples, by which
    filters and tables offer them: {"tile": ("m", "n", "k")}.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def label(self) -> str:
        """Its part of a kernel's name: letters, digits and underscores."""


SPARSE = "sparse"  # of a field that came later


def plain(value: object) -> Any:
    """A dataclass as JSON-ready data: dicts, lists, numbers, strings.

    So that what is stored and its digests stay, class attributes `stored_names` and `stored_values` have names that
    fields and their values keep there, and a field whose metadata say `SPARSE` is left out where it has its default.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored, words = stored_names(type(value)), stored_values(type(value))
        return {
            stored.get(field.name, field.name): renamed_value(words.get(field.name), plain(getattr(value, field.name)))
            for field in dataclasses.fields(value)
            if not (SPARSE in field.metadata and getattr(value, field.name) == field.default)
        }
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def shown(value: object) -> Any:
    """As `plain`, under the names of today and with every field: for people, and read back as well."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: shown(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [shown(item) for item in value] if isinstance(value, (tuple, list)) else value


class _Unfit(Exception):
    """A value is not what an annotation says."""


_INTEGERS = tuple[int, ...]


def _shown(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _read(value: Any, kind: Any, plain_value: Callable[[Any, Any], Any]) -> Any:
    """A value as an annotation says: tuples of any length, optional values, literals and dataclasses inside.

    `plain_value` says what a number, a text or a switch may be given as.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(value, (tuple, list)):
            raise _Unfit
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_read(item, parts[0], plain_value) for item in value)
        if len(value) != len(parts):
            raise _Unfit
        return tuple(_read(item, part, plain_value) for item, part in zip(value, parts, strict=True))
    if origin in (Union, UnionType):
        for part in parts:
            try:
                return _read(value, part, plain_value)
            except (_Unfit, RequestError):
                continue
        raise _Unfit
    if origin is Literal:
        if not any(type(value) is type(allowed) and value == allowed for allowed in parts):
            raise _Unfit
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if type(value) is kind else from_plain(kind, an(kind.__name__), value)
    return plain_value(value, kind)


def _strict(value: Any, kind: Any) -> Any:
    """As JSON has it: a switch is no number, and a number no text."""
    if value is None and kind is type(None):
        return value
    if type(value) is not kind:
        raise _Unfit
    return value


def from_plain(cls: type[Any], what: str, data: object) -> Any:
    """A dataclass back from `plain` data; a field too many, too few or of another type is an error by name."""
    if not isinstance(data, Mapping):
        raise RequestError(
            f"{what} is {type(data).__name__}, not an object",
            rule="spec-field",
            value=data,
            remedy="give its fields by name",
        )
    fields = {field.name: field for field in dataclasses.fields(cls)}
    names = {stored: name for name, stored in stored_names(cls).items()}
    words = new_values(cls)
    values: dict[str, Any] = {}
    for written, value in data.items():
        name = names.get(written, written)
        if name in values:
            raise RequestError(
                f"{what} has the field {name!r} under two names", rule="spec-field", value=name, remedy="give one"
            )
        if name not in fields:
            raise RequestError(
                f"{what} has no field {name!r}",
                rule="spec-field",
                value=name,
                remedy=nearest(str(name), sorted(fields)),
            )
        kind = field_hints(cls)[name]
        try:
            values[name] = renamed_value(words.get(name), _read(value, kind, _strict))
        except _Unfit:
            raise RequestError(
                f"field {name!r} of {what} cannot be {value!r}",
                rule="spec-field",
                value=value,
                remedy=f"give {an(_shown(kind))}",
            ) from None
    return cls(**_to_give(fields, what, values))


def _to_give(fields: Mapping[str, Any], what: str, values: dict[str, Any]) -> dict[str, Any]:
    """What the constructor takes: all that has no default is there, and what is always the same is that."""
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not (optional and field.init):
            raise RequestError(
                f"{what} lacks the field {name!r}", rule="spec-field", value=name, remedy=f"give {name!r}"
            )
        if not field.init and values.pop(name) != field.default:
            raise RequestError(
                f"field {name!r} of {what} is always {field.default!r}",
                rule="spec-field",
                value=name,
                remedy=f"give {field.default!r}",
            )
    return values


def _taken(value: Any, kind: Any) -> Any:
    """As people write it: NumPy's numbers are numbers, but a text, a fraction or a switch is none."""
    if type(value) is kind or (value is None and kind is type(None)):
        return value
    if kind is int and not isinstance(value, bool) and hasattr(value, "__index__") and not _is_switch(value):
        return operator.index(value)
    if kind is bool and _is_switch(value):
        return bool(value)
    if kind is float and not isinstance(value, (bool, str)) and hasattr(value, "__float__") and not _is_switch(value):
        return float(value)
    if kind is str and isinstance(value, str):
        return str(value)
    raise _Unfit


def _is_switch(value: Any) -> bool:
    """Whether this is a bool of NumPy's, known without importing it."""
    return getattr(getattr(value, "dtype", None), "kind", "") == "b" and getattr(value, "shape", None) == ()


@lru_cache(maxsize=64)
def _settled_form(cls: type[Any]) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[type, ...], tuple[int, ...]]:
    """What reads all fields of a problem at once, the types they have where nothing is to be done, and which of them
    are tuples of integers."""
    kinds = field_hints(cls)
    types = tuple(tuple if kind == _INTEGERS else kind for kind in kinds.values())
    return operator.attrgetter(*kinds), types, tuple(at for at, kind in enumerate(types) if kind is tuple)


def settle(problem: Any) -> None:
    """In `__post_init__` of a problem: every field is what its annotation says, or becomes it, or is an error.

    Integers of NumPy and the like become int, lists become tuples; "4", 4.0 and True are no sizes.
    """
    kind: Any = type(problem)
    read, types, tuples = _settled_form(kind)
    values = read(problem)
    if tuple(map(type, values)) == types and all(type(each) is int for at in tuples for each in values[at]):
        return
    for name, kind in field_hints(type(problem)).items():
        value = getattr(problem, name)
        if type(value) is kind:
            continue
        if type(value) is tuple and kind == _INTEGERS and all(type(item) is int for item in value):
            continue
        try:
            taken = _read(value, kind, _taken)
        except (_Unfit, TypeError, ValueError, OverflowError):
            raise ProblemError(
                f"{name} of a {problem.op} problem cannot be {value!r} ({type(value).__name__})",
                rule="problem-field",
                value=value,
                remedy=f"give {an(_shown(kind))}",
            ) from None
        object.__setattr__(problem, name, taken)


def read_spec(
    data: Mapping[str, Any], op: str, signature: type[Any], schedule: Callable[[str, Mapping[str, Any]], type[Any]]
) -> KernelSpec:
    """A spec back from `KernelSpec.to_dict`; `schedule` says by arch and fields which dataclass a schedule is of."""
    if not isinstance(data, Mapping) or data.get("schema") != SPEC_SCHEMA:
        schema = data.get("schema") if isinstance(data, Mapping) else data
        raise RequestError(
            f"spec schema {schema!r} is not {SPEC_SCHEMA}",
            rule="spec-schema",
            value=schema,
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
    fields = data["schedule"]
    kind = schedule(data["arch"], fields if isinstance(fields, Mapping) else {})
    return KernelSpec(
        op=op,
        signature=from_plain(signature, f"{an(op)} signature", data["signature"]),
        schedule=from_plain(kind, f"{an(op)} schedule", fields),
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

    def shown(self) -> dict[str, Any]:
        """As `to_dict`, under the names that fields and their values have today."""
        return {**self.to_dict(), "signature": shown(self.signature), "schedule": shown(self.schedule)}

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
            known = sha256(self.to_json().encode()).hexdigest()
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


# Of kernels that all serve a problem, the one it names; None where it has nothing to say of these kernels.
SelectionRule = Callable[[Sequence[KernelSpec], Any], "KernelSpec | None"]


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

# A value as people may write it (fp8, rcrr), in the op's own spelling on an arch; what it does not know it lets be.
Normal = Callable[[str, Arch], str]


class NamedSet(Protocol):
    """A small list of kernels for a purpose, on archs of one family."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def purpose(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """One keyword argument that `Op.proposals` takes, and the option a command line offers for it."""

    name: str  # datatypes
    option: str  # --datatype
    help: str
    kind: type[Any] = str  # of one value: str or int
    normal: Normal | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One value that describes a problem on a command line, or a scalar of the call."""

    name: str  # a_stride, offered as --a-stride
    help: str
    default: Any = REQUIRED
    kind: type[Any] = int  # int, float, str, or bool for a switch
    scalar: bool = False  # an argument of the call and not part of the problem: alpha
    normal: Normal | None = None
    old: str = ""  # its name until version 0.2, which is taken with a warning


def with_new_names(op: Op, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values of options under the names that options have now; whoever gave old ones is warned."""
    names = {option.old: option.name for option in op.options if option.old}
    if names.keys().isdisjoint(values):
        return values
    old = {name: value for name, value in values.items() if name in names}
    rest = {name: value for name, value in values.items() if name not in names}
    return {**rest, **new_names(f"{an(op.name)} problem", names, old, skip=("with_new_names",))}


@runtime_checkable
class Op(Protocol):
    """What dispatch, codegen, build, tune and the command line may ask of any op."""

    name: str
    summary: str  # one line for people
    axes: tuple[Axis, ...]  # what pools can be asked for

    # What depends on the backends that are installed, or few ask for; an op may work it out when it is first asked for.

    @property
    def options(self) -> tuple[Option, ...]:
        """What describes a problem."""

    @property
    def pool_names(self) -> tuple[str, ...]: ...

    @property
    def preselected_sets(self) -> Mapping[str, NamedSet]:
        """By name."""

    @property
    def schedules(self) -> tuple[type[Any], ...]:
        """The dataclasses a schedule may be of, one a family of kernels."""

    @property
    def selection_rules(self) -> Mapping[str, SelectionRule]:
        """By name: choices by sizes alone, for those who ask for them."""

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        """Read a spec back from `KernelSpec.to_dict`; unknown or missing fields are errors."""

    def check(self, spec: KernelSpec) -> list[Violation]:
        """Every rule the spec breaks on its arch; empty means legal."""

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]:
        """Why this (legal) kernel cannot serve this problem; empty means it can."""

    def padded(self, spec: KernelSpec, problem: Any) -> Any | None:
        """The problem this kernel serves in zero-padded, aligned copies, where copies fix what it lacks."""

    def copied_grains(self, spec: KernelSpec) -> tuple[int, ...] | None:
        """What such copies are like, in numbers that C++ makes them by; None where numbers do not say it."""

    def measured_as(self, problem: Any) -> Any:
        """The problem whose measurements this one shares: what hardly matters to time is left out."""

    def remarks(self, spec: KernelSpec, problem: Any) -> list[str]:
        """What people should know of this kernel on a problem that it serves: copies that it makes, for example."""

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

    def split_plans(self, problem: Any, arch: str) -> Mapping[str, Sequence[Any]]:
        """The stages of each plan by which the problem can be computed, by the plan's name; the first are `stages`.

        The first plan is taken until all stages of it and of another were measured and the other took less time.
        """

    def axes_of(self, signature: Any) -> dict[str, tuple[Any, ...]]:
        """The axes under which pools propose exactly this signature."""

    def signatures_of(self, text: str) -> Iterator[Any]:
        """Every signature a pool can be asked for with whose label the text begins: how kernels are found by name."""

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        """What a pool proposes, before legality; an unknown name is an error at once."""

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        """The specs of a named set, before legality; a set is for one arch family."""

    def configured(self, data: Mapping[str, Any], arch: str, **axes: Any) -> Iterator[KernelSpec]:
        """Every kernel that lists of values in a configuration mean, before legality (see `ops.sweep`)."""

    def fallback_spec(self, signature: Any, arch: str) -> KernelSpec:
        """The fallback kernel, which serves every problem of the signature on the arch's family."""

    def candidates(self, signature: Any, arch: str) -> Sequence[KernelSpec]:
        """The default kernels to choose from for a signature, all legal."""


@renamed_methods({"generic_spec": "fallback_spec", "ways": "split_plans"})
class OpDefaults:
    """The plain answers of an op: one kernel a problem, no copies, no named sets.  An op inherits it and says the rest.

    Problems have their signature as an attribute, `signature`.
    """

    name: str
    axes: tuple[Axis, ...] = ()

    @property
    def preselected_sets(self) -> Mapping[str, NamedSet]:
        return MappingProxyType({})

    @property
    def selection_rules(self) -> Mapping[str, SelectionRule]:
        return MappingProxyType({})

    def signature_of(self, problem: Any) -> Any:
        return problem.signature

    def padded(self, spec: KernelSpec, problem: Any) -> Any | None:
        return None

    def copied_grains(self, spec: KernelSpec) -> tuple[int, ...] | None:
        return None

    def measured_as(self, problem: Any) -> Any:
        return problem

    def remarks(self, spec: KernelSpec, problem: Any) -> list[str]:
        return []

    def stages(self, problem: Any, arch: str) -> Sequence[Any]:
        return (problem,)

    def split_plans(self, problem: Any, arch: str) -> Mapping[str, Sequence[Any]]:
        return {"": self.stages(problem, arch)}

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        raise UnknownNameError(
            f"{name!r} is not a preselected set: {self.name} has none",
            rule="preselected-name",
            value=name,
            remedy="name a pool instead",
        )

    def configured(self, data: Mapping[str, Any], arch: str, **axes: Any) -> Iterator[KernelSpec]:
        from tilewright.ops.sweep import swept

        return swept(cast("Op", self), data, arch, axes)


def demand_legal(op: Op, spec: KernelSpec) -> None:
    """Raise one error that lists every rule the spec breaks."""
    violations = op.check(spec)
    if violations:
        raise illegal(op, spec, violations)


def illegal(op: Op, spec: KernelSpec, violations: Sequence[Violation]) -> IllegalSpecError:
    """The error of a spec that breaks rules: all of them, and the nearest kernels that break none."""
    from tilewright.ops.neighbours import as_remedy, neighbours

    near = as_remedy(neighbours(op, spec))
    remedies = [violations[0].remedy, f"the nearest legal kernels: {near}" if near else ""]
    return IllegalSpecError(
        f"{spec.name} breaks {counted(len(violations), 'rule')}: "
        + "; ".join(str(violation) for violation in violations),
        rule=violations[0].rule,
        value=spec.to_dict(),
        remedy="; ".join(text for text in remedies if text) or "see `tilewright specs --why-not` for what is legal",
    )
