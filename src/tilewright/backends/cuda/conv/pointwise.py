"""Windows of one pixel on NVIDIA GPUs: matrix products, by GEMM's own kernels.

Where a window has one tap, moves pixel by pixel and meets no padding, pixels are the rows of a matrix product (of
gradients of weights, its k), and groups its batch.  There is no im2col; what GEMM copies first, since the copy
engine cannot read it, is copied here too.  A schedule of these families stands for one of GEMM's (`product`): GEMM's
family is asked what is legal, which products the kernel takes and what it costs.

`planes`: the same of channels-first memory, in place.  Pixels of an image are columns, images the batch, and all of
them have one w.  Gradients of weights are sums over images, which only one image has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Protocol

from tilewright import ops
from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.shared import CudaConvFamily, flag
from tilewright.backends.cuda.gemm import KERNELS as GEMM
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import ConvSignature
from tilewright.ops.gemm.spec import GemmSignature

PRODUCT = "gemm"


class Kind(NamedTuple):
    """What a pipeline of these families is."""

    planes: bool  # channels first
    swap_ab: bool = False  # with pixels (of gradients of weights: filters) along wgmma's narrow side


class PointwiseSchedule(Protocol):
    """A schedule that stands for one of GEMM's."""

    def __hash__(self) -> int: ...

    @property
    def pipeline(self) -> str: ...

    @property
    def planes(self) -> bool: ...

    @property
    def product(self) -> Any:
        """GEMM's schedule."""


# The layouts of A, B and E of the matrix product that a direction is (pointwise/host.h).
PIXELS = {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"}
PLANES = {"forward": "rrr", "backward_data": "crr", "backward_weight": "rcr"}

OPERANDS = {
    ("forward", False): "xwy", ("forward", True): "wxy", ("backward_data", False): "ywx",
    ("backward_data", True): "wyx", ("backward_weight", False): "yxw", ("backward_weight", True): "yxw",
}  # fmt: skip


def layout(variant: str, planes: bool) -> str:
    return (PLANES if planes else PIXELS)[variant]


@lru_cache(maxsize=4096)  # asked for once a candidate and question
def product_spec(signature: ConvSignature, schedule: PointwiseSchedule, arch: str) -> KernelSpec:
    """The GEMM kernel that a pointwise one is."""
    s = signature
    fused = s.num_d or s.epilogue != "PassThrough"
    product = GemmSignature(
        "multi_d" if fused else "standard", s.dtype, s.dtype, s.dtype_acc, s.dtype_out, s.dtype_d,
        layout(s.variant, schedule.planes), s.epilogue, s.num_d,
    )  # fmt: skip
    return KernelSpec(PRODUCT, product, schedule.product, arch)


def _product_sizes(p: ConvProblem, planes: bool) -> dict[str, int]:
    """Of the product that a problem is, for people: sizes and strides in elements, bytes of an element."""
    (m, n, k), batch, pixels = p.gemm, p.groups, prod(p.out)
    if planes:
        batch *= p.batch
        m, n = (m, n) if p.variant == "backward_weight" else (n, pixels)
        k = pixels if p.variant == "backward_weight" else k
    lines = {"x": p.x_strides[-1 if planes else -2], "y": p.y_strides[-1 if planes else -2], "w": p.w_strides[0]}
    a, b, e = (lines[operand] for operand in OPERANDS[p.variant, planes])
    size, result = DTYPES[p.dtype].bytes, DTYPES[p.dtype_out].bytes
    return {
        "m": m, "n": n, "k": k, "batch": batch, "a_stride": a, "b_stride": b, "c_stride": e,
        "size_a": size, "size_b": size, "size_c": result,
    }  # fmt: skip


@lru_cache(maxsize=256)
def _products(signature: ConvSignature, planes: bool, arch: str) -> Sequence[Any]:
    """The schedules of GEMM's default pool for the product."""
    s = signature
    fused = s.num_d or s.epilogue != "PassThrough"
    more: Any = {"epilogues": (s.epilogue,), "num_d": (s.num_d,)} if fused else {}
    layouts, outputs = (layout(s.variant, planes),), (s.dtype_out,)
    specs = ops.op(PRODUCT).proposals("default", arch, datatypes=(s.dtype,), layouts=layouts, outputs=outputs, **more)
    return [spec.schedule for spec in specs]


class PointwiseFamily(CudaConvFamily):
    """A family of GEMM's on windows of one pixel."""

    host = "HostConvPointwise"
    gemm_family: ClassVar[str]  # the name of GEMM's family
    product: ClassVar[type[Any]]  # and its schedules

    def schedule_for(self, product: Any, planes: bool) -> PointwiseSchedule | None:
        """The schedule that stands for one of GEMM's; none of those that pixels have no use for."""
        raise NotImplementedError

    def wanted(self, product: Any, signature: ConvSignature, wgmma: bool) -> bool:
        """Whether one of GEMM's default pool is proposed; `wgmma`: the arch multiplies such elements by it."""
        raise NotImplementedError

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[PointwiseSchedule]:
        wgmma = "wgmma" in arch.features and signature.dtype != "fp32"
        for planes in (False, True):
            for product in _products(signature, planes, arch.name):
                if isinstance(product, self.product) and self.wanted(product, signature, wgmma):
                    schedule = self.schedule_for(product, planes)
                    if schedule is not None:
                        yield schedule

    def violations(self, signature: ConvSignature, schedule: PointwiseSchedule, arch: Arch) -> Iterator[Violation]:
        """Those of the matrix product."""
        yield from ops.op(PRODUCT).check(product_spec(signature, schedule, arch.name))

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        return {**self._product_numbers(spec), "planes": int(spec.schedule.planes)}

    def limit_numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        own = {f"product.{name}": value for name, value in self._product_numbers(spec).items()}
        return {**own, "planes": int(spec.schedule.planes)}

    def _product_numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        described = GEMM.native.schedule(product_spec(spec.signature, spec.schedule, spec.arch))
        assert described is not None, spec
        return {name: int(value) for name, value in described.fields.items()}

    def sentence_numbers(self, spec: KernelSpec, problem: ConvProblem) -> Mapping[str, int]:
        """Those of the product, which the rules of GEMM's kernels name."""
        return _product_sizes(problem, spec.schedule.planes)

    def layout_config(self, spec: KernelSpec) -> dict[str, object]:
        lies = layout(spec.signature.variant, spec.schedule.planes)
        rows = {"a_rows": flag(lies[0] == "r"), "b_rows": flag(lies[1] == "r")}
        return {**rows, "packed": flag(False), "planes": flag(spec.schedule.planes)}

    def device(self) -> tuple[str, str]:
        """GEMM's."""
        return f"conv/{self.name}/kernel.h", f"TW_DEVICE_{self.gemm_family.upper()}"

    def host_header(self) -> str:
        return "conv/pointwise/host.h"

    def promises(self, spec: KernelSpec) -> Promises:
        return GEMM.promises(product_spec(spec.signature, spec.schedule, spec.arch))
