"""Which products AMD GPUs have a kernel for: the plain loops take all that GEMM knows, CK Tile what it has matrix
instructions for on the arch.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.gemm.dtype_rules import dtype_rules
from tilewright.ops.gemm.spec import GemmSignature

FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")
FLOAT_OUTPUTS = ("fp16", "bf16", "fp32")
INT_OUTPUTS = ("int32", "int8", "fp32")


def tile_key(signature: GemmSignature) -> str:
    return f"{signature.dtype_a}_{signature.dtype_b}_{signature.dtype_acc}"


def signature_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which dtypes go together, whatever the kernel."""
    tf32 = ("AMD GPUs multiply fp32 exactly", 'use math="exact", or fp16 or bf16')
    yield from dtype_rules(signature, FLOATS, FLOAT_OUTPUTS, INT_OUTPUTS, refused={"tf32": tf32})
    if signature.variant == "preshuffle":  # only CK Tile reads a packed B
        yield from ck_tile_rules(signature, arch)


def _multiplied(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Whether these headers have a matrix instruction for the inputs."""
    a, b = signature.dtype_a, signature.dtype_b
    served = arch.warp_tiles or {}
    encoding, other = ("fnuz", "") if "fp8-fnuz" in arch.features else ("", "fnuz")
    foreign = [one for one in (a, b) if one.startswith("fp8") and one.endswith("fnuz") != bool(encoding)]
    if foreign and {"fp8-fnuz", "fp8-ocp"} & arch.features:
        base = foreign[0].removesuffix("fnuz")
        yield Violation(
            "amd-fp8-encoding",
            f"{arch.name} multiplies fp8 in the {'FNUZ' if encoding else 'OCP'} encoding; {base}{other} is the other",
            f"convert to {base}{encoding}, or use the loops",
        )
    elif tile_key(signature) not in served:
        pairs = sorted({key.removesuffix("_fp32").removesuffix("_int32").replace("_fp8", " x fp8") for key in served})
        software = a.startswith("fp8") and not any(key.startswith("fp8") for key in served)
        yield Violation(
            "amd-dtype-mix",
            f"CK Tile has no matrix instruction for {a} times {b} on {arch.name}"
            + (": it converts every element by itself and multiplies in fp32" if software else ""),
            "convert A and B to fp16, which has every number of fp8, or use the loops"
            if software
            else f"use one of {', '.join(pairs)}, or the loops",
        )
    if "lds-transpose" in arch.features and signature.layout != "rcr" and DTYPES[a].bytes > 2:
        yield Violation(
            "amd-transposed-load",
            f"{arch.name} reads layout {signature.layout} transposed from LDS, and has no such read of {a}",
            "use rcr, or the loops",
        )


def ck_tile_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which products these headers have on the arch."""
    if "wmma" in arch.features:
        yield Violation(
            "amd-wmma",
            f"{arch.name} multiplies with WMMA, and these CK Tile headers have no WMMA code: "
            "a kernel would compile and never multiply",
            "use the loops, or a CDNA arch such as gfx942",
        )
        return
    if not arch.warp_tiles:
        yield Violation(
            "amd-no-matrix-kernel",
            f"no CK Tile kernel was made for {arch.name}: nothing of it was ever executed",
            "use the loops, or a CDNA arch such as gfx90a",
        )
        return
    yield from _multiplied(signature, arch)
