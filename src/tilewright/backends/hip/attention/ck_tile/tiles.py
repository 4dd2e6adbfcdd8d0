"""Which tiles of attention the dispatcher of CK Tile proposes: its sweep, and its rules of tiles, T1 to T13.

The rules are about proposing.  What headers of a version can be made into is a matter of legality (`headers.py`),
which leaves fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention.ck_tile.instance import ELEMENT_BYTES, FP8
from tilewright.dataclass import dataclass

M0 = (16, 32, 64, 128, 192, 256)
N0 = (16, 32, 64, 96, 128, 192, 256, 384)
K0 = (16, 32, 64, 96, 128, 256)
SYNC_LDS = 65536
ASYNC_LDS = 163840  # of every arch there, though gfx90a and gfx942 have 64 KiB: legality asks the arch
ASYNC = ("qr_async", "qr_async_trload", "qr_async_trload_v3", "v3")
SHARED_K0MAX: Mapping[int, int] = {32: 32, 48: 48, 64: 64, 80: 96, 96: 128, 128: 128, 160: 256, 192: 192, 256: 256}

# Warp tiles by what Q, K and V are of.
WARP_TILES: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    **dict.fromkeys(("fp16", "bf16"), ((32, 32, 16), (16, 16, 32))),
    "fp32": ((16, 16, 16),),
    **dict.fromkeys(FP8, ((32, 32, 32),)),
}
HEAD_SIZES: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(
        ("fp16", "bf16"),
        ((32, 32), (64, 64), (80, 96), (96, 128), (128, 128), (160, 160), (192, 128), (192, 192), (256, 256)),
    ),
    "fp32": ((32, 32), (48, 48), (64, 64), (96, 128), (128, 128), (192, 192), (256, 256)),
    **dict.fromkeys(("fp8", "fp8bf16", "bf8"), ((64, 64), (128, 128), (192, 128), (256, 256))),
    "fp8fp32": ((128, 128),),
    "fp8fp16": (),
}
# Blocks whose second multiplication takes 16 keys at a time.
_SHORT_K1 = ((128, 64, 32, 128), (32, 128, 32, 128), (32, 128, 16, 48))
_LIMITED = ("gfx90a", "gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class Choice:
    """A tile of the sweep: rows of Q, keys and head size of a step, and the matrix instruction."""

    m0: int
    n0: int
    k0: int
    warp: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a tile is for."""

    data_type: str
    hdim_q: int
    hdim_v: int
    pipeline: str
    arch: str

    @property
    def bytes(self) -> int:
        return ELEMENT_BYTES[self.data_type]


def _sync_lds(tile: Choice, want: Wanted) -> bool:
    return (tile.m0 * tile.k0 + tile.n0 * tile.k0) * want.bytes <= SYNC_LDS


def _vector(want: Wanted) -> int:
    """Elements of K a lane copies to LDS at once."""
    return (16 if want.arch == "gfx950" else 4) // want.bytes


