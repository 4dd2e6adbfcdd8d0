"""What the CPU's convolution families share: register blocks, cache blocks, what a template is filled with, promises.

Tile is the cache block, warp tile the register block; threads are laid over the tiles at launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cpu.families import CpuFamily
from tilewright.backends.cpu.vectors import block_rules, dot_step_of, lanes
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.family import ConvFamily
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

Shape = tuple[int, int, int]
Pair = tuple[int, int]
ONE: Shape = (1, 1, 1)
PIXELS = ("forward", "backward_data")  # directions that gather for every pixel of their result
WEIGHTS = ("backward_weight",)

TILE_LIMIT = 1 << 22  # elements of a cache block

# Rows and vectors of the register blocks worth having, best first, by vector registers.
BLOCKS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((14, 2), (6, 4), (28, 1), (8, 3), (12, 2), (9, 3)),
    16: ((6, 2), (12, 1), (4, 2), (3, 3)),
}
_DEFAULT_BLOCKS = {32: 3, 16: 2}  # how many of them are in `default`


def sizes(value: tuple[int, ...]) -> str:
    return "x".join(map(str, value))


def default_blocks(arch: Arch) -> tuple[tuple[int, int], ...]:
    return BLOCKS[arch.vector_registers][: _DEFAULT_BLOCKS[arch.vector_registers]]


def about(size: int, block: int) -> int:
    """How many blocks make about `size`."""
    return max(1, round(size / block))


def swept_tiles(arch: Arch, far: bool) -> Iterator[tuple[int, int, Shape]]:
    """Register blocks, and how many of them are a cache block."""
    width = lanes(arch)
    for rows, vectors in BLOCKS[arch.vector_registers]:
        for m in (32, 64, 128, 256) if far else (64, 128):
            for n in (64, 128, 256, 512) if far else (64, 256):
                for k in (128, 256, 384, 576, 1152, 2304) if far else (256, 1152):
                    yield rows, vectors, (about(m, rows), about(n, vectors * width), k)


def dot_step(signature: ConvSignature, arch: Arch) -> int:
    """k elements one multiply-accumulate instruction of an implicit GEMM eats: the warp tile's k."""
    return dot_step_of(arch, signature.dtype)


class OfOneThread:
    """What all schedules say alike: a tile is one thread's."""

    __slots__ = ()

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE


def tile_rules(schedule: Any) -> Iterator[Violation]:
    """Cache blocks are whole register blocks, and fit a cache."""
    tile = dict(zip(schedule.axis_names["tile"], schedule.tile, strict=True))
    for name, block in zip("mnk", schedule.warp_tile, strict=True):
        size = tile.setdefault(name, block)
        if size % block:
            yield Violation(
                "cpu-tile",
                f"tile_{name} {size} is not a multiple of warp_tile_{name} {block}",
                f"use {max(1, size // block) * block}",
            )
    m, n, k = tile["m"], tile["n"], tile["k"]
    if max(m * n, n * k, m * k) > TILE_LIMIT:
        yield Violation("cpu-cache-block", f"tile {m}x{n}x{k} is larger than any cache", "use a smaller tile")


class CpuConvFamily(CpuFamily, ConvFamily):
    """A family of convolution kernels on the CPU: all are filled into one template."""

    template = ("tilewright.backends.cpu.conv", "conv.cpp.jinja")
    variants: ClassVar[tuple[str, ...]]  # the directions it computes
    work: ClassVar[str]  # the C++ class template that does the work, of a Config

    def step(self, signature: ConvSignature, arch: Arch) -> int:
        """k elements that one multiply-add eats: the warp tile's k."""
        return 1

    def violations(self, signature: ConvSignature, schedule: Any, arch: Arch) -> Iterator[Violation]:
        if signature.variant not in self.variants:
            yield Violation(
                "cpu-direction",
                f"pipeline {schedule.pipeline} has no {signature.variant}",
                f"use it for {' or '.join(self.variants)}",
            )
        yield from self.block_violations(signature, schedule, arch)

    def block_violations(self, signature: ConvSignature, schedule: Any, arch: Arch) -> Iterator[Violation]:
        """What registers and caches allow."""
        what = f"{schedule.pipeline} of {signature.dtype}"
        yield from block_rules(schedule.warp_tile, self.step(signature, arch), what, arch)

    def config(self, schedule: Any) -> Mapping[str, object]:
        """The constants of the kernel's Config: the register block, and what a family adds."""
        return {f"warp_tile_{axis}": size for axis, size in zip("mnk", schedule.warp_tile, strict=True)}

    def channels_last_work(self) -> str:
        """As the kernel runs it: other layouts are transposed before, results back."""
        return f"tw::ConvChannelsLast<Config, tw::{self.work}<Config>>"

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {"family": self.name, "work": self.channels_last_work(), "config": self.config(spec.schedule),
                "limits": self.numbers(spec)}  # fmt: skip

    def transposed(self, problem: ConvProblem) -> str:
        """Which of x, w and y a kernel transposes, their channels being apart."""
        return "".join(name for name in "xwy" if getattr(problem, f"{name}_strides")[-1] != 1)

    def remarks(self, schedule: Any, problem: ConvProblem) -> list[str]:
        transposed = self.transposed(problem)
        return (
            [f"transposes {', '.join(transposed)} to channels-last in its workspace, the result back"]
            if transposed
            else []
        )

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch."""
        from tilewright.inspect.x86 import FMA

        return Promises(FMA) if "fma" in arch_by_name(spec.arch).features else Promises()


class CpuPassingFamily(CpuConvFamily):
    """Gradients of weights whose register blocks stay while pixels go by: in pairs where a dot product has them, or one
    by one, widened to fp32."""

    variants = WEIGHTS

    def step(self, signature: ConvSignature, arch: Arch) -> int:
        return dot_step(signature, arch)

    def block_violations(self, signature: ConvSignature, schedule: Any, arch: Arch) -> Iterator[Violation]:
        step = 1 if schedule.warp_tile[2] == 1 else self.step(signature, arch)
        yield from block_rules(schedule.warp_tile, step, f"{schedule.pipeline} of {signature.dtype}", arch)
        yield from tile_rules(schedule)

    def config(self, schedule: Any) -> Mapping[str, object]:
        return {**tiled_config(schedule), **super().config(schedule)}

    def promises(self, spec: KernelSpec) -> Promises:
        """Dot products of pairs are all that a kernel may multiply with."""
        return Promises(("vdpbf16ps",)) if spec.schedule.warp_tile[2] == 2 else super().promises(spec)


def tiled_config(schedule: Any) -> Mapping[str, object]:
    """The constants of a cache block."""
    axes = schedule.axis_names["tile"]
    return {f"tile_{axis}": size for axis, size in zip(axes, schedule.tile, strict=True)}


def block_numbers(schedule: Any) -> dict[str, int]:
    """The register block, as costs count it."""
    return {"rows": schedule.warp_tile[0], "columns": schedule.warp_tile[1]}
