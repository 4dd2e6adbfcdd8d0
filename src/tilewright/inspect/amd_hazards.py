"""How many wait states a matrix instruction needs before its result is touched.

AMD's ISA documents of CDNA list them as required wait states; LLVM's hazard recognizer has the same numbers.  A wait
state is one instruction, or one of the counts of `s_nop`.  A later matrix instruction may take the accumulators as its
C at once where it takes exactly the same registers.  RDNA holds instructions back itself, except that a WMMA may not
take the result of the WMMA right before it as A or B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.dataclass import dataclass
from tilewright.inspect import amd_flow as flow
from tilewright.inspect.amd_rates import matrix_cost
from tilewright.inspect.disassembly import Instruction

_MEMORY = ("ds_", "global_", "buffer_", "flat_", "scratch_")


@dataclass(frozen=True, slots=True)
class MatrixWrite:
    """A result that is being written."""

    writer: str
    target: tuple[int, ...]
    passes: int
    xdl: bool
    left: int  # wait states until nothing has to wait for it
    since: int = 0
    # Passes that the matrix unit is still busy with, by this or a later instruction: the next one is held back by them.
    busy: int = 0

    def after(self, states: int) -> MatrixWrite:
        """Behind as many wait states."""
        busy = max(0, self.busy - states)
        return replace(self, left=self.left - states, since=self.since + states, busy=busy)

    def behind(self, matrix: MatrixWrite | None) -> MatrixWrite:
        """Behind another matrix instruction, which began only when the unit was free."""
        later = self.after(1 + self.busy)
        return later if matrix is None else replace(later, busy=matrix.busy)

    def joined(self, other: MatrixWrite) -> MatrixWrite:
        """Where two paths meet: the longer wait, and the least that holds a matrix instruction back."""
        longer = other if other.left > self.left else self
        return replace(longer, busy=min(self.busy, other.busy), since=min(self.since, other.since))


def _to_vector(passes: int, xdl: bool, arch: str) -> int:
    """Until a vector or memory instruction may read or write the result, and a matrix one take it as A or B."""
    if arch == "gfx908":
        return {2: 4, 8: 10, 16: 18}[passes]
    if arch == "gfx90a":
        return {2: 5, 8: 11, 16: 19}[passes]
    return passes + (3 + _longer(passes, arch) if xdl else 2)


def _to_sum(passes: int, xdl: bool, arch: str) -> int:
    """Until a matrix instruction may take other registers as C, some of which are the result's."""
    if arch in ("gfx908", "gfx90a"):
        return passes
    return passes + (1 + _longer(passes, arch) if xdl else 0)


def _to_overwrite(passes: int) -> int:
    """On gfx908 until `v_accvgpr_write` may write over the result: less than until something reads it."""
    return {2: 1, 8: 7, 16: 15}[passes]


def _longer(passes: int, arch: str) -> int:
    """gfx950 asks for one more behind all but the shortest."""
    return int(arch == "gfx950" and passes != 2)


def remembered(instruction: Instruction, arch: str) -> MatrixWrite | None:
    """What must be kept in mind of a matrix instruction; None where the hardware takes care of all of it."""
    target = flow.registers(flow.operands(instruction.operands)[0])
    writer = f"{instruction.mnemonic} at {instruction.address:#x}"
    if instruction.mnemonic.startswith(("v_wmma_", "v_swmmac_")):
        return MatrixWrite(writer, target, 0, True, 1)
    cost = matrix_cost(instruction.mnemonic, arch, instruction.operands)
    if cost is None or "f64" in instruction.mnemonic:
        return None
    wait = _to_vector(cost.passes, cost.xdl, arch)
    return MatrixWrite(writer, target, cost.passes, cost.xdl, wait, busy=cost.passes - 1)


def needed(write: MatrixWrite, instruction: Instruction, parts: Sequence[str], register: int, arch: str) -> int:
    """Wait states that are missing before an instruction that touches a register of the result; 0 or less: none."""
    name = instruction.mnemonic
    if flow.is_matrix(name):
        as_operand = any(register in flow.registers(part) for part in parts[1:3])
        if write.passes == 0:
            return write.left if as_operand else 0
        if as_operand:
            return write.left
        sums = flow.registers(parts[3]) if len(parts) > 3 else ()
        if register not in sums or sums == write.target:
            return 0  # results are written in the order of their instructions
        return _to_sum(write.passes, write.xdl, arch) - write.since
    if write.passes == 0 or not name.startswith(("v_", *_MEMORY)):
        return 0
    if arch == "gfx908" and name.startswith("v_accvgpr_write"):
        return _to_overwrite(write.passes) - write.since
    return write.left
