"""The AMD kernels that are built and executed: few, small, and with everything a kernel can be made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.pools import POOLS
from tilewright.ops.gemm.problem import accumulator
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

FP8 = {"gfx942": "fp8_e4m3fnuz"}  # elsewhere OCP
BF8 = {"gfx942": "fp8_e5m2fnuz"}


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and why it is here."""

    label: str
    spec: KernelSpec


def spec(
    gpu: str,
    pipeline: str,
    dtype: str,
    layout: str = "rcr",
    store: str = "cshuffle",
    *,
    tile: Shape = (64, 64, 32),
    grid: Shape = (2, 2, 1),
    warp_tile: Shape = (32, 32, 16),
    scheduler: str = "",
    out: str = "",
    pad: bool = True,
    split_k: int = 1,
    persistent: bool = False,
    epilogue: str = "PassThrough",
    num_d: int = 0,
    store_width: int = 0,
    dtype_b: str = "",
) -> KernelSpec:
    own = {"fp8": FP8.get(gpu, "fp8_e4m3"), "bf8": BF8.get(gpu, "fp8_e5m2")}
    element, other = own.get(dtype, dtype), own.get(dtype_b or dtype, dtype)
    output = out or {"int8": "int32", "fp8": "fp16", "bf8": "fp16"}.get(dtype, dtype)
    plain = epilogue == "PassThrough"
    preshuffle = pipeline == "preshuffle"
    signature = GemmSignature(
        variant="preshuffle" if preshuffle else "standard" if plain else "multi_d",
        dtype_a=element,
        dtype_b=other,
        dtype_acc=accumulator(element),
        dtype_c=output,
        dtype_d=output,
        layout=layout,
        epilogue=epilogue,
        num_d=num_d,
    )
    schedule = CkTileSchedule(
        pipeline,
        tile,
        warp_tile,
        grid,
        scheduler=scheduler or ("default" if preshuffle else "intrawave"),
        store=store,
        pad=(pad, pad, pad and not preshuffle),
        persistent=persistent,
        split_k=split_k,
        store_width=store_width,
    )
    return KernelSpec("gemm", signature, schedule, gpu)


def loops(gpu: str, a: str, b: str, out: str, layout: str, epilogue: str = "PassThrough", num_d: int = 0) -> KernelSpec:
    variant = "standard" if epilogue == "PassThrough" else "multi_d"
    signature = GemmSignature(variant, a, b, accumulator(a), out, out, layout, epilogue, num_d)
    return KernelSpec("gemm", signature, GpuLoopsSchedule(), gpu)


G2, G3, G4 = "gfx90a", "gfx942", "gfx950"
R3, R4 = "gfx1100", "gfx1201"
TURNS = "interwave"
SMALL: Shape = (16, 32, 32)
ONE: Shape = (1, 1, 1)
W16: Shape = (16, 16, 16)
W32: Shape = (16, 16, 32)
F32: Shape = (32, 32, 8)  # of fp32
W8: Shape = (32, 32, 16)  # of 8-bit types
LONG: Shape = (64, 128, 64)
ACROSS: Shape = (1, 4, 1)
DUAL: Shape = (1, 1, 2)


