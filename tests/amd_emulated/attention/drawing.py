"""Attentions drawn by seed: kernels from the pools as users have them, problems of every kind there is.

Kernels: the arch whose turn it is (`random_run.in_turn`), the pool evenly among default, full and those of CK Tile's
profiles; family, element type, head sizes, window, bias, soft cap, dropout, LSE, packed rows and pages evenly or as the
weights below say; of what the pool proposes for them a pipeline, then a legal schedule evenly.  Four in ten have
something that CK Tile has not: boolean masks, sinks and first keys that are always seen, a bias of fp32, fp32, fp8 keys
beside wider queries, vectorised pages, dropout anywhere.  The plain loops are kept where a pool has nothing else, and
one time in ten beside others.

Problems: batches of one to three, one to four query heads a head of keys, heads of any size the kernel holds (most of
them in whole loads), rows and keys from one to three blocks and a bit, whole blocks, none at all; windows of either
corner; ALiBi, bias that repeats along sequences, heads or rows; packed sequences of any lengths, empty ones among them;
pages of 1 to 128 slots in any order; one to nine parts.  Memory: rows or heads outermost, gaps in whole loads or not,
addresses off the allocator's alignment.  Numbers: as `VALUES` names them.  The op's `supports` says which of them a
kernel serves; some of the others are kept, to be refused by the kernel too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.amd_emulated.proving import Entry, drawn_entry, drawn_kernel, modelled
from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.ops import op
from tilewright.ops.attention import AttentionProblem, AttentionSignature
from tilewright.ops.attention.spec import normalized
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec, plain

POOLS = ("default", "default", "full", "full", "ck_default", "ck_extended", "flash_fwd", "pytorch", "aiter_batch",
         "aiter_group")  # fmt: skip
ROUTES = ("forward",) * 5 + ("paged",) * 2 + ("prefill",) * 2 + ("split",) * 2 + ("split paged", "combine", "append",
                                                                              "append paged")  # fmt: skip
SIZES = ((64, 64),) * 3 + ((128, 128),) * 4 + ((32, 32),) * 2 + ((256, 256),) * 2 + ((96, 96), (192, 128), (160, 160),
                                                                                    (192, 192), (512, 512))  # fmt: skip
DROPPED, NARROW = 0.15, 0.15  # of forward kernels without pages
OWN = 0.4  # of kernels that multiply: with something that only our own have
EXTRAS = ("masked", "sink", "generic", "bias fp32", "fp32", "fp8 keys", "vectorised", "dropout", "block scales")
FP8 = {"gfx942": "fp8_e4m3fnuz", "gfx950": "fp8_e4m3"}  # which each multiplies
NARROW_SIZES = ((64, 64), (128, 128), (192, 128), (256, 256))
# ordinary   as normal numbers        rising   scores grow along the keys, so that every step has a new maximum
# steep      scores far apart         flat     every score 0: the mean of the values
# signs      -1 and 1, and nothing else
VALUES = ("ordinary", "ordinary", "steep", "rising", "flat", "signs")
MOST_WORK = 1 << 24  # products of one problem: some seconds of emulation
MOST_LOOPED = 1 << 18  # of the loops
EXECUTED, REFUSED = 5, 3  # problems of a kernel
TRIES = 60


@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem, and what is in its operands."""

    problem: AttentionProblem
    values: str = "ordinary"
    seed: int = 0

    def label(self) -> str:
        return f"{self.problem.describe()} {self.values}"

    def to_dict(self) -> dict[str, Any]:
        return {"problem": plain(self.problem), "values": self.values, "seed": self.seed}


def from_dict(data: dict[str, Any]) -> Drawn:
    return Drawn(op("attention").problem_from_dict(data["problem"]), data["values"], data["seed"])


def draw(seed: int, index: int) -> Entry:
    return drawn_entry(f"attention {seed} {index}", index, _kernel, _problems)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernel(rng: random.Random, rules: Counter[str]) -> tuple[str, KernelSpec]:
    def propose() -> tuple[str, Iterable[KernelSpec]]:
        arch, pool = rng.choice(modelled(rdna=4)), rng.choice(POOLS)
        signature = draw_signature(rng, arch)
        proposed = AMD.schedules(pool, signature, arch_by_name(arch))
        return pool, (KernelSpec("attention", signature, one, arch) for one in proposed)

    return drawn_kernel(rng, rules, propose)


