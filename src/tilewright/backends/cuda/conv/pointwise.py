"""Windows of one pixel on NVIDIA GPUs: matrix products, by GEMM's own kernels.

Where a window has one tap, moves pixel by pixel and meets no padding, pixels are the rows of a matrix product (of
gradients of weights, its k), and groups its batch.  Nothing is walked over; what GEMM copies first, since the copy
engine cannot read it, is copied here too.  What is legal and which products a kernel takes, GEMM is asked.

`planes`: the same of channels-first memory, as it lies.  Pixels of an image are columns, images the batch, and all of
them have one w.  Gradients of weights are sums over images, which only one image has not.

The fields are GEMM's, under names that convolutions have: a learned model has a column for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeAlias

from tilewright import ops
from tilewright.arch import Arch
from tilewright.backends.cuda.conv.places import LINE_BYTES, dense_pixels, violation
from tilewright.backends.cuda.conv.resources import Pair, Shape, sizes
from tilewright.dtypes import DTYPES
from tilewright.ops.base import SPEC_SCHEMA, KernelSpec, Violation, plain
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import SHAPES, ConvSchedule
from tilewright.ops.conv.spec import ConvSignature

PRODUCT = "gemm"


class Lying(NamedTuple):
    """How A and B of the matrix product that a direction is lie, and what A, B and E are."""

    layout: str
    operands: str


# cuda/conv/pointwise/host.h
PIXELS = {
    "forward": Lying("rcr", "xwy"),
    "backward_data": Lying("rrr", "ywx"),
    "backward_weight": Lying("crr", "yxw"),
}
PLANES = {
    "forward": Lying("rrr", "wxy"),
    "backward_data": Lying("crr", "wyx"),
    "backward_weight": Lying("rcr", "yxw"),
}


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

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_tma_ws", "pointwise_turned", "planes_tma_ws", "planes_turned")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "grouping": ("cooperative", "pingpong"),
        "dealing": ("tiles", "stream_k", "split_k", "cluster_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @property
    def planes(self) -> bool:
        return self.pipeline.startswith("planes")

    @property
    def turned(self) -> bool:
        return self.pipeline.endswith("turned")

    @property
    def warp_tile(self) -> Shape:
        m, n, k = self.tile
        return (m, 64, k // 4) if self.turned else (64, n, k // 4)

    @property
    def warp_grid(self) -> Shape:
        groups = 1 if self.grouping == "pingpong" else 3 if self.tile[1 if self.turned else 0] == 192 else 2
        return (1, groups, 1) if self.turned else (groups, 1, 1)

    def told(self) -> dict[str, Any]:
        """The fields of GEMM's schedule."""
        same = {name: getattr(self, name) for name in ("tile", "stages", "cluster", "grouping", "dealing", "store")}
        return {**same, "pipeline": "tma_ws", "turned": self.turned}

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), self.grouping]
        parts += [self.dealing] if self.dealing != "tiles" else []
        parts += [f"cluster{sizes(self.cluster)}"] if self.cluster != (1, 1) else []
        return "_".join([*parts, f"stages{self.stages}", *(["direct"] if self.store == "direct" else [])])


@dataclass(frozen=True, slots=True)
class PointwiseMultistageSchedule:
    """GEMM's multistage."""

    pipeline: str
    tile: Shape
    warp_tile: Shape
    warp_grid: Shape
    stages: int
    vectors: Pair  # elements of A and B that are copied at a time
    dealing: str = "tiles"

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_multistage", "planes_multistage")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "dealing": ("tiles", "stream_k", "split_k"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "vectors": ("a", "b")}

    @property
    def planes(self) -> bool:
        return self.pipeline.startswith("planes")

    def told(self) -> dict[str, Any]:
        same = {name: getattr(self, name) for name in ("tile", "warp_tile", "warp_grid", "stages", "dealing")}
        return {**same, "pipeline": "multistage", "vector": self.vectors}

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), sizes(self.warp_grid), sizes(self.warp_tile)]
        parts += [self.dealing] if self.dealing != "tiles" else []
        return "_".join([*parts, f"stages{self.stages}", f"vectors{sizes(self.vectors)}"])


