"""Attention on AMD GPUs: what is legal, and the schedules worth proposing.

CK Tile's kernels where it has them (`amd_schedules.py`; rules of its dispatcher in `amd_rules.py`, of its headers in
`amd_headers.py`), and under them on every GPU the loops that CUDA has too.  Pools beside the usual ones go by the names
of the dispatcher's profiles (`amd_profiles.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.hip.attention import headers as amd_headers
from tilewright.backends.hip.attention import profiles as amd_profiles
from tilewright.backends.hip.attention import rules as amd_rules
from tilewright.backends.hip.attention import schedules as made
from tilewright.backends.hip.attention import select
from tilewright.backends.hip.attention.schedules import CkTileAttentionSchedule, route
from tilewright.backends.hip.attention.tiles import HEAD_SIZES
from tilewright.dtypes import dtype
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import FP8, AttentionSignature, head_class, settled, signature_violations
from tilewright.ops.base import Violation

USUAL = "fp16"
SELECTION_RULES = select.RULES
SCHEDULES: tuple[type[AttentionSchedule], ...] = (LoopsSchedule, CkTileAttentionSchedule)
_FORWARD = [one for one in amd_profiles.PROFILES.values() if "bwd" not in one.name]
POOLS = {one.name: one.summary for one in _FORWARD} | {
    str(one.receipt): f"{one.name}, by its receipt" for one in _FORWARD if one.receipt >= 0
}
_HALVES = ("fp16", "bf16")

WIDTH = 8  # elements of a whole load, of halves
MOST = (1 << 31) - 1  # of a size or stride
MOST_BYTES = (1 << 31) - 65536  # of what a block reaches of one head
MOST_BLOCKS = 65535  # of a grid, but for its first axis
MOST_PLACES = 65536  # that ALiBi's distances of 16 bits tell apart
COMBINE_ROWS = 8  # of a block


def signature_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from signature_violations(signature)


def ck_tile_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why CK Tile has no kernel for a signature, whatever its schedule."""
    s = signature
    if "mfma" not in arch.features or not arch.accumulator_registers or arch.attention is None:
        yield Violation(
            "amd-attention-arch",
            f"CK Tile's attention on {arch.name}: these headers multiply with the matrix instructions of gfx90a and up",
            "use loops, or gfx90a, gfx942 or gfx950",
        )
        return
    if s.family != "combine" and (s.dtype_kv != s.dtype_q):
        yield Violation("amd-attention-dtype", f"keys of {s.dtype_kv} with queries of {s.dtype_q}", "use one type")
    if s.family == "forward" and s.dtype_q in _HALVES and s.dtype_out != s.dtype_q:
        yield Violation("amd-attention-dtype", f"results of {s.dtype_out} of {s.dtype_q}", f"use {s.dtype_q}")
    narrow = "fp8_e4m3fnuz" if "fp8-fnuz" in arch.features else "fp8_e4m3"
    if s.dtype_q in FP8 and s.dtype_q != narrow:
        yield Violation("amd-attention-dtype", f"{s.dtype_q} on {arch.name}: it multiplies {narrow}", f"use {narrow}")
    if s.masked:
        yield Violation(
            "amd-attention-mask", "CK Tile knows no boolean mask", "give a bias that is minus infinity where it hides"
        )
    if (s.bias == "tensor" or s.rotary != "none") and s.dtype_aux != s.dtype_q:
        what = "a bias" if s.bias == "tensor" else "rotary tables"
        yield Violation("amd-attention-aux", f"{what} of {s.dtype_aux} with {s.dtype_q}", f"use {s.dtype_q}")
    if s.varlen and s.bias == "tensor":
        yield Violation(
            "amd-attention-packed-bias", "CK Tile lays the bias of packed rows by their packed places", "pad the rows"
        )
    if s.pages == "vectorised":
        yield Violation("amd-attention-pages", "vectorised pages: these headers know linear ones", "use linear pages")
    if s.family == "split" and s.page_lookup == "indices":
        yield Violation("amd-attention-pages", "split kernels find pages by a table", "give a block table")
    if s.family == "forward" and s.page_lookup == "indices" and not s.varlen:
        yield Violation("amd-attention-pages", "pages by indices go with packed rows", "pack the rows")


