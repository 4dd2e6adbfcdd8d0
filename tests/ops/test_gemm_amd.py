"""AMD legality: every rule has an example that breaks it, a sentence and a remedy."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.backends.hip.gemm import names as amd_signature
from tests.ops.rules_said import rules_said
from tilewright.arch import all_archs
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_rules, ck_tile_shape, gemm
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.gemm.tiled import TiledSchedule
from tilewright.backends.native import our_include_dir
from tilewright.ops import KernelSpec, op
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts
from tilewright.ops.gemm import GemmProblem, GemmSignature, dtype_rules
from tilewright.ops.gemm.problem import accumulator

GEMM = op("gemm")
FP16 = GemmSignature("standard", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr")
FP8 = GemmSignature("standard", "fp8_e4m3fnuz", "fp8_e4m3fnuz", "fp32", "fp32", "fp32", "rcr")
INT8 = GemmSignature("standard", "int8", "int8", "int32", "int32", "int32", "rcr")
PACKED = dataclasses.replace(FP16, variant="preshuffle")
FUSED = dataclasses.replace(FP16, variant="multi_d", epilogue="Relu", num_d=1)
WIDE, NARROW = (32, 32, 16), (16, 16, 32)
EDGES_MN = (True, True, False)


def make(pipeline: str = "compv3", signature: GemmSignature = FP16, arch: str = "gfx942", **changes: Any) -> KernelSpec:
    """A legal kernel of the pipeline with some of its schedule changed."""
    base: dict[str, dict[str, Any]] = {
        "compv3": {"tile": (128, 128, 64)},
        "compv4": {"tile": (128, 128, 32)},
        "mem": {"tile": (64, 64, 64), "warp_tile": NARROW, "scheduler": "interwave"},
        "compv5": {"tile": (64, 64, 32), "warp_grid": (1, 1, 2)},
        "preshuffle": {
            "tile": (128, 128, 64), "warp_tile": NARROW, "warp_grid": (1, 4, 1), "scheduler": "default",
            "pad": EDGES_MN,
        },
    }  # fmt: skip
    fields = {
        "warp_tile": WIDE,
        "warp_grid": (2, 2, 1),
        "scheduler": "intrawave",
        "store": "cshuffle",
        **base[pipeline],
    }
    return KernelSpec("gemm", signature, CkTileSchedule(pipeline, **{**fields, **changes}), arch)


def signed(signature: GemmSignature, **changes: Any) -> GemmSignature:
    return dataclasses.replace(signature, **changes)


LEGAL = [
    make(), make("compv4"), make("mem"), make("compv5"), make("preshuffle", PACKED), make(signature=FUSED),
    make(signature=INT8), make(split_k=4), make(persistent=True), make(store="direct"), make(arch="gfx90a"),
    make("compv4", arch="gfx950"), make(signature=FUSED, store_width=1), make(signature=FUSED, store="direct"),
    make(split_k=2, signature=FUSED), make(split_k=2, store="direct"), make(split_k=2, store_width=1),
    make(tile=(192, 128, 64)), make(tile=(128, 192, 64)), make(tile=(96, 128, 64), warp_tile=NARROW),
    make(signature=signed(INT8, variant="multi_d", epilogue="Gelu")), 
    make(signature=signed(INT8, dtype_c="int8", dtype_d="int8")),
    make(signature=signed(INT8, dtype_c="fp32", dtype_d="fp32")), make(signature=signed(FUSED, dtype_d="fp32")),
]  # fmt: skip


def loops(signature: GemmSignature, arch: str = "gfx942") -> KernelSpec:
    return KernelSpec("gemm", signature, GpuLoopsSchedule(), arch)


def tiled(signature: GemmSignature = FP16, arch: str = "gfx942", **changes: Any) -> KernelSpec:
    """A legal kernel of our own with some of its schedule changed."""
    fields: dict[str, Any] = {"tile": (128, 128, 64), "warp_grid": (2, 2, 1), "stages": 1, **changes}
    return KernelSpec("gemm", signature, TiledSchedule(**fields), arch)


FP32 = signed(FP16, dtype_a="fp32", dtype_b="fp32", dtype_c="fp32", dtype_d="fp32")
MIXED = signed(FP16, dtype_a="fp8_e4m3fnuz", dtype_b="fp8_e5m2fnuz")

BROKEN: dict[str, list[KernelSpec]] = {
    "amd-wmma": [make(arch="gfx1100"), make(arch="gfx1201", signature=INT8)],
    "amd-fp8-encoding": [
        make(signature=signed(FP16, dtype_a="fp8_e4m3", dtype_b="fp8_e4m3")),
        make(signature=signed(FP16, dtype_a="fp8_e5m2fnuz", dtype_b="fp8_e5m2fnuz"), arch="gfx950"),
    ],
    "amd-no-matrix-kernel": [make(arch="gfx908")],
    "dtype-mix": [
        loops(signed(FP16, dtype_a="tf32", dtype_b="tf32")),
        loops(signed(FP16, dtype_a="int8", dtype_acc="int32")),
        loops(signed(FP16, dtype_b="uint8")),
    ],
    "amd-dtype-mix": [
        make(signature=signed(FP16, dtype_a="fp32", dtype_c="fp32", dtype_d="fp32")),
        make(signature=signed(FP16, dtype_b="bf16")),
        make(signature=INT8, arch="gfx90a"),  # its int8 code multiplies nothing, or floats
        make(signature=FP8, arch="gfx90a"),  # its fp8 code converts each element: scratch, and up to 1.2 MB of code
    ],
    "dtype-output": [loops(signed(INT8, dtype_c="fp16")), make(signature=signed(FP16, dtype_c="int32"))],
    "dtype-d": [loops(signed(FUSED, dtype_d="bf16"))],
    "dual-target": [loops(signed(FP16, variant="multi_d", epilogue="SiluAndMul"))],
    "amd-packed": [loops(PACKED)],
    "amd-matrix": [
        tiled(FP32, arch="gfx1100"),
        tiled(signed(FP16, dtype_b="bf16"), arch="gfx1201"),
    ],
    "amd-warps": [tiled(warp_grid=(3, 2, 1)), tiled(warp_grid=(8, 4, 1)), tiled(warp_grid=(2, 2, 2))],
    "amd-stages": [tiled(stages=3)],
    "amd-scheduler": [
        make(scheduler="interwave"),
        make("compv4", scheduler="interwave"),
        make("compv5", scheduler="interwave"),
        make("mem", scheduler="default"),
        make("preshuffle", PACKED, scheduler="intrawave"),
    ],
    "amd-persistent": [make("compv5", persistent=True)],
    "amd-store-width": [make(store_width=8), make(store_width=3), make(store_width=1, store="direct")],
    "amd-preshuffle": [
        make(signature=PACKED),
        make("preshuffle"),
        make("preshuffle", signed(PACKED, layout="rrr")),
        make("preshuffle", PACKED, store="direct"),
        make("preshuffle", PACKED, pad=(True, True, True)),
        make("preshuffle", PACKED, warp_tile=(64, 4, 16), warp_grid=(1, 4, 1)),
        make("preshuffle", PACKED, tile=(64, 128, 1024), warp_grid=(1, 4, 1)),
        make("preshuffle", PACKED, tile=(96, 128, 32)),
        make("preshuffle", PACKED, tile=(64, 64, 64), warp_tile=(16, 16, 16), warp_grid=(4, 1, 1)),
    ],
    "amd-warp-grid": [make(warp_grid=(4, 4, 1)), make(arch="gfx90a", warp_grid=(2, 1, 1))],
    "amd-warp-grid-k": [
        make("compv5", warp_grid=(2, 2, 1)),
        make(warp_grid=(2, 1, 2)),
        make("compv5", warp_grid=(2, 1, 2)),
    ],
    "amd-warp-tile": [make(warp_tile=(16, 16, 64)), make(signature=INT8, warp_tile=(32, 32, 8))],
    "amd-tile-size": [
        make(tile=(8, 128, 64)),
        make("preshuffle", PACKED, tile=(32, 128, 64)),
        tiled(tile=(192, 128, 64)),
        tiled(INT8, arch="gfx950", tile=(128, 128, 32)),
    ],
    "amd-tile-k-power": [make(tile=(128, 128, 192))],
    "amd-threads": [make(warp_grid=(8, 4, 1), tile=(256, 128, 64))],
    "amd-lds": [
        tiled(tile=(256, 256, 64)),
        make("compv4", tile=(256, 256, 64)),
        make(tile=(256, 256, 128)),
        make("compv5", tile=(256, 128, 32)),  # A and B would fit; the sums that pass through LDS do not
    ],
    "amd-registers": [
        tiled(arch="gfx1100", tile=(128, 256, 32), warp_grid=(2, 2, 1)),
        make("compv4", tile=(256, 256, 32)),
        make(tile=(256, 256, 32), warp_grid=(1, 2, 1)),
        make("compv5", tile=(128, 128, 32)),
        make(tile=(256, 256, 64), warp_grid=(4, 4, 1), arch="gfx950"),  # 16 waves have 128 registers each
        # Turning what lies across k takes registers too: each of these used scratch when built.
        make(signature=signed(FP8, layout="rrr"), tile=(64, 64, 128), warp_grid=(1, 1, 1)),
        make(signature=signed(INT8, layout="crr"), tile=(16, 32, 512), warp_grid=(1, 1, 1), warp_tile=NARROW),
        make(signature=signed(FP16, layout="crr"), tile=(16, 64, 256), warp_grid=(1, 1, 1), warp_tile=NARROW),
        # Four rows of A are there sixteen times, and two waves of compv5 keep int8 apart: both spilled when built.
        make("compv4", tile=(64, 64, 128), warp_grid=(4, 1, 1), warp_tile=(4, 64, 16), arch="gfx90a"),
        make("compv5", INT8, tile=(64, 64, 128), warp_grid=(1, 1, 2), warp_tile=(16, 16, 32)),
        make("compv4", tile=(256, 256, 16), warp_grid=(1, 4, 1), arch="gfx950"),  # 256 sums, and two buffers
        make(tile=(256, 256, 32), persistent=True),  # 12 bytes of scratch
        make(  # 8 bytes of scratch
            "preshuffle", PACKED, tile=(192, 256, 64), warp_tile=(16, 16, 16), warp_grid=(2, 2, 1), persistent=True
        ),
    ],
    "amd-compv5-fragments": [
        make("compv5", arch="gfx950"),
        make("compv5", tile=(32, 64, 32), arch="gfx950"),
        make("compv5", tile=(32, 32, 32), arch="gfx950"),
        make("compv5", FP8, tile=(32, 32, 32)),
        make("compv5", FP8, tile=(128, 32, 32)),
        make("compv5", tile=(256, 16, 32), warp_tile=(16, 16, 16), arch="gfx90a"),
        make("compv5", FP8, tile=(16, 16, 64), warp_tile=NARROW),
    ],
    "amd-tile-vector": [
        tiled(signed(FP16, layout="crr"), tile=(16, 64, 16), warp_grid=(1, 4, 1)),
        make(signature=signed(FP16, layout="crr"), tile=(192, 128, 64), warp_tile=NARROW),
        make(signature=signed(FP16, layout="rrr"), tile=(128, 192, 64), warp_tile=NARROW),
    ],
    "amd-split-k": [make(split_k=65), tiled(split_k=65), make("preshuffle", PACKED, split_k=2)],
    "amd-compv5-layout": [make("compv5", signed(FP16, layout="rrr"))],
    "amd-mixed-pipeline": [make(signature=MIXED), make("mem", MIXED, warp_tile=WIDE)],
    "amd-transposed-load": [
        make(
            signature=signed(FP16, layout="rrr"),
            warp_tile=(64, 4, 16),
            tile=(256, 16, 64),
            warp_grid=(4, 1, 1),
            arch="gfx950",
        ),
        make(
            signature=signed(FP16, layout="crr", dtype_a="fp8_e4m3", dtype_b="fp8_e4m3"),
            warp_tile=(16, 16, 64),
            arch="gfx950",
        ),
        make("compv5", signed(FP16, layout="crr"), arch="gfx950", warp_tile=(32, 32, 8)),
    ],
}

Unserved = tuple[KernelSpec, GemmProblem]


def fp16(m: int, n: int, k: int, **more: Any) -> GemmProblem:
    return GemmProblem(m, n, k, dtype_a=more.pop("dtype_a", "fp16"), layout=more.pop("layout", "rcr"), **more)


UNSERVED: dict[str, list[Unserved]] = {
    "amd-alignment": [
        (make(), fp16(128, 128, 257)),
        (make(signature=signed(FP16, layout="rrr")), fp16(128, 129, 256, layout="rrr")),
        (make(), fp16(128, 128, 128, a_stride=129)),
        (make(), fp16(128, 128, 128, aligned=False)),
        (make(signature=signed(FP16, layout="crr")), fp16(100, 128, 128, layout="crr")),
    ],
    "amd-operand-size": [
        (make(), fp16(1 << 20, 128, 1 << 10)),
        (make(), fp16(128, 1 << 20, 1 << 10)),
        # Eight rows of 32 MB each; the k loop asks for 64.
        (make(signature=signed(FP16, layout="crr")), fp16(1 << 24, 128, 8, layout="crr")),
    ],
    "amd-tiles": [(make(), fp16(1 << 22, 1 << 23, 64)), (tiled(), fp16(1 << 22, 1 << 23, 64))],
    "amd-size": [(tiled(), fp16(1 << 31, 1, 1)), (tiled(), fp16(1, 1, 1 << 31))],
    "amd-stride": [(tiled(), fp16(128, 128, 128, a_stride=1 << 24))],
    "amd-k-loops": [
        (tiled(split_k=2), fp16(128, 128, 0, a_stride=8, b_stride=8)),
        (make("compv4"), fp16(128, 128, 32)), (make(), fp16(128, 128, 0, a_stride=8, b_stride=8))],
    "amd-preshuffle-columns": [(make("preshuffle", PACKED), fp16(128, 136, 128, preshuffled=True))],
    "no-edge-code": [
        (make(pad=(False, True, True)), fp16(100, 128, 128)),
        (make("preshuffle", PACKED), fp16(128, 128, 64, preshuffled=True)),  # its k tiles come in pairs
    ],
}  # fmt: skip


def rules_in_the_source() -> set[str]:
    files = (str(module.__file__) for module in (ck_tile_rules, dtype_rules))
    edges = {rule for rule in rules_said(our_include_dir() / "tilewright/select/gemm.h") if rule == "no-edge-code"}
    return edges | rules_said(*files, Path(gemm.__file__).parent)


def test_every_rule_has_an_example_here() -> None:
    examples = {*BROKEN, *UNSERVED}
    assert rules_in_the_source() == examples, "a rule came or went: add or remove its failing example"


@pytest.mark.parametrize("spec", LEGAL, ids=lambda spec: spec.name)
def test_the_specs_the_examples_start_from_are_legal(spec: KernelSpec) -> None:
    assert GEMM.check(spec) == []


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(rule, one, id=f"{rule}-{i}") for rule, many in table.items() for i, one in enumerate(many)]


@pytest.mark.parametrize(("rule", "spec"), cases(BROKEN))
def test_a_broken_spec_is_told_rule_sentence_and_remedy(rule: str, spec: KernelSpec) -> None:
    violations = {one.rule: one for one in GEMM.check(spec)}
    assert rule in violations, violations
    assert violations[rule].message
    assert violations[rule].remedy


@pytest.mark.parametrize(("rule", "case"), cases(UNSERVED))
def test_a_kernel_says_why_it_cannot_serve(rule: str, case: Unserved) -> None:
    spec, problem = case
    assert GEMM.check(spec) == []
    violations = {one.rule: one for one in GEMM.supports(spec, problem)}
    assert rule in violations, violations
    assert violations[rule].remedy


@pytest.mark.parametrize(("arch", "rule"), [
    ("gfx1100", "amd-wmma"), ("gfx1200", "amd-wmma"), ("gfx1201", "amd-wmma"), ("gfx1250", "amd-wmma"),
    ("gfx908", "amd-no-matrix-kernel"),
])  # fmt: skip
def test_where_ck_tile_has_nothing_there_is_one_reason_and_others_serve(arch: str, rule: str) -> None:
    assert [one.rule for one in GEMM.check(make(arch=arch))] == [rule]
    assert GEMM.problem_violations(fp16(128, 128, 128), arch) == []
    packed = dataclasses.replace(fp16(127, 130, 133), preshuffled=True)
    assert GEMM.problem_violations(packed, arch) == []
    floor = GEMM.fallback_spec(packed.signature, arch)
    assert floor.schedule.pipeline == "tiled"
    assert GEMM.supports(floor, packed) == []
    assert {one.schedule.pipeline for one in GEMM.candidates(FP16, arch)} == {"tiled"}
    assert GEMM.fallback_spec(FP16, arch) == loops(FP16, arch)


@pytest.mark.parametrize("arch", [name for name, one in all_archs().items() if one.backend == "hip"])
def test_the_floor_takes_every_product_that_is_one(arch: str) -> None:
    """Any mix of inputs, every output and D, all layouts and epilogues, on every AMD GPU."""
    floats = amd_signature.FLOATS
    mixes = [(a, b, c) for a, b in product(floats, floats) for c in amd_signature.FLOAT_OUTPUTS]
    mixes += [("int8", "int8", c) for c in amd_signature.INT_OUTPUTS]
    rng = random.Random(8)
    for (a, b, c), layout in product(mixes, ("rcr", "rrr", "crr", "ccr")):
        epilogue = rng.choice(list(EPILOGUES))
        count = rng.choice(epilogue_d_counts(epilogue))
        plain = epilogue == "PassThrough" and not count
        signature = GemmSignature(
            "standard" if plain else "multi_d", a, b, accumulator(a), c, c, layout, epilogue, count
        )
        floor = GEMM.fallback_spec(signature, arch)
        assert floor.schedule == GpuLoopsSchedule()
        assert GEMM.check(floor) == []
        odd = GemmProblem(
            rng.randint(1, 99), rng.randint(1, 99), rng.choice((0, 7, 33)), a, b, c, c, layout, batch=rng.randint(1, 3),
            epilogue=epilogue, num_d=count, beta=rng.random() < 0.5, a_stride=131, b_stride=133, c_stride=137,
            aligned=False,
        )  # fmt: skip
        assert GEMM.supports(floor, odd) == []
        assert GEMM.candidates(signature, arch), "a pool of no kernel"


def test_spans_over_any_limit_and_beta_are_the_floors() -> None:
    for problem in (fp16(1 << 18, 64, 1 << 15), dataclasses.replace(fp16(64, 64, 64), beta=True)):
        assert GEMM.supports(loops(FP16), problem) == []


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_fp32_has_matrix_kernels_in_every_pool(arch: str) -> None:
    for pool in ("default", "tests", "full"):
        specs = [one for one in GEMM.proposals(pool, arch, datatypes=["fp32"], layouts=["rcr"]) if not GEMM.check(one)]
        matrix = [one for one in specs if isinstance(one.schedule, CkTileSchedule)]
        assert len(matrix) > (5 if pool in ("default", "tests") else 100), pool
        sides = {one.schedule.warp_tile for one in matrix}
        assert sides <= {(32, 32, 4), (32, 32, 8), (16, 16, 8), (16, 16, 16)}


def test_fp32_across_k_on_gfx950_is_our_own_kernels() -> None:
    """It would read LDS transposed, and has no such read of four bytes."""
    across = signed(FP32, layout="rrr")
    assert "amd-transposed-load" in {
        one.rule for one in GEMM.check(make(signature=across, arch="gfx950", warp_tile=(32, 32, 8)))
    }
    assert {one.schedule.pipeline for one in GEMM.candidates(across, "gfx950")} == {"tiled"}


@pytest.mark.parametrize("spec", LEGAL, ids=lambda spec: spec.name)
def test_a_legal_kernel_serves_a_problem_of_whole_tiles(spec: KernelSpec) -> None:
    s, (m, n, k) = spec.signature, spec.schedule.tile
    problem = GemmProblem(
        m * 2, n * 2, k * 2 * spec.schedule.split_k, dtype_a=s.dtype_a, dtype_c=s.dtype_c, dtype_d=s.dtype_d,
        layout=s.layout, epilogue=s.epilogue, num_d=s.num_d, preshuffled=s.variant == "preshuffle",
    )  # fmt: skip
    assert GEMM.supports(spec, problem) == []


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(
    "signature", [FP16, FUSED, signed(FP16, dtype_a="bf16", dtype_b="bf16", dtype_c="fp32", dtype_d="fp32")]
)
def test_the_floor_serves_sizes_that_nothing_divides(signature: GemmSignature, arch: str, layout: str) -> None:
    wanted = signed(signature, layout=layout)
    floor = GEMM.fallback_spec(wanted, arch)
    assert GEMM.check(floor) == []
    problem = fp16(
        37,
        41,
        53,
        dtype_a=wanted.dtype_a,
        dtype_c=wanted.dtype_c,
        layout=layout,
        epilogue=wanted.epilogue,
        num_d=wanted.num_d,
    )
    assert GEMM.supports(floor, problem) == []


# Numbers of builds that were looked at with the compiler's tools: LDS bytes of fp16 rcr 128x128x64 and neighbours.
@pytest.mark.parametrize(
    ("spec", "lds"),
    [
        (make(), 32768),
        (make("compv4", tile=(128, 128, 64)), 65536),
        (make("mem", tile=(128, 128, 64), warp_tile=WIDE), 32768),
        (make(signature=INT8), 16384),
        (make("preshuffle", PACKED), 16384),
    ],
)
def test_lds_is_what_built_kernels_use(spec: KernelSpec, lds: int) -> None:
    assert ck_tile_shape.lds_bytes(spec.signature, spec.schedule) == lds


@pytest.mark.parametrize(
    ("spec", "spills"),
    [
        (make(tile=(256, 256, 32)), False),
        (make("compv5", tile=(64, 64, 64)), False),
        (make("preshuffle", PACKED, tile=(128, 256, 64)), False),
        (make(tile=(256, 256, 64)), True),
        (make(signature=INT8, tile=(256, 256, 32)), True),
        (make("compv5", signature=INT8, tile=(64, 64, 64)), False),
        (make("compv5", signature=FP8, tile=(64, 64, 64), warp_tile=(32, 32, 32)), True),
        (make(signature=dataclasses.replace(FP16, dtype_c="bf16"), tile=(256, 256, 32)), True),
        (make("compv4", tile=(256, 256, 32)), True),
        (make("compv4", signature=INT8, tile=(256, 256, 64)), True),
        (make("mem", tile=(128, 256, 32), warp_grid=(4, 4, 1), arch="gfx950"), False),
        (make("mem", tile=(256, 64, 128), warp_tile=(16, 16, 16), warp_grid=(4, 4, 1), arch="gfx950"), True),
        (
            make(
                "compv4",
                signed(FP16, layout="ccr"),
                tile=(256, 128, 32),
                warp_tile=NARROW,
                warp_grid=(4, 4, 1),
                arch="gfx950",
            ),
            True,
        ),
    ],
)
def test_what_spilled_when_built_is_refused(spec: KernelSpec, spills: bool) -> None:
    assert ("amd-registers" in {one.rule for one in GEMM.check(spec)}) == spills


def swept() -> Iterator[KernelSpec]:
    """CK Tile's: of every proposal of the widest pool one in a hundred, and those of `default`."""
    axes: dict[str, Any] = {"datatypes": ("fp16", "int8"), "layouts": ("rcr",)}
    for pool, step in (("default", 1), ("profiler", 101)):
        for spec in list(GEMM.proposals(pool, "gfx942", **axes))[::step]:
            if isinstance(spec.schedule, CkTileSchedule) and not GEMM.check(spec):
                yield spec


