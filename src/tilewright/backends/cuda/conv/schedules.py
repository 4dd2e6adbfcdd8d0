"""The schedules of convolutions on NVIDIA GPUs.

ConvTmaWsSchedule   an implicit GEMM by GEMM's tma_ws pipeline: tma_ws, folded for few channels, padded for odd ones
BandSchedule        the same over bands of pixels that are fetched once for all taps
BandWeightSchedule  backward_weight of such
FirstWeightSchedule  backward_weight of few channels
DepthwiseSchedule   a filter for each channel, of any window
DepthwiseTileSchedule  the same of square windows, over tiles that the copy engine brings
DepthwiseMmaSchedule  backward_weight of such by matrix instructions

Of most there is a pipeline that runs it in copies of its operands (`nvidia_resources.IN_COPIES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.gather_schedules import gathers
from tilewright.backends.cuda.conv.resources import K_BYTES, Pair, Shape, chunk_columns, inside, most_stages, sizes
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.schedule import SHAPES, ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature


@dataclass(frozen=True, slots=True)
class ConvTmaWsSchedule:
    """The copy engine walks over pixels and feeds wgmma, warp-specialised and persistent.

    folded: few channels as many, padded: what is not aligned in copies that are.

    A warpgroup of four warps counts as one warp: it is what one wgmma instruction belongs to.
    """

    pipeline: str
    tile: Shape
    stages: int
    cluster: Pair = (1, 1)  # blocks that share what they fetch, along m and n
    grouping: str = "cooperative"  # warpgroups share a tile, or take turns
    dealing: str = "tiles"  # to blocks: whole tiles, the k steps of all of them evenly, or parts of k
    store: str = "direct"  # or tma: results leave through the copy engine
    merged: bool = False  # groups of few channels, several as one

    pipelines: ClassVar[tuple[str, ...]] = ("tma_ws", "folded", "padded", "padded_folded")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pipeline": pipelines,
        "grouping": ("cooperative", "pingpong"),
        "dealing": ("tiles", "stream_k", "split_k"),
        "store": ("tma", "direct"),
    }
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "cluster": ("m", "n")}

    @property
    def warp_tile(self) -> Shape:
        return (64, self.tile[1], self.tile[2] // 4)

    @property
    def warp_grid(self) -> Shape:
        return (1 if self.grouping == "pingpong" else 2, 1, 1)

    def by_rows(self, signature: ConvSignature) -> bool:
        """Whether rows of results may lie anywhere: backward_data of strides over 1 has such."""
        whole = self.store == "direct" and self.dealing == "tiles" and inside(self.pipeline) != "folded"
        return whole and signature.variant == "backward_data" and DTYPES[signature.dtype_out].bytes == 2

    def label(self) -> str:
        parts = [self.pipeline, sizes(self.tile), self.grouping]
        parts += [self.dealing] if self.dealing != "tiles" else []
        parts += [f"cluster{sizes(self.cluster)}"] if self.cluster != (1, 1) else []
        parts += [f"stages{self.stages}", *(["direct"] if self.store == "direct" else [])]
        return "_".join([*parts, *(["merged"] if self.merged else [])])


@dataclass(frozen=True, slots=True)
class BandSchedule:
    """Bands of pixels are fetched once for all taps of a window that moves pixel by pixel; warpgroups take turns."""

    pipeline: str = field(default="band", kw_only=True)
    tile: Shape
    stages: int  # bands under way
    band: int  # rows there is room for: those of a tile and what taps reach beyond
    taps: int  # whose weights are in shared memory
    merged: bool = False  # groups of few channels, several as one
    slice: int = 0  # of merged groups: columns that 16 of k have, so that only these are multiplied; 0 is all
    sharing: int = 1  # and how many 16s have the same

    pipelines: ClassVar[tuple[str, ...]] = ("band", "padded_band")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("slice",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = (1, 1, 1)

    @property
    def warp_tile(self) -> Shape:
        return (64, self.tile[1], 16)

    def label(self) -> str:
        said = f"{self.pipeline}_{sizes(self.tile)}_stages{self.stages}_band{self.band}_taps{self.taps}"
        return said + ("_merged" if self.merged else "") + (f"_slice{self.slice}x{self.sharing}" if self.slice else "")


def band_shared_bytes(signature: ConvSignature, schedule: BandSchedule) -> int:
    """conv/band/shape.h."""
    columns = schedule.tile[1] if signature.variant == "forward" else -(-schedule.tile[1] // 64) * 64
    results = 2 * 2 * 64 * chunk_columns(schedule.tile[1]) * 2
    return schedule.stages * schedule.band * K_BYTES + schedule.taps * columns * K_BYTES + results + 1024 + 640


@dataclass(frozen=True, slots=True)
class BandWeightSchedule:
    """Gradients of weights: a band of x and its pixels of y are fetched once for the taps of a plane, up to nine."""

    pipeline: str = field(default="band_weight", kw_only=True)
    pixels: int  # of a stage
    stages: int
    band: int  # rows of x there is room for: the pixels of a stage and what taps reach beyond

    pipelines: ClassVar[tuple[str, ...]] = ("band_weight", "padded_band_weight")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def shared_bytes(self) -> int:
        """conv/band_weight/shape.h."""
        return self.stages * (self.band + self.pixels) * K_BYTES + 1024 + 128

    def label(self) -> str:
        return f"{self.pipeline}_pixels{self.pixels}_stages{self.stages}_band{self.band}"


@dataclass(frozen=True, slots=True)
class FirstWeightSchedule:
    """Gradients of weights of few channels: lines of 16 bytes of x are operands for all rows of the window."""

    pipeline: str = field(default="first_weight", init=False)
    window: int  # its rows
    lines: int  # of 16 bytes of a row of the window, that each of two warpgroups sums
    stages: int

    pipelines: ClassVar[tuple[str, ...]] = ("first_weight",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"first_weight_{self.window}_lines{self.lines}_stages{self.stages}"


FIRST_WINDOWS = (3, 5, 7)


@dataclass(frozen=True, slots=True)
class DepthwiseSchedule:
    """A filter for each channel: threads slide the window over strips of pixels that they keep in registers."""

    pipeline: str = field(default="depthwise", kw_only=True)
    window: int  # its width; 0 is any, a tap at a time
    step: int  # the stride along the width
    pixels: int  # of a strip
    rows: int = 0  # that a square window rolls down, each read once; 0: any height, a row of taps at a time
    vector: int = 4  # channels of a thread; 1 of an odd number

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise", "padded_depthwise")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("window", "rows")

    def label(self) -> str:
        return (
            f"{self.pipeline}_{self.window or 'any'}_step{self.step}_pixels{self.pixels}"
            + (f"_rows{self.rows}" if self.rows else "")
            + ("_single" if self.vector == 1 else "")
        )


@dataclass(frozen=True, slots=True)
class DepthwiseTileSchedule:
    """A filter for each channel: warps slide a square window over tiles of shared memory, with padding in them."""

    pipeline: str = field(default="depthwise_tile", kw_only=True)
    window: int  # wide and high
    step: int  # the stride, along both
    pixels: int  # of results of a unit, across
    lines: int  # and down
    channels: int = 64  # of a tile
    spread: int = 1  # the dilation, along both

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise_tile", "padded_depthwise_tile")
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        said = f"{self.pipeline}_{self.window}_step{self.step}_{self.lines}x{self.pixels}_channels{self.channels}"
        return said + (f"_spread{self.spread}" if self.spread > 1 else "")

    def least_bytes(self, weight: bool, planes: int) -> int:
        """Shared memory of the smallest tile (conv/depthwise_tile/host.h)."""

        def whole(nbytes: int) -> int:
            return -(-nbytes // 128) * 128

        pixel = 2 * self.channels
        wide = (self.window - 1) * self.spread + 1
        reach, high = ((count - 1) * self.step + wide for count in (self.pixels, self.lines))
        if weight:
            return 256 + high * whole(reach * pixel) + self.lines * whole(self.pixels * pixel)
        return 256 + whole(planes * self.window**2 * self.channels * 4) + planes * high * whole(reach * pixel)


@dataclass(frozen=True, slots=True)
class DepthwiseMmaSchedule:
    """Gradients of weights, a filter for each channel: 16 pixels of a row, two rows of results, eight rows of x."""

    pipeline: str = field(default="depthwise_mma", init=False)
    stages: int  # tiles of whole rows under way

    pipelines: ClassVar[tuple[str, ...]] = ("depthwise_mma",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        return f"depthwise_mma_stages{self.stages}"


DEPTHWISE_WINDOWS = (3, 5, 7)
DEPTHWISE_STEPS = (1, 2)


# Tile, most stages, cluster, grouping, dealing.
Tiles = tuple[tuple[int, int, int, Pair, str, str], ...]
_C, _P = "cooperative", "pingpong"
_PIXELS: Tiles = (
    (64, 64, 8, (1, 1), _P, "split_k"),
    (64, 128, 7, (1, 1), _P, "split_k"),
    (128, 64, 8, (1, 1), _P, "tiles"),
    (128, 64, 8, (2, 1), _P, "tiles"),
    (128, 128, 6, (1, 1), _P, "tiles"),
    (128, 128, 6, (2, 1), _P, "tiles"),
    (128, 128, 6, (1, 1), _C, "split_k"),
    (128, 192, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (2, 1), _C, "tiles"),
    (128, 256, 4, (2, 1), _C, "stream_k"),
    (192, 64, 6, (1, 1), _P, "tiles"),
    (256, 64, 5, (1, 1), _C, "tiles"),
    (256, 64, 5, (2, 1), _C, "tiles"),
    (256, 128, 4, (1, 1), _C, "tiles"),
    (256, 128, 4, (2, 1), _C, "tiles"),
    (256, 128, 4, (1, 1), _C, "stream_k"),
)
# Columns of filters need not be whole 64s.
_FILTERS: Tiles = (
    (128, 16, 12, (1, 1), _P, "tiles"),
    (128, 32, 10, (1, 1), _P, "tiles"),
    (128, 96, 7, (1, 1), _P, "tiles"),
    (128, 160, 5, (1, 1), _P, "tiles"),
    (256, 32, 5, (1, 1), _C, "tiles"),
    (256, 96, 5, (1, 1), _C, "tiles"),
    (256, 160, 4, (1, 1), _C, "tiles"),
)
_WEIGHTS: Tiles = (
    (64, 64, 8, (1, 1), _P, "split_k"),
    (64, 128, 7, (1, 1), _P, "split_k"),
    (64, 192, 6, (1, 1), _P, "split_k"),
    (64, 256, 4, (1, 1), _P, "split_k"),
    (128, 64, 8, (1, 1), _C, "split_k"),
    (128, 128, 6, (1, 1), _C, "split_k"),
    (128, 128, 6, (2, 1), _C, "split_k"),
    (128, 192, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "split_k"),
    (128, 256, 4, (1, 1), _C, "stream_k"),
    (256, 64, 4, (1, 1), _C, "split_k"),
    (256, 128, 4, (1, 1), _C, "split_k"),
    (256, 128, 4, (1, 1), _C, "stream_k"),
)


_PADDED = ((128, 64), (128, 128), (128, 256), (256, 128))  # tiles of kernels that work on copies


def _tma_ws(signature: ConvSignature, tiles: Tiles, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
    """One schedule a tile, results through the copy engine where it can write them."""
    k = K_BYTES // DTYPES[signature.dtype].bytes
    for m, n, stages, cluster, grouping, dealing in tiles:
        small = m == (64 if grouping == "pingpong" else 128) and n <= 64  # these leave from the registers
        store = "tma" if DTYPES[signature.dtype_out].bytes == 2 and n % 16 == 0 and not small else "direct"
        made = ConvTmaWsSchedule("tma_ws", (m, n, k), stages, cluster, grouping, dealing, store)
        yield replace(made, stages=min(stages, most_stages(signature, made, arch.scratch_bytes)))


def _by_classes(made: Iterator[ConvTmaWsSchedule], signature: ConvSignature, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
    """backward_data of strides over 1: rows of results lie anywhere, and tiles are whole."""
    seen = set()
    for one in made:
        direct = replace(one, store="direct", dealing="tiles")
        if direct not in seen and direct != one:
            seen.add(direct)
            yield direct


def tma_ws(signature: ConvSignature, arch: Arch, wide: bool) -> Iterator[ConvTmaWsSchedule]:
    """`wide`: every tile; else those that most problems need."""
    if not {"wgmma", "tma"} <= arch.features or signature.dtype not in ("bf16", "fp16", "int8"):
        return
    if signature.dtype == "int8" and signature.variant != "forward":
        return
    tiles = _WEIGHTS if signature.variant == "backward_weight" else _PIXELS
    if signature.variant != "backward_weight":
        tiles = (*tiles, *_FILTERS)
    made = list(_tma_ws(signature, tiles, arch))
    if signature.variant == "backward_data":
        made += list(_by_classes(iter(made), signature, arch))
    yield from made
    usual = [one for one in made if one.tile[:2] in _PADDED and one.cluster == (1, 1) and one.dealing != "stream_k"]
    if signature.dtype == "int8":
        yield from (replace(one, pipeline="padded") for one in usual)
    else:
        yield from _folded(signature, arch)
        narrow = [
            one for one in made if one.tile[1] in (64, 128) and one.cluster == (1, 1) and one.dealing != "stream_k"
        ]
        yield from (replace(one, merged=True) for one in narrow)
        yield from (replace(one, pipeline="padded") for one in usual)
        yield from (replace(one, pipeline="padded", merged=True) for one in usual if one.tile[:2] == (128, 64))


# Few filters; of backward_data, few taps along the width times channels.
_FOLDED: Tiles = (
    (128, 64, 8, (1, 1), _P, "tiles"),
    (192, 64, 6, (1, 1), _P, "tiles"),
    (256, 32, 5, (1, 1), _C, "tiles"),
    (256, 64, 5, (1, 1), _C, "tiles"),
    (256, 128, 4, (1, 1), _C, "tiles"),
)
_FOLDED_DATA: Tiles = (
    (128, 16, 12, (1, 1), _P, "tiles"),
    (128, 32, 10, (1, 1), _P, "tiles"),
    (128, 64, 8, (1, 1), _P, "tiles"),
    (256, 16, 5, (1, 1), _C, "tiles"),
    (256, 32, 5, (1, 1), _C, "tiles"),
    (256, 64, 5, (1, 1), _C, "tiles"),
)
_FOLDED_WEIGHTS: Tiles = tuple(one for one in _WEIGHTS if one[3] == (1, 1) and one[5] == "split_k")


def _folded(signature: ConvSignature, arch: Arch) -> Iterator[ConvTmaWsSchedule]:
    tiles = {"forward": _FOLDED, "backward_data": _FOLDED_DATA, "backward_weight": _FOLDED_WEIGHTS}[signature.variant]
    if signature.variant == "backward_data":  # sums of a forward one, as floats
        signature = replace(signature, variant="forward", dtype_out="fp32")
    yield from (replace(one, pipeline="folded") for one in _tma_ws(signature, tiles, arch))


def schedules(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
    yield from tma_ws(signature, arch, pool != "default")
    yield from bands(signature, arch)
    yield from band_weights(signature, arch)
    yield from first_weights(signature, arch)
    yield from depthwise_tiles(signature, arch)
    yield from depthwise_mmas(signature, arch)
    yield from depthwise(signature)
    yield from in_copies(signature, arch)
    yield from gathers(signature, arch)
    yield LoopsSchedule()


def in_copies(signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
    """The others in copies, where channels lie apart; of those that serve the same shapes, few."""
    if "tma" not in arch.features:
        return
    for band in bands(signature, arch):
        if band.tile[0] != 192 and not (band.slice and signature.spatial == 3):  # slices take one band a tile
            yield replace(band, pipeline="padded_band")
    yield from (replace(one, pipeline="padded_band_weight") for one in band_weights(signature, arch))
    if DTYPES[signature.dtype].bytes == 2:
        yield from (replace(one, pipeline="padded_folded") for one in _folded(signature, arch))
    flat = signature.spatial == 2 or signature.variant != "backward_data"  # gradients of strides: windows of one plane
    for tile in depthwise_tiles(signature, arch):
        if tile.pixels < 8 and (flat or tile.step == 1):
            yield replace(tile, pipeline="padded_depthwise_tile")
    for strip in depthwise(signature):
        if strip.window == 0 or strip.rows == 14 or (strip.pixels == 4 and not strip.rows):
            yield replace(strip, pipeline="padded_depthwise")


def bands(signature: ConvSignature, arch: Arch) -> Iterator[BandSchedule]:
    """Nine taps that stay, or a ring of fewer and wider ones; of merged groups in slices too."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant == "backward_weight":
        return
    if {DTYPES[signature.dtype].bytes, DTYPES[signature.dtype_out].bytes} != {2}:
        return
    for m, n, stages, band, taps in (
        (128, 64, 3, 320, 9),
        (192, 64, 2, 480, 9),
        (256, 64, 2, 480, 9),
        (128, 128, 2, 512, 4),
        (128, 128, 3, 336, 4),
    ):
        made = BandSchedule((m, n, 64), stages, band, taps)
        yield made
        yield replace(made, tile=(m, n, 32))  # few channels
        yield replace(made, merged=True)
        for slice_, sharing in ((16, 1), (32, 2)) if n == 64 else ((32, 1),):
            yield replace(made, merged=True, slice=slice_, sharing=sharing)
    for m, deep in product((192, 256), (64, 32)):  # wide images, and wide windows
        yield BandSchedule((m, 64, deep), 2, 640, 4)


