"""Convolution kernels that are built and executed on problems of our choice: what a draw might miss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.amd_emulated.conv.drawing import Drawn, Lie
from tests.amd_emulated.conv.sums import DATA, FORWARD, READ, WEIGHT
from tests.amd_emulated.number_formats import ORDINARY
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.shared import Shape
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, accumulator


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and why it is here."""

    label: str
    spec: KernelSpec


def loops(
    gpu: str, variant: str, rank: int, dtype: str, out: str = "", epilogue: str = "PassThrough", num_d: int = 0,
    dtype_d: str = "",
) -> KernelSpec:  # fmt: skip
    result = out or ("int32" if dtype == "int8" else dtype)
    signature = ConvSignature(variant, rank, dtype, accumulator(dtype), result, dtype_d or result, epilogue, num_d)
    return KernelSpec("conv", signature, LoopsSchedule(), gpu)


def ck_tile(
    gpu: str,
    what: tuple[str, int, str],  # direction, dimensions, element type
    pipeline: str,
    vectors: Shape,
    *,
    step: Shape = (32, 32, 16),  # of the matrix instruction
    deep: int = 32,
    scheduler: str = "intrawave",
    store: str = "cshuffle",
    split_k: int = 1,
    special: str = "any",
    merged: int = 1,
    fused: tuple[str, int] = ("PassThrough", 0),
    grid: Shape = (2, 2, 1),
) -> KernelSpec:
    """A tile of 64 x 64, by four waves."""
    variant, rank, dtype = what
    result = "int32" if dtype == "int8" else dtype
    signature = ConvSignature(variant, rank, dtype, accumulator(dtype), result, result, *fused)
    schedule = CkTileConvSchedule(
        pipeline, (64, 64, deep), step, grid, vectors, scheduler, store, split_k, special, merged
    )  # fmt: skip
    return KernelSpec("conv", signature, schedule, gpu)


def tiled(
    gpu: str,
    what: tuple[str, int, str],
    vectors: Shape,
    *,
    fused: tuple[str, int] = ("PassThrough", 0),
    **more: Any,
) -> KernelSpec:
    """A tile of 64 x 64, by four waves, without CK Tile."""
    variant, rank, dtype = what
    result = "int32" if dtype == "int8" else dtype
    signature = ConvSignature(variant, rank, dtype, accumulator(dtype), result, result, *fused)
    deep = {"int8": 64, "fp32": 16}.get(dtype, 32)
    pipeline = "fma" if dtype == "fp32" else "wmma"
    return KernelSpec("conv", signature, TiledConvSchedule(pipeline, (64, 64, deep), (2, 2, 1), vectors, **more), gpu)


G2, G3, G4, R3, R4 = "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"


