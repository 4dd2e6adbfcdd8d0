"""What blocks of attention walk over, about: how many items there are, and how many tiles of keys one meets.

The same account for every pipeline, so that their estimates may be compared.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple, Protocol

from tilewright.ops.attention.problem import AttentionProblem

TAIL = 0.5  # of a wave, at the end of items that differ


class Tiled(Protocol):
    """A schedule with tiles of rows and of keys."""

    @property
    def tile_m(self) -> int: ...
    @property
    def tile_n(self) -> int: ...


class Walk(NamedTuple):
    items: int
    steps: float  # tiles of keys that an item meets, on average
    differ: bool  # in how many

    def waves(self, places: int) -> float:
        """Of items on so many places at once."""
        if self.differ and self.items > places:
            return self.items / places + TAIL
        return float(whole(self.items, places))


def whole(x: int, y: int) -> int:
    return -(-x // y)


def walk(p: AttentionProblem, h: Tiled, group: int, apart: int = 0) -> Walk:
    """Of tiles that hold the rows of `group` query heads together; so many rows of a tile pass by what they do not see
    (all of them where nothing is said)."""
    batch, splits, heads = max(1, p.batch), max(1, p.num_splits), p.heads_q // group
    rows, longer = p.seqlen_q, 1.0
    if p.varlen:  # most rows are of long sequences; half of a sequence's last tile of rows is empty
        rows = max(1, p.total_q // batch)
        longer = (rows + p.seqlen_q) / 2 / rows
        row_tiles = p.total_q * group / h.tile_m + batch / 2
    else:
        row_tiles = float(whole(rows * group, h.tile_m) * batch)
    items = max(1, int(row_tiles * heads * splits))
    if not p.bounded:
        mean = p.total_k // batch if p.varlen and p.pages == "none" else p.seqlen_k
        keys = min(p.seqlen_k, int(mean * longer)) if p.varlen else p.seqlen_k
        return Walk(items, float(whole(whole(keys, h.tile_n), splits) or 1), p.varlen)
    seen = p.pairs / (batch * p.heads_q * max(1, rows)) * longer
    if p.window_left >= 0 <= p.window_right:
        seen = min(seen, float(p.window_left + p.window_right + 1 + p.sink_tokens))
    # What hangs over at the ends of the window: half of the rows, and of keys what no tile of rows divides.
    alike = (apart or h.tile_m) / group
    over = alike / 2 + (h.tile_n - gcd(max(1, int(alike)), h.tile_n)) / 2
    over += h.tile_n / 2 if p.window_left >= 0 else 0
    steps = min(float(whole(p.seqlen_k, h.tile_n)), (seen + over) / h.tile_n)
    return Walk(items, max(1.0, steps / splits), True)
