"""Which products AMD GPUs have a kernel for: the plain loops take all that GEMM knows, CK Tile what it has matrix
instructions for on the arch.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules
from tilewright.ops.base import Violation
from tilewright.ops.gemm.dtype_rules import dtype_rules
from tilewright.ops.gemm.spec import GemmSignature

FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz")
FLOAT_OUTPUTS = ("fp16", "bf16", "fp32")
INT_OUTPUTS = ("int32", "int8", "fp32")


def signature_rules(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Which dtypes go together, whatever the kernel."""
    tf32 = ("AMD GPUs multiply fp32 exactly", 'use math="exact", or fp16 or bf16')
    yield from dtype_rules(signature, FLOATS, FLOAT_OUTPUTS, INT_OUTPUTS, refused={"tf32": tf32})
    if signature.variant == "preshuffle":  # only CK Tile reads a packed B
        yield from ck_tile_rules(signature, arch)