def test_sums_leave_in_whole_turns_that_cost_no_occupancy() -> None:
    seen = set()
    for spec in swept():
        s, h = spec.signature, spec.schedule
        one, (along_m, along_n, _) = ck_tile_shape.turn(s, h), ck_tile_shape.repeat(h)
        assert along_m % one.m == along_n % one.n == 0, spec.name
        assert one.parts == 1 or (h.warp_tile[:2] == (32, 32) and one[:2] == (1, 1)), spec.name
        seen.add((one.m > 1, one.n > 1, one.parts))
        if h.store != "cshuffle":
            assert one.n * h.warp_tile[0] * h.warp_tile[1] // 64 <= 16 or one.n == 1
            continue
        staged = ck_tile_shape.lds_bytes(s, dataclasses.replace(h, store="direct"))
        of_all_waves = ck_tile_shape.WAVE_LDS_BYTES * h.warp_grid[0] * h.warp_grid[1]
        assert ck_tile_shape.lds_bytes(s, h) <= staged + of_all_waves, spec.name
    assert {(False, False, 2), (False, True, 1), (True, True, 1), (True, False, 1)} <= seen


def test_compv5_needs_room_for_its_sums() -> None:
    schedule = dataclasses.replace(make("compv5").schedule, tile=(128, 128, 64))
    assert ck_tile_shape.lds_bytes(FP16, schedule) == 128 * 128 * 4


def test_a_mem_kernel_has_as_many_stages_as_keep_32_kilobytes_under_way() -> None:
    assert ck_tile_shape.prefetch_stages(FP16, make("mem").schedule) == 2
    small = make("mem", tile=(16, 32, 32), warp_tile=(16, 16, 16), warp_grid=(1, 1, 1)).schedule
    assert ck_tile_shape.prefetch_stages(FP16, small) == 3


def test_the_arch_table_knows_the_gpus() -> None:
    found = {name: one for name, one in all_archs().items() if one.backend == "hip"}
    served = {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1200"}
    assert set(found) == {*served, "gfx908", "gfx1250"}
    for name, one in found.items():
        assert one.compile_flags == (f"--offload-arch={name}",)
        assert one.warp_size == (64 if one.family == "cdna" else 32)
        assert one.compute_units > 0 or name == "gfx1250"  # not told yet
        assert one.max_threads == 1024
        assert bool(one.warp_grids) == (name in served)
        assert bool(one.warp_tiles) == (name in {*served, "gfx1250"})
        assert one.vector_registers
        assert one.scalar_registers
