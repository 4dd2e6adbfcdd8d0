"""ck_tile: GEMM's instance of CK Tile with windows of our own; rows are pixels or filters, k taps and channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.hip import ck_tile_rules as product_rules
from tilewright.backends.hip import ck_tile_shape
from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.ck_tile_pipelines import number_of
from tilewright.backends.hip.conv.ck_tile import schedules as pools
from tilewright.backends.hip.conv.ck_tile import shape
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.ck_tile.shape import as_product, lane_vectors, multiplied, native_store
from tilewright.backends.hip.conv.shared import NUMBERS, SWITCHES, TiledFamily, by_ck_tile, lines_of
from tilewright.backends.hip.gemm.ck_tile import FAMILY as GEMM_CK_TILE
from tilewright.backends.hip.gemm.ck_tile.templates import gemm_profile
from tilewright.backends.hip.profiles import DEFAULT, named, profile
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

COMPILE_MEMORY = 1 << 30  # peak resident size of one compile with all its tails, rounded up
# Windows of our own take the place of CK Tile's in these versions of the headers.
VERSIONS = (DEFAULT,)
_OURS = ["tilewright/hip/conv/ck_tile/kernel.h", "tilewright/hip/conv/copied.h"]


def ck_tile_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Which products CK Tile's headers have on the arch."""
    yield from product_rules.ck_tile_rules(multiplied(signature), arch)


def _is_whole(signature: ConvSignature, schedule: CkTileConvSchedule) -> bool:
    return product_rules.is_whole(as_product(signature, schedule)[1])


def _product(signature: ConvSignature, schedule: CkTileConvSchedule, arch: Arch) -> Iterator[Violation]:
    """What the matrix product allows."""
    if next(dtype_rules(signature), None) is None:
        yield from ck_tile_rules(signature, arch)
        yield from product_rules.instance_rules(*as_product(signature, schedule), arch)


def _vectors(signature: ConvSignature, schedule: CkTileConvSchedule) -> Iterator[Violation]:
    size = ck_tile_shape.bytes_of(signature.dtype)
    for what, width, most in zip("AB", schedule.vectors, lane_vectors(signature, schedule), strict=False):
        if width & (width - 1) or width * size > ck_tile_shape.NATIVE_BYTES:
            widest = ck_tile_shape.NATIVE_BYTES // size
            yield Violation("amd-vector", f"{what} is read {width} at a time", f"use a power of two up to {widest}")
        elif width > most:
            message = f"{what} is read {width} at a time, and a lane has {most} neighbours of its tile"
            yield Violation("amd-vector", message, f"use {most}, or a larger tile")
    stored, widest = schedule.vectors[2], native_store(signature, schedule)
    if stored & (stored - 1) or stored > widest:
        message = f"{stored} results leave at a time by the {schedule.store} store"
        yield Violation("amd-vector", message, f"use a power of two up to {widest}")


def _registers(signature: ConvSignature, schedule: CkTileConvSchedule, arch: Arch) -> Iterator[Violation]:
    """Beside what the product takes: where a lane reads."""
    product = as_product(signature, schedule)
    own = ck_tile_shape.registers(*product)
    held, room = own + shape.walking_registers(signature, schedule), product_rules.register_room(product[1], arch)
    if held > room and own <= room:  # else the product's rule has said it
        tile = "x".join(map(str, schedule.tile))
        message = (
            f"tile {tile} with vectors {schedule.vectors[:2]} wants {held} registers of a lane; over {room} it spills"
        )
        yield Violation("amd-registers", message, "use a smaller tile, more waves or wider vectors")


