"""What the quick start does on a fresh machine: a pool built into an empty store, through one precompiled header."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tilewright import settings
from tilewright.backends.hip import precompiled
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.spec import VARIANTS

pytestmark = pytest.mark.amd


def variety(count: int) -> list[KernelSpec]:
    """Of the default pool the smallest tile of each pipeline, then of each kind of schedule, `count` in all."""
    pool = tw.Registry("gfx942").add_pool("gemm", datatypes=("fp16",), layouts=("rcr",), variants=VARIANTS)
    of_ck_tile = [spec for spec in pool.specs() if isinstance(spec.schedule, CkTileSchedule)]  # ours gain nothing
    specs = sorted(of_ck_tile, key=lambda one: (one.schedule.tile[0] * one.schedule.tile[1], one.digest))
    first: dict[object, KernelSpec] = {}
    for one in specs:
        first.setdefault(one.schedule.pipeline, one)
    for one in specs:
        kind = (one.schedule.pipeline, one.signature.variant)
        if one not in first.values() and len(first) < count:
            first.setdefault(kind, one)
    return list(first.values())


def test_a_pool_builds_through_one_precompiled_header_on_a_fresh_store(tmp_path: Path) -> None:
    specs = variety(precompiled.WORTH_KERNELS)
    known = {one.schedule.pipeline for one in specs}
    assert known >= set(CkTileSchedule.pipelines)
    assert len(specs) >= precompiled.WORTH_KERNELS
    with settings.override(cache_dir=tmp_path / "cache"):
        built = tw.Registry("gfx942", specs=specs).build()
    assert set(built) == {one.digest for one in specs}
    assert len(list((tmp_path / "cache" / "precompiled").glob("*/*.pch"))) == 1
