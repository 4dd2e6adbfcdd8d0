"""A GEMM as the user has it at run time: sizes, strides, dtypes, fused work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import lru_cache
from typing import ClassVar

from tilewright.dataclass import dataclass
from tilewright.dtypes import dtype
from tilewright.ops.base import SPARSE, Violation, settle
from tilewright.ops.fused import GATES, epilogue_violations
from tilewright.ops.gemm.spec import LAYOUTS, MAX_D, GemmSignature
from tilewright.ops.rules import accumulator as accumulator  # noqa: PLC0414  specs and problems name it

# Sizes up to this bound keep every byte offset inside 63 bits.
MAX_SIZE = 1 << 40
OPERANDS = "abc"  # whose alignment is known apart; c is the result


def default_output(dtype_a: str, dtype_b: str) -> str:
    """What comes out when nobody says: the input's type, int32 for int8, fp32 where inputs are mixed or fp8."""
    if dtype_a == dtype_b and dtype_a in ("fp32", "fp16", "bf16"):
        return dtype_a
    return "int32" if dtype_a == "int8" else "fp32"


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """Strides of 0 mean dense: the leading stride is the row's length, the batch stride one matrix.

    `broadcast_a` and `broadcast_b` mean that one matrix serves the whole batch.
    """

    op: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    dtype_a: str = "fp32"
    dtype_b: str = ""
    dtype_c: str = ""
    dtype_d: str = ""
    layout: str = "rrr"
    batch: int = 1
    epilogue: str = "PassThrough"
    num_d: int = 0
    beta: bool = False  # C takes part
    preshuffled: bool = False  # B was packed beforehand
    a_stride: int = 0
    b_stride: int = 0
    c_stride: int = 0
    broadcast_a: bool = False
    broadcast_b: bool = False
    aligned: bool = True  # on a device: A, B, E and their batch strides are multiples of 16 bytes
    # Which of A, B and the result are not, as letters ("a", "bc"); if `aligned` is off and none is named, any may be.
    unaligned: str = field(default="", metadata={SPARSE: True})

    def __post_init__(self) -> None:
        settle(self)
        put = object.__setattr__
        if self.unaligned:
            letters = "".join(sorted(set(self.unaligned.lower())))
            put(self, "unaligned", "" if letters == OPERANDS else letters)
            put(self, "aligned", False)
        if not self.dtype_b:
            put(self, "dtype_b", self.dtype_a)
        if not self.dtype_c:
            put(self, "dtype_c", default_output(self.dtype_a, self.dtype_b))
        if not self.dtype_d:
            put(self, "dtype_d", self.dtype_c)
        if not self.a_stride:
            put(self, "a_stride", max(1, self.k if self.layout[:1] == "r" else self.m))
        if not self.b_stride:
            put(self, "b_stride", max(1, self.n if self.layout[1:2] == "r" else self.k))
        if not self.c_stride:
            put(self, "c_stride", max(1, self.n))

    @property
    def variant(self) -> str:
        if self.preshuffled and self.k:  # without k there is nothing packed, and every kernel can do without B
            return "preshuffle"
        return "multi_d" if self.num_d or self.epilogue != "PassThrough" else "standard"

    @property
    def signature(self) -> GemmSignature:
        return _signature(
            self.variant, self.dtype_a, self.dtype_b, self.dtype_c, self.dtype_d, self.layout, self.epilogue, self.num_d
        )

    @property
    def dual(self) -> bool:
        """Whether there are two B (`GemmSignature.dual`)."""
        return self.num_d == 0 and self.epilogue in GATES

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch * (2 if self.dual else 1)

    @property
    def bytes(self) -> int:
        """Each operand read once, the result written once."""
        a = self.m * self.k * dtype(self.dtype_a).bytes * (1 if self.broadcast_a else self.batch)
        b = self.k * self.n * dtype(self.dtype_b).bytes * (1 if self.broadcast_b else self.batch)
        b *= 2 if self.dual else 1
        e = self.m * self.n * dtype(self.dtype_c).bytes * self.batch
        d = self.num_d * self.m * self.n * dtype(self.dtype_d).bytes * self.batch
        return a + b + d + e * (2 if self.beta else 1)

    def dense(self) -> GemmProblem:
        """The same problem with rows that follow each other, and matrices of a batch too."""
        a_row, b_row = self.k if self.layout[0] == "r" else self.m, self.n if self.layout[1] == "r" else self.k
        rows = max(1, a_row), max(1, b_row), max(1, self.n)
        unknown = not self.aligned and not self.unaligned
        if (self.a_stride, self.b_stride, self.c_stride) == rows and (unknown or self.batch_aligned):
            return self
        packed = replace(self, a_stride=0, b_stride=0, c_stride=0)
        return packed if packed.batch_aligned or unknown else replace(packed, aligned=False, unaligned="")

    @property
    def odd_operands(self) -> str:
        """The letters of the operands that are not known to be aligned to 16 bytes."""
        return "" if self.aligned else self.unaligned or OPERANDS

    @property
    def batch_aligned(self) -> bool:
        """Whether matrices of a batch that follow each other start at multiples of 16 bytes."""
        if self.batch <= 1:
            return True
        steps = [(self.c_stride * self.m, self.dtype_c)]
        if not self.broadcast_a:
            steps.append((self.a_stride * (self.m if self.layout[0] == "r" else self.k), self.dtype_a))
        if not self.broadcast_b and not self.preshuffled:
            steps.append((self.b_stride * (self.k if self.layout[1] == "r" else self.n), self.dtype_b))
        return not any(step * dtype(name).bytes % 16 for step, name in steps)

    def describe(self) -> str:
        text = f"gemm m={self.m} n={self.n} k={self.k}"
        if self.batch != 1:
            text += f" batch={self.batch}"
        text += f" {self.signature.label()}"
        return text + (" beta" if self.beta else "")


