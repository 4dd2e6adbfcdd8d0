"""Convolution on AMD GPUs as rules have it: what is served by what, and what a kernel copies.  Nothing is compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright as tw
from tests.conv.conftest import CONV
from tilewright.arch import all_archs
from tilewright.backends.hip.conv import KERNELS
from tilewright.backends.hip.conv.ck_tile import FAMILY as CK_TILE
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.backends.hip.matrix import has_matrix
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem, channels_first
from tilewright.ops.conv.spec import VARIANTS

Fast = CkTileConvSchedule | TiledConvSchedule
GPUS = [name for name, one in all_archs().items() if one.family in ("cdna", "rdna")]
DTYPES = ("fp16", "bf16", "fp32", "int8")
# Channels, filters and groups: whole accesses, few, odd, groups, odd groups, depthwise, an odd number of those.
KINDS = ((128, 128, 1), (3, 64, 1), (51, 77, 1), (128, 128, 32), (35, 21, 7), (128, 128, 128), (77, 77, 77))
WMMA = TiledConvSchedule("wmma", (64, 64, 32), (2, 2, 1))
MFMA = TiledConvSchedule("mfma", (64, 64, 32), (1, 2, 1))
FMA = TiledConvSchedule("fma", (64, 64, 16), (2, 2, 1), (4, 4, 4))
COPIED = CkTileConvSchedule("compv3", (64, 64, 32), (32, 32, 16), (2, 2, 1), special="copied")


def layer(channels: int = 64, filters: int = 64, groups: int = 1, **more: object) -> ConvProblem:
    fields = {"batch": 2, "size": (14, 14), "window": (3, 3), "before": (1, 1), "dtype": "fp16", **more}
    return ConvProblem(channels=channels, filters=filters, groups=groups, **fields)  # type: ignore[arg-type]


def first(problem: ConvProblem, which: str = "xwy") -> ConvProblem:
    return problem.laid(**{f"{one}_strides": channels_first(getattr(problem, f"{one}_shape")) for one in which})


def spec_of(schedule: Fast, problem: ConvProblem, arch: str = "gfx942") -> KernelSpec:
    return KernelSpec("conv", problem.signature, schedule, arch)


def refused(schedule: Fast, problem: ConvProblem) -> set[str]:
    return {one.rule for one in CONV.supports(spec_of(schedule, problem), problem)}


@pytest.mark.parametrize("arch", GPUS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_common_problem_falls_to_the_floor(arch: str, dtype: str) -> None:
    """Neither channels-first memory nor odd channels, in any direction."""
    for variant in VARIANTS if dtype != "int8" else VARIANTS[:1]:
        for kind in KINDS:
            for problem in (
                layer(*kind, variant=variant, dtype=dtype),
                first(layer(*kind, variant=variant, dtype=dtype)),
            ):
                found = CONV.candidates(problem.signature, arch)
                fast = [one for one in found if one.schedule.pipeline != "loops" and not CONV.supports(one, problem)]
                assert fast, f"{problem.describe()} on {arch}"


def test_a_kernel_copies_what_it_cannot_take_and_nothing_else() -> None:
    dense = layer()
    assert refused(COPIED, dense) == {"amd-copied"}, "there is another kernel for it, without copies"
    assert CK_TILE.copies(COPIED, first(dense)) == "xwy"
    assert CK_TILE.copies(COPIED, first(dense, "x")) == "x"
    assert CK_TILE.copies(COPIED, first(dense, "y")) == "y"
    assert CK_TILE.copies(COPIED, layer(channels=60)) == "xw", "y is written where it lies"
    assert CK_TILE.copies(COPIED, replace(dense, aligned=False)) == "xw"
    assert CK_TILE.copies(COPIED, layer(60, 62, variant="backward_data")) == "xwy"
    assert CK_TILE.copies(COPIED, layer(64, 62, variant="backward_data")) == "wy"
    backwards = dense.laid(y_strides=tuple(-one for one in dense.y_strides))
    assert CK_TILE.copies(COPIED, backwards) == "y"
    for problem in (first(dense), layer(channels=60), layer(60, 62, variant="backward_data"), backwards):
        assert not refused(COPIED, problem)
    assert refused(replace(COPIED, special="any"), first(dense)) == {"amd-channels-last"}


def test_copies_have_whole_loads_of_channels_and_whole_merges_of_groups() -> None:
    """Of 5 channels and 3 filters a group, loads of eight are made by filling up."""
    for variant in ("forward", "backward_weight"):
        assert refused(replace(COPIED, special="any"), layer(35, 21, 7, variant=variant)) == {"amd-alignment"}
        assert not refused(COPIED, first(layer(35, 21, 7, variant=variant)))
    merged = replace(COPIED, merged=32, vectors=(8, 1, 8))
    assert refused(replace(merged, special="any"), layer(77, 77, 77)) == {"amd-merged"}
    assert not refused(merged, first(layer(77, 77, 77)))
    fused = layer(77, 77, 77, num_d=1, epilogue="MultiDAdd")
    assert refused(merged, first(fused)) == {"amd-copied"}, "a bias of 77 numbers is not read as 96"
    assert not refused(merged, first(layer(96, 96, 96, num_d=1, epilogue="MultiDAdd")))


def test_what_is_too_large_to_copy_is_refused() -> None:
    huge = layer(channels=65, filters=8, batch=1 << 12, size=(128, 128), window=(1, 1), before=(0, 0))
    assert refused(COPIED, huge) >= {"amd-copied"}


def test_copies_cost_time() -> None:
    dense = layer(batch=32)

    def seconds(schedule: Fast, problem: ConvProblem) -> float:
        return KERNELS.estimate(spec_of(schedule, dense), problem, 1)

    direct = seconds(replace(COPIED, special="any"), dense)
    assert seconds(COPIED, first(dense)) > direct + 3 * 4e-6
    assert seconds(COPIED, first(dense, "x")) < seconds(COPIED, first(dense))


def test_tiles_of_our_own_are_refused_by_name() -> None:
    problem = layer()

    def rules(schedule: TiledConvSchedule, arch: str = "gfx1100", of: ConvProblem = problem) -> set[str]:
        return {one.rule for one in CONV.check(spec_of(schedule, of, arch))}

    fp32 = layer(dtype="fp32")
    assert not rules(WMMA)
    assert not rules(WMMA, "gfx1201")
    assert not rules(WMMA, "gfx1250")
    assert rules(replace(WMMA, tile=(64, 64, 16)), "gfx1250") == {"amd-tile-size"}, "an instruction takes 32 of k"
    assert rules(WMMA, "gfx942") == {"amd-wmma"}
    assert rules(replace(WMMA, vectors=(4, 4, 4), tile=(64, 64, 16)), of=fp32) == {"amd-wmma"}
    assert not rules(MFMA, "gfx908")
    assert not rules(MFMA, "gfx942")
    assert rules(MFMA) == {"amd-mfma"}
    assert rules(replace(MFMA, tile=(64, 64, 8)), "gfx908") == {"amd-tile-size"}, "an instruction takes 16 of k"
    assert rules(replace(MFMA, tile=(256, 256, 32)), "gfx908") == {"amd-registers"}
    assert not rules(FMA, of=fp32)
    assert not rules(FMA, "gfx950", of=fp32)
    assert rules(replace(WMMA, tile=(64, 48, 32))) == {"amd-tile-size"}
    assert rules(replace(WMMA, tile=(64, 64, 48))) == {"amd-tile-size"}
    assert rules(replace(WMMA, vectors=(16, 8, 8))) == rules(replace(WMMA, vectors=(8, 8, 16))) == {"amd-vector"}
    assert rules(replace(WMMA, warp_grid=(2, 2, 2))) == {"amd-warps"}
    assert rules(replace(WMMA, tile=(256, 128, 32), warp_grid=(4, 2, 1))) == {"amd-registers"}
    assert rules(replace(WMMA, tile=(512, 256, 64), warp_grid=(4, 8, 1))) >= {"amd-lds"}
    assert rules(replace(WMMA, split_k=4)) == {"amd-split-k"}
    assert rules(replace(WMMA, merged=4), of=layer(variant="backward_weight")) == {"amd-merged"}
    narrow = TiledConvSchedule("wmma", (64, 32, 32), (4, 8, 1))
    assert "amd-tile-vector" in rules(replace(narrow, tile=(64, 128, 16)))


@pytest.mark.parametrize("arch", [name for name in GPUS if has_matrix(all_archs()[name])])
def test_convolutions_multiply_by_matrix_instructions_wherever_the_gpu_has_them(arch: str) -> None:
    """But fp32 of RDNA, for which there is no instruction."""
    for dtype in DTYPES:
        if dtype == "fp32" and all_archs()[arch].family == "rdna":
            continue
        for variant in VARIANTS if dtype != "int8" else VARIANTS[:1]:
            candidates = CONV.candidates(layer(variant=variant, dtype=dtype).signature, arch)
            assert {spec.schedule.pipeline for spec in candidates} - {"loops"}
            assert "fma" not in {spec.schedule.pipeline for spec in candidates}, f"{variant} of {dtype}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])
def test_every_rule_set_is_within_full_and_profiler_is_a_part_of_it(arch: str, variant: str) -> None:
    """As those of CK Tile's dispatcher are; `full` itself is within the pool for long searches."""

    def specs(pool: str) -> set[KernelSpec]:
        proposed = CONV.proposals(pool, arch, variants=(variant,), datatypes=("bf16",))
        return {spec for spec in proposed if pool == "exhaustive" or not CONV.check(spec)}

    full, profiler = specs("full"), specs("profiler")
    for pool in ("tiny", "tests", "default", "full-tests"):
        assert specs(pool) <= full, pool
    assert profiler <= full
    assert 0.15 < len(profiler) / len(full) < 0.5
    assert full <= specs("exhaustive")


