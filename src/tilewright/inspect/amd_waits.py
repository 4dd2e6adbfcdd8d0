"""Waits and hazards of AMD device code, checked from its listing: what an emulator that runs in order cannot see.

Loads return later than they were issued, and matrix instructions write later than the next instruction reads.  The
hardware does not hold an instruction back that reads too early: the code itself must wait, by counters (`s_waitcnt`,
on gfx12 `s_wait_*cnt`) for loads and by as many instructions in between (`s_nop`) for matrix instructions of CDNA.  The
compiler puts them there; here is a second opinion.  Every path through the code is followed, loops until they settle.

Not followed: what travels through LDS or memory (loads straight into LDS), jumps to an address in a register, and
stores, whose operands the hardware holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field

from tilewright.dataclass import dataclass
from tilewright.errors import counted
from tilewright.inspect import amd_flow as flow
from tilewright.inspect.amd_hazards import MatrixWrite, needed, remembered
from tilewright.inspect.disassembly import Instruction

_SMEM = re.compile(r"^s_(?:load|buffer_load)_|^s_(?:memtime|memrealtime|atc_probe|get_waveid)")
_DS = re.compile(r"^ds_")
_VMEM = re.compile(r"^(?:global|buffer|tbuffer|flat|scratch|image)_(\w+)")
# On gfx12 they count as a load or a store that touches no register.
_CACHES = {"global_inv": "loadcnt", "global_wb": "storecnt", "global_wbinv": "storecnt"}
_LOADS = re.compile(r"^(?:load|gather4|sample|msaa)")
_RETURNS = re.compile(r"\b(?:glc|sc0|th:TH_ATOMIC_RETURN)\b")
_DS_QUIET = re.compile(r"^ds_(?:write|store|nop|gws|(?:add|sub|min|max|and|or|xor|inc|dec|pk_add)_(?!rtn))")
_COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt|vscnt)\((\d+)\)")
MOST = 63  # entries of the longest counter
# Nothing more is issued while a counter is full: of those that come back in order, one is back behind as many more.
# Of the others LDS operations keep an order among themselves; on gfx9 their counter has 4 bits.
_LOADED = ("vmcnt", "loadcnt")
MOST_LDS_GFX9 = 15


@dataclass(frozen=True, slots=True)
class Finding:
    """An instruction that reads or writes a register too early."""

    address: int
    instruction: str
    register: str
    writer: str
    why: str

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.instruction}: {self.register} of {self.writer}: {self.why}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has to say of one function."""

    findings: tuple[Finding, ...]
    instructions: int
    loads: int  # whose registers were followed
    matrix: int
    notes: tuple[str, ...] = ()  # what could not be followed


@dataclass(frozen=True, slots=True)
class _Load:
    """Of a counter: how many of it were issued since, and who waits for what."""

    counter: str
    since: int
    writer: str
    unordered: bool  # scalar loads come back in any order
    behind: int = 0  # of those issued since, how many come back after it

    def youngest(self, other: _Load) -> _Load:
        """Of two paths to one place: as if both were the shorter."""
        first = self if self.since <= other.since else other
        return _Load(first.counter, first.since, first.writer, first.unordered, min(self.behind, other.behind))


@dataclass(slots=True)
class _State:
    """Registers with loads in flight, and with matrix instructions that have not written yet."""

    loads: dict[int, tuple[_Load, ...]] = field(default_factory=dict)
    scalar: bool = False  # a scalar load is in flight, so that a count above 0 says nothing of what it shares
    writes: dict[int, MatrixWrite] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.loads), self.scalar, dict(self.writes))

    def merge(self, other: _State) -> bool:
        """Whether anything is new: of each register the youngest load of a counter, the youngest matrix instruction."""
        changed = other.scalar and not self.scalar
        self.scalar |= other.scalar
        for register, loads in other.loads.items():
            held = {load.counter: load for load in self.loads.get(register, ())}
            for load in loads:
                mine = held.get(load.counter)
                youngest = load if mine is None else mine.youngest(load)
                if youngest != mine:
                    held[load.counter] = youngest
                    changed = True
            self.loads[register] = tuple(held.values())
        for register, write in other.writes.items():
            own = self.writes.get(register)
            joined = write if own is None else own.joined(write)
            if joined != own:
                self.writes[register] = joined
                changed = True
        return changed