@dataclass(frozen=True, slots=True)
class PointwiseSkinnySchedule:
    """GEMM's skinny: of few pixels (rows of the product), or few filters or channels (columns)."""

    pipeline: str
    tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("pointwise_few_rows", "pointwise_few_columns")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    planes: ClassVar[bool] = False

    @property
    def few(self) -> str:
        return self.pipeline.removeprefix("pointwise_few_")

    @property
    def warp_tile(self) -> Shape:
        return (16, 8, 16) if self.few == "columns" else (8, 16, 16)

    @property
    def warp_grid(self) -> Shape:
        return (1, 1, self.tile[2] // 64)

    def told(self) -> dict[str, Any]:
        return {"pipeline": "skinny", "tile": self.tile, "few": self.few}

    def label(self) -> str:
        return f"{self.pipeline}_{sizes(self.tile)}"


PointwiseSchedule: TypeAlias = PointwiseTmaWsSchedule | PointwiseMultistageSchedule | PointwiseSkinnySchedule
SCHEDULES = (PointwiseTmaWsSchedule, PointwiseMultistageSchedule, PointwiseSkinnySchedule)


def _schedule(told: Mapping[str, Any], kind: str) -> PointwiseSchedule | None:
    """The schedule of pixels or planes of which GEMM is told that; none of kernels that are not for convolutions."""
    given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in told.items()}
    name = given.pop("pipeline")
    if name == "tma_ws":
        return PointwiseTmaWsSchedule(f"{kind}_{'turned' if given.pop('turned') else 'tma_ws'}", **given)
    if name == "multistage":
        return PointwiseMultistageSchedule(f"{kind}_multistage", vectors=given.pop("vector"), **given)
    few = name == "skinny" and kind == "pointwise"
    return PointwiseSkinnySchedule(f"pointwise_few_{given['few']}", given["tile"]) if few else None


def lying(variant: str, planes: bool) -> Lying:
    return (PLANES if planes else PIXELS)[variant]


@lru_cache(maxsize=4096)  # asked for once a candidate and question
def twin(signature: ConvSignature, schedule: PointwiseSchedule, arch: str) -> KernelSpec:
    """The GEMM kernel that a pointwise one is."""
    s, told = signature, plain(schedule.told())
    made = {
        "variant": "multi_d" if s.num_d or s.epilogue != "PassThrough" else "standard",
        "dtype_a": s.dtype, "dtype_b": s.dtype, "dtype_acc": s.dtype_acc, "dtype_c": s.dtype_out, "dtype_d": s.dtype_d,
        "layout": lying(s.variant, schedule.planes).layout, "epilogue": s.epilogue, "num_d": s.num_d,
    }  # fmt: skip
    return ops.op(PRODUCT).spec_from_dict(
        {"schema": SPEC_SCHEMA, "op": PRODUCT, "arch": arch, "signature": made, "schedule": told}
    )


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """Those of the matrix product."""
    if isinstance(schedule, SCHEDULES):
        yield from ops.op(PRODUCT).check(twin(signature, schedule, arch.name))


def pointwise(problem: ConvProblem) -> bool:
    """Whether each pixel of y is made of the one of x at its place."""
    p = problem
    return (
        p.out == p.size
        and max(p.window) == 1
        and not any(p.before)
        and all(step == 1 or size == 1 for step, size in zip(p.stride, p.size, strict=True))
    )


class Lines(NamedTuple):
    """Of an operand of the product, in elements."""

    apart: int  # from line to line
    batch: int  # from matrix to matrix of the batch; 0 where all have one


def _lines(p: ConvProblem, planes: bool) -> dict[str, Lines]:
    """Of x, w and y."""
    pixel, images = (-1 if planes else -2), planes and p.groups == 1
    every_group = {"x": p.group_channels, "y": p.group_filters}
    found = {}
    for name, group in every_group.items():
        strides = getattr(p, f"{name}_strides")
        found[name] = Lines(strides[pixel], strides[0] if images else group * strides[-1])
    return found | {"w": Lines(p.w_strides[0], 0 if images else p.group_filters * p.w_strides[0])}


def _sizes(p: ConvProblem, planes: bool) -> dict[str, int]:
    """Rows, columns, k and batch of the product."""
    m, n, k = p.gemm
    if not planes:
        return {"m": m, "n": n, "k": k, "batch": p.groups}
    pixels, batch = prod(p.out), p.batch * p.groups
    if p.variant == "forward":
        return {"m": p.group_filters, "n": pixels, "k": p.group_channels, "batch": batch}
    if p.variant == "backward_data":
        return {"m": p.group_channels, "n": pixels, "k": p.group_filters, "batch": batch}
    return {"m": m, "n": n, "k": pixels, "batch": batch}