def cases() -> tuple[Case, ...]:
    found = [
        ("loops forward fp16", loops(G3, FORWARD, 2, "fp16")),
        ("loops backward_data fp16", loops(G3, DATA, 2, "fp16")),
        ("loops backward_weight fp16", loops(G3, WEIGHT, 2, "fp16")),
        ("loops forward 3D fp32 on gfx90a", loops(G2, FORWARD, 3, "fp32")),
        ("loops backward_data 3D bf16 to fp32", loops(G2, DATA, 3, "bf16", "fp32")),
        ("loops backward_weight 3D fp32 on gfx950", loops(G4, WEIGHT, 3, "fp32")),
        ("loops int8 to int32", loops(G4, FORWARD, 2, "int8")),
        ("loops int8 to int8, added and cut off", loops(R3, FORWARD, 2, "int8", "int8", "Relu", 1)),
        ("loops fp16, bias and residual, on gfx1100", loops(R3, FORWARD, 2, "fp16", epilogue="Silu", num_d=2)),
        (
            "loops bf16 times D of fp32",
            loops(R4, FORWARD, 2, "bf16", epilogue="MultiDMultiply", num_d=1, dtype_d="fp32"),
        ),
        ("loops backward_data fp32 on gfx1201", loops(R4, DATA, 2, "fp32")),
        ("loops backward_weight bf16 on gfx1100", loops(R3, WEIGHT, 2, "bf16")),
        ("loops Gelu 3D bf16", loops(G3, FORWARD, 3, "bf16", epilogue="Gelu", num_d=1)),
        ("compv3 forward fp16, bias and residual",
         ck_tile(G3, (FORWARD, 2, "fp16"), "compv3", (8, 8, 8), fused=("Relu", 2))),
        ("compv4 forward 3D bf16, odd channels", ck_tile(G2, (FORWARD, 3, "bf16"), "compv4", (1, 1, 1))),
        ("mem forward int8", ck_tile(G4, (FORWARD, 2, "int8"), "mem", (4, 4, 4), deep=64)),
        ("compv3 forward fp16, pointwise", ck_tile(G3, (FORWARD, 2, "fp16"), "compv3", (8, 8, 8), special="pointwise")),
        ("compv5 forward bf16, bias and residual",
         ck_tile(G3, (FORWARD, 2, "bf16"), "compv5", (8, 8, 8), fused=("Relu", 2), grid=(1, 1, 2))),
        ("mem backward_data fp16", ck_tile(G3, (DATA, 2, "fp16"), "mem", (4, 4, 8), scheduler="interwave")),
        ("compv4 backward_data 3D bf16", ck_tile(G4, (DATA, 3, "bf16"), "compv4", (1, 1, 1), store="direct")),
        ("compv4 backward_weight bf16, split",
         ck_tile(G3, (WEIGHT, 2, "bf16"), "compv4", (2, 2, 8), split_k=4)),
        ("compv3 backward_weight 3D fp32",
         ck_tile(G2, (WEIGHT, 3, "fp32"), "compv3", (1, 1, 4), step=(32, 32, 8), deep=16)),
        ("compv3 forward fp16 in copies, bias and residual",
         ck_tile(G3, (FORWARD, 2, "fp16"), "compv3", (8, 8, 8), special="copied", fused=("Relu", 2))),
        ("mem forward 3D int8 in copies",
         ck_tile(G4, (FORWARD, 3, "int8"), "mem", (16, 16, 4), deep=64, special="copied")),
        ("mem forward bf16 in copies, groups merged",
         ck_tile(G2, (FORWARD, 2, "bf16"), "mem", (8, 1, 8), special="copied", merged=32)),
        ("compv3 backward_data 3D fp32 in copies",
         ck_tile(G3, (DATA, 3, "fp32"), "compv3", (4, 4, 4), step=(32, 32, 8), deep=16, special="copied")),
        ("mem backward_data fp16 in copies, groups merged",
         ck_tile(G4, (DATA, 2, "fp16"), "mem", (8, 4, 8), special="copied", merged=16)),
        ("compv4 backward_weight bf16 in copies, split",
         ck_tile(G2, (WEIGHT, 2, "bf16"), "compv4", (8, 8, 8), split_k=4, special="copied")),
        ("mem backward_weight 3D fp16 in copies",
         ck_tile(G3, (WEIGHT, 3, "fp16"), "mem", (8, 8, 8), special="copied")),
        ("wmma forward fp16 on gfx1100, bias and residual",
         tiled(R3, (FORWARD, 2, "fp16"), (8, 8, 8), fused=("Silu", 2))),
        ("wmma forward 3D int8 on gfx1201", tiled(R4, (FORWARD, 3, "int8"), (4, 8, 4))),
        ("wmma forward bf16 on gfx1201 in copies, groups merged",
         tiled(R4, (FORWARD, 2, "bf16"), (8, 1, 8), special="copied", merged=32)),
        ("fma backward_data 3D fp32 on gfx1201 in copies", tiled(R4, (DATA, 3, "fp32"), (4, 4, 4), special="copied")),
        ("wmma backward_data bf16 on gfx1100", tiled(R3, (DATA, 2, "bf16"), (2, 2, 8))),
        ("wmma backward_weight fp16 on gfx1201, split", tiled(R4, (WEIGHT, 2, "fp16"), (4, 8, 8), split_k=4)),
        ("fma backward_weight fp32 on gfx1100 in copies",
         tiled(R3, (WEIGHT, 2, "fp32"), (4, 4, 4), split_k=16, special="copied")),
    ]  # fmt: skip
    return tuple(Case(label, one) for label, one in found)


