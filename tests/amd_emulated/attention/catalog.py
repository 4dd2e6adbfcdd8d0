"""The attention kernels that are executed: every family, element type, kind of mask, bias, length and page.

A case is a problem; the kernel is the first of the default pool that serves it, or the one that is named.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention import KERNELS as AMD
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.ops.attention import AttentionProblem, legality
from tilewright.ops.base import KernelSpec

TABLE: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "seqlens_k": True}
POOL: dict[str, Any] = {"pages": "strided", "page_lookup": "indices", "page_size": 1, "varlen": True}
CAUSAL: dict[str, Any] = {"window_right": 0, "return_lse": True}
LAST: dict[str, Any] = {**CAUSAL, "align": "bottom_right"}


@dataclass(frozen=True, slots=True)
class Case:
    """What is shown by a kernel, and with which problems."""

    shows: str
    problem: AttentionProblem
    arch: str = "gfx942"
    schedule: CkTileAttentionSchedule | None = None
    pick: int = 0  # of those that serve the problem
    more: tuple[AttentionProblem, ...] = field(default=())  # of the same signature

    @property
    def label(self) -> str:
        return f"{self.shows}, {self.arch}"

    @property
    def spec(self) -> KernelSpec:
        p, facts = self.problem, arch_by_name(self.arch)
        proposed = [self.schedule] if self.schedule is not None else list(AMD.schedules("default", p.signature, facts))
        made = [KernelSpec("attention", p.signature, one, self.arch) for one in proposed if one.pipeline != "loops"]
        serving = [one for one in made if not legality.check(one) and not legality.supports(one, p)]
        return serving[self.pick]


def drawn(case: Case, seed: int, count: int) -> list[AttentionProblem]:
    """Problems of the case's signature that its kernel serves, of sizes, heads, windows and pages drawn by the seed."""
    dice, spec = random.Random(f"attention {seed} {case.label}"), case.spec
    found: list[AttentionProblem] = []
    for _ in range(60 * count):
        one = _neighbour(case.problem, dice)
        fits = one.signature == case.problem.signature and not legality.problem_check(one, case.arch)
        if fits and not legality.supports(spec, one):
            found.append(one)
        if len(found) == count:
            break
    return found


def _neighbour(p: AttentionProblem, dice: random.Random) -> AttentionProblem:
    group, heads = dice.choice((1, 1, 2, 3)), dice.choice((1, 2))
    change: dict[str, Any] = {"batch": dice.randint(1, 3), "heads_q": heads * group, "heads_kv": heads}
    change["seqlen_q"] = dice.choice((1, dice.randint(1, 20), dice.randint(1, 180)))
    change["seqlen_k"] = dice.choice((1, dice.randint(1, 70), dice.randint(1, 300)))
    if p.family == "append":
        change["seqlen_k"] += change["seqlen_q"]
    if p.family == "combine":
        change |= {"seqlen_k": 0, "heads_kv": 0, "num_splits": dice.randint(1, 8)}
    elif p.family == "split":
        change["num_splits"] = dice.randint(1, 5)
    if p.bounded:
        change["align"] = dice.choice(("top_left", "bottom_right"))
        change["window_left"] = dice.choice((-1, 0, dice.randint(0, 100)))
        change["window_right"] = dice.choice((0, dice.randint(0, 60)))
    if p.page_size > 1:
        change["page_size"] = dice.choice((16, 32, 64, 128))
    if p.varlen:
        change["total_q"] = dice.randint(1, change["batch"] * change["seqlen_q"])
        most = change["batch"] * change["seqlen_k"] if p.pages == "none" else 0
        change["total_k"] = dice.randint(min(1, most), most)
    loose = dict.fromkeys(("q_strides", "k_strides", "v_strides", "o_strides", "bias_shape"), ())
    return replace(p, **{**loose, **change, "page_count": 0})


def _problem(dtype: str, batch: int, heads: int, rows: int, keys: int, size: int, **more: Any) -> AttentionProblem:
    if more.get("bias") == "tensor" or "rotary" in more:
        more["dtype_aux"] = dtype
    return AttentionProblem(batch, heads, rows, keys, size, dtype_q=dtype, **more)


def cases() -> list[Case]:
    return [*_forward(), *_rarer(), *_others(), *_archs()]


def _forward() -> list[Case]:
    causal = _problem("fp16", 1, 2, 70, 130, 64, heads_kv=1, **CAUSAL)
    windows = (
        _problem("fp16", 1, 2, 70, 130, 64, heads_kv=1, **LAST),
        _problem("fp16", 1, 2, 130, 70, 64, heads_kv=1, **{**LAST, "window_left": 20, "window_right": 5}),
        _problem("fp16", 1, 2, 130, 70, 64, heads_kv=1, **LAST),  # rows that see nothing
        _problem("fp16", 2, 3, 1, 1, 64, heads_kv=3, **CAUSAL),
    )
    packed = _problem("fp16", 3, 2, 50, 90, 64, heads_kv=1, varlen=True, total_q=100, total_k=150, **CAUSAL)
    biased = _problem("fp16", 1, 2, 100, 90, 64, heads_kv=1, bias="tensor", return_lse=True)
    return [
        Case("forward qr_async fp16", _problem("fp16", 1, 2, 100, 90, 64, heads_kv=1)),
        Case("masks, LSE", causal, more=windows),
        Case("packed lengths", packed),
        Case("bias", biased),
        Case("bias, qr", biased, pick=2),
        Case("ALiBi with a window, bf16", _problem("bf16", 1, 2, 100, 90, 64, heads_kv=1, bias="alibi", **CAUSAL)),
        Case("ALiBi", _problem("fp16", 1, 2, 100, 130, 64, heads_kv=1, bias="alibi", return_lse=True)),
        Case("soft cap, bf16", _problem("bf16", 1, 2, 100, 90, 64, heads_kv=1, softcap=True, return_lse=True)),
        Case("heads of no whole load, qr", _problem("fp16", 1, 2, 70, 130, 40, heads_kv=1, head_dim_v=33)),
        Case("heads of 128, bf16", _problem("bf16", 1, 2, 130, 140, 128, heads_kv=1, **CAUSAL)),
        Case("heads of 32", _problem("fp16", 1, 2, 100, 90, 32, heads_kv=1)),
        Case("heads of 96", _problem("fp16", 1, 1, 100, 90, 96, return_lse=True)),
        Case("heads of 192 and 128, bf16", _problem("bf16", 1, 1, 100, 140, 192, head_dim_v=128)),
        Case("heads of 256", _problem("fp16", 1, 1, 100, 140, 256)),
    ]