def test_two_waves_in_turn_are_for_forward() -> None:
    """compv5 steps along k in its second wave, which only operands with k side by side have."""
    for variant in VARIANTS:
        proposed = CONV.proposals("full", "gfx942", variants=(variant,), datatypes=("fp16", "bf16"))
        in_turn = [spec for spec in proposed if spec.schedule.pipeline == "compv5" and not CONV.check(spec)]
        assert bool(in_turn) == (variant == "forward")
        assert {spec.schedule.warp_grid for spec in in_turn} <= {(1, 1, 2)}


def test_wide_fragments_of_two_waves_in_turn_are_refused_on_gfx950() -> None:
    """Also where the tile is one warp tile along k: built, such a kernel kept 272 bytes a lane in scratch."""
    proposed = CONV.proposals("full", "gfx950", variants=("forward",), datatypes=("bf16",))
    wide = [one for one in proposed if one.schedule.pipeline == "compv5" and one.schedule.warp_tile == (16, 16, 32)]
    assert any(one.schedule.tile[2] == 32 for one in wide)
    assert all("amd-compv5-fragments" in {broken.rule for broken in CONV.check(one)} for one in wide)


@pytest.mark.parametrize("arch", GPUS)
def test_images_over_2_gib_go_in_several_launches(arch: str) -> None:
    """Images of a batch, and forward rows of one image; gradients of one such image are left to the loops."""
    served = (("forward", 64, 512), ("backward_data", 64, 512), ("backward_weight", 64, 512), ("forward", 1, 4096))
    for variant, batch, side in served:  # 3 GiB
        big = layer(96, 64, dtype="bf16", variant=variant, batch=batch, size=(side, side))
        assert tw.Registry(arch).select(big).spec.schedule.pipeline not in ("loops", "fma")