def copies(spec: KernelSpec) -> bool:
    """Whether the kernel takes any memory and channels, in copies."""
    return getattr(spec.schedule, "special", "") == "copied"


def problems(spec: KernelSpec, seed: int) -> Iterator[tuple[str, Drawn]]:
    """What each is meant to show, and the problem; sizes are as odd as the kernel's loads allow."""
    wide = 1 if copies(spec) else max(getattr(spec.schedule, "vectors", (1, 1))[:2])
    s, rank = spec.signature, spec.signature.spatial
    values = {**dict.fromkeys(READ[s.variant], ORDINARY), "d": ORDINARY}
    kinds = ("channel", "full")[: s.num_d]
    ones, none = (1,) * rank, (0,) * rank
    big = (9, 7) if rank == 2 else (4, 5, 3)

    def one(batch: int, groups: int, channels: int, filters: int, **more: Any) -> Drawn:
        fields: dict[str, Any] = {
            "size": big,
            "window": (3,) * rank,
            "stride": ones,
            "dilation": ones,
            "before": ones,
            "after": ones,
        }
        fields.update(more)
        channels, filters = channels * wide, filters * wide
        return Drawn(batch, groups, channels, filters, d_kinds=kinds, values=values, seed=seed, **fields)

    yield "a window that keeps the size", one(2, 1, 8, 5)
    yield "groups of odd channels, padding of one side", one(1, 3, 5, 7, before=none, after=(2,) * rank)
    yield "depthwise, a stride", one(2, 11, 1, 1, stride=(2,) * rank)
    yield "a depth multiplier, dilation", one(1, 4, 1, 3, dilation=(1,) * (rank - 1) + (2,))
    yield "pointwise, strides that leave pixels out", one(2, 2, 6, 4, window=ones, before=none, after=none,
                                                         stride=(3, 2, 2)[:rank])  # fmt: skip
    yield "pointwise, every pixel", one(2, 2, 6, 4, window=ones, before=none, after=none)
    yield "padding wider than the window", one(1, 1, 3, 4, window=(2,) * rank, before=(3,) * rank, after=(2,) * rank)
    last, first = tuple(range(rank + 2)), (0, rank + 1, *range(1, rank + 1))
    lies = {
        "x": Lie(first, off=1),
        "w": Lie(last, gaps=(0, 3, *(1,) * rank)),
        "y": Lie(first, gaps=(0, *(2,) * (rank + 1))),
    }
    yield "channels first, gaps, odd addresses", one(2, 2, 3, 5, lies={**lies, "d1": lies["y"]})
    every = dict.fromkeys(("x", "w", "y", "d1"), Lie(first))
    yield "channels first, in whole accesses", one(2, 1, 32, 40, size=(8, 8, 8)[:rank], lies=every)
    yield "channels first, depthwise", one(2, 37, 1, 1, lies=every)
    backwards = {
        "x": Lie(last, backwards=(1, rank + 1)),
        "w": Lie(last, backwards=(0,)),
        "y": Lie(last, backwards=(2,)),
    }
    yield "backwards, a stride", one(1, 2, 9, 12, stride=(2,) * rank, lies=backwards)
    if rank == 2:
        yield (
            "one dimension",
            one(3, 2, 4, 3, size=(31,), window=(5,), stride=(2,), dilation=(3,), before=(4,), after=(7,)),
        )
        yield "no image", one(0, 2, 4, 3)
