"""The schedules of attention through CK Tile: one family of fields for every kernel, and what pools propose.

tile is (m0, n0, k0, n1, k1, k0max): rows of Q a block, keys and head elements a step of the first multiplication, heads
of V a block, keys a step of the second, and the whole head of Q and K.  Waves share the rows alone; both
multiplications have the same warp tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile import later, versions
from tilewright.backends.hip.attention.ck_tile import tiles as amd_tiles
from tilewright.backends.hip.attention.ck_tile.headers import APPEND_TILE, LOG_SPLITS, ROUTES
from tilewright.backends.hip.attention.ck_tile.instance import Instance, Pads, Tile
from tilewright.backends.hip.attention.ck_tile.rules import COMBINE_N1, NEWEST
from tilewright.dataclass import dataclass
from tilewright.ops.attention.spec import FAMILIES, FP8, AttentionSignature

Shape = tuple[int, int, int]
EVERY: Pads = (True, True, True, True)
NONE: Pads = (False, False, False, False)

_ROUTES = {"none": "forward", "table": "paged", "indices": "prefill"}
_FAMILY = {where: family for family, where in ROUTES.items()}
_ONLY = {"combine": "splitkv_combine", "append": "appendkv", "paged": "qr_pagedkv", "prefill": "qr_async",
         "split": "qr"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CkTileAttentionSchedule:
    """A kernel of CK Tile."""

    pipeline: str
    tile: Tile
    warp_grid: Shape = (4, 1, 1)
    warp_tile: Shape = (32, 32, 16)
    pad: Pads = EVERY  # edge code for rows, keys, heads of Q and K, heads of V
    block_per_cu: int = 0  # blocks registers are to leave room for; 0: as many as CK Tile thinks right
    max_splits_log2: int = 0  # of combine: parts it puts together, at most

    pipelines: ClassVar[tuple[str, ...]] = (
        "qr", "qr_async", "qs", "qr_pagedkv", "qr_nwarp_sshuffle", "appendkv", "splitkv_combine", *NEWEST,
    )  # fmt: skip
    serves: ClassVar[tuple[str, ...]] = FAMILIES
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("block_per_cu", "max_splits_log2")
    axis_names: ClassVar[dict[str, tuple[str, ...]]] = {
        "tile": ("m0", "n0", "k0", "n1", "k1", "k0max"),
        "warp_grid": ("m", "n", "k"),
        "warp_tile": ("m", "n", "k"),
        "pad": ("rows", "keys", "head_qk", "head_v"),
    }

    def label(self) -> str:
        pads = "".join(str(int(padded)) for padded in self.pad)
        words = [self.pipeline, "x".join(map(str, self.tile)), f"w{self.warp_grid[0]}", f"pad{pads}"]
        words.insert(3, "x".join(map(str, self.warp_tile)))
        words += [f"o{self.block_per_cu}"] if self.block_per_cu else []
        words += [f"parts{1 << self.max_splits_log2}"] if self.max_splits_log2 else []
        return "_".join(words)


def route(signature: AttentionSignature) -> str:
    """Which of CK Tile's kernels computes it."""
    return _ROUTES.get(signature.page_lookup, "forward") if signature.family == "forward" else signature.family


def data_type(signature: AttentionSignature) -> str:
    """The element types in one word."""
    kind, out = signature.dtype_q, signature.dtype_out
    if signature.family == "combine":
        return out
    return kind if not kind.startswith("fp8") else f"fp8{out if signature.family != 'split' else ''}"


def computed(signature: AttentionSignature, arch: str) -> Instance:
    """What a signature computes, in the dispatcher's words; how is still open."""
    s = signature
    where = route(s)
    return Instance(
        arch=arch,
        family=_FAMILY[where],
        data_type=data_type(s),
        mode="group" if s.varlen else "batch",
        hdim_q=s.head_dim,
        hdim_v=s.head_dim_v,
        mask="no" if s.mask == "none" else "top_left",  # where a window is laid is told at run time
        bias={"none": "no", "tensor": "bias", "alibi": "alibi"}[s.bias],
        qscale={"none": "no", "tensor": "pertensor", "head": "pertensor"}.get(s.scales, "blockscale"),
        rope={"none": "none", "interleaved": "inter", "half": "half"}[s.rotary],
        lse=s.return_lse or s.family == "split",
        dropout=s.dropout,
        logits=s.softcap,
        paged_kv=s.pages != "none",
        sink=s.sink or s.mask == "generic",
        kv_memory_layout="vectorized" if s.pages == "vectorised" else "linear",
        kv_lookup_table="sglang" if s.page_lookup == "indices" else "vllm",
    )