class _Walk:
    """One function.  gfx12 has counters of its own for LDS, scalar loads and stores."""

    def __init__(self, arch: str) -> None:
        self._arch = arch
        self._split = arch.startswith("gfx12")
        self._most_lds = MOST_LDS_GFX9 if arch.startswith("gfx9") else MOST
        self._stores_apart = arch.startswith(("gfx10", "gfx11", "gfx12"))
        self.findings: dict[tuple[int, str], Finding] = {}
        self.loads = self.matrix = 0

    def counters(self, instruction: Instruction) -> tuple[str, ...]:
        """Those that an instruction raises."""
        name = instruction.mnemonic
        if _SMEM.match(name):
            return ("kmcnt",) if self._split else ("lgkmcnt",)
        if _DS.match(name):
            return ("dscnt",) if self._split else ("lgkmcnt",)
        memory = _VMEM.match(name)
        if memory is None:
            return ()
        if self._split and name in _CACHES:
            return (_CACHES[name],)
        returns = bool(_LOADS.match(memory.group(1))) or bool(_RETURNS.search(instruction.operands))
        if not memory.group(1).startswith(("load", "store", "atomic", "gather4", "sample")):
            return ()  # invalidations and write-backs of caches
        if self._stores_apart and not returns:
            return ("storecnt",)
        load = "loadcnt" if self._split else "vmcnt"
        if name.startswith("flat_"):
            return (load, "dscnt" if self._split else "lgkmcnt")
        return (load,)

    def waited(self, instruction: Instruction) -> Iterator[tuple[str, int]]:
        name, text = instruction.mnemonic, instruction.operands
        if name == "s_waitcnt":
            counts = _COUNT.findall(text)
            if counts:
                yield from ((counter, int(count)) for counter, count in counts)
            elif text.split() and text.split()[0] in ("0", "0x0"):
                yield from (("vmcnt", 0), ("lgkmcnt", 0))
        elif name in ("s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt"):
            yield name.removeprefix("s_waitcnt_"), int(text.split()[-1], 0)
        elif name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
            number = int(text, 0)
            yield from ((name.split("_")[2], number >> 8), ("dscnt", number & 0xFF))
        elif name.startswith("s_wait_") and name.endswith("cnt") and text:
            yield name.removeprefix("s_wait_"), int(text, 0)

    def step(self, state: _State, instruction: Instruction, report: bool) -> None:
        for counter, count in self.waited(instruction):
            self._wait(state, counter, count)
        counters = self.counters(instruction)
        parts = flow.operands(instruction.operands)
        used = flow.registers(instruction.operands)
        if instruction.mnemonic.startswith("s_cbranch_vcc"):
            used = (flow.VCC, flow.VCC + 1)
        target = self._target(instruction, parts) if counters else ()
        if report:
            self._look(state, instruction, used, target, counters)
        self._matrix_step(state, instruction, parts, used, report)
        if counters:
            self._issue(state, instruction, counters, target, report)

    def _wait(self, state: _State, counter: str, count: int) -> None:
        shared = counter in ("lgkmcnt", "kmcnt")
        if shared and count and state.scalar:
            return
        if shared and not count:
            state.scalar = False
        for register, loads in list(state.loads.items()):
            left = tuple(load for load in loads if load.counter != counter or load.since < count)
            if left:
                state.loads[register] = left
            else:
                del state.loads[register]

    def _target(self, instruction: Instruction, parts: Sequence[str]) -> tuple[int, ...]:
        """Registers that a load writes; none of a store, an atomic that returns nothing, a load into LDS."""
        name = instruction.mnemonic
        if not parts or _DS_QUIET.match(name) or " lds" in f" {instruction.operands}" or "_lds_" in name:
            return ()
        memory = _VMEM.match(name)
        if memory and not _LOADS.match(memory.group(1)) and not _RETURNS.search(instruction.operands):
            return ()
        return flow.registers(parts[0])

    def _look(
        self,
        state: _State,
        instruction: Instruction,
        used: Sequence[int],
        target: tuple[int, ...],
        counters: tuple[str, ...],
    ) -> None:
        """A register with a load in flight may be touched only by a load that returns after it."""
        for register in used:
            for load in state.loads.get(register, ()):
                if register in target and load.counter in counters and not load.unordered:
                    sources = flow.registers(instruction.operands.partition(", ")[2])
                    if register not in sources:
                        continue
                why = f"no wait for {load.counter} before it (at most {load.since} may be left)"
                self._report(instruction, register, load.writer, why)

    def _report(self, instruction: Instruction, register: int, writer: str, why: str) -> None:
        text = f"{instruction.mnemonic} {instruction.operands}".strip()
        name = flow.register_name(register)
        self.findings.setdefault((instruction.address, writer), Finding(instruction.address, text, name, writer, why))

    def _issue(
        self, state: _State, instruction: Instruction, counters: tuple[str, ...], target: Sequence[int], report: bool
    ) -> None:
        name = instruction.mnemonic
        for register, loads in state.loads.items():
            if any(load.counter in counters for load in loads):
                later = (self._later(load, name) if load.counter in counters else load for load in loads)
                state.loads[register] = tuple(load for load in later if load is not None)
        unordered = bool(_SMEM.match(name))
        state.scalar |= unordered
        if not target:
            return
        self.loads += report
        writer = f"{name} at {instruction.address:#x}"
        new = tuple(_Load(counter, 0, writer, unordered) for counter in counters)
        for register in target:
            state.loads[register] = new

    def _later(self, load: _Load, issued: str) -> _Load | None:
        """A load behind which another of its counter was issued; None where it is back, since the counter was full."""
        loaded = load.counter in _LOADED
        behind = load.behind + (loaded or (load.writer.startswith("ds_") and issued.startswith("ds_")))
        if behind >= (MOST if loaded else self._most_lds):
            return None
        return _Load(load.counter, min(MOST, load.since + 1), load.writer, load.unordered, behind)

    def _matrix_step(
        self, state: _State, instruction: Instruction, parts: Sequence[str], used: Sequence[int], report: bool
    ) -> None:
        """Wait states that are left of matrix instructions, as the hazards of the arch count them."""
        if report and state.writes:
            for register in used:
                write = state.writes.get(register)
                missing = needed(write, instruction, parts, register, self._arch) if write is not None else 0
                if write is not None and missing > 0:
                    why = f"{counted(missing, 'wait state')} more must lie between"
                    self._report(instruction, register, write.writer, why)
        states = 1
        if instruction.mnemonic == "s_nop":
            states += int(instruction.operands.split()[0], 0)
        multiplies = flow.is_matrix(instruction.mnemonic)
        new = remembered(instruction, self._arch) if multiplies else None
        for register, write in list(state.writes.items()):
            later = write.after(states) if not multiplies else write.behind(new)
            if later.left > 0:
                state.writes[register] = later
            else:
                del state.writes[register]
        if multiplies:
            self.matrix += report
            if new is not None:
                state.writes |= dict.fromkeys(flow.registers(parts[0]), new)