class CkTile(TiledFamily):
    name = "ck_tile"
    schedules = (CkTileConvSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CkTileConvSchedule]:
        if by_ck_tile(signature, arch):
            yield from pools.proposals(pool, signature, arch)

    def violations(self, signature: ConvSignature, schedule: CkTileConvSchedule, arch: Arch) -> Iterator[Violation]:
        yield from _product(signature, schedule, arch)
        whole = _is_whole(signature, schedule)
        if whole:
            yield from _vectors(signature, schedule)
        yield from super().violations(signature, schedule, arch)
        if whole and arch.accumulator_registers:
            yield from _registers(signature, schedule, arch)

    def loads(self, signature: ConvSignature, schedule: CkTileConvSchedule) -> tuple[int, int]:
        return shape.loads(signature, schedule)

    def threads(self, signature: ConvSignature, schedule: CkTileConvSchedule) -> int:
        return ck_tile_shape.threads(as_product(signature, schedule)[1])

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        width_a, width_b = lane_vectors(spec.signature, spec.schedule)
        more = {"pipeline": number_of(spec.schedule.pipeline), "width_a": width_a, "width_b": width_b}
        return {**super().numbers(spec), **more}

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        context = self._context(spec)
        return {**context, "shared": False, "includes": context["pipeline"]["includes"]}

    def shared_context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """Of the text that is precompiled: the includes of every pipeline, and a kernel that exports nothing."""
        pipelines = gemm_profile(DEFAULT).pipelines
        every = (header for name in CkTileConvSchedule.pipelines for header in pipelines[name]["includes"])
        return {**self._context(spec), "shared": True, "includes": list(dict.fromkeys(every)), "space": "tw_shared"}

    def _context(self, spec: KernelSpec) -> dict[str, Any]:
        version, h = chosen(), spec.schedule
        if version not in VERSIONS:
            raise ToolchainError(
                f"convolutions are not written for CK Tile headers of {version}",
                rule="headers-lack",
                value=version,
                remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or the loops pipeline",
            )
        names, product = gemm_profile(version), _as_gemm(spec)
        switches = {
            "a_rows": product.signature.layout[0] == "r",
            "b_rows": product.signature.layout[1] == "r",
            "pad_m": True,
            "pad_n": True,
            "pad_k": True,
            "preshuffle": False,
            "persistent": False,
            "pointwise": h.special == "pointwise",
        }
        pipeline = named(names.pipelines, "pipeline", h.pipeline, version)
        element = named(profile(version).types, "type", spec.signature.dtype, version)
        return {
            "family": self.name,
            "limits": self.numbers(spec),
            "headers": [names.glue, *_OURS],
            "kernel": self.kernel(h),
            "element": f"TW_ELEMENT({element}, {ck_tile_shape.bytes_of(spec.signature.dtype)})",
            "sums": True,
            "pipeline": pipeline,
            "tails": pipeline["tails"],
            "store": named(names.stores, "store", h.store, version),
            "scheduler": named(names.schedulers, "scheduler", h.scheduler, version),
            "numbers": lines_of(_numbers(spec, product), NUMBERS),
            "switches": lines_of(switches, SWITCHES),
        }

    def promises(self, spec: KernelSpec) -> Promises:
        """Matrix instructions."""
        return GEMM_CK_TILE.promises(_as_gemm(spec))

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


def _as_gemm(spec: KernelSpec) -> KernelSpec:
    """The matrix product a convolution is, as GEMM's half of the backend takes it."""
    signature, schedule = as_product(spec.signature, spec.schedule)
    return KernelSpec("gemm", signature, schedule, spec.arch)


def _numbers(spec: KernelSpec, product: KernelSpec) -> dict[str, Any]:
    """Numbers of a Config: what GEMM's has under the same names, and the widths in which operands are read."""
    h, s, g = spec.schedule, product.signature, product.schedule
    turn, does = ck_tile_shape.turn(s, g), ck_tile_shape.pipeline_of(g)
    numbers: dict[str, Any] = {
        **{f"{name}_{axis}": getattr(h, name)[i]
           for name in ("tile", "warp_grid", "warp_tile") for i, axis in enumerate("mnk")},
        "split_k": h.split_k,
        "merged": h.merged,
        "wave_groups": does.wave_groups,
        "lds_buffers": does.lds_buffers,
        "threads": ck_tile_shape.threads(g),
        "stages": ck_tile_shape.prefetch_stages(s, g),
        "least_loops": ck_tile_shape.least_loops(g),
        "width_a": ck_tile_shape.width_a(s, g),
        "width_b": ck_tile_shape.width_b(s, g),
        "width_c": ck_tile_shape.width_c(s, g),
        "turn_m": turn.m,
        "turn_n": turn.n,
        "turn_parts": turn.parts,
        "lds_bytes": ck_tile_shape.lds_bytes(s, g),
    }  # fmt: skip
    numbers["read_a"], numbers["read_b"] = shape.loads(spec.signature, h)
    return numbers


FAMILY = CkTile()
