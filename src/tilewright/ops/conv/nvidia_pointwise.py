"""Windows of one pixel on NVIDIA GPUs: matrix products, by GEMM's own kernels.

Where a window has one tap, moves pixel by pixel and meets no padding, pixels are the rows of a matrix product (of
gradients of weights, its k), and groups its batch.  Nothing is walked over; what GEMM copies first, since the copy
engine cannot read it, is copied here too.

The fields are GEMM's, under names that convolutions have: a learned model has a column for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, TypeAlias

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.nvidia_places import LINE_BYTES, dense_pixels, violation
from tilewright.ops.conv.nvidia_resources import Pair, Shape
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import SHAPES, ConvSchedule
from tilewright.ops.conv.spec import ConvSignature
from tilewright.ops.gemm import nvidia as gemm
from tilewright.ops.gemm.legality import divisible
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import MultistageSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.ops.gemm.spec import GemmSignature

# How A and B lie of the matrix product that a direction is (cuda/conv_host_pointwise.h).
LAYOUTS = {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"}
OPERANDS = {"forward": "xwy", "backward_data": "ywx", "backward_weight": "yxw"}  # and what A, B and E are


@dataclass(frozen=True, slots=True)
class PointwiseTmaWsSchedule:
    """GEMM's tma_ws; pointwise_turned: with pixels (of gradients of weights: filters) along wgmma's narrow side."""

    pipeline: str
    tile: Shape
    stages: int
    cluster: Pair = (1, 1)
    grouping: str = "cooperative"
    dealing: str = "tiles"
    store: str = "direct"

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_tma_ws", "pointwise_turned")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines, **TmaWsSchedule.words}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @classmethod
    def of(cls, one: TmaWsSchedule) -> PointwiseTmaWsSchedule:
        pipeline = cls.pipelines[one.turned]
        return cls(pipeline, one.tile, one.stages, one.cluster, one.grouping, one.dealing, one.store)

    @property
    def product(self) -> TmaWsSchedule:
        return _tma_ws(self)

    @property
    def warp_tile(self) -> Shape:
        return self.product.warp_tile

    @property
    def warp_grid(self) -> Shape:
        return self.product.warp_grid

    def label(self) -> str:
        return f"pointwise_{self.product.label()}"


@dataclass(frozen=True, slots=True)
class PointwiseMultistageSchedule:
    """GEMM's multistage."""

    pipeline: str = field(default="pointwise_multistage", init=False)
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    stages: int
    vectors: Pair  # elements of A and B that are copied at a time
    dealing: str = "tiles"

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_multistage",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = MultistageSchedule.words
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b")}

    @classmethod
    def of(cls, one: MultistageSchedule) -> PointwiseMultistageSchedule:
        return cls(one.tile, one.warp_tile, one.warp_grid, one.stages, one.vector, one.dealing)

    @property
    def product(self) -> MultistageSchedule:
        return _multistage(self)

    def label(self) -> str:
        return f"pointwise_{self.product.label()}"


@dataclass(frozen=True, slots=True)
class PointwiseSkinnySchedule:
    """GEMM's skinny: of few filters or channels (columns of the product), or few pixels (rows)."""

    pipeline: str
    tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_few_rows", "pointwise_few_columns")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES

    @classmethod
    def of(cls, one: SkinnySchedule) -> PointwiseSkinnySchedule:
        return cls(f"pointwise_few_{one.few}", one.tile)

    @property
    def product(self) -> SkinnySchedule:
        return _skinny(self)

    @property
    def warp_tile(self) -> Shape:
        return self.product.warp_tile

    @property
    def warp_grid(self) -> Shape:
        return self.product.warp_grid

    def label(self) -> str:
        return f"pointwise_{self.product.label()}"


PointwiseSchedule: TypeAlias = PointwiseTmaWsSchedule | PointwiseMultistageSchedule | PointwiseSkinnySchedule
SCHEDULES = (PointwiseTmaWsSchedule, PointwiseMultistageSchedule, PointwiseSkinnySchedule)


@lru_cache(maxsize=1024)  # asked for once a candidate and question
def _tma_ws(one: PointwiseTmaWsSchedule) -> TmaWsSchedule:
    turned = one.pipeline == "pointwise_turned"
    return TmaWsSchedule(one.tile, one.stages, one.cluster, one.grouping, turned, one.dealing, one.store)


@lru_cache(maxsize=1024)
def _multistage(one: PointwiseMultistageSchedule) -> MultistageSchedule:
    return MultistageSchedule(one.tile, one.warp_tile, one.warp_grid, one.stages, one.vectors, one.dealing)


@lru_cache(maxsize=256)
def _skinny(one: PointwiseSkinnySchedule) -> SkinnySchedule:
    return SkinnySchedule(one.tile, one.pipeline.removeprefix("pointwise_few_"))


@lru_cache(maxsize=256)
def product_signature(signature: ConvSignature) -> GemmSignature:
    s = signature
    variant = "multi_d" if s.num_d or s.epilogue != "PassThrough" else "standard"
    return GemmSignature(
        variant, s.dtype, s.dtype, s.dtype_acc, s.dtype_out, s.dtype_d, LAYOUTS[s.variant], s.epilogue, s.num_d
    )


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """Those of the matrix product."""
    if isinstance(schedule, SCHEDULES):
        for rule in gemm.RULES:
            yield from rule(product_signature(signature), schedule.product, arch)
        yield from divisible(product_signature(signature), schedule.product, arch)