def band_weights(signature: ConvSignature, arch: Arch) -> Iterator[BandWeightSchedule]:
    """Short bands where rows are, long ones where they must be."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (BandWeightSchedule(*one) for one in ((128, 4, 240), (192, 3, 320), (256, 2, 512), (128, 2, 640)))


def first_weights(signature: ConvSignature, arch: Arch) -> Iterator[FirstWeightSchedule]:
    """Windows that move by one pixel, of eight channels, and by two, of four."""
    if not {"wgmma", "tma"} <= arch.features or signature.variant != "backward_weight":
        return
    if DTYPES[signature.dtype].bytes == 2:
        yield from (FirstWeightSchedule(*one) for one in ((3, 2, 3), (5, 3, 3), (7, 2, 3), (7, 4, 3)))


def depthwise_tiles(signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseTileSchedule]:
    """Units that divide the sizes of usual networks, and such of powers of two."""
    if "tma" not in arch.features or DTYPES[signature.dtype].bytes != 2:
        return
    data, weight = signature.variant == "backward_data", signature.variant == "backward_weight"
    for window in DEPTHWISE_WINDOWS:
        for step in DEPTHWISE_STEPS if not data else (1,):
            for pixels, channels in product((7,) if weight and window == 7 else (7, 8), (32, 64)):
                yield DepthwiseTileSchedule(window, step, pixels, 2, channels)
        if data:
            yield from (DepthwiseTileSchedule(window, 2, 7, 1, channels) for channels in (32, 64))
        yield DepthwiseTileSchedule(window, 1, 7, 1 if weight and window == 7 else 2, 64, 2)
        if weight:  # strips slide over neither
            yield DepthwiseTileSchedule(window, 2, 7 if window < 7 else 4, 1, 64, 2)


def depthwise_mmas(signature: ConvSignature, arch: Arch) -> Iterator[DepthwiseMmaSchedule]:
    """Tiles of more rows, or more of them under way."""
    if "tma" in arch.features and signature.variant == "backward_weight" and DTYPES[signature.dtype].bytes == 2:
        yield from (DepthwiseMmaSchedule(stages) for stages in (2, 3))


def depthwise(signature: ConvSignature) -> Iterator[DepthwiseSchedule]:
    """Short strips, and such as divide the sizes of usual networks; beside wide windows fewer channels fit."""
    if signature.dtype == "int8":
        return
    weight = signature.variant == "backward_weight"
    for window in DEPTHWISE_WINDOWS:
        for step in DEPTHWISE_STEPS if signature.variant != "backward_data" else (1,):
            for pixels in (4, 7) if step == 1 else (4,):
                yield DepthwiseSchedule(window, step, pixels)
        for rows in (7, 14, 28):
            yield DepthwiseSchedule(window, 1, 7, rows, 4 if window == 3 else 2)
    if not weight:
        yield DepthwiseSchedule(0, 1, 2)
    for window, step in product(DEPTHWISE_WINDOWS, DEPTHWISE_STEPS if signature.variant != "backward_data" else (1,)):
        yield DepthwiseSchedule(window, step, 7 if step == 1 else 4, vector=1)
    if not weight:
        yield DepthwiseSchedule(0, 1, 2, vector=1)
