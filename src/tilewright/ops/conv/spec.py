"""What a convolution kernel computes: its signature.  How is in the families' schedules.

forward          y = epilogue(conv(x, w), D0, D1)
backward_data    dx from dy and w
backward_weight  dw from x and dy
"""

from __future__ import annotations

from dataclasses import dataclass

OP = "conv"
VARIANTS = ("forward", "backward_data", "backward_weight")
DIMENSIONS = (2, 3)  # of kernels; a 1D problem is a 2D one of height 1


@dataclass(frozen=True, slots=True)
class ConvSignature:
    """Kernels with equal signatures are interchangeable.

    Where channels lie is no part of it: strides are read at run time, and a schedule that needs channels side by side
    says so in `supports`.
    """

    variant: str
    spatial: int  # dimensions the kernel walks: 2 or 3
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


def accumulator(dtype: str) -> str:
    return "int32" if dtype == "int8" else "fp32"


def default_output(dtype: str) -> str:
    """What comes out when nobody says: the input's type, int32 for int8."""
    return "int32" if dtype == "int8" else dtype