@lru_cache(maxsize=4096)
def _signature(
    variant: str, dtype_a: str, dtype_b: str, dtype_c: str, dtype_d: str, layout: str, epilogue: str, num_d: int
) -> GemmSignature:
    """One object a signature: problems of new sizes find the one that kernels are known by."""
    return GemmSignature(
        variant=variant,
        dtype_a=dtype_a,
        dtype_b=dtype_b,
        dtype_acc=accumulator(dtype_a),
        dtype_c=dtype_c,
        dtype_d=dtype_d if num_d else dtype_c,
        layout=layout,
        epilogue=epilogue,
        num_d=num_d,
    )


# Sizes and strides up to these need no product to be worked out: it stays far inside 62 bits.
_SMALL, _SMALL_STRIDE, _SMALL_BATCH = 1 << 20, 1 << 22, 1 << 16


def _plainly_legal(p: GemmProblem) -> bool:
    """Whether a problem breaks no rule, by a few comparisons; false where that would take more."""
    if p.layout not in LAYOUTS or not 0 <= p.batch <= _SMALL_BATCH or _epilogue_violations(p.epilogue, p.num_d):
        return False
    if p.epilogue in GATES or p.unaligned:
        return False
    small = 0 <= p.m <= _SMALL and 0 <= p.n <= _SMALL and 0 <= p.k <= _SMALL
    a_row, b_row = p.k if p.layout[0] == "r" else p.m, p.n if p.layout[1] == "r" else p.k
    return (
        small
        and a_row <= p.a_stride <= _SMALL_STRIDE
        and p.n <= p.c_stride <= _SMALL_STRIDE
        and (p.preshuffled or b_row <= p.b_stride)
        and p.b_stride <= _SMALL_STRIDE
        and p.b_stride >= 0
    )


@lru_cache(maxsize=256)
def _epilogue_violations(epilogue: str, num_d: int) -> tuple[Violation, ...]:
    return tuple(epilogue_violations(epilogue, num_d, gates=True, most=MAX_D))


def problem_violations(problem: GemmProblem) -> list[Violation]:
    """Rules that hold on every target."""
    if _plainly_legal(problem):
        return []
    violations = [*_size_violations(problem), *_span_violations(problem), *_fused_violations(problem)]
    return violations or list(_stride_violations(problem))


def _size_violations(p: GemmProblem) -> Iterator[Violation]:
    if not set(p.unaligned) <= set(OPERANDS):
        remedy = "name operands by their letters: a, b, and c for the result"
        yield Violation("operand-name", f"unaligned is {p.unaligned!r}", remedy)
    for axis in ("m", "n", "k", "batch"):
        size = getattr(p, axis)
        if size < 0:
            yield Violation("size-negative", f"{axis} is {size}", "sizes are 0 or more")
        if size > MAX_SIZE:
            yield Violation("size-huge", f"{axis} is {size}, over {MAX_SIZE}", "split the problem")


def _span_violations(p: GemmProblem) -> Iterator[Violation]:
    """Byte offsets are 64-bit: the product of two sizes, or of rows and a stride, and an element must fit."""
    each = 4 * max(1, p.batch)
    for what, rows, columns in (("A", p.m, p.k), ("B", p.k, p.n), ("E", p.m, p.n)):
        if rows * columns * each >= 1 << 62:
            message = f"{what} of {rows}x{columns} would need {rows * columns * each} bytes"
            yield Violation("size-huge", message, "split the problem")
    for what, rows, stride in (
        ("A", p.m if p.layout[:1] == "r" else p.k, p.a_stride),
        ("B", p.k if p.layout[1:2] == "r" else p.n, p.b_stride),
        ("E", p.m, p.c_stride),
    ):
        if rows * stride * each >= 1 << 62:
            message = f"{what} with a stride of {stride} spans {rows * stride * each} bytes"
            yield Violation("stride-huge", message, "use a shorter stride")


def _fused_violations(p: GemmProblem) -> Iterator[Violation]:
    if p.layout not in LAYOUTS:
        yield Violation("layout-name", f"layout {p.layout!r} is not supported", f"use one of {', '.join(LAYOUTS)}")
    yield from epilogue_violations(p.epilogue, p.num_d, gates=True, most=MAX_D)
    if p.dual and (p.beta or p.preshuffled):
        message = f"{p.epilogue} of two products with {'a packed B' if p.preshuffled else 'a C'}"
        remedy = "give both B unpacked and no C, or give the second product as a D tensor"
        yield Violation("dual-operands", message, remedy)
    if p.epilogue in GATES and dtype(p.dtype_c).kind != "float":
        message = f"{p.epilogue} with results of {p.dtype_c}"
        yield Violation("gate-dtype", message, "use fp32, fp16 or bf16 results")


def _stride_violations(p: GemmProblem) -> Iterator[Violation]:
    lengths = {"a": p.k if p.layout[0] == "r" else p.m, "c": p.n}
    if not p.preshuffled:
        lengths["b"] = p.n if p.layout[1] == "r" else p.k
    for name, row in lengths.items():
        stride = getattr(p, f"{name}_stride")
        if stride < row:
            message = f"the leading stride of {name.upper()} is {stride}, shorter than its row of {row}"
            yield Violation("stride-short", message, f"use {row} or more")