def draw_signature(rng: random.Random, arch: str) -> AttentionSignature:
    """What the kernel computes."""
    route, kind, (qk, v) = rng.choice(ROUTES), rng.choice(("fp16", "bf16")), rng.choice(SIZES)
    family, _, paged = route.partition(" ")
    if family in ("paged", "prefill"):
        family, paged = "forward", family
    has: dict[str, Any] = {"mask": rng.choice(("none", "window")), "return_lse": rng.random() < 0.5}
    has["varlen"] = paged == "prefill" or (family != "append" and rng.random() < 0.3)
    extra = rng.choice(("none", "none", "none", "alibi", "bias", "softcap"))
    if extra == "softcap":
        has["softcap"] = True
    elif extra != "none" and not (extra == "bias" and has["varlen"]):
        has["bias"] = "tensor" if extra == "bias" else extra
    if family == "forward" and not paged and rng.random() < DROPPED:
        has["dropout"] = True
    if paged:
        has |= {"pages": "strided", "page_lookup": "indices" if paged == "prefill" else "table"}
    if family == "append":
        has["rotary"] = rng.choice(("none", "interleaved", "half"))
    if family in ("forward", "split") and rng.random() < OWN:
        return _of_our_own(rng, arch, AttentionSignature(family, kind, kind, kind, qk, v, dtype_aux=kind, **has))
    if family == "forward" and not paged and has.get("bias") != "tensor" and arch in FP8 and rng.random() < NARROW:
        return _of_fp8(rng, FP8[arch], kind, (qk, v), {**has, "dropout": False})
    return normalized(AttentionSignature(family, kind, kind, kind, qk, v, dtype_aux=kind, **has))


def _of_our_own(rng: random.Random, arch: str, plain: AttentionSignature) -> AttentionSignature:
    """One or two things more."""
    s = plain
    narrow = FP8.get(arch, "fp8_e4m3fnuz" if arch == "gfx90a" else "fp8_e4m3")
    for extra in rng.sample(EXTRAS, rng.choice((1, 1, 2))):
        if extra == "masked":
            s = replace(s, masked=True)
        elif extra == "sink":
            s = replace(s, sink=True)
        elif extra == "dropout":
            s = replace(s, dropout=True)
        elif extra == "generic":
            s = replace(s, mask="generic")
        elif extra == "bias fp32":
            s = replace(s, bias="tensor", dtype_aux="fp32")
        elif extra == "fp32" and "mfma" in arch_by_name(arch).features and s.dtype_kv != narrow:
            s = replace(s, dtype_q="fp32", dtype_kv="fp32", dtype_out="fp32", dtype_aux="fp32")
        elif extra == "fp8 keys" and s.dtype_q != "fp32":
            s = replace(s, dtype_kv=narrow, scales=rng.choice(("none", "tensor", "head")))
        elif extra == "vectorised":
            s = replace(s, pages="vectorised", page_lookup=rng.choice(("table", "indices")))
        elif extra == "block scales" and s.dtype_q != "fp32":
            s = replace(s, dtype_q=narrow, dtype_kv=narrow, dtype_out="bf16", scales="block", dtype_aux="fp32")
    return normalized(s if s.pages == "none" or s.page_lookup == "table" else replace(s, varlen=True))


def _of_fp8(rng: random.Random, kind: str, out: str, heads: tuple[int, int], has: dict[str, Any]) -> AttentionSignature:
    scales, sizes = rng.choice(("none", "tensor", "tensor", "head")), heads if heads in NARROW_SIZES else (128, 128)
    out = rng.choice((out, out, "fp32"))
    return normalized(AttentionSignature("forward", kind, kind, out, *sizes, scales=scales, **has))


# -- problems ----------------------------------------------------------------------------------------------------------


def _problems(rng: random.Random, spec: KernelSpec) -> tuple[list[Drawn], list[Drawn]]:
    attention = op("attention")
    served: list[Drawn] = []
    refused: list[Drawn] = []
    for one in attempts(rng, spec):
        (refused if attention.supports(spec, one.problem) else served).append(one)
        if len(served) == EXECUTED:
            break
    return served or [plain_problem(spec)], rng.sample(refused, min(REFUSED, len(refused)))


