"""The dispatcher's sweep of attention tiles: as many as it has, and the rule that takes each away."""

from __future__ import annotations

import pytest

from tilewright.backends.hip.attention.ck_tile import tiles as amd_tiles
from tilewright.backends.hip.attention.ck_tile.tiles import RULES, Choice, Wanted

# Head sizes to tiles of fp16: qr and qr_async on gfx942, then qr_async, trload and v3 on gfx950, then splitkv.
COUNTS = {
    (32, 32): (88, 69, 40, 0, 22, 96),
    (64, 64): (144, 119, 80, 201, 37, 142),
    (80, 96): (28, 22, 11, 0, 7, 142),
    (96, 128): (126, 109, 69, 0, 35, 177),
    (128, 128): (23, 7, 7, 224, 48, 203),
    (160, 160): (88, 69, 40, 0, 22, 203),
    (192, 128): (182, 159, 109, 0, 50, 203),
    (192, 192): (182, 159, 109, 0, 50, 203),
    (256, 256): (91, 207, 135, 0, 55, 214),
}
COLUMNS = (
    ("gfx942", "qr"),
    ("gfx942", "qr_async"),
    ("gfx950", "qr_async"),
    ("gfx950", "qr_async_trload"),
    ("gfx950", "qr_async_trload_v3"),
)


@pytest.mark.parametrize("heads", COUNTS, ids=lambda one: f"{one[0]}x{one[1]}")
def test_as_many_tiles_as_the_dispatcher_has(heads: tuple[int, int]) -> None:
    found = [sum(1 for _ in amd_tiles.tiles(Wanted("fp16", *heads, pipeline, arch))) for arch, pipeline in COLUMNS]
    found.append(sum(1 for _ in amd_tiles.paged_tiles(Wanted("fp16", *heads, "qr", "gfx942"))))
    assert tuple(found) == COUNTS[heads]


# A tile that a rule alone takes away.
BROKEN = {
    "T1": (Choice(256, 384, 128, (32, 32, 16)), Wanted("fp16", 256, 256, "qr", "gfx942")),
    "T2": (Choice(256, 384, 128, (32, 32, 16)), Wanted("fp16", 256, 256, "qr_async", "gfx942")),
    "T3": (Choice(128, 64, 128, (32, 32, 16)), Wanted("fp16", 64, 64, "qr", "gfx942")),
    "T4": (Choice(128, 64, 32, (32, 32, 16)), Wanted("fp16", 80, 96, "qr", "gfx942")),
    "T5": (Choice(128, 16, 32, (32, 32, 16)), Wanted("fp16", 64, 64, "qr", "gfx942")),
    "T6": (Choice(128, 64, 16, (32, 32, 16)), Wanted("fp16", 256, 256, "qr", "gfx942")),
    "T7": (Choice(256, 32, 16, (32, 32, 16)), Wanted("fp16", 64, 64, "qr_async", "gfx942")),
    "T8 to T11": (Choice(128, 64, 32, (32, 32, 16)), Wanted("fp16", 128, 128, "qr", "gfx942")),
    "T12 and T13": (Choice(128, 64, 32, (32, 32, 16)), Wanted("fp16", 96, 128, "qr_async_trload", "gfx950")),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_takes_a_tile_away(name: str) -> None:
    one, want = BROKEN[name]
    assert name in [each for each, rule in RULES.items() if not rule(one, want)]


@pytest.mark.parametrize(
    ("m0", "n0", "k0", "heads", "pipeline"),
    [
        (128, 128, 32, 128, "qr_async"),  # T9 lets it be
        (64, 128, 32, 128, "qr"),
    ],
)
def test_tiles_that_are_kept(m0: int, n0: int, k0: int, heads: int, pipeline: str) -> None:
    want = Wanted("fp16", heads, heads, pipeline, "gfx942")
    assert Choice(m0, n0, k0, (32, 32, 16)) in set(amd_tiles.tiles(want))


@pytest.mark.parametrize(
    ("choice", "want"),
    [
        (Choice(64, 128, 32, (32, 32, 16)), Wanted("fp16", 128, 128, "qr_async", "gfx942")),  # T9: 128 rows
        (Choice(128, 128, 64, (32, 32, 16)), Wanted("fp16", 128, 128, "qr", "gfx942")),  # T10: no step of 64
        (Choice(32, 64, 32, (32, 32, 16)), Wanted("fp16", 64, 64, "qr", "gfx942")),  # T11: 64 rows and more
        (Choice(128, 64, 32, (32, 32, 16)), Wanted("fp16", 128, 128, "qr_async_trload_v3", "gfx950")),  # T13
        (Choice(256, 128, 32, (32, 32, 16)), Wanted("fp16", 128, 128, "qr_async_trload", "gfx950")),  # T12
    ],
)
def test_rules_of_certain_heads(choice: Choice, want: Wanted) -> None:
    assert choice not in set(amd_tiles.tiles(want))


def test_the_second_step_is_shorter_in_three_blocks() -> None:
    want = Wanted("fp16", 128, 128, "qr", "gfx942")
    assert amd_tiles.k1_of(Choice(128, 64, 32, (32, 32, 16)), want) == 16
    assert amd_tiles.k1_of(Choice(128, 128, 32, (32, 32, 16)), want) == 32
    fp8 = Wanted("fp8bf16", 128, 128, "qr_async", "gfx942")
    assert amd_tiles.k1_of(Choice(128, 128, 64, (32, 32, 32)), fp8) == 64
    assert amd_tiles.k1_of(Choice(64, 128, 64, (16, 16, 16)), want, "batch_prefill") == 64
