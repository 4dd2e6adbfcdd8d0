"""Attention's gradients drawn by seed: kernels from the pools as users have them, problems of every kind there is.

Kernels: the arch whose turn it is (`random_run.in_turn`); grad most times, dot and convert
beside it; features each by a chance of its own, so that they meet; of what the pool proposes a legal schedule.

Problems: batches of one to three, one to three query heads a head of keys, heads of any size the kernel holds, lengths
around whole tiles and next to nothing, windows either way, packed rows, gaps between rows, addresses of no whole 16
bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.amd_emulated.proving import Entry, drawn_entry, drawn_kernel, modelled
from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention_backward import KERNELS as AMD
from tilewright.backends.hip.attention_backward.ck_tile.tiles import CkRowsSchedule
from tilewright.ops import op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem import OPERANDS
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec, plain

OP = "attention_backward"
POOLS = ("default", "default", "full")
FAMILIES = ("grad",) * 6 + ("dot", "convert")
SIZES = ((32, 32),) * 2 + ((64, 64),) * 3 + ((128, 128),) * 3 + ((96, 96), (256, 256), (64, 128), (576, 512))
MOST_WORK = 1 << 22  # products of one problem: some seconds of emulation
MOST_LOOPED = 1 << 17  # of the loops
EXECUTED, REFUSED = 5, 3  # problems of a kernel
TRIES = 80


@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem, and what its operands are drawn by."""

    problem: AttentionBackwardProblem
    seed: int = 0

    def label(self) -> str:
        return self.problem.describe()

    def to_dict(self) -> dict[str, Any]:
        return {"problem": plain(self.problem), "seed": self.seed}


def from_dict(data: dict[str, Any]) -> Drawn:
    return Drawn(op(OP).problem_from_dict(data["problem"]), data["seed"])


def draw(seed: int, index: int) -> Entry:
    return drawn_entry(f"attention_backward {seed} {index}", index, _kernel, _problems)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernel(rng: random.Random, rules: Counter[str]) -> tuple[str, KernelSpec]:
    def propose() -> tuple[str, Iterable[KernelSpec]]:
        arch, pool = rng.choice(modelled(rdna=4)), rng.choice(POOLS)
        signature = draw_signature(rng)
        proposed = AMD.schedules(pool, signature, arch_by_name(arch))
        return pool, (KernelSpec(OP, signature, one, arch) for one in proposed)

    return drawn_kernel(rng, rules, propose)


def draw_signature(rng: random.Random) -> AttentionBackwardSignature:
    """What the kernel computes: two of three in types and features that CK Tile has, the others with anything."""
    family, (qk, v) = rng.choice(FAMILIES), rng.choice(SIZES)
    anything = rng.random() < 0.33
    kind = rng.choice(("fp16", "bf16", "fp32")) if anything else rng.choice(("fp16", "bf16"))
    has: dict[str, Any] = {"varlen": rng.random() < 0.3}
    has["mask"] = rng.choice(("none", "window", "generic") if anything else ("none", "window"))
    has["bias"] = rng.choice(("none", "none", "none", "alibi", "tensor"))
    has["dtype_aux"] = rng.choice((kind, "fp32")) if anything else kind
    has["dropout"] = rng.random() < 0.2
    has["accumulate"] = rng.choice(("none", "none", "dq", "all"))
    if family == "convert" and has["accumulate"] == "none":
        has["accumulate"] = "dkv"
    if anything or family == "dot":
        has |= {name: rng.random() < 0.3 for name in ("masked", "softcap", "dlse", "dsink")}
        has["dbias"], has["dalibi"] = (has["bias"] == one and rng.random() < 0.5 for one in ("tensor", "alibi"))
    return normalized(AttentionBackwardSignature(family, kind, qk, v, **has))


# -- problems ----------------------------------------------------------------------------------------------------------


def _problems(rng: random.Random, spec: KernelSpec) -> tuple[list[Drawn], list[Drawn]]:
    served: list[Drawn] = []
    refused: list[Drawn] = []
    for one in attempts(rng, spec):
        (refused if op(OP).supports(spec, one.problem) else served).append(one)
        if len(served) == EXECUTED:
            break
    return served or [plain_problem(spec)], rng.sample(refused, min(REFUSED, len(refused)))


def attempts(rng: random.Random, spec: KernelSpec) -> Iterator[Drawn]:
    yield plain_problem(spec, rng.randrange(1 << 31))
    if getattr(spec.schedule, "staged", False):
        yield odd_heads(spec, rng.randrange(1 << 31))
    most = MOST_WORK if hasattr(spec.schedule, "tile") else MOST_LOOPED
    for _ in range(TRIES):
        p = _drawn(rng, spec)
        work = p.batch * p.heads_q * p.seqlen_q * max(1, p.seqlen_k) * (p.head_dim + p.head_dim_v)
        if work <= most and p.signature == spec.signature and not op(OP).problem_violations(p, spec.arch):
            yield Drawn(p, rng.randrange(1 << 31))


def _block(spec: KernelSpec) -> tuple[int, int]:
    tile = getattr(spec.schedule, "tile", (64, 64) if isinstance(spec.schedule, CkRowsSchedule) else (9, 12))
    return (tile[0], tile[1]) if len(tile) > 1 else (tile[0], 12)