def attempts(rng: random.Random, spec: KernelSpec) -> Iterator[Drawn]:
    yield plain_problem(spec, rng.randrange(1 << 31))
    most = MOST_WORK if hasattr(spec.schedule, "tile") else MOST_LOOPED
    for _ in range(TRIES):
        p = _drawn(rng, spec)
        work = p.batch * p.heads_q * p.seqlen_q * max(1, p.seqlen_k) * (p.head_dim + p.head_dim_v)
        if work <= most and p.signature == spec.signature and not op("attention").problem_violations(p, spec.arch):
            yield Drawn(p, rng.choice(VALUES), rng.randrange(1 << 31))


def plain_problem(spec: KernelSpec, seed: int = 0) -> Drawn:
    """Whole heads, a block and a bit of rows, two steps of keys (whole ones where the kernel has no edge code)."""
    rows, keys = _block(spec)
    h = spec.schedule
    padded = getattr(h, "pad", (True,) * 4)
    rows = rows if not padded[0] else rows + 3
    keys = 2 * keys if not padded[1] else 2 * keys - 3
    change = {"seqlen_q": rows, "seqlen_k": keys, "batch": 1, "heads_q": 2, "heads_kv": 1}
    return Drawn(_problem(spec, {**change, "page_size": _page(spec)}), "ordinary", seed)


def _block(spec: KernelSpec) -> tuple[int, int]:
    tile = getattr(spec.schedule, "tile", (20, 30))
    return (8, 0) if spec.signature.family == "combine" else (tile[0], tile[1])


def _page(spec: KernelSpec) -> int:
    """Slots of a page that the kernel takes."""
    if spec.signature.pages == "vectorised":
        return 48
    if spec.signature.page_lookup == "indices":
        return 1
    return max(_block(spec)[1], 64) if spec.signature.pages != "none" else 0


def _problem(spec: KernelSpec, change: dict[str, Any]) -> AttentionProblem:
    """A problem of the kernel's signature."""
    s = spec.signature
    sizes: dict[str, Any] = {"head_dim": s.head_dim, "head_dim_v": s.head_dim_v}
    has: dict[str, Any] = {name: getattr(s, name) for name in ("family", "dtype_q", "dtype_kv", "dtype_out", "bias",
                           "dtype_aux", "softcap", "dropout", "return_lse", "varlen", "pages", "page_lookup",
                           "rotary")}  # fmt: skip
    if s.scales != "none":
        has |= {"q_scale": s.scales if s.dtype_q == s.dtype_kv else "none", "kv_scales": s.scales}
        has["scale_block"] = 24 if s.scales == "block" else 0
    has["sink"] = s.sink
    if s.mask != "none":
        has["window_right"] = 0
    if s.mask == "generic":
        has |= {"window_left": 20, "sink_tokens": 3}
    if s.masked and "mask_shape" not in change:
        has["mask_shape"] = (1, 1, change["seqlen_q"], change["seqlen_k"])
    if s.family in ("split", "combine"):
        has["num_splits"] = 3
    if s.family == "combine":
        has, sizes, change = {**has, "dtype_kv": ""}, {**sizes, "head_dim": s.head_dim_v}, {**change, "seqlen_k": 0}
        change["heads_kv"] = 0
    if s.family == "append":
        has |= {"seqlens_k": True, "rotary_q": s.rotary != "none"}
        change = {**change, "seqlen_k": change["seqlen_k"] + change["seqlen_q"]}
    elif s.page_lookup == "table":
        has["seqlens_k"] = True
    return AttentionProblem(**{**sizes, **has, **change})


def _drawn(rng: random.Random, spec: KernelSpec) -> AttentionProblem:
    s = spec.signature
    block_rows, block_keys = _block(spec)
    group, heads = rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 1, 2))
    change: dict[str, Any] = {"batch": rng.choice((1, 1, 2, 3)), "heads_q": heads * group, "heads_kv": heads}
    padded = getattr(spec.schedule, "pad", (True,) * 4)
    change["seqlen_q"] = _length(rng, block_rows, 2, padded[0])
    change["seqlen_k"] = _length(rng, max(16, block_keys), 3, padded[1]) if rng.random() > 0.03 else 0
    if rng.random() < (0.3 if padded[2] or padded[3] else 0.1):
        change["head_dim"], change["head_dim_v"] = (_head(rng, one) for one in (s.head_dim, s.head_dim_v))
    if s.family == "combine":
        change["head_dim"] = change.get("head_dim_v", s.head_dim_v)
    change |= _features(rng, spec, change)
    if s.varlen:
        change["total_q"] = rng.randint(1, change["batch"] * change["seqlen_q"])
        if s.pages == "none" and s.family != "combine":
            most = change["batch"] * change["seqlen_k"]
            change["total_k"] = rng.randint(min(1, most), most)
    made = _problem(spec, change)
    return _laid(rng, made) if rng.random() < 0.5 else made