def _legal(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)
    if not isinstance(schedule, CkTileAttentionSchedule):
        return
    found = list(ck_tile_rules(signature, arch))
    yield from found
    if any(one.rule == "amd-attention-arch" for one in found):
        return
    one = made.instance(signature, schedule, arch.name)
    of_words = list(amd_rules.violations(one, arch))
    yield from of_words
    if not any(each.rule == "amd-attention-lengths" for each in of_words):
        yield from amd_headers.violations(one, arch)
    yield from _heads(signature, schedule)


def _whole_heads(signature: AttentionSignature, schedule: CkTileAttentionSchedule) -> Iterator[Violation]:
    """Without edge code of heads (qr_async has none for K) a kernel serves heads as large as its tile alone, and its
    signature must let them be."""
    s, h, where = signature, schedule, route(signature)
    of_tile = (h.tile[2], h.tile[3]) if where == "append" else (h.tile[5], h.tile[3])
    for what, padded, tile, head in (
        ("q and k", h.pad[2] and h.pipeline != "qr_async", of_tile[0], s.head_dim),
        ("v", h.pad[3], of_tile[1], s.head_dim_v),
    ):
        if not padded and where != "combine" and tile > head:
            yield Violation(
                "amd-attention-whole-heads",
                f"no edge code of heads of {what}, and a tile of {tile} elements where heads have {head}",
                "pad the heads, or use a tile as large as they are",
            )


def _heads(signature: AttentionSignature, schedule: CkTileAttentionSchedule) -> Iterator[Violation]:
    where, h = route(signature), schedule
    yield from _whole_heads(signature, schedule)
    if where in ("combine", "append"):
        return
    if h.tile[3] < signature.head_dim_v:
        yield Violation(
            "amd-attention-n1", f"tile_n1 {h.tile[3]} under heads of {signature.head_dim_v}", "use a larger"
        )
    if h.pipeline == "qs" and signature.varlen:
        yield Violation(
            "amd-attention-qs-packed", "qs with packed keys: a sequence without keys would be walked", "use qr"
        )
    if signature.varlen and not (h.pad[0] and (h.pad[1] or where == "split")):
        yield Violation(
            "amd-attention-packed-pads", "packed rows without edge code of rows and keys", "pad rows and keys"
        )
    if where in ("split", "paged") and not h.pad[1]:
        yield Violation(
            "amd-attention-paged-pads",
            f"{where} without edge code of keys: parts and last pages end anywhere",
            "pad the keys",
        )


RULES = (_legal,)


# -- what a legal kernel was not made for ---------------------------------------------------------------