def _rarer() -> list[Case]:
    """Q through LDS, dropout, fp8."""
    staged = CkTileAttentionSchedule("qs", (64, 64, 32, 64, 32, 64), (4, 1, 1), (16, 16, 16))
    dropping = _problem("fp16", 1, 2, 70, 130, 64, heads_kv=1, dropout=True, **CAUSAL)
    packed = _problem("bf16", 3, 2, 50, 90, 64, heads_kv=1, varlen=True, total_q=100, total_k=150, dropout=True)
    narrow: dict[str, Any] = {"dtype_out": "bf16", "q_scale": "tensor", "kv_scales": "tensor", **CAUSAL}
    by_head: dict[str, Any] = {"dtype_out": "fp32", "q_scale": "head", "kv_scales": "head"}
    return [
        Case("Q through LDS, qs", _problem("fp16", 1, 2, 70, 130, 64, heads_kv=1, **CAUSAL), schedule=staged),
        Case("dropout", dropping),
        Case("dropout, packed, qr, bf16", packed, pick=2),
        Case("fp8, scales of tensors", _problem("fp8_e4m3fnuz", 1, 2, 70, 130, 64, heads_kv=1, **narrow)),
        Case("fp8, scales of heads", _problem("fp8_e4m3", 2, 4, 70, 130, 128, heads_kv=2, **by_head), "gfx950"),
    ]


def _others() -> list[Case]:
    split: dict[str, Any] = {"family": "split", "num_splits": 3}
    plain: dict[str, Any] = {"family": "combine", "dtype_q": "fp32", "dtype_out": "fp16"}
    after: dict[str, Any] = {**plain, "dtype_out": "bf16"}
    append: dict[str, Any] = {"family": "append", "rotary_q": True, "seqlens_k": True, "heads_kv": 2}
    return [
        Case("split keys", _problem("fp16", 2, 4, 37, 200, 64, heads_kv=2, **split, window_right=0)),
        Case("split keys in pages", _problem("fp16", 3, 4, 5, 300, 64, heads_kv=2, page_size=64, **TABLE, **split)),
        Case("split keys, bf16", _problem("bf16", 2, 4, 1, 300, 64, heads_kv=1, seqlens_k=True, **split)),
        Case("combine", AttentionProblem(2, 4, 37, 0, 64, num_splits=3, return_lse=True, **plain)),
        Case("combine, packed", AttentionProblem(2, 4, 37, 0, 64, num_splits=7, return_lse=True, varlen=True,
                                                 total_q=50, **plain), pick=1),
        Case("combine, bf16", AttentionProblem(1, 4, 20, 0, 40, num_splits=20, **after)),
        Case("paged", _problem("fp16", 3, 4, 5, 300, 64, heads_kv=2, page_size=128, return_lse=True, **TABLE)),
        Case("paged, packed rows, bf16", _problem("bf16", 3, 4, 70, 300, 64, heads_kv=2, page_size=64, varlen=True,
                                             total_q=100, **TABLE, **LAST)),
        Case("pages of 16", _problem("fp16", 3, 4, 20, 100, 64, heads_kv=2, page_size=16, **TABLE)),
        Case("split keys in pages of 16", _problem("bf16", 3, 4, 1, 100, 64, heads_kv=2, page_size=16, **TABLE,
                                              **split)),
        Case("append, halves", _problem("fp16", 2, 4, 5, 70, 64, rotary="half", **append)),
        Case("append to pages, interleaved, bf16", _problem("bf16", 2, 4, 70, 200, 64, rotary="interleaved",
                                                            rotary_dim=32, page_size=64, **{**TABLE, **append})),
        Case("append", _problem("fp16", 2, 4, 5, 70, 64, heads_kv=2, family="append", seqlens_k=True)),
        Case("prefill from a pool", _problem("fp16", 3, 4, 40, 150, 64, heads_kv=2, total_q=80, **POOL, **LAST)),
        Case("prefill from a pool, bf16", _problem("bf16", 2, 4, 40, 150, 64, heads_kv=1, total_q=60, **POOL)),
    ]  # fmt: skip


def _archs() -> list[Case]:
    problem = _problem("fp16", 1, 2, 70, 130, 64, heads_kv=1, **CAUSAL)
    return [Case("forward qr_async", problem, "gfx90a"), Case("forward qr_async", problem, "gfx950")]