def instance(signature: AttentionSignature, schedule: CkTileAttentionSchedule, arch: str) -> Instance:
    """A spec in the dispatcher's words."""
    return scheduled(computed(signature, arch), schedule)


def scheduled(inst: Instance, schedule: CkTileAttentionSchedule) -> Instance:
    """What is computed, by a schedule.  A block holds all of V's head: its size is the tile's."""
    h = schedule
    values = list(_VALUES(inst))  # `dataclasses.replace` takes three times as long, and pools have a hundred thousand
    if inst.family not in ("fwd_splitkv_combine", "fwd_appendkv"):
        values[_PLACES["hdim_v"]] = max(h.tile[3], 1)
    values[_PLACES["pipeline"]] = h.pipeline
    values[_PLACES["tile"]] = h.tile
    values[_PLACES["wave"]] = (*h.warp_grid, *h.warp_grid, 1, 1, 1)
    values[_PLACES["warp"]] = (*h.warp_tile, *h.warp_tile, 16, 16, 16)
    values[_PLACES["padding"]] = h.pad
    values[_PLACES["block_per_cu"]] = h.block_per_cu or -1
    values[_PLACES["max_splits_log2"]] = h.max_splits_log2
    return Instance(*values)


_PLACES = {field.name: place for place, field in enumerate(fields(Instance))}
_VALUES = attrgetter(*_PLACES)


# -- what pools propose --------------------------------------------------------------------------------


def _heads(signature: AttentionSignature) -> tuple[int, int]:
    """The head sizes of the tile: CK Tile's own where V's 96 elements lie in 128, and 160 and 192 in 256."""
    v = {96: 128, 160: 256, 192: 256}.get(signature.head_dim_v, signature.head_dim_v)
    return {160: 256}.get(signature.head_dim, signature.head_dim), v


def _tuned(signature: AttentionSignature, where: str) -> CkTileAttentionSchedule:
    """The block CK Tile's authors chose for the head size."""
    qk, v = _heads(signature)
    pipeline = _ONLY.get(where, "qr_async")
    if pipeline == "qr_async":
        qk = signature.head_dim  # K is read to the end of the tile, whatever lies there
    if where == "split":
        if qk <= 32:
            return CkTileAttentionSchedule(pipeline, (32, 64, 16, v, 32, qk), (2, 1, 1), (16, 16, 16))
        return CkTileAttentionSchedule(pipeline, (64, 64 if qk <= 64 else 128, 32, v, 32, qk), (4, 1, 1), (16, 16, 16))
    if signature.dtype_q in FP8:
        n0, alone = (128, 0) if max(qk, v) <= 128 else (64, 1)
        tile = (128, 64 if qk <= 64 else n0, 32, v, 32, qk)
        return CkTileAttentionSchedule("qr", tile, (4, 1, 1), (32, 32, 32), block_per_cu=alone)
    if qk <= 32:
        return CkTileAttentionSchedule(pipeline, (128, 64, 16, v, 32, qk), (2, 1, 1))
    if v > 128:  # half the rows: the sums of more leave no registers for scores
        return CkTileAttentionSchedule(pipeline, (64, 128, 32, v, 32, qk), (4, 1, 1), (16, 16, 16), block_per_cu=1)
    alone = 1 if max(qk, v) > 64 else 0  # sums and scores leave registers for one block
    return CkTileAttentionSchedule(pipeline, (128, 64 if qk <= 64 else 128, 32, v, 32, qk), block_per_cu=alone)