def limits(schedule: AttentionSchedule, problem: AttentionProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    if not isinstance(schedule, CkTileAttentionSchedule) or not (
        problem.batch and problem.seqlen_q and problem.heads_q
    ):
        return
    where = route(problem.signature)
    if where == "combine":
        yield from _combine_limits(schedule, problem)
    elif where == "append":
        yield from _append_limits(schedule, problem)
    else:
        yield from _features(schedule, problem, where)
        yield from _edges(schedule, problem, where)
        yield from _alignment(schedule, problem)
        yield from _spans(schedule, problem, where)


def _features(h: CkTileAttentionSchedule, p: AttentionProblem, where: str) -> Iterator[Violation]:
    if p.seqlens_q:
        yield Violation("amd-lengths", "rows have lengths: CK Tile takes them packed, or all", "pack the rows")
    if p.seqlens_k and not p.varlen and where == "forward":
        yield Violation("amd-lengths", "keys have lengths: CK Tile takes them packed, or all", "pack them")
    if p.varlen and where in ("paged", "split") and p.pages != "none" and not p.seqlens_k:
        yield Violation("amd-lengths", "packed rows over pages without lengths of keys", "give seqlens_k")
    if p.bias == "tensor" and p.bias_shape[3] != p.seqlen_k:
        yield Violation("amd-bias", "a bias that repeats along keys", "spread it out along keys")
    if p.bias == "alibi" and where != "split" and p.seqlen_q + p.seqlen_k > MOST_PLACES:
        yield Violation("amd-alibi", f"ALiBi over {p.seqlen_q} rows and {p.seqlen_k} keys in 16 bits", "use loops")
    if where == "prefill" and p.page_size != 1:
        yield Violation("amd-pages", f"a pool of pages of {p.page_size} slots: these headers know 1", "use a table")
    elif where != "prefill" and p.pages != "none" and p.page_size % h.tile[1]:
        yield Violation(
            "amd-pages",
            f"pages of {p.page_size} slots are no multiple of tile_n0 {h.tile[1]}",
            f"use pages of a multiple of {h.tile[1]}, or a kernel with a smaller tile_n0",
        )


def _edges(h: CkTileAttentionSchedule, p: AttentionProblem, where: str) -> Iterator[Violation]:
    rows, keys, head_dim, head_dim_v = h.pad
    if not rows and (p.varlen or p.seqlen_q % h.tile[0]):
        yield Violation("amd-rows", f"{p.seqlen_q} rows are no multiple of tile_m0 {h.tile[0]}", "use a padded kernel")
    if not keys and where != "split" and (p.varlen or p.seqlens_k or p.seqlen_k % h.tile[1]):
        yield Violation("amd-keys", f"{p.seqlen_k} keys are no multiple of tile_n0 {h.tile[1]}", "use a padded kernel")
    if p.seqlen_k == 0 and not p.bounded and (not keys or h.pipeline == "qs"):
        yield Violation("amd-keys", f"no keys, and {h.pipeline} has no code for none here", "use a padded kernel")
    if h.pipeline == "qr_async" and p.head_dim != h.tile[5]:
        yield Violation(
            "amd-heads",
            f"heads of {p.head_dim} under tile_k0max {h.tile[5]}: qr_async reads what lies behind them in K, times 0",
            "use qr",
        )
    elif not head_dim and p.head_dim != h.tile[5]:
        yield Violation("amd-heads", f"heads of {p.head_dim} are not tile_k0max {h.tile[5]}", "use a padded kernel")
    if not head_dim_v and p.head_dim_v != h.tile[3]:
        yield Violation("amd-heads", f"heads of {p.head_dim_v} are not tile_n1 {h.tile[3]}", "use a padded kernel")


def _whole(*strides: tuple[int, ...], width: int = WIDTH) -> bool:
    return not any(one % width for each in strides for one in each)


def _alignment(h: CkTileAttentionSchedule, p: AttentionProblem) -> Iterator[Violation]:
    loaded, width = h.pipeline in amd_headers.LOADED, 16 // dtype(p.dtype_q).bytes
    for what, padded, head, strides in (
        ("q and k", h.pad[2], p.head_dim, (p.q_strides, p.k_strides)),
        ("v and o", h.pad[3], p.head_dim_v, (p.v_strides, p.o_strides)),
    ):
        if (not loaded or not padded) and (head % width or not _whole(*strides, width=width) or not p.aligned):
            yield Violation(
                "amd-alignment",
                f"{what}: heads of {head}, strides and addresses are not all multiples of 16 bytes",
                "align them, or use qr with edge code of heads",
            )


def _spans(h: CkTileAttentionSchedule, p: AttentionProblem, where: str) -> Iterator[Violation]:
    strides = (*p.q_strides, *p.k_strides, *p.v_strides, *p.o_strides)
    if max(*strides, p.seqlen_k, p.seqlen_q) > MOST or min(strides) < 0:
        yield Violation("amd-operand-size", "a stride is negative, or 2^31 elements or more", "split the problem")
        return
    size, out = dtype(p.dtype_q).bytes, dtype(p.dtype_out).bytes
    rows = p.seqlen_q + h.tile[0]
    keys = p.page_count if where == "prefill" else p.page_size if p.pages != "none" else p.seqlen_k + h.tile[1]
    place = 0 if where == "prefill" else 1
    reach = (rows * p.q_strides[1] * size, rows * p.o_strides[1] * out, keys * p.k_strides[place] * size,
             keys * p.v_strides[place] * size)  # fmt: skip
    if max(reach) >= MOST_BYTES:
        yield Violation("amd-operand-size", "one head of an operand spans 2 GiB or more", "split the problem")
    tiles = -(-p.seqlen_q // h.tile[0]) * max(1, p.num_splits if where == "split" else 1)
    if max(p.batch, p.heads_q, tiles) > MOST_BLOCKS:
        yield Violation("amd-tiles", "more sequences, heads or tiles than a launch has blocks for", "split the problem")


def _combine_limits(h: CkTileAttentionSchedule, p: AttentionProblem) -> Iterator[Violation]:
    if p.seqlens_q:
        yield Violation("amd-lengths", "rows have lengths: CK Tile takes them packed, or all", "pack the rows")
    if p.num_splits > 1 << h.max_splits_log2:
        yield Violation(
            "amd-splits", f"{p.num_splits} parts, and the kernel is for {1 << h.max_splits_log2}", "use a larger one"
        )
    if not h.pad[0] and (p.varlen or p.seqlen_q % COMBINE_ROWS):
        yield Violation("amd-rows", f"{p.seqlen_q} rows are no multiple of {COMBINE_ROWS}", "use a padded kernel")
    if not h.pad[3]:
        if p.head_dim_v % h.tile[3]:
            yield Violation(
                "amd-heads", f"heads of {p.head_dim_v} are no multiple of {h.tile[3]}", "use a padded kernel"
            )
        elif not _whole(p.o_strides) or not p.aligned:
            yield Violation("amd-alignment", "o is not all multiples of 16 bytes", "use a padded kernel")
    if max(p.batch, p.heads_q) > MOST_BLOCKS:
        yield Violation("amd-tiles", "more sequences or heads than a launch has blocks for", "split the problem")


def _append_limits(h: CkTileAttentionSchedule, p: AttentionProblem) -> Iterator[Violation]:
    if p.seqlens_q:
        yield Violation("amd-lengths", "sequences have different numbers of new rows: CK Tile takes one", "use loops")
    if p.rotary != "none" and p.rotary_dim % 16:
        yield Violation("amd-rotary", f"{p.rotary_dim} rotary elements are no multiple of 16", "use loops")
    if p.pages != "none" and p.page_size < h.tile[1]:
        yield Violation("amd-pages", f"pages of {p.page_size} slots, and a block writes {h.tile[1]}", "use loops")
    if not h.pad[0] and p.rotary_q and p.seqlen_q % h.tile[0]:
        yield Violation("amd-rows", f"{p.seqlen_q} rows are no multiple of tile_m0 {h.tile[0]}", "use a padded kernel")
    for head, padded, tile in ((p.head_dim, h.pad[2], h.tile[2]), (p.head_dim_v, h.pad[3], h.tile[3])):
        if not padded and head != tile:
            yield Violation("amd-heads", f"heads of {head} are no whole tile of {tile}", "use a padded kernel")
    strides = (p.k_strides, p.v_strides, *((p.q_strides,) if p.rotary_q else ()))
    if p.head_dim % WIDTH or p.head_dim_v % WIDTH or not _whole(*strides) or not p.aligned:
        yield Violation("amd-alignment", "heads, a stride or an address are no multiple of 16 bytes", "use loops")
    if max(p.batch, p.heads_q) > MOST_BLOCKS:
        yield Violation("amd-tiles", "more sequences or heads than a launch has blocks for", "split the problem")


# -- pools ----------------------------------------------------------------------------------------------


def generic_schedule(signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()


def schedules(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[AttentionSchedule]:
    """What a pool proposes for one signature; some of it may be illegal.

    `default` has the blocks CK Tile's authors chose, `full` and `profiler` every block; the pools of the dispatcher's
    profiles what it enumerates.
    """
    if pool in POOLS:
        if not any(one.rule == "amd-attention-arch" for one in ck_tile_rules(signature, arch)):
            yield from _profile(pool, signature, arch)
        return
    if next(ck_tile_rules(signature, arch), None) is None:
        yield from made.default(signature, arch) if pool == "default" else made.full(signature, arch)
    yield LoopsSchedule()


def _profile(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CkTileAttentionSchedule]:
    chosen = amd_profiles.profile(pool)
    if chosen.allows(made.computed(signature, arch.name)):
        for one in made.enumerated(signature, arch, chosen.receipt):
            if chosen.allows(made.instance(signature, one, arch.name)):
                yield one


def pool_signatures(pool: str, arch: Arch) -> Iterator[AttentionSignature]:
    """What the dispatcher enumerates: element types of the arch, their head sizes, and features of each family.

    Element types that these headers have nothing for are among them: rules say why there is no kernel.
    """
    chosen = amd_profiles.profile(pool)
    seen: set[AttentionSignature] = set()
    for kind in (arch.attention or {}).get("dtypes", ()):
        types = _types(kind, arch)
        sizes = dict.fromkeys((head_class(qk), head_class(v)) for qk, v in HEAD_SIZES.get(kind, ()))
        scales = ("none",) if kind in _HALVES or kind == "fp32" else ("none", "tensor")
        for (qk, v), has, scale in product(sizes if types else (), _feature_sets(), scales):
            one = settled(AttentionSignature(**types, head_dim=qk, head_dim_v=v, scales=scale, **has))
            if one not in seen and chosen.allows(made.computed(one, arch.name)):
                seen.add(one)
                yield one


def _types(kind: str, arch: Arch) -> dict[str, Any]:
    """The element types of a word of the dispatcher; none where results would be fp8, which no call has."""
    if kind in (*_HALVES, "fp32"):
        return {"dtype_q": kind, "dtype_kv": kind, "dtype_out": kind, "dtype_aux": kind}
    out = kind.removeprefix("fp8")
    if out not in (*_HALVES, "fp32"):
        return {}
    narrow = "fp8_e4m3fnuz" if "fp8-fnuz" in arch.features else "fp8_e4m3"
    return {"dtype_q": narrow, "dtype_kv": narrow, "dtype_out": out}


def _feature_sets() -> Iterator[dict[str, Any]]:
    for mask, packed, lse in product(("none", "window"), (False, True), (False, True)):
        plain: dict[str, Any] = {"family": "forward", "mask": mask, "varlen": packed, "return_lse": lse}
        yield from ({**plain, "bias": bias} for bias in ("none", "alibi"))
        yield {**plain, "softcap": True}
        if not packed:
            yield {**plain, "bias": "tensor"}
        yield {**plain, "pages": "strided", "page_lookup": "table"}
        if packed:
            yield {**plain, "pages": "strided", "page_lookup": "indices"}
        yield {**plain, "family": "split"}
        yield {**plain, "family": "split", "pages": "strided", "page_lookup": "table"}
        yield {**plain, "family": "combine"}
    for rotary, pages in product(("none", "interleaved", "half"), ("none", "strided")):
        yield {
            "family": "append",
            "rotary": rotary,
            "pages": pages,
            "page_lookup": "none" if pages == "none" else "table",
        }