def plain_problem(spec: KernelSpec, seed: int = 0) -> Drawn:
    """Whole heads, a tile and a bit of rows and keys; two heads, of keys one where heads are added up later."""
    rows, keys = _block(spec)
    group = 2 if spec.signature.accumulate == "all" else 1
    deterministic = bool(getattr(spec.schedule, "deterministic", False))
    change = {"seqlen_q": rows + 3, "seqlen_k": keys + 5, "batch": 1, "heads_q": 2, "heads_kv": 2 // group}
    return Drawn(_problem(spec, {**change, "deterministic": deterministic}), seed)


def odd_heads(spec: KernelSpec, seed: int = 0) -> Drawn:
    """Heads that end within an access of their last part in LDS, behind parts that are whole."""
    one = plain_problem(spec).problem
    s = spec.signature
    change = {"seqlen_q": 9, "seqlen_k": 7, "batch": 1, "heads_q": 1, "heads_kv": 1}
    heads = {"head_dim": s.head_dim - 31, "head_dim_v": s.head_dim_v - 29}
    return Drawn(_problem(spec, {**change, **heads, "deterministic": one.deterministic}), seed)


def _problem(spec: KernelSpec, change: dict[str, Any]) -> AttentionBackwardProblem:
    """A problem of the kernel's signature."""
    s = spec.signature
    names = ("dtype", "bias", "dtype_aux", "softcap", "dropout", "varlen", "dlse", "dsink", "dbias", "dalibi")
    has: dict[str, Any] = {name: getattr(s, name) for name in names}
    if s.mask != "none":
        has |= {"window_right": 0}
    if s.mask == "generic":
        has |= {"window_left": 3, "sink_tokens": 2}
    if s.masked:
        has["mask_shape"] = (1, 1, change["seqlen_q"], change["seqlen_k"])
    sizes = {"head_dim": s.head_dim, "head_dim_v": s.head_dim_v}
    return AttentionBackwardProblem(**{**sizes, **has, **change}).stage(s.family, s.accumulate)


def _drawn(rng: random.Random, spec: KernelSpec) -> AttentionBackwardProblem:
    s = spec.signature
    block_rows, block_keys = _block(spec)
    group, heads = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2))
    change: dict[str, Any] = {"batch": rng.choice((1, 1, 2, 3)), "heads_q": heads * group, "heads_kv": heads}
    change["seqlen_q"] = _length(rng, block_rows, 3) if rng.random() > 0.03 else 0
    change["seqlen_k"] = _length(rng, block_keys, 2) if rng.random() > 0.03 else 0
    if rng.random() < 0.25:
        change["head_dim"], change["head_dim_v"] = (_head(rng, one) for one in (s.head_dim, s.head_dim_v))
    change["deterministic"] = rng.random() < (0.8 if getattr(spec.schedule, "deterministic", False) else 0.15)
    change |= _features(rng, s, change)
    if s.varlen:
        for name in "qk":
            most = change["batch"] * change[f"seqlen_{name}"]
            change[f"total_{name}"] = rng.randint(min(1, most), most)
    made = _problem(spec, change)
    return _laid(rng, made) if rng.random() < 0.4 else made


def _features(rng: random.Random, s: AttentionBackwardSignature, change: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if s.mask != "none":
        found["align"] = rng.choice(("top_left", "bottom_right"))
        found["window_left"] = rng.choice((-1, -1, 0, rng.randint(0, 60))) if s.mask == "window" else rng.randint(0, 20)
        found["window_right"] = rng.choice((0, 0, rng.randint(0, 40)))
    full = (("batch", 0.6), ("heads_q", 0.6), ("seqlen_q", 0.6), ("seqlen_k", 0.9))
    for name, there in (("bias_shape", s.bias == "tensor"), ("mask_shape", s.masked)):
        if there:
            found[name] = tuple(change[one] if rng.random() < often else 1 for one, often in full)
    if rng.random() < 0.1:
        found["seqlens_q" if rng.random() < 0.5 else "seqlens_k"] = True
    return found


def _length(rng: random.Random, block: int, most: int) -> int:
    """Whole tiles, a bit more or less of them, or next to nothing."""
    times, way = rng.randint(1, most), rng.random()
    if way < 0.3:
        return block * times
    return block * (times - 1) + rng.randint(1, block) if way < 0.8 else rng.randint(1, 9)


def _head(rng: random.Random, size: int) -> int:
    """Elements of a head that the kernel holds, most times in whole loads."""
    least = max((one for one in HEADS if one < size), default=0) + 1
    found = rng.randint(least, size)
    return found if rng.random() < 0.3 else min(size, -(-found // 8) * 8)


def _laid(rng: random.Random, p: AttentionBackwardProblem) -> AttentionBackwardProblem:
    """Heads outermost, or gaps between rows, or both."""
    change: dict[str, Any] = {"aligned": rng.random() > 0.15}
    heads_first, fine = rng.random() < 0.5, rng.choice((8, 8, 8, 1))
    for name in OPERANDS:
        _, rows, heads, size = p.shape(name)
        gap, more = (rng.choice((0, 0, fine, 5 * fine)) for _ in range(2))
        inner = size + gap
        row, head = (inner, rows * inner + more) if heads_first else (heads * inner + more, inner)
        change[f"{name}_strides"] = (0 if p.varlen else max(row * rows, head * heads), row, head)
    laid = replace(p, **change)
    return laid.stage(p.family, p.accumulate)