def _length(rng: random.Random, block: int, most: int, padded: bool) -> int:
    """Whole blocks, a bit more or less of them, or next to nothing; mostly whole ones where there is no edge code."""
    times, way = rng.randint(1, most), rng.random()
    if way < (0.35 if padded else 0.85):
        return block * times
    return max(1, block * (times - 1) + rng.randint(1, max(1, block))) if way < 0.8 else rng.randint(1, 9)


def _head(rng: random.Random, size: int) -> int:
    """Elements of a head that the kernel holds, most times in whole loads."""
    least = max((one for one in HEADS if one < size), default=0) + 1
    found = rng.randint(least, size)
    return found if rng.random() < 0.3 else min(size, -(-found // 8) * 8)


def _features(rng: random.Random, spec: KernelSpec, change: dict[str, Any]) -> dict[str, Any]:
    s, found = spec.signature, dict[str, Any]()
    if s.mask != "none":
        found["align"] = rng.choice(("top_left", "bottom_right"))
        found["window_left"] = rng.choice((-1, -1, 0, rng.randint(0, 150)))
        found["window_right"] = rng.choice((0, 0, rng.randint(0, 100)))
    if s.mask == "generic":
        found["window_left"], found["sink_tokens"] = rng.randint(0, 60), rng.randint(1, 40)
    if s.masked:
        full = (("batch", 0.6), ("heads_q", 0.6), ("seqlen_q", 0.7), ("seqlen_k", 0.9))
        found["mask_shape"] = tuple(change[name] if rng.random() < often else 1 for name, often in full)
    if s.bias == "tensor":
        full = (("batch", 0.6), ("heads_q", 0.6), ("seqlen_q", 0.6), ("seqlen_k", 0.9))
        found["bias_shape"] = tuple(change[name] if rng.random() < often else 1 for name, often in full)
    if s.family in ("split", "combine"):
        found["num_splits"] = rng.randint(1, 9)
    if s.pages != "none":
        step = _block(spec)[1]
        few, many = (1, 1, 1, 16), (16, 24, 64, 128, step, step, 2 * step)
        found["page_size"] = rng.choice(few if s.page_lookup == "indices" else many)
        if hasattr(spec.schedule, "lean") or s.pages == "vectorised":  # of any size, but whole vectors
            found["page_size"] = rng.choice((16, 48, 64) if s.pages == "vectorised" else (1, 3, 16, 24, step))
    if s.rotary != "none":
        found["rotary_dim"] = min(change.get("head_dim", s.head_dim) // 2 * 2, rng.choice((16, 32, 48, 64, 22, 128)))
    if rng.random() < 0.06 and s.family != "append":
        found["seqlens_q"] = True
    if s.family in ("forward", "split") and s.page_lookup != "indices" and rng.random() < 0.15:
        found["seqlens_k"] = True
    return found


def _laid(rng: random.Random, p: AttentionProblem) -> AttentionProblem:
    """Heads outermost, or gaps between rows, or both; all operands alike, but for the gaps."""
    change: dict[str, Any] = {"aligned": rng.random() > 0.15}
    heads_first, fine = rng.random() < 0.5, rng.choice((8, 8, 8, 1))
    for name in "qkvo":
        if p.family == "combine" and name != "o":
            continue
        _, rows, heads, size = p.shape(name)
        gap, more = (rng.choice((0, 0, fine, 5 * fine)) for _ in range(2))
        inner = size + gap
        row, head = (inner, rows * inner + more) if heads_first else (heads * inner + more, inner)
        apart = max(row * rows, head * heads)
        none = p.dense_strides(name)[0] == 0
        if (p.family, name) != ("split", "o") and not (name in "kv" and p.pages == "vectorised"):  # these are dense
            change[f"{name}_strides"] = (0 if none else apart, row, head)
    return replace(p, **change)
