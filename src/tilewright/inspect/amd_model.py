"""A model of a kernel's main loop, from its own code: clocks of each unit, what bounds it, how busy matrix units are.

It is a model, not a measurement: no AMD GPU was at hand.  What it knows are the instructions of one iteration of the
loop, the rates of `amd_rates`, and how many waves a SIMD holds.  Waves of a SIMD overlap perfectly; one wave issues in
order and stalls at waits.  It does not know bank conflicts, misses of caches, or waves that arrive late at a barrier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilewright.arch import Arch
from tilewright.dataclass import dataclass
from tilewright.errors import counted
from tilewright.inspect import amd_flow as flow
from tilewright.inspect import amd_rates as costs
from tilewright.inspect.disassembly import Instruction

WORDS = "a model from the code, not a measurement"
_MEMORY = re.compile(r"^(?:global|buffer|flat)_(load|store|atomic)_(\w+)$")
_WIDTHS = {
    "x4": 16, "b128": 16, "x3": 12, "b96": 12, "x2": 8, "b64": 8, "dword": 4, "b32": 4, "short": 2, "b16": 2,
    "u16": 2, "i16": 2, "byte": 1, "u8": 1, "i8": 1, "b8": 1,
}  # fmt: skip
_COUNTER = re.compile(r"(vmcnt|lgkmcnt|vscnt)\((\d+)\)")
_TURNS = 4  # of one wave until its turns take equally long


@dataclass(frozen=True, slots=True)
class CodeModel:
    """One iteration of a kernel's main loop.  `clocks` are those a wave takes of a SIMD's share of each unit."""

    kernel: str  # the symbol
    address: int
    instructions: int
    matrix_instructions: int
    macs: int  # of one wave
    loaded_bytes: int  # of one wave, from memory
    clocks: Mapping[str, float]  # matrix, vector, scalar, lds, memory; one_wave: of a wave that is alone
    waves: int  # on a SIMD
    turn: float  # clocks of a SIMD for one iteration of one wave
    bound: str  # the unit that takes longest; "latency" where waves wait instead
    matrix_issue: float  # share of the time in which matrix units are busy
    model: str = WORDS

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        units = ", ".join(f"{name} {count:.0f}" for name, count in self.clocks.items() if count)
        return (
            f"matrix issue {self.matrix_issue:.2f}, bound by {self.bound}; "
            f"clocks per iteration of the main loop: {units}; "
            f"{counted(self.waves, 'wave')} a SIMD ({self.model})"
        )


def memory_bytes(instruction: Instruction) -> int:
    """Bytes of a lane that an instruction moves from or to memory."""
    parts = _MEMORY.match(instruction.mnemonic)
    if parts is None:
        return 0
    kind = re.sub(r"_?d16(?:_hi)?|^lds_", "", parts.group(2))
    return next((size for name, size in _WIDTHS.items() if kind.endswith(name)), 4)


def main_path(code: Sequence[Instruction], arch: Arch) -> tuple[int, list[Instruction]] | None:
    """Where the main loop begins, and the path through it that whole tiles take; None where no loop multiplies."""

    def weight(instruction: Instruction) -> float:
        cost = costs.matrix_cost(instruction.mnemonic, arch.name, instruction.operands)
        return cost.clocks if cost is not None else 0.0

    graph = flow.blocks(code) if code else []
    loop = flow.main_loop(graph, weight) if graph else None
    path = flow.hot_path(graph, loop, weight) if loop is not None else []
    return (graph[loop.header].address, path) if loop is not None and any(map(weight, path)) else None


def code_model(symbol: str, code: Sequence[Instruction], arch: Arch, waves: int) -> CodeModel | None:
    """None where there is no loop with matrix instructions, or the arch's rates are not known."""
    rates, main = costs.unit_rates(arch), main_path(code, arch)
    if rates is None or main is None:
        return None
    address, path = main
    matrix = [
        cost
        for instruction in path
        if (cost := costs.matrix_cost(instruction.mnemonic, arch.name, instruction.operands)) is not None
    ]
    clocks = _unit_clocks(path, arch, rates)
    alone = _one_wave(path, arch, rates)
    waves = max(1, waves)
    turn = max(*clocks.values(), alone / waves)
    bound = max(clocks, key=lambda unit: clocks[unit])
    loaded = sum(memory_bytes(instruction) for instruction in path if "_load_" in instruction.mnemonic)
    return CodeModel(
        kernel=symbol,
        address=address,
        instructions=len(path),
        matrix_instructions=len(matrix),
        macs=sum(cost.macs for cost in matrix),
        loaded_bytes=loaded * arch.warp_size,
        clocks={**{name: round(count, 1) for name, count in clocks.items()}, "one_wave": round(alone, 1)},
        waves=waves,
        turn=round(turn, 1),
        bound=bound if clocks[bound] >= turn else "latency",
        matrix_issue=round(clocks["matrix"] / turn, 4),
    )


