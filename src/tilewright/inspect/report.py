"""The findings of an inspection: numbers for machines, a page for people, and the one test that can fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tilewright.dataclass import dataclass
from tilewright.errors import InspectionError, counted
from tilewright.inspect.names import readable

if TYPE_CHECKING:
    from tilewright.inspect.amd_model import CodeModel
    from tilewright.inspect.amd_waits import Checked


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Warps a SIMD (on NVIDIA: a scheduler) holds at once."""

    warps: int
    limit: int  # of the hardware
    limited_by: str
    threads: int  # a block, as the kernel was compiled for


@dataclass(frozen=True, slots=True)
class Resources:
    """What a GPU sets aside for a kernel.  AGPRs are apart from VGPRs; NVIDIA's only registers count as VGPRs."""

    vgprs: int
    agprs: int
    sgprs: int
    shared_bytes: int  # LDS or shared memory of a block, as far as it is fixed when compiled
    scratch_bytes: int  # private memory of a thread
    vgpr_spills: int
    sgpr_spills: int
    dynamic_shared_bytes: int = 0  # NVIDIA: what each launch asks for beyond that; by the spec


@dataclass(frozen=True, slots=True)
class Instructions:
    """Counts in the code as written, not as executed."""

    total: int
    matrix: Mapping[str, int] = field(default_factory=dict)  # multiply-accumulate instructions by mnemonic
    loads: Mapping[int, int] = field(default_factory=dict)  # from memory: bytes (of a lane) -> count
    stores: Mapping[int, int] = field(default_factory=dict)
    vector_bits: Mapping[int, int] = field(default_factory=dict)  # CPU: register width -> count
    extensions: tuple[str, ...] = ()  # CPU: ISA extensions the instructions belong to
    stack_moves: int | None = None  # CPU, NVIDIA: moves to and from the stack, a guess at spills
    copies: Mapping[str, int] = field(default_factory=dict)  # NVIDIA: TMA and cp.async; else those that were promised
    # The mnemonics the reader recognizes; None: it named every instruction.
    recognized: tuple[str, ...] | None = None

    @property
    def matrix_count(self) -> int:
        return sum(self.matrix.values())

    def can_rule_out(self, mnemonic: str) -> bool:
        """Whether an instruction that was not counted is certainly not in the code."""
        return self.recognized is None or mnemonic in self.recognized


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel of a GPU code object, or the hottest function of a CPU library."""

    symbol: str
    code_bytes: int
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    instructions: Instructions | None = None  # None: there was no disassembler
    model: CodeModel | None = None  # AMD: of the main loop, where there is one with matrix instructions
    waits: Checked | None = None  # AMD: whether registers are waited for

    @property
    def name(self) -> str:
        """The symbol as its author wrote it, where that can be read from it."""
        return readable(self.symbol)


@dataclass(frozen=True, slots=True)
class Inspection:
    path: str
    kind: str  # "amdgpu", "nvidia", "x86-64": whose instructions these are
    arch: str
    code_bytes: int
    functions: tuple[Function, ...]
    notes: tuple[str, ...] = ()  # what could not be shown, and why
    name: str = ""
    digest: str = ""
    promises: tuple[str, ...] = ()  # beginnings of mnemonics, one of which the code must hold; by the spec
    copy_promises: tuple[str, ...] = ()  # beginnings of mnemonics of copies, all of which the code must hold

    def of(self, spec: Any, promises: tuple[str, ...], copy_promises: tuple[str, ...] = ()) -> Inspection:
        """The same as the findings about a spec."""
        names = {"name": spec.name, "digest": spec.digest, "arch": spec.arch}
        return replace(self, **names, promises=promises, copy_promises=copy_promises)

    @property
    def disassembled(self) -> bool:
        return any(function.instructions is not None for function in self.functions)

    @property
    def matrix_count(self) -> int:
        return sum(
            function.instructions.matrix_count for function in self.functions if function.instructions is not None
        )

    @property
    def keeps_promises(self) -> bool | None:
        """None where nothing was promised or nobody can say."""
        if not (self.promises or self.copy_promises) or not self.disassembled:
            return None
        return False if self.missing else None if self.undecided else True

    @property
    def missing(self) -> tuple[str, ...]:
        """What was promised and is certainly not in the code; of several that would do, all are named."""
        return tuple(mnemonic for group in self._not_seen() if self._ruled_out(group) for mnemonic in group)

    @property
    def undecided(self) -> tuple[str, ...]:
        """What was promised and not seen, by a reader that does not know every instruction."""
        return tuple(mnemonic for group in self._not_seen() if not self._ruled_out(group) for mnemonic in group)

    @property
    def doubt(self) -> str:
        """Why it is not known whether the promises are kept; empty where it is."""
        if self.keeps_promises is not None or not self.undecided:
            return ""
        if not self.disassembled:
            return "nobody could read the code"
        return f"{' or '.join(self.undecided)} not seen, by a reader that does not know every instruction"

    def _not_seen(self) -> Iterator[tuple[str, ...]]:
        """Promises, each as the mnemonics any of which would keep it."""
        codes = [function.instructions for function in self.functions if function.instructions is not None]
        matrix, copies = ({name for code in codes for name in part(code)} for part in (_MATRIX, _COPIES))
        if self.promises and not any(name.startswith(self.promises) for name in matrix):
            yield self.promises
        yield from (
            (promise,) for promise in self.copy_promises if not any(name.startswith(promise) for name in copies)
        )

    def _ruled_out(self, mnemonics: tuple[str, ...]) -> bool:
        codes = [function.instructions for function in self.functions]
        return bool(codes) and all(
            code is not None and code.can_rule_out(mnemonic) for code in codes for mnemonic in mnemonics
        )

    def to_dict(self) -> dict[str, Any]:
        functions = [{"name": function.name, **asdict(function)} for function in self.functions]
        return {
            **asdict(self),
            "functions": functions,
            "matrix_count": self.matrix_count,
            "keeps_promises": self.keeps_promises,
            "undecided": list(self.undecided),
        }

    def __str__(self) -> str:
        lines = [f"kernel      {self.name}"] if self.name else []
        lines += [f"digest      {self.digest}"] if self.digest else []
        lines += [
            f"file        {self.path}",
            f"arch        {self.arch or 'not known'} ({self.kind} code)",
            f"code        {self.code_bytes} bytes in {counted(len(self.functions), 'function')} shown",
        ]
        for function in self.functions:
            lines += ["", function.name, *(f"  {line}" for line in _lines(function, self.kind))]
        notes = [*self.notes, *([f"whether promises are kept is not known: {self.doubt}"] if self.doubt else [])]
        if notes:
            lines += ["", *(f"note: {note}" for note in notes)]
        return "\n".join(lines)


_MATRIX, _COPIES = attrgetter("matrix"), attrgetter("copies")


def _lines(function: Function, kind: str) -> list[str]:
    lines = []
    had, use = function.resources, function.occupancy
    nvidia = kind == "nvidia"
    unit = "scheduler" if nvidia else "SIMD"
    if had is not None and nvidia:
        lines += [
            f"registers   {had.vgprs} a thread",
            f"shared      {had.shared_bytes} bytes a block, and {had.dynamic_shared_bytes} that launches ask for",
            f"local       {had.scratch_bytes} bytes a thread" + ("" if had.scratch_bytes else ": nothing is spilled"),
        ]
    elif had is not None:
        lines += [
            f"registers   VGPR {had.vgprs}, AGPR {had.agprs}, SGPR {had.sgprs}",
            f"LDS         {had.shared_bytes} bytes a block",
            f"scratch     {had.scratch_bytes} bytes a thread",
            f"spills      {_spills(had)}",
        ]
    if use is not None:
        lines.append(
            f"occupancy   {use.warps} of {use.limit} warps a {unit} at {use.threads} threads a block, "
            f"limited by {use.limited_by}"
        )
    code = function.instructions
    lines.append(f"code        {function.code_bytes} bytes" + (f", {code.total} instructions" if code else ""))
    if code is None:
        return lines
    lines.append(f"matrix      {_counts(code.matrix)}")
    if nvidia:
        lines.append(f"copies      {_counts(code.copies)}")
    size_unit = " B" if had is not None else "-byte"
    lines.append(f"loads       {_counts({f'{size}{size_unit}': count for size, count in sorted(code.loads.items())})}")
    lines.append(f"stores      {_counts({f'{size}{size_unit}': count for size, count in sorted(code.stores.items())})}")
    if code.vector_bits:
        lines.append(f"vectors     {_counts({f'{bits}-bit': n for bits, n in sorted(code.vector_bits.items())})}")
    if code.extensions:
        lines.append(f"extensions  {', '.join(code.extensions)}")
    if function.model is not None:
        lines.append(f"model       {function.model}")
    if function.waits is not None:
        lines += _waits(function.waits)
    if code.stack_moves is not None and nvidia:
        lines.append(f"spills      {code.stack_moves} moves to or from local memory")
    elif code.stack_moves is not None:
        lines.append(f"spills      about {code.stack_moves} vector moves to or from the stack (a heuristic)")
    return lines


_SHOWN = 5  # of findings, on a page


def _waits(checked: Checked) -> list[str]:
    what = f"of {counted(checked.loads, 'load')} and {counted(checked.matrix, 'matrix instruction')}"
    notes = "".join(f"; {note}" for note in checked.notes)
    if not checked.findings:
        return [f"waits       every result {what} is waited for (a check of the listing){notes}"]
    more = len(checked.findings) - _SHOWN
    return [
        f"waits       touched too early: {counted(len(checked.findings), 'result')} {what}{notes}",
        *(f"            {finding}" for finding in checked.findings[:_SHOWN]),
        *([f"            and {more} more"] if more > 0 else []),
    ]


def _spills(had: Resources) -> str:
    if not had.vgpr_spills and not had.sgpr_spills:
        return "none"
    return f"{had.vgpr_spills} VGPR, {had.sgpr_spills} SGPR"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in counts.items()) or "none"


def demand_promises(inspection: Inspection) -> Inspection:
    """Raise where the code lacks a matrix instruction or a copy that its spec promises; builders call this."""
    if inspection.keeps_promises is False:
        matrix = [mnemonic for mnemonic in inspection.missing if mnemonic in inspection.promises]
        copies = [mnemonic for mnemonic in inspection.missing if mnemonic not in inspection.promises]
        does = [f"{verb} {' or '.join(f'{mnemonic}*' for mnemonic in some)}"
                for verb, some in (("multiply with", matrix), ("copy with", copies)) if some]  # fmt: skip
        total = sum(function.instructions.total for function in inspection.functions if function.instructions)
        raise InspectionError(
            f"{inspection.name or inspection.path} should {' and '.join(does)} and holds none "
            f"(of {total} instructions)",
            rule="no-matrix-instruction" if matrix else "no-copy-instruction",
            value=inspection.matrix_count,
            remedy="the compiler fell back to plain arithmetic: look at the source with `tilewright generate`, "
            "and report the kernel with the output of `tilewright doctor`",
        )
    return inspection


def demand_waits(inspection: Inspection) -> Inspection:
    """Raise where a register is touched before what writes it was waited for."""
    findings = [finding for function in inspection.functions if function.waits for finding in function.waits.findings]
    if findings:
        raise InspectionError(
            f"{inspection.name or inspection.path} touches {counted(len(findings), 'register')} too early: "
            f"{findings[0]}",
            rule="missing-wait",
            value=len(findings),
            remedy="the compiler left out a wait on one path: build a kernel with another tile or pipeline, or with "
            "another release of the compiler, and report this one with the output of `tilewright doctor`",
        )
    return inspection