@lru_cache(maxsize=1024)  # a selection asks once a candidate
def product(problem: ConvProblem, planes: bool = False, aligned: str = "abe") -> Any:
    """The matrix product that a pointwise convolution is; the batch of these operands counts for its alignment."""
    p, lies, lines = problem, lying(problem.variant, planes), _lines(problem, planes)
    sized = _sizes(p, planes)
    a, b, e = (lines[one] for one in lies.operands)
    size, result = DTYPES[p.dtype].bytes, DTYPES[p.dtype_out].bytes
    bytes_apart = {"a": a.batch * size, "b": b.batch * size, "e": e.batch * result}
    whole = sized["batch"] == 1 or not any(bytes_apart[one] % LINE_BYTES for one in aligned)
    return ops.op(PRODUCT).problem_from_dict(
        {
            **sized, "layout": lies.layout, "dtype_a": p.dtype, "dtype_b": p.dtype, "dtype_c": p.dtype_out,
            "dtype_d": p.dtype_d, "epilogue": p.epilogue, "num_d": p.num_d, "broadcast_a": a.batch == 0,
            "a_stride": a.apart, "b_stride": b.apart, "c_stride": e.apart, "aligned": p.aligned and whole,
        }
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _layout(problem: ConvProblem, planes: bool) -> tuple[Violation, ...]:
    """Why a problem is no matrix product as it lies in memory."""
    p = problem
    if not pointwise(p):
        return (violation("nv-pointwise", "windows are not one pixel at each place, without padding"),)
    if planes:
        return tuple(_planes(p))
    if not p.channels_last:
        return (violation("nv-channels-last", "channels do not lie side by side"),)
    if not dense_pixels(p.x_strides, p.x_shape) or not dense_pixels(p.y_strides, p.y_shape):
        return (violation("nv-dense", "the pixels of x or y do not lie at equal distances"),)
    short = p.x_strides[-2] < p.group_channels or p.y_strides[-2] < p.group_filters
    if short or p.w_strides[0] < p.group_channels:
        return (violation("nv-dense", "pixels or filters overlap"),)
    return ()


def _planes(p: ConvProblem) -> Iterator[Violation]:
    """The same of channels-first memory."""
    one_image = ((p.x_strides, (1, *p.x_shape[1:])), (p.y_strides, (1, *p.y_shape[1:])))
    if any(strides[-2] != 1 or not dense_pixels(strides, shape) for strides, shape in one_image):
        yield violation("nv-planes", "the pixels of a channel do not lie side by side")
    elif p.w_strides[-1] != 1:
        yield violation("nv-planes", "the channels of w do not lie side by side")
    elif p.batch != 1 and (p.groups > 1 or p.variant == "backward_weight"):
        yield violation("nv-planes", "several images, of which groups or gradients of weights are no one product")
    elif p.full_d:
        yield violation("nv-planes", "D tensors as large as y are not taken of channels that lie apart")
    elif min(p.x_strides[-1], p.y_strides[-1]) < prod(p.size) or p.w_strides[0] < p.group_channels:
        yield violation("nv-dense", "channels or filters overlap")
    elif p.batch > 1 and min(p.x_strides[0], p.y_strides[0]) < 0:
        yield violation("nv-dense", "images lie backwards")


_ANY_ARCH = "sm_90a"  # limits are those of a schedule, whatever it runs on


def limits(schedule: PointwiseSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems that are no such product, and products the kernel was not made for."""
    if broken := _layout(problem, schedule.planes):
        yield from broken
        return
    aligned = "abe" if isinstance(schedule, PointwiseTmaWsSchedule) else "ab"  # others store wherever results lie
    if isinstance(schedule, PointwiseMultistageSchedule):
        aligned = "".join(one for one, vector in zip("ab", schedule.vectors, strict=True) if vector > 1)
    asked = product(problem, schedule.planes, aligned)
    yield from ops.op(PRODUCT).supports(twin(problem.signature, schedule, _ANY_ARCH), asked)


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
    s = signature
    fused = s.num_d or s.epilogue != "PassThrough"
    more: Any = {"epilogues": (s.epilogue,), "num_d": (s.num_d,)} if fused else {}
    wgmma = "wgmma" in arch.features and s.dtype != "fp32"
    for kind in ("pointwise", "planes"):
        layouts = (lying(s.variant, kind == "planes").layout,)
        proposed = ops.op(PRODUCT).proposals(
            "default", arch.name, datatypes=(s.dtype,), layouts=layouts, outputs=(s.dtype_out,), **more
        )
        made = (_schedule(plain(spec.schedule), kind) for spec in proposed)
        yield from (one for one in made if one is not None and _wanted(one, wgmma, s.dtype))


def _wanted(one: PointwiseSchedule, wgmma: bool, dtype: str) -> bool:
    if isinstance(one, PointwiseTmaWsSchedule):
        return wgmma and (*one.tile[:2], one.cluster) in _KEPT
    if isinstance(one, PointwiseMultistageSchedule):
        return not wgmma
    return one.tile in _FEW and dtype in ("bf16", "fp16")
