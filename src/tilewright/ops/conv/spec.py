"""What a convolution kernel computes: its signature.  How is in the families' schedules.

forward          y = epilogue(conv(x, w), D0, D1)
backward_data    dx from dy and w
backward_weight  dw from x and dy
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.dataclass import dataclass
from tilewright.ops.base import Violation
from tilewright.ops.rules import accumulator as accumulator  # noqa: PLC0414  specs and problems name it

OP = "conv"
VARIANTS = ("forward", "backward_data", "backward_weight")
DIMENSIONS = (2, 3)  # of kernels; a 1D problem is a 2D one of height 1
FLOATS = ("fp32", "fp16", "bf16")
INPUTS = (*FLOATS, "int8")
FLOAT_OUTPUTS = ("fp32", "fp16", "bf16")
INT_OUTPUTS = ("int32", "int8", "fp32")
MAX_D = 2

# How else people name the directions.
_ALIASES = {"fwd": "forward", "bwd_data": "backward_data", "bwdd": "backward_data", "bwd_weight": "backward_weight",
            "bwdw": "backward_weight", "2d_fwd": "forward", "2d_bwdd": "backward_data",
            "2d_bwdw": "backward_weight"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConvSignature:
    """Kernels with equal signatures are interchangeable.

    Channels first or last is no part of it: strides are read at run time, and a schedule that needs contiguous channels
    says so in `supports`.
    """

    variant: str
    spatial: int  # dimensions the kernel traverses: 2 or 3
    dtype: str  # of both operands
    dtype_acc: str
    dtype_out: str
    dtype_d: str  # of the D tensors; equals dtype_out when there are none
    epilogue: str = "PassThrough"
    num_d: int = 0

    def label(self) -> str:
        parts = [self.variant, f"{self.spatial}d"]
        parts.append(self.dtype if self.dtype_out == self.dtype else f"{self.dtype}_to_{self.dtype_out}")
        if self.epilogue != "PassThrough":
            parts.append(self.epilogue + (f"_d{self.num_d}" if self.num_d else ""))
        return "_".join(parts)


def default_output(dtype: str) -> str:
    """What comes out when nobody says: the input's type, int32 for int8."""
    return "int32" if dtype == "int8" else dtype


def normal_variant(name: str, _arch: Arch | None = None) -> str:
    """The proper name of a direction; one that is not known is let be."""
    folded = str(name).lower().replace("-", "_")
    return _ALIASES.get(folded, folded)


def dtype_rules(signature: ConvSignature) -> Iterator[Violation]:
    """Which element types go together, in kernels that convert whatever they read."""
    s = signature
    if s.dtype not in INPUTS:
        yield Violation("dtype-input", f"{s.dtype} is not an input type", f"use {', '.join(INPUTS)}")
        return
    if s.dtype == "int8" and s.variant != "forward":
        yield Violation("dtype-input", f"int8 has no {s.variant}", f"use forward, or one of {', '.join(FLOATS)}")
        return
    outputs = INT_OUTPUTS if s.dtype == "int8" else FLOAT_OUTPUTS
    if s.dtype_out not in outputs:
        yield Violation("dtype-output", f"{s.dtype} cannot give {s.dtype_out}", f"use {', '.join(outputs)}")
    allowed = (s.dtype_out,) if s.dtype_out in ("int32", "int8", "fp32") else (s.dtype_out, "fp32")
    if s.num_d and s.dtype_d not in allowed:
        message = f"D tensors of {s.dtype_d} do not go with an output of {s.dtype_out}"
        yield Violation("dtype-d", message, f"use {' or '.join(allowed)}")
