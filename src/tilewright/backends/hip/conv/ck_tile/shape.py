"""A convolution on AMD GPUs as the matrix product it is computed by: the arithmetic of CK Tile's holds for it."""

from __future__ import annotations

from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.ck_tile_shape import Shape
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.dataclass import dataclass
from tilewright.ops.conv.spec import ConvSignature

# How the operands of a direction lie: which of them is contiguous along k.
LAYOUTS = {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"}


@dataclass(frozen=True, slots=True)
class Product:
    """What is multiplied."""

    dtype_a: str
    dtype_b: str
    dtype_acc: str
    dtype_c: str
    layout: str


@dataclass(frozen=True, slots=True)
class Instance:
    """The instance of CK Tile that multiplies."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    scheduler: str
    store: str
    split_k: int
    store_width: int
    persistent: bool = False


def multiplied(signature: ConvSignature) -> Product:
    s = signature
    return Product(s.dtype, s.dtype, s.dtype_acc, s.dtype_out, LAYOUTS.get(s.variant, "rcr"))


def native_store(signature: ConvSignature, schedule: CkTileConvSchedule) -> int:
    """Elements of the widest store a lane has."""
    if schedule.store != "cshuffle":
        return 1
    row = schedule.warp_grid[1] * schedule.warp_tile[1]
    return min(row, shape.NATIVE_BYTES // shape.bytes_of(signature.dtype_out))


def as_product(signature: ConvSignature, schedule: CkTileConvSchedule) -> tuple[Product, Instance]:
    """What its pipeline, LDS, registers and way out are those of."""
    h = schedule
    narrow = h.vectors[2] if h.vectors[2] < native_store(signature, h) else 0
    instance = Instance(h.pipeline, h.tile, h.warp_tile, h.warp_grid, h.scheduler, h.store, h.split_k, narrow)
    return multiplied(signature), instance


def lane_vectors(signature: ConvSignature, schedule: CkTileConvSchedule) -> tuple[int, int]:
    """Neighbours of A and of B that a lane holds: the most it can load at once."""
    product = as_product(signature, schedule)
    return shape.width_a(*product), shape.width_b(*product)


def loads(signature: ConvSignature, schedule: CkTileConvSchedule) -> tuple[int, int]:
    """Elements of one load of A and of B."""
    a, b = lane_vectors(signature, schedule)
    return min(a, schedule.vectors[0]), min(b, schedule.vectors[1])


def walking_registers(signature: ConvSignature, schedule: CkTileConvSchedule) -> int:
    """Registers of a lane that say where it reads, beyond what GEMM's windows take: places of rows and columns."""
    m, n, k = schedule.tile
    lanes = shape.threads(as_product(signature, schedule)[1])
    a, b = lane_vectors(signature, schedule)
    place = 1 if schedule.special == "pointwise" else 1 + signature.spatial
    rows_a, rows_b = m * k // lanes // max(1, a), n * k // lanes // max(1, b)
    narrow_a, narrow_b = (lane // max(1, load) for lane, load in zip((a, b), loads(signature, schedule), strict=True))
    gathered, plain = (rows_b + narrow_b, rows_a + narrow_a), (rows_a + narrow_a, rows_b + narrow_b)
    first, second = gathered if signature.variant == "backward_weight" else plain
    return first * place + second * (1 if schedule.merged == 1 else 2)