def _unit_clocks(path: Sequence[Instruction], arch: Arch, rates: costs.UnitRates) -> dict[str, float]:
    """Clocks of each unit if nothing ever waited.  SIMDs share LDS and memory bandwidth equally."""
    clocks = dict.fromkeys(("matrix", "vector", "scalar", "lds", "memory"), 0.0)
    for instruction in path:
        name = instruction.mnemonic
        cost = costs.matrix_cost(name, arch.name, instruction.operands)
        if cost is not None:
            clocks["matrix"] += cost.clocks
            clocks["vector"] += rates.issue
        elif costs.is_vector(name):
            clocks["vector"] += costs.vector_clocks(name, rates)
        elif name.startswith("s_"):
            clocks["scalar"] += rates.issue
        clocks["lds"] += arch.simds * _lds_clocks(name, arch, rates)
        clocks["memory"] += arch.simds * arch.warp_size * memory_bytes(instruction) / rates.cache_bytes
    return clocks


def _lds_clocks(mnemonic: str, arch: Arch, rates: costs.UnitRates) -> float:
    """Of a compute unit's LDS."""
    rate = rates.lds_read_bytes if costs.reads_lds(mnemonic) else rates.lds_bytes
    return arch.warp_size * costs.lds_bytes(mnemonic) / rate


class _Wave:
    """One wave that is alone on its SIMD, in order."""

    def __init__(self, arch: Arch, rates: costs.UnitRates) -> None:
        self._arch, self._rates = arch, rates
        self.now = self._matrix_free = self._lds_free = self._memory_free = 0.0
        self._ready: dict[int, float] = {}  # registers that matrix or vector instructions write
        self._done: dict[str, list[float]] = {"vmcnt": [], "lgkmcnt": []}

    def step(self, instruction: Instruction) -> None:
        name, rates = instruction.mnemonic, self._rates
        for counter, allowed in waits(instruction):
            queue = self._done.get(counter, [])
            if len(queue) > allowed:
                self.now = max(self.now, *queue[: len(queue) - allowed])
                del queue[: len(queue) - allowed]
        cost = costs.matrix_cost(name, self._arch.name, instruction.operands)
        if cost is not None:
            parts = flow.operands(instruction.operands)
            sources = [register for part in parts[1:3] for register in flow.registers(part)]
            start = max(self.now, self._matrix_free, *(self._ready.get(register, 0.0) for register in sources))
            self._matrix_free = start + cost.clocks
            self._ready |= dict.fromkeys(flow.registers(parts[0]), start + cost.clocks + 2 * rates.issue)
            self.now = start + rates.issue
            return
        if costs.is_vector(name):
            for register in flow.registers(instruction.operands):
                self.now = max(self.now, self._ready.pop(register, 0.0))
            self.now += costs.vector_clocks(name, rates)
            return
        if name == "s_nop":
            self.now += rates.issue * int(instruction.operands.split()[0], 0)
        self._move(instruction)
        self.now += rates.issue

    def _move(self, instruction: Instruction) -> None:
        service = self._arch.simds * _lds_clocks(instruction.mnemonic, self._arch, self._rates)
        if service:
            self._lds_free = max(self._lds_free, self.now) + service
            self._done["lgkmcnt"].append(max(self._lds_free, self.now + self._rates.lds_latency))
        size = memory_bytes(instruction)
        if size:
            service = self._arch.simds * self._arch.warp_size * size / self._rates.cache_bytes
            self._memory_free = max(self._memory_free, self.now) + service
            self._done["vmcnt"].append(max(self._memory_free, self.now + self._rates.memory_latency))


def waits(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """Counters that a wait names, as those of gfx9, with how many may be left; gfx12's own are read as these."""
    name, text = instruction.mnemonic, instruction.operands
    if name == "s_waitcnt":
        if not text or text.startswith("0"):  # a plain 0 waits for all
            yield from (("vmcnt", 0), ("lgkmcnt", 0))
        yield from ((counter, int(count)) for counter, count in _COUNTER.findall(text))
    elif name == "s_wait_idle":
        yield from (("vmcnt", 0), ("lgkmcnt", 0))
    elif name in ("s_wait_loadcnt", "s_wait_dscnt"):
        yield "vmcnt" if "load" in name else "lgkmcnt", int(text, 0)
    elif name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        both = int(text, 0)
        if "load" in name:
            yield "vmcnt", both >> 8
        yield "lgkmcnt", both & 0xFF


def _one_wave(path: Sequence[Instruction], arch: Arch, rates: costs.UnitRates) -> float:
    """Clocks of an iteration of a single wave, once its iterations take equally long."""
    wave = _Wave(arch, rates)
    ends = []
    for _ in range(_TURNS):
        for instruction in path:
            wave.step(instruction)
        ends.append(wave.now)
    return ends[-1] - ends[-2]