def check(code: Sequence[Instruction], arch: str) -> Checked:
    """Every read of a register that a load or a matrix instruction writes comes after the wait the ISA asks for."""
    walk = _Walk(arch)
    graph = flow.blocks(code)
    if not graph:
        return Checked((), 0, 0, 0)
    entries: dict[int, _State] = {0: _State()}
    waiting = {0}
    while waiting:
        at = min(waiting)  # in the order of the code, so that a loop is left only once it is settled
        waiting.remove(at)
        state = entries[at].copy()
        for instruction in graph[at].code:
            walk.step(state, instruction, report=False)
        for successor in graph[at].next:
            if successor not in entries:
                entries[successor] = state.copy()
            elif not entries[successor].merge(state):
                continue
            waiting.add(successor)
    for at, entry in sorted(entries.items()):
        state = entry.copy()
        for instruction in graph[at].code:
            walk.step(state, instruction, report=True)
    notes = []
    if any(block.unfollowed for block in graph):
        notes.append("a jump to an address in a register was not followed")
    if unreached := sum(len(block.code) for at, block in enumerate(graph) if at not in entries):
        notes.append(f"not reached: {counted(unreached, 'instruction')}")
    findings = tuple(walk.findings[key] for key in sorted(walk.findings))
    return Checked(findings, len(code), walk.loads, walk.matrix, tuple(notes))
