"""Which schedules of our own attention kernels a pool proposes.

Only those that break no rule are kept, so that one table does for all archs: tiles that one has no registers or LDS for
are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.hip.attention.tiled.schedule import TiledAttentionSchedule
from tilewright.ops.attention.spec import AttentionSignature

# Keys of a tile, waves, blocks of 16 rows of a wave; the usual first.
_Tile = tuple[int, int, int]
_CDNA: tuple[_Tile, ...] = ((64, 4, 2), (64, 4, 1), (32, 4, 2), (32, 4, 1), (32, 1, 1), (64, 2, 1), (16, 2, 1))
_RDNA: tuple[_Tile, ...] = ((64, 8, 1), (64, 4, 1), (32, 4, 1), (32, 1, 1), (32, 2, 1), (16, 4, 1), (16, 2, 1))
_SHARES = 4  # waves that share rows, each with a part of the columns; scores are computed by each


def swept() -> Iterator[TiledAttentionSchedule]:
    for keys, waves, blocks, lean in product((16, 32, 64, 128), (1, 2, 4, 8), (1, 2), (False, True)):
        yield TiledAttentionSchedule(keys, waves, blocks, lean)
        if lean and waves % _SHARES == 0:
            yield TiledAttentionSchedule(keys, waves, blocks, lean, _SHARES)


def usual(arch: Arch) -> Iterator[TiledAttentionSchedule]:
    for keys, waves, blocks in _CDNA if "mfma" in arch.features else _RDNA:
        for lean in (False, True):
            yield TiledAttentionSchedule(keys, waves, blocks, lean)
    # Heads of 512 and 576: a wave has no registers for all columns of its rows, or LDS no room for rows of four waves.
    yield TiledAttentionSchedule(16, _SHARES, 1, True, _SHARES)


def of_pool(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[TiledAttentionSchedule]:
    return swept() if pool in ("full", "profiler") else usual(arch)
