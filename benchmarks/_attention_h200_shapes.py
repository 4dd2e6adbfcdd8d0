"""The problems of attention_h200.py: those that peers were measured on, and others drawn by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ops.attention import AttentionProblem


@dataclass(frozen=True)
class Shape:
    group: str  # prefill, gqa, decode, mixed or varlen
    batch: int
    heads_q: int
    heads_kv: int
    rows: int
    keys: int
    head: int
    causal: bool
    lengths: tuple[int, ...] = ()  # of packed sequences, rows and keys alike
    page_size: int = 0
    varlen: tuple[int, ...] = ()  # keys of each sequence, which only the device knows

    @property
    def name(self) -> str:
        keys = f"{min(self.varlen)}-{self.keys}" if self.varlen else f"{self.keys}"
        said = f"{self.batch}x{self.heads_q}/{self.heads_kv}x{self.rows}x{keys} d{self.head}"
        return said + (" causal" if self.causal else "") + (f" pages {self.page_size}" if self.page_size else "")

    @property
    def flops(self) -> int:
        """Of the pairs that see each other, each sequence by its own length."""
        if self.varlen:
            return 4 * self.rows * self.heads_q * self.head * sum(self.varlen)
        if not self.lengths:
            return self.problem().flops
        alone = (replace(self, batch=1, rows=one, keys=one, lengths=()) for one in self.lengths)
        return sum(one.flops for one in alone)

    @property
    def nbytes(self) -> int:
        """That have to be read and written."""
        p = self.problem()
        left_out = self.batch * self.keys - sum(self.varlen) if self.varlen else 0
        return p.bytes - left_out * self.heads_kv * 2 * self.head * 2

    def problem(self) -> AttentionProblem:
        """As it is called: heads outside of rows, packed rows and pages with heads inside."""
        more: dict[str, Any] = {}
        if self.causal:
            more = {"window_right": 0, "align": "top_left" if self.rows == self.keys else "bottom_right"}
        if self.lengths:
            more |= {"varlen": True, "total_q": sum(self.lengths), "total_k": sum(self.lengths)}
        elif self.page_size:
            more |= {"pages": "strided", "page_lookup": "table", "page_size": self.page_size, "seqlens_k": True}
        for name, heads, rows in (("q", self.heads_q, self.rows), ("o", self.heads_q, self.rows),
                                  ("k", self.heads_kv, self.keys), ("v", self.heads_kv, self.keys)):  # fmt: skip
            if not self.lengths and not (self.page_size and name in "kv"):
                more[f"{name}_strides"] = (heads * rows * self.head, self.head, rows * self.head)
        return AttentionProblem(
            self.batch, self.heads_q, self.rows, self.keys, self.head, self.heads_kv, dtype_q="bf16", **more
        )


def _table() -> list[Shape]:
    found = []
    for head in (64, 128, 256):
        heads = 2048 // head
        for batch, length in ((32, 512), (8, 2048), (2, 8192)):
            found += [Shape("prefill", batch, heads, heads, length, length, head, causal) for causal in (False, True)]
    found.append(Shape("gqa", 1, 32, 8, 4096, 4096, 128, True))
    for batch, keys in ((4, 8192), (1, 65536), (64, 2048)):
        found += [Shape("decode", batch, 32, 8, 1, keys, 128, False, page_size=page) for page in (0, 64)]
    return found


TABLE = _table()


def drawn(seed: int, count: int) -> list[Shape]:
    """Two of five prefill, one of five with fewer heads of keys, one decode, one of mixed lengths.

    Prefill: head 64, 96, 128, 192 or 256, 2^12 to 2^16 rows in all of 256 to 16384 (a fourth of them no power of two),
    512 to 4096 elements of heads, half causal.  Decode: 1 to 8 rows, groups of 4 or 8, 1k to 128k keys, batch 1 to 256,
    half in pages of 16, 64 or 256; at most 8 GB.  Mixed: 8 to 64 sequences of 16 to 16384, logarithmically even,
    at most 2^19 rows where padded.
    """
    rng = random.Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        group = rng.choice(("prefill", "prefill", "gqa", "decode", "mixed"))
        head = rng.choice((64, 96, 128, 128, 192, 256))
        heads_kv = rng.choice((2, 4, 8))
        many = rng.choice((4, 8)) if group != "prefill" else 1
        causal = rng.random() < 0.5
        if group == "decode":
            batch, keys, page = (
                2 ** rng.randint(0, 8),
                int(2 ** rng.uniform(10, 17)),
                rng.choice((0, 0, 0, 16, 64, 256)),
            )
            one = Shape(group, batch, heads_kv * many, heads_kv, rng.randint(1, 8), keys, head, causal, (), page)
            if batch * keys * heads_kv * head * 4 < 8e9:
                found.append(one)
        elif group == "mixed":
            lengths = tuple(int(2 ** rng.uniform(4, 14)) for _ in range(rng.randint(8, 64)))
            most = max(lengths)
            if most * len(lengths) <= 1 << 19:
                found.append(Shape(group, len(lengths), heads_kv * many, heads_kv, most, most, head, causal, lengths))
        else:
            length = int(2 ** rng.uniform(8, 14)) if rng.random() < 0.25 else 2 ** rng.randint(8, 14)
            heads = max(1, rng.choice((512, 1024, 2048, 4096)) // head) if group == "prefill" else heads_kv * many
            batch = max(1, 2 ** rng.randint(12, 16) // length)
            found.append(Shape(group, batch, heads, heads if many == 1 else heads_kv, length, length, head, causal))
    return found


def drawn_varlen(seed: int, count: int) -> list[Shape]:
    """Decoding steps of 1 to 4 rows whose sequences have lengths of their own, as they come together in serving.

    Batches of 2 to 64, in pages of 16, 64 or 256; lengths logarithmically even from 512 to a longest of 4k to 128k,
    which one has; heads of 64, 128 or 256, groups of 4 or 8; 20 MB to 4 GB.
    """
    rng = random.Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        batch, longest = rng.randint(2, 64), int(2 ** rng.uniform(12, 17))
        varlen = [longest, *(int(2 ** rng.uniform(9, 17)) for _ in range(batch - 1))]
        varlen = [min(one, longest) for one in varlen]
        rng.shuffle(varlen)
        heads_kv, group, head = rng.choice((1, 2, 4, 8)), rng.choice((4, 8)), rng.choice((64, 128, 128, 256))
        rows, page = rng.randint(1, 4), rng.choice((16, 64, 256))
        one = Shape("varlen", batch, heads_kv * group, heads_kv, rows, longest, head, False, (), page, tuple(varlen))
        if 2e7 < one.nbytes < 4e9 and batch * longest * heads_kv * head * 4 < 1.6e10:
            found.append(one)
    return found
