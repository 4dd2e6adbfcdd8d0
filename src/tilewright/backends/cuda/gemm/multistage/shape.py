"""What a multistage kernel takes: shared memory (gpu/multistage_memory.h says how much) and registers.

The field `vector` is what promises alignment: rows of A and B are copied that many elements at a time, 16, 8 or 4
bytes, and must be aligned to it.  A vector of one element that is shorter than four bytes takes rows that start
anywhere: words around them are copied, and moved into place in shared memory.
"""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.gemm.multistage.schedule import MultistageSchedule
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

MEMORY = Arithmetic("tilewright.backends.gpu", "tilewright/gpu/multistage_memory.h")
UNIT_ROWS = MEMORY("multistage_unit_rows")
FP8 = ("fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True)
class Operand:
    """A or B of a tile, as `Operand` of gpu/multistage_shape.h: `lines` rows of A or columns of B, `deep` of k."""

    dtype: str
    lines: int
    deep: int
    along_k: bool  # contiguous along k
    vector: int  # elements that are copied at a time

    @property
    def size(self) -> int:
        return DTYPES[self.dtype].bytes

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.size, self.lines, self.deep, plain(self.dtype), self.along_k, self.vector * self.size

    @property
    def pieces(self) -> int:
        """Of a row, that threads side by side copy."""
        return MEMORY("operand_pieces", *self._shape)

    def ring_bytes(self, stages: int) -> int:
        """Its stages, and what is moved into place."""
        return MEMORY("operand_ring_bytes", stages, *self._shape)


def plain(dtype: str) -> bool:
    """Exact fp32, which no matrix instruction multiplies."""
    return dtype == "fp32"


def operands(signature: GemmSignature, schedule: MultistageSchedule) -> tuple[Operand, Operand]:
    m, n, k = schedule.tile
    return (
        Operand(signature.dtype_a, m, k, signature.layout[0] == "r", schedule.vector[0]),
        Operand(signature.dtype_b, n, k, signature.layout[1] == "c", schedule.vector[1]),
    )


def warp_tile(dtype: str) -> Shape:
    """One mma.sync; for exact fp32 what 32 lanes multiply before they read again."""
    return (UNIT_ROWS, 32, 1) if plain(dtype) else (UNIT_ROWS, 8, 32 // DTYPES[dtype].bytes)


def unit_columns(dtype: str) -> int:
    """Of a warp's part: two instructions."""
    return MEMORY("multistage_unit_columns", plain(dtype))


def k_bytes(dtype: str) -> tuple[int, ...]:
    """What a stage may hold of k."""
    return (32, 64) if plain(dtype) else (64, 128)


def shared_bytes(signature: GemmSignature, schedule: MultistageSchedule) -> int:
    ring = sum(operand.ring_bytes(schedule.stages) for operand in operands(signature, schedule))
    return MEMORY("multistage_shared_bytes", ring, schedule.warp_grid[0], schedule.tile[1])


def multistage(
    signature: GemmSignature,
    m: int,
    n: int,
    k_bytes: int,
    warps: tuple[int, int],
    stages: int,
    vector_bytes: int | tuple[int, int] = 16,
    tile_scheduler: str = "data_parallel",
) -> MultistageSchedule:
    """`vector_bytes` of both operands, or of A and B; 0 is any alignment."""
    sizes = DTYPES[signature.dtype_a].bytes, DTYPES[signature.dtype_b].bytes
    pair = (vector_bytes, vector_bytes) if isinstance(vector_bytes, int) else vector_bytes
    return MultistageSchedule(
        tile=(m, n, k_bytes // sizes[0]),
        warp_tile=warp_tile(signature.dtype_a),
        warp_grid=(*warps, 1),
        stages=stages,
        vector=(max(1, pair[0] // sizes[0]), max(1, pair[1] // sizes[1])),
        tile_scheduler=tile_scheduler,
    )


def transposed(signature: GemmSignature) -> bool:
    """Whether bytes whose lines are contiguous are transposed in shared memory."""
    return DTYPES[signature.dtype_a].bytes == 1 and signature.layout[:2] != "rc"


def sums(schedule: MultistageSchedule) -> int:
    """Of one thread."""
    return schedule.tile[0] * schedule.tile[1] // (32 * schedule.warp_grid[0] * schedule.warp_grid[1])


def most_sums(signature: GemmSignature, vector: int) -> int:
    """Of one thread; `vector` is the narrower one.  Registers also hold widened fp8, and bytes in flight."""
    fp8 = signature.dtype_a in FP8
    if fp8 and (vector == 1 or transposed(signature)):
        return 32
    return 64 if fp8 or transposed(signature) or signature.dtype_a == "tf32" else 128


def streamed_sums(signature: GemmSignature, schedule: MultistageSchedule, arch: Arch) -> int:
    """Of one thread of stream_k, which keeps places of its tiles too: compiled with more, some of these kernels spill.

    So do those that copy lines float by float, and before sm_90 those whose A is read by lines and B along k.
    """
    both = operands(signature, schedule)
    by_floats = any(not operand.along_k and operand.vector == 1 for operand in both)
    crossed = not both[0].along_k and both[1].along_k and (arch.capability or (0, 0)) < (9, 0)
    return 64 if by_floats or crossed else 128
