"""What a GEMM kernel computes: its signature.  How is in `schedule`.

E = epilogue(alpha * A.B + beta * C, D0, D1, ...), or of a dual kernel E = activation(alpha * A.B) * A.B_up
"""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.ops.fused import GATES

VARIANTS = ("standard", "preshuffle", "multi_d")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
MAX_D = 4  # D tensors of a call: TW_MAX_D of gemm_args.h


@dataclass(frozen=True, slots=True)
class GemmSignature:
    """Kernels with equal signatures are interchangeable."""

    variant: str
    dtype_a: str
    dtype_b: str
    dtype_acc: str
    dtype_c: str  # of C and E
    dtype_d: str  # of the D tensors; equals dtype_c when there are none
    layout: str  # A, B, and C/E: r row-major, c column-major
    epilogue: str = "PassThrough"
    num_d: int = 0

    @property
    def dual(self) -> bool:
        """Whether there are two B: the product with the second stands for the D tensor that a gate multiplies by."""
        return self.num_d == 0 and self.epilogue in GATES

    def label(self) -> str:
        inputs = self.dtype_a if self.dtype_a == self.dtype_b else f"{self.dtype_a}x{self.dtype_b}"
        parts = [inputs if self.dtype_c == self.dtype_a else f"{inputs}_to_{self.dtype_c}", self.layout]
        if self.variant == "preshuffle":
            parts.append("preshuffle")
        if self.epilogue != "PassThrough":
            parts.append(self.epilogue + (f"_d{self.num_d}" if self.num_d else ""))
        return "_".join(parts)
