"""The nearest legal kernels of an illegal one, for any op."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import get_args, get_origin, get_type_hints

import pytest

from tests.backends.cuda.gemm.names import TmaWsSchedule
from tilewright.arch import all_archs
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.errors import IllegalSpecError
from tilewright.ops import KernelSpec, op
from tilewright.ops.base import demand_legal
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.legality import SPACES
from tilewright.ops.neighbours import changes, neighbours

GEMM = op("gemm")
FP16 = GemmProblem(64, 64, 64, dtype_a="fp16", layout="rcr").signature
SOUND = CkTileSchedule("compv4", (128, 128, 32), (32, 32, 16), (2, 2, 1))


def spec(schedule: object, arch: str = "gfx942", signature: object = FP16) -> KernelSpec:
    return KernelSpec("gemm", signature, schedule, arch)


def told(one: KernelSpec) -> list[str]:
    return [str(each) for each in neighbours(GEMM, one)]


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        (replace(SOUND, scheduler="interwave"), ["scheduler interwave -> intrawave", "pipeline compv4 -> mem"]),
        (replace(SOUND, tile=(100, 128, 32)), ["tile_m 100 -> 128", "tile_m 100 -> 64"]),
        (
            replace(SOUND, tile=(256, 256, 32), warp_grid=(4, 4, 1)),
            ["pipeline compv4 -> compv3, warp_grid_m 4 -> 2, warp_grid_n 4 -> 2"],
        ),
    ],
)
def test_closest_first_and_what_differs(asked: CkTileSchedule, nearest: list[str]) -> None:
    assert told(spec(asked))[: len(nearest)] == nearest


def test_a_tile_that_is_too_large_becomes_smaller_and_nothing_else() -> None:
    for one in neighbours(GEMM, spec(replace(SOUND, tile=(256, 256, 64)))):
        assert {each.name for each in one.changes} <= {"tile_m", "tile_n", "tile_k"}
        assert all(each.after < each.before for each in one.changes)


def test_a_legal_kernel_needs_none() -> None:
    assert told(spec(SOUND)) == []


def test_on_another_vendor_too() -> None:
    assert told(spec(TmaWsSchedule((100, 256, 64), 4), "sm_90a"))[0] == "tile_m 100 -> 128"


def test_a_drawn_neighbourhood_is_legal_ordered_and_true() -> None:
    """Kernels of the pools with some fields drawn anew: seed 8, forty of them."""
    draw = random.Random(8)
    proposals = GEMM.proposals("full", "gfx942", datatypes=("fp16",), layouts=("rcr",))
    pool = [spec for spec in proposals if isinstance(spec.schedule, CkTileSchedule)]
    seen = 0
    while seen < 40:
        one, other, third = (draw.choice(pool).schedule for _ in range(3))
        asked = spec(replace(one, pipeline=other.pipeline, tile=third.tile, warp_grid=other.warp_grid))
        if not GEMM.check(asked):
            continue
        seen += 1
        found = neighbours(GEMM, asked)
        assert 1 <= len(found) <= 3
        assert [each.distance for each in found] == sorted(each.distance for each in found)
        for each in found:
            assert not GEMM.check(each.spec)
            assert (each.spec.signature, each.spec.arch) == (asked.signature, asked.arch)
            assert each.changes == changes(asked, each.spec)
            assert each.changes
        for each in found[1:]:
            assert not set(found[0].changes) <= set(each.changes), "it changes more than it need"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_much_that_is_wrong_changes_nothing_that_was_right(arch: str) -> None:
    """Seed 991: where the walk finds none, a kernel of the pools is taken, and no more of it than need be."""
    draw, sizes = random.Random(991), (8, 16, 32, 64, 96, 128, 192, 256, 512)
    seen = 0
    while seen < 6:
        asked = spec(
            replace(
                SOUND,
                pipeline=draw.choice(("compv3", "compv4", "mem", "compv5")),
                tile=(draw.choice(sizes), draw.choice(sizes), draw.choice(sizes)),
                warp_tile=draw.choice(((32, 32, 8), (16, 16, 64), (4, 64, 16), (16, 16, 128))),
                warp_grid=draw.choice(((4, 4, 1), (1, 1, 2), (2, 1, 2), (4, 1, 1))),
                pad=(draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5),
                split_k=draw.choice((1, 2, 8)),
                store_width=draw.choice((0, 2, 16)),
            ),
            arch,
        )
        if len(GEMM.check(asked)) < 3:
            continue
        seen += 1
        for one in neighbours(GEMM, asked):
            assert not GEMM.check(one.spec)
            for field, wanted in ((each.name, getattr(asked.schedule, each.name)) for each in fields(asked.schedule)):
                held = getattr(one.spec.schedule, field)
                if held != wanted:
                    assert GEMM.check(replace(one.spec, schedule=replace(one.spec.schedule, **{field: wanted}))), field
            for place in range(3):
                pad = [*one.spec.schedule.pad]
                if pad[place] != asked.schedule.pad[place]:
                    pad[place] = asked.schedule.pad[place]
                    assert GEMM.check(replace(one.spec, schedule=replace(one.spec.schedule, pad=tuple(pad))))


def test_nothing_legal_is_nearer_than_the_first() -> None:
    """Every kernel one step from the one asked for, in any value, is illegal where the first is two steps away."""
    asked = spec(replace(SOUND, tile=(256, 256, 64)))
    found = neighbours(GEMM, asked)
    assert len(found[0].changes) == 2
    for place, size in ((0, 128), (0, 192), (1, 128), (1, 192), (2, 32)):
        tile = [*asked.schedule.tile]
        tile[place] = size
        assert GEMM.check(spec(replace(asked.schedule, tile=tuple(tile))))
    for field, words in CkTileSchedule.choices.items():
        for word in words:
            assert GEMM.check(spec(replace(asked.schedule, **{field: word})))


def test_where_no_schedule_helps_there_are_none() -> None:
    assert told(spec(SOUND, "gfx1100")) == []  # these headers cannot multiply there
    assert told(spec(SOUND, "sm_90a")) == []  # another family's schedule
    assert told(spec(SOUND, "gfx942", replace(FP16, dtype_c="int8"))) == []  # the signature is what is wrong


def test_the_error_of_an_illegal_spec_names_them() -> None:
    with pytest.raises(IllegalSpecError) as caught:
        demand_legal(GEMM, spec(replace(SOUND, scheduler="interwave")))
    assert caught.value.rule == "amd-scheduler"
    assert "the nearest legal kernels: scheduler interwave -> intrawave; or pipeline compv4 -> mem" in str(caught.value)


def test_legality_has_an_answer_to_any_schedule() -> None:
    """The walk meets what nobody would write; seed 3, 500 schedules an arch."""
    draw = random.Random(3)
    sizes = (0, 1, 2, 3, 4, 7, 8, 16, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1024)
    for arch in ("gfx942", "gfx90a", "gfx950", "sm_90a", "sm_80", "x86_64_v4"):
        kinds = SPACES.schedules(all_archs()[arch].family)
        for _ in range(500):
            kind, values = draw.choice(kinds), {}
            hints = get_type_hints(kind)
            for field in (one.name for one in fields(kind) if one.init):
                hint = hints[field]
                if field in kind.choices:
                    values[field] = draw.choice(kind.choices[field])
                elif get_origin(hint) is tuple:
                    values[field] = tuple(
                        draw.random() < 0.5 if one is bool else draw.choice(sizes) for one in get_args(hint)
                    )
                else:
                    values[field] = draw.random() < 0.5 if hint is bool else draw.choice(sizes)
            GEMM.check(spec(kind(**values), arch))


def test_two_waves_that_are_one_are_refused_and_no_division_by_zero() -> None:
    one_wave = CkTileSchedule("compv5", (64, 64, 32), (32, 32, 16), (1, 1, 1))
    assert [each.rule for each in GEMM.check(spec(one_wave))] == ["amd-warp-grid-k"]