def async_lds(tile: Choice, want: Wanted) -> int:
    """Bytes that three buffers of K or V take, as the dispatcher reckons."""
    row = (64 if want.arch == "gfx950" else 32) * 4 // want.bytes
    pack = 16 // want.bytes
    values = (32 // pack) * (want.hdim_v // (row // pack)) * (row + pack)
    vector = _vector(want)
    groups = 64 // max(1, tile.k0 // vector)  # 0: a row of K takes more than a wave, which it does not reckon with
    warps = max(1, tile.m0 // tile.warp[0])
    issues = tile.n0 // (groups * warps) if groups else 0
    keys = issues * warps * (64 * vector + pack)
    return 3 * want.bytes * max(keys, values)


def _dealt(tile: Choice, want: Wanted) -> bool:
    """T7: a tile of K is whole copies of all lanes."""
    return tile.n0 * tile.k0 % ((tile.m0 // tile.warp[0]) * 64 * _vector(want)) == 0


def _limited(tile: Choice, want: Wanted) -> bool:
    """T8 to T11: which blocks are measured to be any good on CDNA."""
    if want.arch not in _LIMITED or want.data_type == "fp32" or want.pipeline not in ("qr", "qr_async", "qs"):
        return True
    if (want.hdim_q, want.hdim_v) != (128, 128):
        return tile.m0 in (64, 128, 192, 256)
    if tile.n0 != 128:
        return False
    return tile.m0 == 128 if want.pipeline == "qr_async" else tile.k0 != 64


def _newest(tile: Choice, want: Wanted) -> bool:
    """T12 and T13: the pipelines of gfx950 alone."""
    if want.arch != "gfx950":
        return True
    heads = (want.hdim_q, want.hdim_v)
    if want.pipeline == "qr_async_trload":
        return heads in ((64, 64), (128, 128)) and not (heads == (128, 128) and tile.n0 == 128)
    return want.pipeline != "qr_async_trload_v3" or tile.m0 == 256


def _is_cdna(want: Wanted) -> bool:
    return arch_by_name(want.arch).family == "cdna"


RULES = {
    "T1": lambda tile, want: want.pipeline in ASYNC or _sync_lds(tile, want),
    "T2": lambda tile, want: want.pipeline not in ASYNC or async_lds(tile, want) <= ASYNC_LDS,
    "T3": lambda tile, want: tile.k0 <= want.hdim_q,
    "T4": lambda tile, want: want.hdim_q % tile.k0 == 0,
    "T5": lambda tile, want: tile.m0 % tile.warp[0] == tile.n0 % tile.warp[1] == tile.k0 % tile.warp[2] == 0,
    "T6": lambda tile, want: (
        want.pipeline != "qr"
        or want.hdim_q != 256
        or not _is_cdna(want)
        or (tile.n0 // tile.warp[1]) * (tile.k0 // tile.warp[2]) % 8 == 0
    ),
    "T7": lambda tile, want: want.pipeline != "qr_async" or not _is_cdna(want) or _dealt(tile, want),
    "T8 to T11": _limited,
    "T12 and T13": _newest,
}
_OF_PAGES = ("T1", "T3", "T5")


def sweep(want: Wanted) -> Iterator[Choice]:
    """Every tile of the sweep, legal or not."""
    for m0 in M0:
        for n0 in N0:
            for k0 in K0:
                for warp in WARP_TILES.get(want.data_type, ()):
                    yield Choice(m0, n0, k0, warp)


@lru_cache(maxsize=256)
def tiles(want: Wanted) -> tuple[Choice, ...]:
    """What T1 to T13 leave of the sweep, for the family fwd."""
    return tuple(tile for tile in sweep(want) if all(rule(tile, want) for rule in RULES.values()))


@lru_cache(maxsize=256)
def paged_tiles(want: Wanted) -> tuple[Choice, ...]:
    """Tiles of splitkv, pagedkv and batch_prefill: one warp tile, and three of the rules."""
    warp = (32, 32, 32) if want.data_type in FP8 else (16, 16, 16)
    as_sync = Wanted(want.data_type, want.hdim_q, want.hdim_v, "qr", want.arch)
    swept = (Choice(m0, n0, k0, warp) for m0 in M0 for n0 in N0 for k0 in K0)
    return tuple(tile for tile in swept if all(RULES[name](tile, as_sync) for name in _OF_PAGES))


def k1_of(tile: Choice, want: Wanted, family: str = "fwd") -> int:
    """Keys that the second multiplication takes at a time."""
    if want.data_type in FP8:
        return tile.k0
    if family == "batch_prefill":
        return 64 if (tile.m0, tile.n0, tile.k0, want.hdim_q) == (64, 128, 64, 128) else 32
    if family != "fwd":
        return 32
    return 16 if (tile.m0, tile.n0, tile.k0, want.hdim_q) in _SHORT_K1 else 32


def block(tile: Choice, want: Wanted, family: str = "fwd") -> tuple[int, int, int, int, int, int]:
    """The six numbers of a tile."""
    k0max = SHARED_K0MAX.get(want.hdim_q, want.hdim_q)
    return (tile.m0, tile.n0, tile.k0, want.hdim_v, k1_of(tile, want, family), k0max)


def warps(tile: Choice) -> int:
    return tile.m0 // tile.warp[0]
