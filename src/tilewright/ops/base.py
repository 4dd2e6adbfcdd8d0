"""What every op is made of: spec, violation, problem, and the contract the rest of the house uses.

A spec is identity: its JSON is canonical (sorted keys, every field), its digest is the hash of that
JSON, and its name is derived and never read back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from tilewright.errors import IllegalSpecError

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


@runtime_checkable
class Op(Protocol):
    """What dispatch, codegen, build, tune and the command line may ask of any op."""

    name: str
    variants: tuple[str, ...]
    epilogues: tuple[str, ...]
    pool_names: tuple[str, ...]
    preselected_names: tuple[str, ...]
    axes: tuple[str, ...]  # keyword arguments `proposals` takes: datatypes, layouts, ...

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        """Read a spec back from `KernelSpec.to_dict`; unknown or missing fields are errors."""

    def check(self, spec: KernelSpec) -> list[Violation]:
        """Every rule the spec breaks on its arch; empty means legal."""

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]:
        """Why this (legal) kernel cannot serve this problem; empty means it can."""

    def padded(self, spec: KernelSpec, problem: Any) -> Any | None:
        """The larger problem this kernel serves in zero-padded copies, where only edge code is missing."""

    def measured_as(self, problem: Any) -> Any:
        """The problem whose measurements this one shares: what hardly matters to time is left out."""

    def problem_violations(self, problem: Any, arch: str) -> list[Violation]:
        """Why no kernel of the arch's family can serve the problem; empty means it is legal."""

    def signature_of(self, problem: Any) -> Any:
        """The signature a kernel must have to serve the problem."""

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
