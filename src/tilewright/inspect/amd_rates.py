"""What instructions of AMD GPUs cost, in clocks of a SIMD: facts for a model of main loops, not measurements.

Matrix instructions: the clocks that AMD's matrix instruction calculator states (gfx908, gfx90a, gfx942, RDNA 3 and 4),
and for gfx950's own the passes of four clocks in LLVM's scheduling model.  Vector instructions of a wave of 64 take
four clocks of CDNA's SIMDs, of a wave of 32 one clock of RDNA's.  LDS hands out 128 bytes a clock to a compute unit, to
reads on gfx950 256.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilewright.arch import Arch
from tilewright.dataclass import dataclass

_MATRIX = re.compile(
    r"^v_(s?mfmac?|s?wmmac?)_(?:scale_)?(f32|f16|bf16|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(\w+?)(?:_e(?:32|64))?$"
)
_CDNA_SHAPE = {4: 8, 16: 32, 32: 64}  # clocks by the side, of CDNA 1 and 2 and of what CDNA 3 kept from them
_SLOW = re.compile(
    r"^v_(?:(?:exp|log|rcp|rsq|sqrt|sin|cos)(?:_legacy|_iflag)?_f|mul_(?:lo|hi)_[ui]32|mad_[ui]64|rcp_|trig_|div_)"
)
_LDS = re.compile(r"^ds_(read|write|load|store)(2|2st64|_2addr|_2addr_stride64)?_(?:addtid_|tr\d*_)?[bui](\d+)")


@dataclass(frozen=True, slots=True)
class MatrixCost:
    clocks: int
    macs: int
    passes: int  # of four clocks, as waits of CDNA count
    xdl: bool  # not fp32 or fp64: gfx942 keeps other waits for these


@dataclass(frozen=True, slots=True)
class UnitRates:
    """Of an arch, per clock."""

    issue: int  # clocks between instructions of one wave
    slow: int  # clocks of transcendental and 32-bit integer products
    lds_bytes: int  # of a compute unit
    lds_read_bytes: int
    cache_bytes: float  # of a compute unit
    # Latencies are assumptions: what comes from LDS, and what comes through the second-level cache.
    lds_latency: int
    memory_latency: int


@lru_cache(maxsize=4096)
def matrix_cost(mnemonic: str, arch: str, operands: str = "") -> MatrixCost | None:
    """None of what is no matrix instruction, or one whose cost is not known here."""
    parts = _MATRIX.match(mnemonic)
    if parts is None:
        return None
    kind, _, *sides, blocks, inputs = parts.groups()
    m, n, k = map(int, sides)
    macs = m * n * k * _blocks(m, k, blocks, inputs, arch)
    xdl = inputs not in ("f32", "f64")
    if "wmma" in kind:
        clocks = _wmma_clocks(inputs, arch)
    elif inputs == "f64":
        clocks = 32 if m == 16 else 16
    elif arch in ("gfx908", "gfx90a"):
        clocks = _CDNA_SHAPE.get(m, 0)
    elif arch in ("gfx942", "gfx950"):
        clocks = _cdna3_clocks(m, k, bool(blocks), inputs, operands)
    else:
        clocks = 0
    return MatrixCost(clocks, macs, clocks // 4, xdl) if clocks else None


def _blocks(m: int, k: int, written: str | None, inputs: str, arch: str) -> int:
    """Products an instruction makes side by side; names of CDNA 1 and 2 do not say."""
    if written:
        return int(written)
    if m == 4:
        return 16
    if arch not in ("gfx908", "gfx90a") or inputs == "f64":
        return 1
    first = {"f32": 1, "bf16": 2}.get(inputs, 4)  # the k of an instruction with several blocks
    return (2 if m == 32 else 4) if k == first else 1


def _wmma_clocks(inputs: str, arch: str) -> int:
    narrow = inputs.startswith(("iu", "fp8", "bf8"))
    if arch.startswith("gfx11"):
        return 16 if inputs == "iu4" else 32
    return 0 if arch == "gfx1250" else 8 if narrow else 16


def _cdna3_clocks(m: int, k: int, blocked: bool, inputs: str, operands: str) -> int:
    if blocked or inputs == "f32":
        return _CDNA_SHAPE.get(m, 0)
    if inputs == "f8f6f4":  # formats 0 and 1 have eight bits
        formats = [int(value) for value in re.findall(r"\b(?:cbsz|blgp):(\d)", operands)]
        eight = len(formats) < 2 or any(value < 2 for value in formats)
        return (32 if eight else 16) * (m // 16)
    return {16: 16, 32: 32}.get(m, 0)


def unit_rates(arch: Arch) -> UnitRates | None:
    """None where the model does not know the arch."""
    if not (arch.rates and arch.compute_units and arch.simds and arch.warps_per_simd):
        return None
    cache = arch.rates.cache / arch.rates.clock / arch.compute_units
    if "mfma" in arch.features:
        read = 256 if arch.name == "gfx950" else 128
        return UnitRates(4, 16, 128, read, cache, 64, 600)
    if "wmma" in arch.features and "wmma-k32" not in arch.features:
        return UnitRates(1, 4, 128, 128, cache, 64, 600)
    return None


def is_vector(mnemonic: str) -> bool:
    return mnemonic.startswith("v_")


def vector_clocks(mnemonic: str, rates: UnitRates) -> int:
    return rates.slow if _SLOW.match(mnemonic) else rates.issue


@lru_cache(maxsize=1024)
def lds_bytes(mnemonic: str) -> int:
    """Bytes of a lane that LDS reads or writes; whatever is narrower than a bank takes the bank.  0: not LDS."""
    access = _LDS.match(mnemonic)
    if access is None:
        return 0
    size = max(4, int(access.group(3)) // 8)
    return size * (2 if access.group(2) else 1)


def reads_lds(mnemonic: str) -> bool:
    return mnemonic.startswith(("ds_read", "ds_load"))
