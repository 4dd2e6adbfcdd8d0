"""What tests ask of the HIP families of GEMM, under one roof."""

from __future__ import annotations

from tilewright.backends.hip import ck_tile_pipelines
from tilewright.backends.hip.gemm import FLOAT_OUTPUTS, FLOATS, INT_OUTPUTS, KERNELS
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule

__all__ = ["FLOATS", "FLOAT_OUTPUTS", "INT_OUTPUTS", "PERSISTENT", "PIPELINES", "STORES", "signature_rules"]

PIPELINES = CkTileSchedule.pipelines
PERSISTENT = tuple(one.name for one in ck_tile_pipelines.PIPELINES.values() if one.persistent)
STORES = CkTileSchedule.choices["store"]
signature_rules = KERNELS.signature_rules