def cases() -> tuple[Case, ...]:
    found = [
        ("compv3 fp16", spec(G3, "compv3", "fp16")),
        ("mem fp16, one wave", spec(G3, "mem", "fp16", "crr", scheduler=TURNS, tile=SMALL, grid=ONE, warp_tile=W16)),
        ("mem fp16, eight stages: all tails", spec(G3, "mem", "fp16", tile=(32, 32, 32), warp_tile=W16)),
        ("compv4 fp16", spec(G3, "compv4", "fp16", "ccr", "direct")),
        ("compv5 fp16", spec(G3, "compv5", "fp16", tile=(32, 32, 32), grid=DUAL)),
        ("preshuffle fp16", spec(G3, "preshuffle", "fp16", tile=LONG, grid=ACROSS)),
        ("split-K fp16", spec(G3, "compv3", "fp16", split_k=3)),
        ("MultiDAdd, one D", spec(G3, "compv3", "fp16", epilogue="MultiDAdd", num_d=1)),
        ("compv3 fp16 on gfx90a", spec(G2, "compv3", "fp16", "rrr")),
        ("compv4 fp16 on gfx950", spec(G4, "compv4", "fp16")),
        ("four rows, a turn of several", spec(G3, "mem", "fp16", tile=(16, 64, 32), grid=ONE, warp_tile=(4, 64, 16))),
        # every dtype with every pipeline, layouts and stores mixed in
        ("compv3 fp8", spec(G3, "compv3", "fp8", "ccr", "direct")),
        ("compv4 bf16", spec(G3, "compv4", "bf16", "rrr", pad=False)),
        ("mem int8", spec(G3, "mem", "int8", "rcr", "direct", tile=(64, 64, 64), warp_tile=W32)),
        ("compv3 int8", spec(G3, "compv3", "int8", "crr")),
        ("compv3 bf16", spec(G3, "compv3", "bf16", "rrr", "direct", warp_tile=W32)),
        ("compv4 int8", spec(G3, "compv4", "int8", "rrr", "direct")),
        ("compv4 fp8", spec(G3, "compv4", "fp8", "crr", out="bf16")),
        ("mem bf16", spec(G3, "mem", "bf16", "ccr", "direct", warp_tile=(32, 32, 8))),
        ("mem fp8", spec(G3, "mem", "fp8", "rrr", scheduler=TURNS, tile=(32, 64, 32), grid=(1, 2, 1), out="fp32")),
        ("compv5 bf16", spec(G3, "compv5", "bf16", "rcr", "direct", tile=(32, 32, 64), grid=DUAL)),
        ("preshuffle bf16", spec(G3, "preshuffle", "bf16", tile=LONG, grid=ACROSS, warp_tile=W32)),
        ("preshuffle int8", spec(G3, "preshuffle", "int8", tile=LONG, grid=ACROSS, warp_tile=W8)),
        ("preshuffle fp8", spec(G3, "preshuffle", "fp8", tile=LONG, grid=ACROSS, warp_tile=W8)),
        ("compv5 int8", spec(G3, "compv5", "int8", tile=(32, 32, 64), grid=DUAL)),
        ("compv5 fp8", spec(G3, "compv5", "fp8", tile=(32, 32, 64), grid=DUAL, out="fp32")),
        # how many vectors a lane turns of operands that lie across k
        ("int8, 2 vectors of B turned", spec(G3, "compv3", "int8", "rrr", tile=(64, 64, 128))),
        ("fp8, 2 vectors of both turned", spec(G3, "compv4", "fp8", "crr", tile=(64, 64, 128))),
        ("bf8, 2 vectors of A turned", spec(G3, "mem", "bf8", "ccr", tile=(32, 32, 64), grid=ONE)),
        ("int8, 4 vectors turned", spec(G3, "mem", "int8", "crr", "direct", tile=(32, 32, 128), grid=ONE)),
        ("fp8, 8 vectors of B turned", spec(G3, "compv3", "fp8", "rrr", tile=(32, 128, 128), grid=(1, 2, 1))),
        ("fp16, 8 vectors of B turned", spec(G3, "compv3", "fp16", "rrr", tile=(32, 128, 64), grid=(1, 2, 1))),
        # fp32 with the matrix instructions that the headers lack
        ("compv3 fp32", spec(G3, "compv3", "fp32", tile=(64, 64, 16), warp_tile=F32)),
        ("compv3 fp32, turned", spec(G3, "compv3", "fp32", "crr", tile=(64, 64, 32), warp_tile=W16)),
        ("compv4 fp32", spec(G3, "compv4", "fp32", "rrr", "direct", tile=(64, 64, 16), warp_tile=(32, 32, 4))),
        ("mem fp32", spec(G3, "mem", "fp32", "ccr", scheduler=TURNS, tile=(64, 64, 16), warp_tile=(16, 16, 8))),
        ("compv5 fp32", spec(G3, "compv5", "fp32", tile=(32, 32, 16), grid=DUAL, warp_tile=F32)),
        ("preshuffle fp32", spec(G3, "preshuffle", "fp32", tile=(64, 128, 32), grid=ACROSS, warp_tile=F32)),
        ("preshuffle fp32, 16 wide", spec(G3, "preshuffle", "fp32", tile=(64, 128, 32), grid=ACROSS, warp_tile=W16)),
        ("split-K fp32", spec(G3, "compv3", "fp32", split_k=2, tile=(64, 64, 16), warp_tile=F32)),
        ("compv3 fp32 on gfx90a", spec(G2, "compv3", "fp32", "rrr", tile=(64, 64, 16), warp_tile=F32)),
        ("compv4 fp32 on gfx950", spec(G4, "compv4", "fp32", tile=(64, 64, 16), warp_tile=F32)),
        # the plain loops, where CK Tile has nothing
        ("loops bf16 times fp16", loops(G3, "bf16", "fp16", "fp32", "crr", "Gelu", 1)),
        ("loops fp8 of another GPU", loops(G3, "fp8_e4m3", "fp8_e5m2", "fp16", "rcr", "MultiDMultiply", 2)),
        ("loops int8 on gfx90a", loops(G2, "int8", "int8", "int32", "rrr")),
        ("loops fp32 on gfx950", loops(G4, "fp32", "fp32", "fp32", "ccr", "Silu", 1)),
        ("loops fp32 on gfx1100", loops(R3, "fp32", "fp32", "fp32", "rcr")),
        ("loops int8 on gfx1100", loops(R3, "int8", "int8", "int8", "crr", "Relu", 1)),
        ("loops fp16 on gfx1100", loops(R3, "fp16", "fp16", "fp16", "rrr", "FastGelu", 2)),
        ("loops fp8 on gfx1201", loops(R4, "fp8_e4m3", "fp8_e5m2", "bf16", "ccr", "MultiDAdd", 2)),
        ("loops fnuz on gfx1201", loops(R4, "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp32", "rcr")),
        ("loops bf16 on gfx1201", loops(R4, "bf16", "bf16", "bf16", "rrr", "Tanh", 1)),
        # split-K
        ("split-K bf16", spec(G3, "compv3", "bf16", split_k=2)),
        ("split-K int8", spec(G3, "mem", "int8", split_k=2, tile=(32, 32, 32), grid=ONE, warp_tile=W8)),
        ("split-K fp8 to fp32", spec(G3, "compv4", "fp8", "rrr", "direct", split_k=2, out="fp32")),
        ("split-K MultiDAdd bf16", spec(G3, "compv3", "bf16", split_k=3, epilogue="MultiDAdd", num_d=1)),
        ("split-K Gelu fp16, direct", spec(G3, "mem", "fp16", "rrr", "direct", split_k=2, epilogue="Gelu", num_d=2,
                                           tile=(64, 64, 64))),
        # stores of the registers' own, odd repeats, parts of a warp tile, whole numbers as floats
        ("direct MultiDAdd fp16", spec(G3, "compv3", "fp16", "rcr", "direct", epilogue="MultiDAdd", num_d=2)),
        ("three repeats", spec(G3, "compv3", "fp16", tile=(192, 96, 32), grid=(2, 1, 1))),
        ("one wave of a wide warp tile", spec(G3, "mem", "bf16", tile=(32, 32, 16), grid=ONE)),
        ("single stores through LDS", spec(G3, "compv3", "bf16", store_width=1, epilogue="Silu", num_d=1)),
        ("int8 to int8", spec(G3, "compv3", "int8", out="int8", epilogue="Relu", tile=(64, 64, 64))),
        ("int8 to fp32", spec(G3, "compv3", "int8", out="fp32", tile=(64, 64, 64))),
        # the fused operations
        ("MultiDAdd, two Ds, bf16", spec(G3, "compv4", "bf16", epilogue="MultiDAdd", num_d=2)),
        ("MultiDMultiply", spec(G3, "compv3", "fp16", "crr", epilogue="MultiDMultiply", num_d=2)),
        ("Relu without D", spec(G3, "compv3", "fp16", "ccr", epilogue="Relu")),
        ("Gelu", spec(G3, "compv3", "fp16", epilogue="Gelu", num_d=1)),
        ("FastGelu", spec(G3, "compv4", "fp16", epilogue="FastGelu", num_d=2)),
        ("Silu", spec(G3, "compv3", "bf16", epilogue="Silu")),
        ("Sigmoid", spec(G3, "mem", "fp16", epilogue="Sigmoid", num_d=1, tile=(64, 64, 64))),
        ("Tanh", spec(G3, "compv3", "fp8", epilogue="Tanh", num_d=1, out="fp32")),
        ("MultiDAdd int32", spec(G3, "compv3", "int8", epilogue="MultiDAdd", num_d=2)),
        # the other GPUs
        ("compv4 bf16 on gfx950", spec(G4, "compv4", "bf16", "rrr")),
        ("mem fp16 on gfx950", spec(G4, "mem", "fp16", "ccr", scheduler=TURNS, tile=(64, 64, 64))),
        ("compv3 fp8 on gfx950", spec(G4, "compv3", "fp8", tile=(64, 64, 128), warp_tile=(16, 16, 128))),
        ("mem int8 on gfx950", spec(G4, "mem", "int8", tile=(64, 64, 64), warp_tile=W32)),
        ("compv4 bf16 on gfx90a", spec(G2, "compv4", "bf16", "ccr", "direct")),
        ("split-K fp16 on gfx90a", spec(G2, "compv3", "fp16", split_k=2)),
        ("mem fp16 on gfx90a", spec(G2, "mem", "fp16", scheduler=TURNS, tile=(64, 64, 64))),
        ("preshuffle fp16 on gfx950", spec(G4, "preshuffle", "fp16", tile=LONG, grid=ACROSS)),
        # the rest
        ("persistent compv3", spec(G3, "compv3", "fp16", persistent=True)),
        ("a wide warp tile", spec(G3, "compv3", "fp16", tile=(64, 32, 32), grid=ONE, warp_tile=(64, 4, 16))),
        ("bf8", spec(G3, "compv3", "bf8")),
        ("fp8 times bf8", spec(G3, "compv4", "fp8", dtype_b="bf8")),
        ("bf8 times fp8", spec(G3, "compv4", "bf8", "rrr", "direct", dtype_b="fp8", out="bf16")),
        ("compv5 fp8 times bf8", spec(G3, "compv5", "fp8", dtype_b="bf8", tile=(32, 32, 64), grid=DUAL)),
        ("preshuffle fp8 times bf8",
         spec(G3, "preshuffle", "fp8", dtype_b="bf8", tile=LONG, grid=ACROSS, warp_tile=W8)),
        ("fp8 times bf8 on gfx950",
         spec(G4, "compv4", "fp8", dtype_b="bf8", tile=(64, 64, 128), warp_tile=(16, 16, 128))),
        ("persistent compv4", spec(G3, "compv4", "fp16", "rrr", persistent=True)),
        ("persistent mem", spec(G3, "mem", "fp16", persistent=True)),
        ("persistent preshuffle", spec(G3, "preshuffle", "fp16", tile=LONG, grid=ACROSS, persistent=True)),
        ("persistent split-K", spec(G3, "compv3", "fp16", persistent=True, split_k=2)),
        ("persistent MultiDAdd", spec(G3, "mem", "fp16", "rrr", persistent=True, epilogue="MultiDAdd", num_d=1)),
        ("compv5 split-K", spec(G3, "compv5", "fp16", tile=(32, 32, 32), grid=DUAL, split_k=2)),
        ("compv5 MultiDAdd",
         spec(G3, "compv5", "fp16", tile=(32, 32, 32), grid=DUAL, epilogue="MultiDAdd", num_d=1)),
        ("compv5 on gfx950", spec(G4, "compv5", "fp16", tile=(32, 32, 64), grid=DUAL, warp_tile=(16, 16, 16))),
        ("preshuffle fp16 on gfx90a", spec(G2, "preshuffle", "fp16", tile=LONG, grid=ACROSS)),
        ("fp16 in, fp32 out", spec(G3, "compv3", "fp16", out="fp32")),
        ("narrow stores", spec(G3, "compv3", "fp16", store_width=2)),
        # kernels as pools and sets have them, as large
        ("compv3, the largest tile", spec(G3, "compv3", "fp16", tile=(256, 256, 32))),
        ("compv4 128x128", spec(G3, "compv4", "fp16", tile=(128, 128, 32))),
        ("preshuffle 128x256",
         spec(G3, "preshuffle", "fp16", tile=(128, 256, 64), grid=ACROSS, warp_tile=W32)),
        ("mem for few rows", spec(G3, "mem", "fp16", tile=(16, 64, 64), grid=ACROSS, warp_tile=W32)),
        ("mem for few columns", spec(G3, "mem", "fp16", tile=(64, 16, 64), grid=(4, 1, 1), warp_tile=W32)),
    ]  # fmt: skip
    known = {one.digest for _, one in found}
    for name, one in preselected():
        if one.digest not in known:
            known.add(one.digest)
            found.append((f"{name}: {one.digest[:8]}", one))
    return tuple(Case(label, one) for label, one in found)


def preselected() -> Iterator[tuple[str, KernelSpec]]:
    """Every kernel of the preselected sets for gfx942."""
    for name, chosen in POOLS.sets.items():
        if chosen.family == "cdna":
            yield from ((name, one) for one in op("gemm").preselected(name, G3))