def pointwise(problem: ConvProblem) -> bool:
    """Whether each pixel of y is made of the one of x at its place."""
    p = problem
    return (
        p.out == p.size
        and max(p.window) == 1
        and not any(p.before)
        and all(step == 1 or size == 1 for step, size in zip(p.stride, p.size, strict=True))
    )


@lru_cache(maxsize=1024)  # a selection asks once a candidate
def product(problem: ConvProblem, aligned: str = "abe") -> GemmProblem:
    """The matrix product that a pointwise convolution is; groups of these operands count for its alignment."""
    p = problem
    m, n, k = p.gemm
    # Of each operand, elements from line to line, and from group to group.
    lines = {"x": (p.x_strides[-2], p.group_channels), "y": (p.y_strides[-2], p.group_filters)}
    lines["w"] = p.w_strides[0], p.group_filters * p.w_strides[0]
    a, b, e = (lines[one] for one in OPERANDS[p.variant])
    size, result = DTYPES[p.dtype].bytes, DTYPES[p.dtype_out].bytes
    apart = {"a": a[1] * size, "b": b[1] * size, "e": e[1] * result}
    whole = p.groups == 1 or not any(apart[one] % LINE_BYTES for one in aligned)
    return GemmProblem(
        m, n, k, p.dtype, p.dtype, p.dtype_out, p.dtype_d, LAYOUTS[p.variant], p.groups, p.epilogue, p.num_d,
        a_stride=a[0], b_stride=b[0], c_stride=e[0], aligned=p.aligned and whole,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _layout(problem: ConvProblem) -> tuple[Violation, ...]:
    """Why a problem is no matrix product as it lies in memory."""
    p = problem
    if not pointwise(p):
        return (violation("nv-pointwise", "windows are not one pixel at each place, without padding"),)
    if not p.channels_last:
        return (violation("nv-channels-last", "channels do not lie side by side"),)
    if not dense_pixels(p.x_strides, p.x_shape) or not dense_pixels(p.y_strides, p.y_shape):
        return (violation("nv-dense", "the pixels of x or y do not lie at equal distances"),)
    short = p.x_strides[-2] < p.group_channels or p.y_strides[-2] < p.group_filters
    if short or p.w_strides[0] < p.group_channels:
        return (violation("nv-dense", "pixels or filters overlap"),)
    return ()


def limits(schedule: PointwiseSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems that are no such product, and products the kernel was not made for."""
    if broken := _layout(problem):
        yield from broken
        return
    aligned = "abe" if isinstance(schedule, PointwiseTmaWsSchedule) else "ab"  # others store wherever results lie
    if isinstance(schedule, PointwiseMultistageSchedule):
        aligned = "".join(one for one, vector in zip("ab", schedule.vectors, strict=True) if vector > 1)
    yield from gemm.limits(schedule.product, product(problem, aligned))


# Tiles and clusters of GEMM's default pool that are proposed: those that add something on 1200 drawn windows of one
# pixel, as GEMM's learned model for an H200 tells their times; the estimate chooses no worse among them than among all.
_KEPT: frozenset[tuple[int, int, Pair]] = frozenset(
    (m, n, cluster)
    for m, n, *clusters in (
        (64, 32, (1, 1)),
        (64, 48, (1, 1)),
        (64, 64, (1, 1)),
        (64, 96, (1, 1)),
        (64, 128, (1, 1), (2, 1)),
        (64, 192, (1, 1)),
        (128, 16, (1, 1)),
        (128, 32, (1, 1), (4, 1)),
        (128, 64, (1, 1), (4, 1)),
        (128, 128, (1, 1), (2, 1), (2, 2)),
        (128, 160, (2, 1)),
        (128, 192, (1, 1), (2, 1), (4, 2)),
        (128, 224, (2, 1)),
        (128, 256, (1, 1)),
        (192, 64, (1, 1)),
        (192, 128, (1, 2)),
        (192, 160, (2, 1)),
        (256, 32, (1, 1)),
        (256, 64, (1, 1)),
        (256, 128, (1, 1), (1, 2)),
        (8, 64, (1, 1)),  # turned, as are 128x128 and 256x128 beside the others
        (32, 64, (1, 1)),
        (32, 128, (1, 1)),
    )
    for cluster in clusters
)
_FEW = ((16, 8, 512), (16, 16, 512), (32, 8, 512), (32, 16, 512), (16, 32, 512))


def schedules(signature: ConvSignature, arch: Arch) -> Iterator[PointwiseSchedule]:
    """What GEMM's default pool has for the product, less what pixels have no use for."""
    asked = product_signature(signature)
    tensor_maps = "wgmma" in arch.features and signature.dtype != "fp32"
    for one in gemm.schedules("default", asked, arch):
        if isinstance(one, TmaWsSchedule) and (*one.tile[:2], one.cluster) in _KEPT and tensor_maps:
            yield PointwiseTmaWsSchedule.of(one)
        elif isinstance(one, MultistageSchedule) and not tensor_maps:
            yield PointwiseMultistageSchedule.of(one)
        elif isinstance(one, SkinnySchedule) and one.tile in _FEW and signature.dtype in ("bf16", "fp16"):
            yield PointwiseSkinnySchedule.of(one)