def _fitted(schedule: CkTileAttentionSchedule, pipeline: str) -> CkTileAttentionSchedule:
    """The block with steps that the pipeline can take: as long as the second's where K is copied past the registers."""
    m0, n0, k0, n1, k1, k0max = schedule.tile
    if pipeline != "qr_async":
        k0max = {160: 256}.get(k0max, k0max)
    step = k1 if pipeline == "qr_async" else min(k0, k0max // 2)
    return replace(schedule, pipeline=pipeline, tile=(m0, n0, step, n1, k1, k0max))


def moving(signature: AttentionSignature, where: str) -> Iterator[CkTileAttentionSchedule]:
    """Combine and append, whose blocks hardly vary."""
    if where == "combine":
        for log in LOG_SPLITS:
            base = CkTileAttentionSchedule("splitkv_combine", (32, signature.head_dim_v, 32, COMBINE_N1, 32, 128))
            for pad in (EVERY, (True, True, True, False)):
                yield replace(base, max_splits_log2=log, pad=pad)
        return
    size = next((head for head in (32, 64, 128, 256) if head >= max(signature.head_dim, signature.head_dim_v)), 256)
    base = CkTileAttentionSchedule("appendkv", (APPEND_TILE, APPEND_TILE, size, size, 32, size))
    yield base


def _pads(where: str, pipeline: str) -> tuple[Pads, ...]:
    """Edge code of the default kernels: everywhere, and only where a whole head is read in whole loads."""
    if where == "prefill":
        return (EVERY,)
    if pipeline == "qr_async":
        return (EVERY, (True, False, True, True))
    return (EVERY, (True, True, False, False))


def default(signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
    """Tuned blocks: edge code everywhere first, then less of it."""
    where = route(signature)
    if where in ("combine", "append"):
        yield from moving(signature, where)
        return
    base = _tuned(signature, where)
    pipelines = dict.fromkeys((base.pipeline, "qr") if where == "forward" else (base.pipeline,))
    for pipeline in pipelines:
        for pad in _pads(where, pipeline):
            fitted = _fitted(base, pipeline)
            more = signature.dropout or (pipeline == "qr" and signature.bias == "tensor")
            if more and not fitted.block_per_cu:  # random numbers or a tile of bias are in registers too
                fitted = replace(fitted, block_per_cu=2 if signature.head_dim_v <= 128 else 1)
            yield replace(fitted, pad=pad)
    if signature.page_lookup == "table":
        yield from (
            replace(schedule, pad=pad) for schedule in _of_pages(base) for pad in _pads(where, schedule.pipeline)
        )
    if where == "forward":
        yield from _newest(signature, arch)


def _newest(signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
    """Blocks of pipelines that later headers have, where kernels are written for those now."""
    s, known = signature, versions.written(versions.current())
    plain = s.bias == "none" and not (s.softcap or s.dropout)
    if not plain or arch.name != later.ARCH or s.dtype_q not in later.HALVES:
        return
    for pipeline, blocks in later.BLOCKS.items():
        if f"forward {pipeline}" in known:
            for tile, waves, warp, pad in blocks:
                if (tile[5], tile[3]) == (s.head_dim, s.head_dim_v) and not (s.varlen and not pad[0]):
                    yield CkTileAttentionSchedule(pipeline, tile, (waves, 1, 1), warp, pad)


def _of_pages(base: CkTileAttentionSchedule) -> Iterator[CkTileAttentionSchedule]:
    """Fewer keys a step, for pages that hold no more: a page must be whole steps."""
    _, n0, k0, n1, _, k0max = base.tile
    for fewer in (64, 32, 16):
        if fewer < n0:
            k1 = min(32, fewer)
            waves = 4 if n1 * k1 >= 1024 else 2  # a lane turns two values of two keys, or more
            tile = (16 * waves, fewer, k0, n1, k1, k0max)
            yield replace(base, tile=tile, warp_grid=(waves, 1, 1), warp_tile=(16, 16, 16))


_SWEEP_PADS: Mapping[str, tuple[Pads, ...]] = {
    "qr_async": (EVERY, (True, False, True, True)),
    "qr": (EVERY, (True, True, False, False), NONE),
    "qs": (EVERY, (True, True, False, False), NONE),
    "qr_pagedkv": (EVERY, (True, True, False, False)),
}


def full(signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
    """Every block of the sweep with the warp tiles these headers have, and the defaults."""
    yield from default(signature, arch)
    where = route(signature)
    if where in ("combine", "append"):
        return
    qk, v = _heads(signature)
    pipelines = ("qr_async", "qr", "qs") if where == "forward" else (_ONLY[where],)
    for pipeline in pipelines:
        for warp in ((32, 32, 32),) if signature.dtype_q in FP8 else ((32, 32, 16), (16, 16, 16)):
            yield from _swept(pipeline, warp, (qk, v), where)


def _swept(pipeline: str, warp: Shape, heads: tuple[int, int], where: str) -> Iterator[CkTileAttentionSchedule]:
    steps = [step for step in (16, 32, 64, 96, 128) if step <= heads[0]]
    pads = (EVERY,) if where == "prefill" else _SWEEP_PADS[pipeline]
    for m0 in amd_tiles.M0:
        waves = min(4, m0 // warp[0])
        for n0 in amd_tiles.N0:
            for k0 in steps if waves else ():
                k1 = k0 if pipeline == "qr_async" else min(32, n0)
                tile = (m0, n0, k0, heads[1], k1, heads[0])
                yield from (CkTileAttentionSchedule(pipeline, tile, (waves, 1, 1), warp, pad) for pad in pads)
