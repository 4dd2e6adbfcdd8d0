"""CK Tile's pipelines of a matrix product: what each does, once, for every rule, count and template that depends on it.

A pipeline is the order in which tiles of A and B are fetched, staged in LDS and multiplied.  Code asks for what a
pipeline does, never for its name.
"""

from __future__ import annotations

from tilewright.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline of the mid-2025 headers; the defaults are what most of them do."""

    name: str
    schedulers: tuple[str, ...] = ("intrawave",)
    persistent: bool = True  # a block may take one tile after the other: every wave of it stores
    lds_buffers: int = 1  # in which A and B are staged
    wave_groups: int = 1  # that take turns along k, each with sums of its own, which pass through LDS at the end
    packed_b: bool = False  # B comes packed and goes from memory to registers: only A is staged
    prefetch: int = 1  # k tiles under way before the first is used; 0: as many as keep a compute unit's memory busy
    least_loops: int = 1  # turns of the k loop, at the least
    loop_step: int = 1  # turns of the k loop are multiples of this
    reads_b_as_a: bool = False  # elements of B are taken for A's type
    reads_quads: bool = True  # has the transposed read of gfx950 that fetches four accesses of 8 bytes at once
    no_transposed_read: tuple[str, str] | None = None  # why operands are not transposed while they are read; the remedy
    least_tile: tuple[int, int, int] = (16, 16, 8)
    tile_step: tuple[int, int, int] = (16, 16, 8)
    lds_reason: str = ""  # why it takes more LDS than a tile of A and one of B
    smaller: str = ""  # the pipeline that takes less LDS and fewer registers for the same tile

    @property
    def first_tail(self) -> int:
        """Turns of the k loop from which on there are tails."""
        return max(self.least_loops, self.loop_step)


# In the order of `Pipeline` in the limits.h of the product (tested).
_ALL = (
    Pipeline(
        "compv3", prefetch=2, reads_b_as_a=True,
        no_transposed_read=(
            "compv3 with two turns of the k loop stores its second tile transposed, and reads it as if it were not",
            "use compv4 or mem, or rcr",
        ),
    ),
    Pipeline(
        "compv4", lds_buffers=2, prefetch=2, least_loops=2, reads_quads=False,
        lds_reason="two buffers", smaller="compv3",
    ),
    Pipeline(
        "compv5", persistent=False, wave_groups=2, reads_quads=False,
        no_transposed_read=("compv5 has no transposed read", "use another pipeline, or rcr"),
        lds_reason="the sums pass through LDS",
    ),
    Pipeline("mem", ("intrawave", "interwave"), prefetch=0, reads_b_as_a=True),
    Pipeline(
        "preshuffle", ("default",), packed_b=True, loop_step=2, least_tile=(64, 64, 32), tile_step=(32, 32, 16),
    ),
)  # fmt: skip
PIPELINES = {pipeline.name: pipeline for pipeline in _ALL}


def number_of(name: str) -> int:
    """The pipeline's value in `Pipeline` of limits.h."""
    return _ALL.index(PIPELINES[name])
